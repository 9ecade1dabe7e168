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
/* One in so many walks brings in a neighbour. */
#define PREFETCH 4
#define NEIGHBOURS 8
/* Before a late interrupt, up to two to the power of that blocks of code run. */
#define LATE_BITS 10

/* What an entry allows, all of it as bits that more of is more. */
#define ALLOWED(entry) \
    (((entry) ^ PG_NX_MASK) & (PG_NX_MASK | PG_USER_MASK | PG_RW_MASK))
#define ALL_ALLOWED ALLOWED(PG_USER_MASK | PG_RW_MASK)

/* What the CPU looks at; the rest of an entry is the hypervisor's own. */
#define LOOKED_AT \
    (PG_PRESENT_MASK | PG_RW_MASK | PG_USER_MASK | PG_DIRTY_MASK | \
     PG_PSE_MASK | PG_ADDRESS_MASK | PG_NX_MASK)
#define UPPER_BITS (LOOKED_AT & ~PG_DIRTY_MASK)

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
    COUNTER(OUTLIVED, "outlived-exit")                                        \
    COUNTER(PREFETCHED, "prefetched")                                         \
    COUNTER(FAULT_AGAIN, "fault-walked-again")                                \
    COUNTER(FAULT_SPURIOUS, "fault-spurious")                                 \
    COUNTER(FLUSHED_ALL, "flushed-all")                                       \
    COUNTER(FLUSHED_ASID, "flushed-asid")                                     \
    COUNTER(FLUSHED_PAGE, "flushed-page")                                     \
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
} Upper;

