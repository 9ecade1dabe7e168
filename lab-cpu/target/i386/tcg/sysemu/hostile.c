/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A CPU that keeps whatever its manual lets it keep: see hostile.h
 *
 * There are two caches.  One has translations ("leaves"), each with the
 * permissions and the dirty bit of when it was made, as a TLB does.  The other
 * has upper entries, as a page-walk cache does: raw, so that each level of a
 * walk may come from memory or from the cache; and combined with all that was
 * above them, so that a walk may begin there.
 *
 * A guest under nested paging is translated in two stages.  The walk of the
 * guest's tables is the first; each of these tables, and what the walk comes
 * to, is at a guest-physical address, which the second stage translates.  Both
 * stages are kept.  What is kept of the first has the physical addresses, too,
 * to which the second stage led when it was read.
 *
 * docs/lab.md has the sentences of the manuals that allow each behaviour.
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qapi/error.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/helper-proto.h"
#include "hw/qdev-properties.h"
#include "sysemu/cpu-timers.h"
#include "sysemu/sysemu.h"
#include "hostile.h"

#define TYPE_HOSTILE_CPU X86_CPU_TYPE_NAME("hostile")

#define TOP_LEVEL 5
#define TOP_LEAF_LEVEL 3
#define UPPER_SLOTS 1024
#define LEAF_SLOTS 8192
#define ASID_EPOCHS 256
/* What TLB_CONTROL may be besides what svm.h has. */
#define FLUSH_ASID 3
#define FLUSH_ASID_NON_GLOBAL 7

/* One in so many that could be had from a cache is read all the same. */
#define READ_ALL_THE_SAME 8
/* One in so many entries that are read brings in a neighbour. */
#define PREFETCH 4
/* Of one in so many translations, only the first stage is used. */
#define HALF 4
#define NEIGHBOURS 8
/* Before a late interrupt, up to two to the power of that blocks of code run. */
#define LATE_BITS 10

/* What an entry allows, all of it as bits that more of is more. */
#define ALLOWED(entry) \
    (((entry) ^ PG_NX_MASK) & (PG_NX_MASK | PG_USER_MASK | PG_RW_MASK))
#define ALL_ALLOWED ALLOWED(PG_USER_MASK | PG_RW_MASK)

/* No table is there. */
#define UNKNOWN UINT64_MAX

/* What the CPU looks at; the rest of an entry is the hypervisor's own. */
#define LOOKED_AT \
    (PG_PRESENT_MASK | PG_RW_MASK | PG_USER_MASK | PG_DIRTY_MASK | \
     PG_PSE_MASK | PG_ADDRESS_MASK | PG_NX_MASK)
#define UPPER_BITS (LOOKED_AT & ~PG_DIRTY_MASK)
#define SAME_PAGE (PG_PRESENT_MASK | PG_PSE_MASK | PG_ADDRESS_MASK)

#define COUNTERS(COUNTER)                                                     \
    COUNTER(UPPER_RAW, "upper-raw")                                           \
    COUNTER(UPPER_RAW_STALE, "upper-raw-stale")                               \
    COUNTER(UPPER_COMBINED, "upper-combined")                                 \
    COUNTER(UPPER_COMBINED_STALE, "upper-combined-stale")                     \
    COUNTER(LEAF, "leaf")                                                     \
    COUNTER(LEAF_STALE, "leaf-stale")                                         \
    COUNTER(LEAF_WRITE, "leaf-write")                                         \
    COUNTER(LEAF_WRITE_STALE, "leaf-write-stale")                             \
    COUNTER(DIRTY_BY_CACHE, "dirty-by-cache")                                 \
    COUNTER(DIRTY_BY_CACHE_STALE, "dirty-by-cache-stale")                     \
    COUNTER(GUEST_UPPER_RAW, "guest-upper-raw")                               \
    COUNTER(GUEST_UPPER_RAW_STALE, "guest-upper-raw-stale")                   \
    COUNTER(GUEST_UPPER_COMBINED, "guest-upper-combined")                     \
    COUNTER(GUEST_UPPER_COMBINED_STALE, "guest-upper-combined-stale")         \
    COUNTER(GUEST_LEAF, "guest-leaf")                                         \
    COUNTER(GUEST_LEAF_STALE, "guest-leaf-stale")                             \
    COUNTER(GUEST_LEAF_WRITE, "guest-leaf-write")                             \
    COUNTER(GUEST_LEAF_WRITE_STALE, "guest-leaf-write-stale")                 \
    COUNTER(GUEST_DIRTY_BY_CACHE, "guest-dirty-by-cache")                     \
    COUNTER(GUEST_DIRTY_BY_CACHE_STALE, "guest-dirty-by-cache-stale")         \
    COUNTER(GUEST_LEAF_HALF, "guest-leaf-half")                               \
    COUNTER(DIRTY_BY_LEAF, "dirty-by-leaf")                                   \
    COUNTER(DIRTY_READ_ONLY, "dirty-read-only")                               \
    COUNTER(OUTLIVED, "outlived-exit")                                        \
    COUNTER(PREFETCHED, "prefetched")                                         \
    COUNTER(PREFETCHED_UPPER, "prefetched-upper")                             \
    COUNTER(FAULT_AGAIN, "fault-walked-again")                                \
    COUNTER(FAULT_SPURIOUS, "fault-spurious")                                 \
    COUNTER(FLUSHED_ALL, "flushed-all")                                       \
    COUNTER(FLUSHED_ASID, "flushed-asid")                                     \
    COUNTER(FLUSHED_PAGE, "flushed-page")                                     \
    COUNTER(GUEST_FLUSHED_PAGE, "guest-flushed-page")                         \
    COUNTER(GUEST_FLUSHED_CR, "guest-flushed-cr")                             \
    COUNTER(LATE, "interrupt-late")

#define COUNTER_INDEX(index, name) index,
#define COUNTER_NAME(index, name) [index] = name,

enum { COUNTERS(COUNTER_INDEX) NR_COUNTERS };

static const char *const counter_names[] = { COUNTERS(COUNTER_NAME) };

/* Which translation a slot has; it has one as long as the epoch is its ASID's. */
typedef struct Tag {
    uint64_t epoch;
    uint64_t prefix; /* of the address: what is above the level's offset */
    uint64_t run;    /* which VMRUN it was brought in by */
    hwaddr where;    /* of the entry */
    uint64_t entry;  /* as it was read */
    uint32_t asid;
    uint8_t level;
    bool nested;
} Tag;

typedef struct Upper {
    Tag tag;
    uint64_t allowed; /* by it and all above it, when it was read */
    hwaddr table;     /* that it points to, or UNKNOWN; always physical */
} Upper;

typedef struct Leaf {
    Tag tag;
    uint64_t allowed;
    bool global;
    uint8_t page_level; /* of the guest's page, of which this may be a part */
    HostileTranslation second; /* of the second stage, if it has one */
} Leaf;

typedef struct Caches {
    Upper uppers[UPPER_SLOTS];
    Leaf leaves[LEAF_SLOTS];
    uint64_t epochs[ASID_EPOCHS];
    uint64_t counters[NR_COUNTERS];
    uint64_t random;
    uint64_t run;
    uint64_t late_run; /* when an interrupt was late last */
    int late;          /* for how many blocks of code it still is */
    uint32_t asid;
} Caches;

typedef struct HostileCPU {
    X86CPU parent;
    Caches *caches;
    uint64_t seed;
    bool raw;
    bool combined;
    bool leaves;
    bool dirty_by_leaf;
    bool prefetch;
    bool first_stage;
    bool guest_walks;
    bool late_interrupts;
    bool asid_flush;
} HostileCPU;

typedef struct HostileCPUClass {
    X86CPUClass parent;
    DeviceRealize realize;
} HostileCPUClass;

typedef enum Found {
    FOUND,
    FOUND_NONE,
    FOUND_FAULT,
} Found;

/* One walk. */
typedef struct Walk {
    CPUX86State *env;
    HostileCPU *cpu;
    Caches *caches;
    const HostileAccess *to;
    uint64_t reserved;
    int levels;
    bool nested;     /* it is a second stage */
    bool two_stages; /* it is a first stage that has a second */
    bool cached; /* it may use what is cached */
    bool used;   /* it has */
    bool stale;  /* and memory has something else by now */
} Walk;

/* Hostile are all CPUs of a machine, or none. */
static bool enabled;

/* xorshift64: the same seed makes the same choices. */
static uint64_t random_below(Caches *caches, uint64_t limit)
{
    uint64_t x = caches->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    caches->random = x;
    return (x >> 16) % limit;
}

static int shift_of(int level)
{
    return TARGET_PAGE_BITS + 9 * (level - 1);
}

static uint64_t *epoch_of(Caches *caches, uint32_t asid)
{
    return &caches->epochs[asid % ASID_EPOCHS];
}

/* Guest-linear and guest-physical addresses are often the same. */
static size_t hash(const Walk *walk, int level, uint64_t prefix)
{
    uint64_t key = (prefix * 8 + level) * 2 + walk->nested;

    return ((key << 8 ^ walk->caches->asid) * 0x9e3779b97f4a7c15ULL) >> 40;
}

static bool matches(const Walk *walk, const Tag *tag, int level,
                    uint64_t prefix)
{
    return tag->epoch == *epoch_of(walk->caches, walk->caches->asid) &&
           tag->asid == walk->caches->asid && tag->level == level &&
           tag->nested == walk->nested && tag->prefix == prefix;
}

/* No epoch is 0. */
static void drop(Tag *tag)
{
    tag->epoch = 0;
}

static Upper *upper_slot(const Walk *walk, uint64_t addr, int level)
{
    size_t slot = hash(walk, level, addr >> shift_of(level));

    return &walk->caches->uppers[slot % UPPER_SLOTS];
}