typedef struct Leaf {
    Tag tag;
    uint64_t allowed;
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
    bool prefetch;
    bool first_stage;
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
    bool nested;
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

static size_t hash(uint32_t asid, int level, uint64_t prefix)
{
    uint64_t key = prefix * 8 + level;

    return ((key << 8 ^ asid) * 0x9e3779b97f4a7c15ULL) >> 40;
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

static Upper *upper_slot(const Walk *walk, int level)
{
    size_t slot = hash(walk->caches->asid, level,
                       walk->to->addr >> shift_of(level));

    return &walk->caches->uppers[slot % UPPER_SLOTS];
}

static Upper *find_upper(const Walk *walk, int level)
{
    Upper *upper = upper_slot(walk, level);

    return matches(walk, &upper->tag, level, walk->to->addr >> shift_of(level))
           ? upper : NULL;
}

static Leaf *leaf_slot(const Walk *walk, uint64_t addr, int level)
{
    size_t slot = hash(walk->caches->asid, level, addr >> shift_of(level));

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

static void keep_upper(const Walk *walk, int level, hwaddr where,
                       uint64_t entry, uint64_t allowed)
{
    Upper *upper = upper_slot(walk, level);

    fill_tag(walk, &upper->tag, walk->to->addr, level, where, entry);
    upper->allowed = allowed;
}

static void keep_leaf(const Walk *walk, uint64_t addr, int level, hwaddr where,
                      uint64_t entry, uint64_t allowed)
{
    Leaf *leaf = leaf_slot(walk, addr, level);

    if (!walk->cpu->leaves) {
        return;
    }
    fill_tag(walk, &leaf->tag, addr, level, where, entry);
    leaf->allowed = allowed;
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

/* Counts a use of a slot at @counter, and at the next one if it is stale. */
static void use(Walk *walk, Tag *tag, int counter, uint64_t bits)
{
    bool stale = is_stale(walk, tag, bits);

    walk->used = true;
    walk->stale |= stale;
    count(walk, counter);
    if (stale) {
        count(walk, counter + 1);
    }
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

/* A CPU that is not to write waits for the write that makes the page dirty. */
static void give(const Walk *walk, uint64_t entry, uint64_t allowed, int level,
                 HostileTranslation *out)
{
    uint64_t offset = MAKE_64BIT_MASK(0, shift_of(level));

    out->paddr = (entry & PG_ADDRESS_MASK & ~offset) | (walk->to->addr & offset);
    out->paddr &= x86_get_a20_mask(walk->env);
    out->prot = protection(walk, allowed);
    if (!(entry & PG_DIRTY_MASK)) {
        out->prot &= ~PAGE_WRITE;
    }
    out->page_size = 1 << shift_of(level);
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
    return (entry & needed) == needed && !(entry & reserved);
}

static bool is_upper(const Walk *walk, uint64_t entry)
{
    return (entry & PG_PRESENT_MASK) &&
           !(entry & (walk->reserved | PG_PSE_MASK));
}

/* As a CPU that speculates does: it never makes anything dirty. */
static void prefetch(const Walk *walk, hwaddr where, uint64_t above)
{
    uint64_t by = 1 + random_below(walk->caches, NEIGHBOURS - 1);
    uint64_t addr = walk->to->addr ^ by << TARGET_PAGE_BITS;
    uint64_t *memory, entry;

    if (!walk->cpu->prefetch || random_below(walk->caches, PREFETCH) ||
        find_leaf(walk, addr)) {
        return;
    }
    where ^= by * sizeof(entry);
    memory = entry_at(walk, where);
    entry = le64_to_cpu(qatomic_read(memory));
    if (is_leaf(walk, entry, 1) &&
        set_entry(memory, entry, entry | PG_ACCESSED_MASK)) {
        keep_leaf(walk, addr, 1, where, entry | PG_ACCESSED_MASK,
                  above & ALLOWED(entry));
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
        count(walk, walk->stale ? DIRTY_BY_CACHE_STALE : DIRTY_BY_CACHE);
    }
    keep_leaf(walk, walk->to->addr, level, where, entry, allowed);
    if (level == 1) {
        prefetch(walk, where, above);
    }
    give(walk, entry, allowed, level, out);
    return true;
}

/* Returns: the level to go on with, below an entry that is cached. */
static int begin_walk(Walk *walk, uint64_t *entry, uint64_t *allowed)
{
    for (int level = 2; walk->cpu->combined && level <= walk->levels; level++) {
        Upper *upper = from_cache(walk) ? find_upper(walk, level) : NULL;

        if (upper && (!walk->cpu->raw || random_below(walk->caches, 2))) {
            use(walk, &upper->tag, UPPER_COMBINED, UPPER_BITS);
            *entry = upper->tag.entry;
            *allowed = upper->allowed;
            return level - 1;
        }
    }
    return walk->levels;
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
    *allowed &= ALLOWED(*entry);
    keep_upper(walk, level, where, *entry, *allowed);
    return true;
}

/* Returns: false if the walk ends in a fault. */
static bool walk_tables(Walk *walk, HostileTranslation *out)
{
    uint64_t entry = walk->to->cr3, allowed = ALL_ALLOWED;
    int level = begin_walk(walk, &entry, &allowed);

    for (;; level--) {
        uint64_t index = walk->to->addr >> shift_of(level) & 0x1ff;
        hwaddr where = (entry & PG_ADDRESS_MASK) + index * sizeof(entry);
        Upper *upper = NULL;

        if (level > 1 && walk->cpu->raw && from_cache(walk)) {
            upper = find_upper(walk, level);
        }
        if (upper) {
            use(walk, &upper->tag, UPPER_RAW, UPPER_BITS);
            entry = upper->tag.entry;
            allowed &= ALLOWED(entry);
        } else if (level == 1 ||
                   !read_upper(walk, level, where, &entry, &allowed)) {
            return level <= TOP_LEAF_LEVEL &&
                   end_walk(walk, level, where, allowed, out);
        }
    }
}

/*
 * Looks for a translation.  One that is not dirty will not do for a write, nor
 * one that does not permit the access: that is a fault.
 */
static Found translate_by_leaf(Walk *walk, HostileTranslation *out)
{
    Leaf *leaf = NULL;
    bool store = walk->to->access == MMU_DATA_STORE;

    if (from_cache(walk)) {
        leaf = find_leaf(walk, walk->to->addr);
    }
    if (!leaf) {
        return FOUND_NONE;
    }
    if (!permits(walk, leaf->allowed)) {
        return FOUND_FAULT;
    }
    if (store && !(leaf->tag.entry & PG_DIRTY_MASK)) {
        return FOUND_NONE;
    }
    use(walk, &leaf->tag, store ? LEAF_WRITE : LEAF,
        store ? LOOKED_AT : UPPER_BITS);
    give(walk, leaf->tag.entry, leaf->allowed, leaf->tag.level, out);
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
        upper = find_upper(walk, level);
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
    return enabled && (env->hflags & HF_GUEST_MASK) &&
           (to->pg_mode & PG_MODE_LMA) &&
           !(to->pg_mode & (PG_MODE_PKE | PG_MODE_PKS)) &&
           (env->hflags2 & HF2_NPT_MASK ||
            ((HostileCPU *)env_archcpu(env))->first_stage);
}

bool hostile_translate(CPUX86State *env, const HostileAccess *to,
                       HostileTranslation *out)
{
    Walk walk = {
        .env = env,
        .cpu = (HostileCPU *)env_archcpu(env),
        .to = to,
        .levels = to->pg_mode & PG_MODE_LA57 ? 5 : 4,
        .nested = env->hflags2 & HF2_NPT_MASK,
        .cached = true,
    };

    if (!is_ours(env, to)) {
        return false;
    }
    walk.caches = walk.cpu->caches;
    walk.reserved = ~MAKE_64BIT_MASK(0, env_archcpu(env)->phys_bits) &
                    PG_ADDRESS_MASK;
    if (!(to->pg_mode & PG_MODE_NXE)) {
        walk.reserved |= PG_NX_MASK;
    }
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

/* Without EFER.TCE, which QEMU has not, no upper entry of the ASID stays. */
void helper_hostile_invlpga(CPUX86State *env, target_ulong addr,
                            target_ulong asid)
{
    Caches *caches;

    if (!enabled) {
        return;
    }
    caches = ((HostileCPU *)env_archcpu(env))->caches;
    for (int level = 1; level <= TOP_LEAF_LEVEL; level++) {
        uint64_t prefix = addr >> shift_of(level);
        Tag *tag = &caches->leaves[hash(asid, level, prefix) % LEAF_SLOTS].tag;

        if (!tag->nested && tag->asid == (uint32_t)asid &&
            tag->level == level && tag->prefix == prefix) {
            drop(tag);
        }
    }
    for (int i = 0; i < UPPER_SLOTS; i++) {
        if (!caches->uppers[i].tag.nested &&
            caches->uppers[i].tag.asid == (uint32_t)asid) {
            drop(&caches->uppers[i].tag);
        }
    }
    caches->counters[FLUSHED_PAGE]++;
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
    DEFINE_PROP_BOOL("prefetch", HostileCPU, prefetch, true),
    DEFINE_PROP_BOOL("first-stage", HostileCPU, first_stage, true),
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