static Upper *find_upper(const Walk *walk, uint64_t addr, int level)
{
    Upper *upper = upper_slot(walk, addr, level);

    return matches(walk, &upper->tag, level, addr >> shift_of(level))
           ? upper : NULL;
}

static Leaf *leaf_slot(const Walk *walk, uint64_t addr, int level)
{
    size_t slot = hash(walk, level, addr >> shift_of(level));

    return &walk->caches->leaves[slot % LEAF_SLOTS];
}

static Leaf *find_leaf(const Walk *walk, uint64_t addr)
{
    for (int level = 1; level <= TOP_LEAF_LEVEL; level++) {
        Leaf *leaf = leaf_slot(walk, addr, level);

        if (matches(walk, &leaf->tag, level, addr >> shift_of(level))) {
            return leaf;
        }
    }
    return NULL;
}

static void fill_tag(const Walk *walk, Tag *tag, uint64_t addr, int level,
                     hwaddr where, uint64_t entry)
{
    *tag = (Tag){
        .epoch = *epoch_of(walk->caches, walk->caches->asid),
        .prefix = addr >> shift_of(level),
        .run = walk->caches->run,
        .where = where,
        .entry = entry,
        .asid = walk->caches->asid,
        .level = level,
        .nested = walk->nested,
    };
}

static void keep_upper(const Walk *walk, uint64_t addr, int level, hwaddr where,
                       uint64_t entry, uint64_t allowed)
{
    Upper *upper = upper_slot(walk, addr, level);

    fill_tag(walk, &upper->tag, addr, level, where, entry);
    upper->allowed = allowed;
    upper->table = walk->two_stages ? UNKNOWN : entry & PG_ADDRESS_MASK;
}

static void keep_leaf(const Walk *walk, uint64_t addr, const Leaf *leaf)
{
    if (walk->cpu->leaves) {
        *leaf_slot(walk, addr, leaf->tag.level) = *leaf;
    }
}

/* Returns: NULL if that is not RAM. */
static uint64_t *entry_at(const Walk *walk, hwaddr where)
{
    void *host = NULL;

    probe_access_flags(walk->env, where, MMU_DATA_STORE, MMU_PHYS_IDX, true,
                       &host, 0);
    return host;
}

/* Whether memory has by now something else in @bits. */
static bool is_stale(const Walk *walk, const Tag *tag, uint64_t bits)
{
    uint64_t *entry = entry_at(walk, tag->where);

    return !entry || (le64_to_cpu(qatomic_read(entry)) ^ tag->entry) & bits;
}

static void count(const Walk *walk, int counter)
{
    walk->caches->counters[counter]++;
}

/* Counts a use of what is kept; if it is stale, at the next counter, too. */
static void count_use(const Walk *walk, int counter, bool stale)
{
    int stage = walk->two_stages ? GUEST_UPPER_RAW - UPPER_RAW : 0;

    count(walk, counter + stage);
    if (stale) {
        count(walk, counter + stage + 1);
    }
}

static void use(Walk *walk, const Tag *tag, int counter, bool stale)
{
    walk->used = true;
    walk->stale |= stale;
    count_use(walk, counter, stale);
    if (tag->run != walk->caches->run) {
        count(walk, OUTLIVED);
    }
}

/* What may be cached is, most of the time. */
static bool from_cache(const Walk *walk)
{
    return walk->cached && random_below(walk->caches, READ_ALL_THE_SAME);
}

static int protection(const Walk *walk, uint64_t allowed)
{
    const HostileAccess *to = walk->to;
    bool user = is_mmu_index_user(to->mmu_idx);
    bool of_user = allowed & PG_USER_MASK;
    int prot = 0;

    if (user && !of_user) {
        return 0;
    }
    if (!of_user || !is_mmu_index_smap(to->mmu_idx)) {
        prot |= PAGE_READ;
        if (allowed & PG_RW_MASK || !(user || to->pg_mode & PG_MODE_WP)) {
            prot |= PAGE_WRITE;
        }
    }
    if (allowed & PG_NX_MASK &&
        (user || !of_user || !(to->pg_mode & PG_MODE_SMEP))) {
        prot |= PAGE_EXEC;
    }
    return prot;
}

static bool permits(const Walk *walk, uint64_t allowed)
{
    return protection(walk, allowed) & (1 << walk->to->access);
}

/* Returns: false if memory has something else by now. */
static bool set_entry(uint64_t *memory, uint64_t before, uint64_t entry)
{
    return entry == before ||
           qatomic_cmpxchg(memory, cpu_to_le64(before), cpu_to_le64(entry)) ==
           cpu_to_le64(before);
}

static bool is_leaf(const Walk *walk, uint64_t entry, int level)
{
    uint64_t reserved = walk->reserved, needed = PG_PRESENT_MASK;

    if (level > 1) {
        needed |= PG_PSE_MASK;
        reserved |= MAKE_64BIT_MASK(0, shift_of(level)) & PG_ADDRESS_MASK &
                    ~PG_PSE_PAT_MASK;
    }
    return level <= TOP_LEAF_LEVEL && (entry & needed) == needed &&
           !(entry & reserved);
}

static bool is_upper(const Walk *walk, uint64_t entry)
{
    return (entry & PG_PRESENT_MASK) &&
           !(entry & (walk->reserved | PG_PSE_MASK));
}

/*
 * Has the second stage translate a guest-physical address.
 *
 * Returns: false if that is a nested page fault.
 */
static bool second_stage(const Walk *walk, hwaddr addr, MMUAccessType access,
                         HostileTranslation *out)
{
    CPUTLBEntryFull *full;
    void *host;

    if (probe_access_full(walk->env, addr, access, MMU_NESTED_IDX, true, &host,
                          &full, 0) & TLB_INVALID_MASK) {
        return false;
    }
    *out = (HostileTranslation){
        .paddr = full->phys_addr | (addr & ~TARGET_PAGE_MASK),
        .prot = full->prot,
        .page_size = 1 << full->lg_page_size,
    };
    return true;
}

/* What a page's entry makes of @addr, before any second stage. */
static hwaddr first_stage(uint64_t entry, uint64_t addr, int level)
{
    uint64_t offset = MAKE_64BIT_MASK(0, shift_of(level));

    return (entry & PG_ADDRESS_MASK & ~offset) | (addr & offset);
}

/*
 * Has a leaf's second stage translate @addr; the leaf then is of the smaller of
 * both stages' pages.
 */
static bool add_second_stage(const Walk *walk, uint64_t addr,
                             MMUAccessType access, Leaf *leaf)
{
    hwaddr paddr = first_stage(leaf->tag.entry, addr, leaf->page_level);
    int level = leaf->page_level;

    if (!second_stage(walk, paddr, access, &leaf->second)) {
        return false;
    }
    while (leaf->second.page_size < 1 << shift_of(level)) {
        level--;
    }
    leaf->tag.level = level;
    leaf->tag.prefix = addr >> shift_of(level);
    return true;
}

/*
 * The translation of @addr by the entry at @where.
 *
 * Returns: false if it ends in a nested page fault.
 */
static bool make_leaf(const Walk *walk, uint64_t addr, int level, hwaddr where,
                      uint64_t entry, uint64_t allowed, MMUAccessType access,
                      Leaf *leaf)
{
    *leaf = (Leaf){
        .allowed = allowed,
        .global = entry & PG_GLOBAL_MASK && walk->env->cr[4] & CR4_PGE_MASK,
        .page_level = level,
    };
    fill_tag(walk, &leaf->tag, addr, level, where, entry);
    return !walk->two_stages || add_second_stage(walk, addr, access, leaf);
}

/* A CPU that is not to write waits for the write that makes the page dirty. */
static void give(const Walk *walk, const Leaf *leaf, HostileTranslation *out)
{
    out->paddr = first_stage(leaf->tag.entry, walk->to->addr, leaf->page_level);
    out->prot = protection(walk, leaf->allowed);
    out->page_size = 1 << shift_of(leaf->page_level);
    if (walk->two_stages) {
        out->paddr = first_stage(leaf->second.paddr, walk->to->addr,
                                 leaf->tag.level);
        out->prot &= leaf->second.prot;
        out->page_size = MAX(out->page_size, leaf->second.page_size);
    }
    out->paddr &= x86_get_a20_mask(walk->env);
    if (!(leaf->tag.entry & PG_DIRTY_MASK)) {
        out->prot &= ~PAGE_WRITE;
    }
}

/* As a CPU that speculates does: it never makes anything dirty. */
static void prefetch(const Walk *walk, int level, hwaddr where, uint64_t above)
{
    uint64_t by = 1 + random_below(walk->caches, NEIGHBOURS - 1);
    uint64_t addr = walk->to->addr ^ by << shift_of(level);
    uint64_t *memory, entry;
    Leaf leaf;

    if (!walk->cpu->prefetch || random_below(walk->caches, PREFETCH) ||
        find_leaf(walk, addr) || find_upper(walk, addr, level)) {
        return;
    }
    where ^= by * sizeof(entry);
    memory = entry_at(walk, where);
    entry = le64_to_cpu(qatomic_read(memory));
    if ((!is_leaf(walk, entry, level) &&
         (level == 1 || !is_upper(walk, entry))) ||
        !set_entry(memory, entry, entry | PG_ACCESSED_MASK)) {
        return;
    }
    entry |= PG_ACCESSED_MASK;
    above &= ALLOWED(entry);
    if (!is_leaf(walk, entry, level)) {
        keep_upper(walk, addr, level, where, entry, above);
        count(walk, PREFETCHED_UPPER);
    } else if (make_leaf(walk, addr, level, where, entry, above, MMU_DATA_LOAD,
                         &leaf)) {
        keep_leaf(walk, addr, &leaf);
        count(walk, PREFETCHED);
    }
}

/*
 * The last entry of a walk; @above is what those above it allow.  That it
 * allows the access and that it becomes dirty is one step, as CPUs do it.
 */
static bool end_walk(Walk *walk, int level, hwaddr where, uint64_t above,
                     HostileTranslation *out)
{
    uint64_t *memory = entry_at(walk, where), before, entry, allowed;
    Leaf leaf;

    do {
        if (!memory) {
            return false;
        }
        before = le64_to_cpu(qatomic_read(memory));
        allowed = above & ALLOWED(before);
        if (!is_leaf(walk, before, level) || !permits(walk, allowed)) {
            return false;
        }
        entry = before | PG_ACCESSED_MASK;
        if (walk->to->access == MMU_DATA_STORE) {
            entry |= PG_DIRTY_MASK;
        }
    } while (!set_entry(memory, before, entry));
    if (entry & ~before & PG_DIRTY_MASK && walk->used) {
        count_use(walk, DIRTY_BY_CACHE, walk->stale);
    }
    if (!make_leaf(walk, walk->to->addr, level, where, entry, allowed,
                   walk->to->access, &leaf)) {
        return false;
    }
    keep_leaf(walk, walk->to->addr, &leaf);
    give(walk, &leaf, out);
    prefetch(walk, level, where, above);
    return true;
}

/* Returns: the level to go on with, below an entry that is cached. */
static int begin_walk(Walk *walk, uint64_t *entry, uint64_t *allowed,
                      hwaddr *table)
{
    for (int level = 2; walk->cpu->combined && level <= walk->levels; level++) {
        Upper *upper = from_cache(walk) ?
                       find_upper(walk, walk->to->addr, level) : NULL;

        if (upper && upper->table != UNKNOWN &&
            (!walk->cpu->raw || random_below(walk->caches, 2))) {
            use(walk, &upper->tag, UPPER_COMBINED,
                is_stale(walk, &upper->tag, UPPER_BITS));
            *entry = upper->tag.entry;
            *allowed = upper->allowed;
            *table = upper->table;
            return level - 1;
        }
    }
    return walk->levels;
}

/*
 * The physical address of the table that @entry, from @level, points to.  To
 * read a guest's is as good as a write to it, since it has accessed bits.
 *
 * Returns: false if that is a nested page fault.
 */
static bool find_table(const Walk *walk, int level, uint64_t entry,
                       hwaddr *table)
{
    HostileTranslation found;
    Upper *upper;

    *table = entry & PG_ADDRESS_MASK;
    if (!walk->two_stages) {
        return true;
    }
    if (!second_stage(walk, *table, MMU_DATA_STORE, &found)) {
        return false;
    }
    *table = found.paddr;
    upper = find_upper(walk, walk->to->addr, level);
    if (upper && upper->tag.entry == entry) {
        upper->table = *table;
    }
    return true;
}

/*
 * Reads the upper entry at @where, and keeps it.
 *
 * Returns: false if there is none, or a leaf.
 */
static bool read_upper(const Walk *walk, int level, hwaddr where,
                       uint64_t *entry, uint64_t *allowed)
{
    uint64_t *memory = entry_at(walk, where), before;

    do {
        if (!memory) {
            return false;
        }
        before = le64_to_cpu(qatomic_read(memory));
        if (!is_upper(walk, before)) {
            return false;
        }
        *entry = before | PG_ACCESSED_MASK;
    } while (!set_entry(memory, before, *entry));
    prefetch(walk, level, where, *allowed);
    *allowed &= ALLOWED(*entry);
    keep_upper(walk, walk->to->addr, level, where, *entry, *allowed);
    return true;
}

/* Returns: false if the walk ends in a fault. */
static bool walk_tables(Walk *walk, HostileTranslation *out)
{
    uint64_t entry = walk->to->cr3, allowed = ALL_ALLOWED;
    hwaddr table = UNKNOWN;
    int level = begin_walk(walk, &entry, &allowed, &table);

    for (;; level--) {
        uint64_t index = walk->to->addr >> shift_of(level) & 0x1ff;
        Upper *upper = NULL;

        if (level > 1 && walk->cpu->raw && from_cache(walk)) {
            upper = find_upper(walk, walk->to->addr, level);
        }
        if (upper) {
            use(walk, &upper->tag, UPPER_RAW,
                is_stale(walk, &upper->tag, UPPER_BITS));
            entry = upper->tag.entry;
            allowed &= ALLOWED(entry);
        } else {
            if (table == UNKNOWN &&
                !find_table(walk, level + 1, entry, &table)) {
                return false;
            }
            table += index * sizeof(entry);
            if (level == 1 ||
                !read_upper(walk, level, table, &entry, &allowed)) {
                return end_walk(walk, level, table, allowed, out);
            }
        }
        table = UNKNOWN;
    }
}

static Walk walk_for(CPUX86State *env, const HostileAccess *to)
{
    Walk walk = {
        .env = env,
        .cpu = (HostileCPU *)env_archcpu(env),
        .to = to,
        .reserved = ~MAKE_64BIT_MASK(0, env_archcpu(env)->phys_bits) &
                    PG_ADDRESS_MASK,
        .levels = to->pg_mode & PG_MODE_LA57 ? 5 : 4,
        .nested = to->ptw_idx == MMU_PHYS_IDX && env->hflags2 & HF2_NPT_MASK,
        .two_stages = to->ptw_idx == MMU_NESTED_IDX,
        .cached = true,
    };

    walk.caches = walk.cpu->caches;
    if (!(to->pg_mode & PG_MODE_NXE)) {
        walk.reserved |= PG_NX_MASK;
    }
    return walk;
}

/*
 * What the second stage has in memory for @addr.  Nothing is set, and nothing
 * kept: it is for the counters alone.
 */
static bool look_at_second_stage(const Walk *walk, hwaddr addr,
                                 HostileTranslation *out)
{
    CPUX86State *env = walk->env;
    HostileAccess to = { addr, env->nested_cr3, env->nested_pg_mode,
                         MMU_USER64_IDX, MMU_PHYS_IDX, MMU_DATA_LOAD };
    Walk second = walk_for(env, &to);
    Leaf leaf = { .tag.entry = to.cr3, .allowed = ALL_ALLOWED };

    for (int level = second.levels; level; level--) {
        uint64_t index = addr >> shift_of(level) & 0x1ff;
        uint64_t *memory = entry_at(&second,
                                    (leaf.tag.entry & PG_ADDRESS_MASK) +
                                    index * sizeof(index));

        if (!memory) {
            return false;
        }
        leaf.tag.entry = le64_to_cpu(qatomic_read(memory));
        leaf.allowed &= ALLOWED(leaf.tag.entry);
        if (is_leaf(&second, leaf.tag.entry, level)) {
            leaf.page_level = level;
            give(&second, &leaf, out);
            return true;
        }
        if (!is_upper(&second, leaf.tag.entry)) {
            return false;
        }
    }
    return false;
}

static bool leaf_is_stale(const Walk *walk, const Leaf *leaf)
{
    bool store = walk->to->access == MMU_DATA_STORE;
    uint64_t addr = walk->to->addr;
    HostileTranslation now, then;
    int prot = store ? PAGE_WRITE : PAGE_READ | PAGE_EXEC;

    if (is_stale(walk, &leaf->tag, store ? LOOKED_AT : UPPER_BITS)) {
        return true;
    }
    if (!walk->two_stages) {
        return false;
    }
    give(walk, leaf, &then);
    return !look_at_second_stage(walk, first_stage(leaf->tag.entry, addr,
                                                   leaf->page_level), &now) ||
           now.paddr != then.paddr || leaf->second.prot & ~now.prot & prot;
}

/*
 * Makes a page dirty by what is kept of it alone: only that memory still has the
 * same page is looked at, in the step that sets the bit, not that it may still
 * be written to.  For a guest's own tables the second stage comes between, so
 * that a walk does it.
 *
 * Returns: false if that takes a walk.
 */
static bool dirty_by_leaf(const Walk *walk, Leaf *leaf)
{
    uint64_t *memory, before;

    if (!walk->cpu->dirty_by_leaf || walk->two_stages ||
        !random_below(walk->caches, HALF)) {
        return false;
    }
    memory = entry_at(walk, leaf->tag.where);
    if (!memory) {
        return false;
    }
    before = le64_to_cpu(qatomic_read(memory));
    if ((before ^ leaf->tag.entry) & SAME_PAGE ||
        !set_entry(memory, before, before | PG_DIRTY_MASK)) {
        return false;
    }
    leaf->tag.entry |= PG_DIRTY_MASK;
    count(walk, DIRTY_BY_LEAF);
    if (!(before & (PG_RW_MASK | PG_DIRTY_MASK))) {
        count(walk, DIRTY_READ_ONLY);
    }
    return true;
}

/*
 * Looks for a translation.  One that is not dirty, in either stage, will not do
 * for a write, nor one that does not permit the access: that is a fault.
 */
static Found translate_by_leaf(Walk *walk, HostileTranslation *out)
{
    bool store = walk->to->access == MMU_DATA_STORE;
    Leaf *found = NULL, leaf;

    if (from_cache(walk)) {
        found = find_leaf(walk, walk->to->addr);
    }
    if (!found) {
        return FOUND_NONE;
    }
    if (!permits(walk, found->allowed)) {
        return FOUND_FAULT;
    }
    if (store && !(found->tag.entry & PG_DIRTY_MASK) &&
        !dirty_by_leaf(walk, found)) {
        return FOUND_NONE;
    }
    leaf = *found;
    if (walk->two_stages && !random_below(walk->caches, HALF)) {
        if (!add_second_stage(walk, walk->to->addr, walk->to->access, &leaf)) {
            return FOUND_FAULT;
        }
        count(walk, GUEST_LEAF_HALF);
    } else if (walk->two_stages &&
               !(leaf.second.prot & 1 << walk->to->access)) {
        return FOUND_NONE;
    } else {
        use(walk, &leaf.tag, store ? LEAF_WRITE : LEAF,
            leaf_is_stale(walk, &leaf));
    }
    give(walk, &leaf, out);
    return FOUND;
}

/* All that leads to where a fault was. */
static void forget(const Walk *walk)
{
    Leaf *leaf;
    Upper *upper;

    while ((leaf = find_leaf(walk, walk->to->addr))) {
        drop(&leaf->tag);
    }
    for (int level = 2; level <= walk->levels; level++) {
        upper = find_upper(walk, walk->to->addr, level);
        if (upper) {
            drop(&upper->tag);
        }
    }
}

/*
 * A fault that the caches may be the cause of is none: memory decides, and what
 * leads to a fault that is one is not kept either.
 */
static bool walk_again(Walk *walk, HostileTranslation *out)
{
    forget(walk);
    count(walk, FAULT_AGAIN);
    walk->cached = false;
    walk->used = false;
    walk->stale = false;
    if (walk_tables(walk, out)) {
        count(walk, FAULT_SPURIOUS);
        return true;
    }
    forget(walk);
    return false;
}

/* Whether this is what the caches are for: a 64-bit walk of a guest's. */
static bool is_ours(CPUX86State *env, const HostileAccess *to)
{
    HostileCPU *cpu = (HostileCPU *)env_archcpu(env);

    if (!enabled || !(env->hflags & HF_GUEST_MASK) ||
        !(to->pg_mode & PG_MODE_LMA) ||
        to->pg_mode & (PG_MODE_PKE | PG_MODE_PKS)) {
        return false;
    }
    if (to->ptw_idx == MMU_NESTED_IDX) {
        return cpu->guest_walks;
    }
    return env->hflags2 & HF2_NPT_MASK || cpu->first_stage;
}

bool hostile_translate(CPUX86State *env, const HostileAccess *to,
                       HostileTranslation *out)
{
    Walk walk;

    if (!is_ours(env, to)) {
        return false;
    }
    walk = walk_for(env, to);
    switch (translate_by_leaf(&walk, out)) {
    case FOUND:
        return true;
    case FOUND_NONE:
        if (walk_tables(&walk, out)) {
            return true;
        }
        break;
    case FOUND_FAULT:
        break;
    }
    return walk_again(&walk, out);
}

void hostile_vmrun(CPUX86State *env, uint32_t asid, uint8_t tlb_control)
{
    Caches *caches;

    if (!enabled) {
        return;
    }
    caches = ((HostileCPU *)env_archcpu(env))->caches;
    caches->asid = asid;
    caches->run++;
    switch (tlb_control) {
    case TLB_CONTROL_FLUSH_ALL_ASID:
        for (int i = 0; i < ASID_EPOCHS; i++) {
            caches->epochs[i]++;
        }
        caches->counters[FLUSHED_ALL]++;
        break;
    case FLUSH_ASID:
    case FLUSH_ASID_NON_GLOBAL: /* no nested translation is global */
        ++*epoch_of(caches, asid);
        caches->counters[FLUSHED_ASID]++;
        break;
    }
}

/*
 * Nothing says how soon a CPU takes an interrupt.  One for the guest's host ends
 * the run, so that there is one decision for each.
 */
bool hostile_is_late(CPUX86State *env, int interrupt)
{
    HostileCPU *cpu = (HostileCPU *)env_archcpu(env);
    CPUState *cs = env_cpu(env);
    Caches *caches;

    if (!enabled || !cpu->late_interrupts || icount_enabled() ||
        interrupt != CPU_INTERRUPT_HARD || !(env->hflags & HF_GUEST_MASK)) {
        return false;
    }
    caches = cpu->caches;
    if (caches->late_run != caches->run) {
        caches->late_run = caches->run;
        caches->late = random_below(caches, 2) <<
                       random_below(caches, LATE_BITS);
        caches->counters[LATE] += caches->late > 0;
    }
    if (!caches->late) {
        return false;
    }
    caches->late--;
    cs->cflags_next_tb = curr_cflags(cs) | CF_NO_GOTO_TB | CF_NO_GOTO_PTR;
    return true;
}

static bool is_first_stage(const Tag *tag, uint32_t asid)
{
    return !tag->nested && tag->asid == asid;
}

/* Without EFER.TCE, which QEMU has not, no upper entry of the ASID stays. */
static void flush_uppers(Caches *caches, uint32_t asid)
{
    for (int i = 0; i < UPPER_SLOTS; i++) {
        if (is_first_stage(&caches->uppers[i].tag, asid)) {
            drop(&caches->uppers[i].tag);
        }
    }
}

/* Of a page of the guest's all parts go that are kept apart. */
static void flush_page(Caches *caches, uint32_t asid, uint64_t addr)
{
    for (int i = 0; i < LEAF_SLOTS; i++) {
        Leaf *leaf = &caches->leaves[i];
        uint64_t page = leaf->tag.prefix << shift_of(leaf->tag.level);

        if (is_first_stage(&leaf->tag, asid) &&
            page >> shift_of(leaf->page_level) ==
            addr >> shift_of(leaf->page_level)) {
            drop(&leaf->tag);
        }
    }
    flush_uppers(caches, asid);
}

void helper_hostile_invlpga(CPUX86State *env, target_ulong addr,
                            target_ulong asid)
{
    if (enabled) {
        Caches *caches = ((HostileCPU *)env_archcpu(env))->caches;

        flush_page(caches, asid, addr);
        caches->counters[FLUSHED_PAGE]++;
    }
}

void hostile_invlpg(CPUX86State *env, uint64_t addr)
{
    if (enabled && env->hflags & HF_GUEST_MASK) {
        Caches *caches = ((HostileCPU *)env_archcpu(env))->caches;

        flush_page(caches, caches->asid, addr);
        caches->counters[GUEST_FLUSHED_PAGE]++;
    }
}

void hostile_write_cr(CPUX86State *env, int reg)
{
    Caches *caches;

    if (!enabled || !(env->hflags & HF_GUEST_MASK) ||
        (reg != 0 && reg != 3 && reg != 4)) {
        return;
    }
    caches = ((HostileCPU *)env_archcpu(env))->caches;
    for (int i = 0; i < LEAF_SLOTS; i++) {
        Leaf *leaf = &caches->leaves[i];

        if (is_first_stage(&leaf->tag, caches->asid) &&
            !(reg == 3 && leaf->global)) {
            drop(&leaf->tag);
        }
    }
    flush_uppers(caches, caches->asid);
    caches->counters[GUEST_FLUSHED_CR]++;
}

/* The sums over all CPUs, for scripts/lab to keep. */
static void report(Notifier *notifier, void *data)
{
    uint64_t sums[NR_COUNTERS] = { 0 };
    CPUState *cs;

    CPU_FOREACH(cs) {
        for (int i = 0; i < NR_COUNTERS; i++) {
            sums[i] += ((HostileCPU *)cs)->caches->counters[i];
        }
    }
    fprintf(stderr, "hostile: seed %" PRIu64 "\n",
            ((HostileCPU *)first_cpu)->seed);
    for (int i = 0; i < NR_COUNTERS; i++) {
        fprintf(stderr, "hostile: %s %" PRIu64 "\n", counter_names[i],
                sums[i]);
    }
}

static Notifier reporter = { .notify = report };

static void hostile_realize(DeviceState *dev, Error **errp)
{
    HostileCPU *cpu = (HostileCPU *)dev;
    HostileCPUClass *class = (HostileCPUClass *)object_get_class(OBJECT(dev));
    Caches *caches = g_new0(Caches, 1);
    Error *error = NULL;

    for (int i = 0; i < ASID_EPOCHS; i++) {
        caches->epochs[i] = 1;
    }
    cpu->caches = caches;
    class->realize(dev, &error);
    if (error) {
        error_propagate(errp, error);
        return;
    }
    /* Never 0, with which xorshift would stay. */
    caches->random = (cpu->seed * 64 + CPU(dev)->cpu_index + 1) *
                     0x9e3779b97f4a7c15ULL | 1;
    if (cpu->asid_flush) {
        cpu->parent.env.features[FEAT_SVM] |= CPUID_SVM_FLUSHASID;
    }
    if (!enabled) {
        enabled = true;
        qemu_add_exit_notifier(&reporter);
    }
}

static Property hostile_properties[] = {
    DEFINE_PROP_UINT64("seed", HostileCPU, seed, 1),
    DEFINE_PROP_BOOL("raw-upper", HostileCPU, raw, true),
    DEFINE_PROP_BOOL("combined-upper", HostileCPU, combined, true),
    DEFINE_PROP_BOOL("leaves", HostileCPU, leaves, true),
    DEFINE_PROP_BOOL("dirty-by-leaf", HostileCPU, dirty_by_leaf, true),
    DEFINE_PROP_BOOL("prefetch", HostileCPU, prefetch, true),
    DEFINE_PROP_BOOL("first-stage", HostileCPU, first_stage, true),
    DEFINE_PROP_BOOL("guest-walks", HostileCPU, guest_walks, true),
    DEFINE_PROP_BOOL("late-interrupts", HostileCPU, late_interrupts, true),
    DEFINE_PROP_BOOL("asid-flush", HostileCPU, asid_flush, true),
    DEFINE_PROP_END_OF_LIST()
};

static void hostile_class_init(ObjectClass *oc, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);

    X86_CPU_CLASS(oc)->model_description =
        "Keeps whatever an AMD CPU may keep until a flush";
    device_class_set_parent_realize(dc, hostile_realize,
                                    &((HostileCPUClass *)oc)->realize);
    device_class_set_props(dc, hostile_properties);
}

static const TypeInfo hostile_type = {
    .name = TYPE_HOSTILE_CPU,
    .parent = X86_CPU_TYPE_NAME("max"),
    .instance_size = sizeof(HostileCPU),
    .class_size = sizeof(HostileCPUClass),
    .class_init = hostile_class_init,
};

static void register_hostile(void)
{
    type_register_static(&hostile_type);
}

type_init(register_hostile)
