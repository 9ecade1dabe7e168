/*
 * The mechanism "ring": a ring of dirty pages per vCPU, filled by KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Indices count up for ever and are taken modulo the size.  KVM keeps two per
 * ring: "dirty", the entry that the vCPU fills next, and "reset", the oldest
 * entry that is not yet re-armed.  We can read neither.  We keep "fetch", the
 * next entry to collect, and our own copy of KVM's "reset".
 *
 * A batch has three steps: collect some entries of one ring, call
 * KVM_RESET_DIRTY_RINGS, publish the pages (I2, I3).  The ioctl resets all
 * rings, and returns only how many entries it has reset in all of them.  So a
 * batch is of one ring: reset is then always known, and equals fetch between
 * batches, unless a reset has failed, which the next one finishes.
 *
 * Overflow (I8).  KVM asks a vCPU to stop when dirty - reset reaches a soft
 * limit.  Not every KVM enforces the limit: the vCPU may go on filling
 * entries.  It loses an entry, or keeps a collected one from being re-armed,
 * only by filling an entry when dirty - reset >= size.
 *
 * One look after each reset, at the entry R + size - 1, sees every overflow
 * (ring_lapped()).  Here R is reset as the previous batch left it.  Proof: let
 * the vCPU overflow the ring between the end of that batch and the end of this
 * one.  Then dirty >= R + size, so the vCPU has filled the entry R + size - 1.
 * Only the collector takes DIRTY from that entry, and only after this batch.
 * It does not matter which race the overflow made:
 *
 *  - a page was overwritten before it was collected;
 *  - an entry was overwritten before it was reset: the reset falls short;
 *  - an entry was overwritten while it was being reset: it is left free, in
 *    front of filled entries, which is a gap;
 *  - either side read a torn entry.
 *
 * The converse does not hold: the look may see an overflow where there is
 * none.  The answer to a false alarm is slow, but not wrong.  A false alarm
 * needs a vCPU that fills the rest of the ring between a reset and the look.
 * A batch is so short that the vCPU would have to fill more entries than KVM
 * keeps in reserve behind the soft limit, unless this thread loses its CPU
 * meanwhile.
 *
 * After an overflow dirty - reset is unknown, and may exceed the size.  The
 * ring is then "suspect".  We search all of it, and take each batch that finds
 * anything for another overflow, since an earlier batch may have collected the
 * entry to look at.  That ends when we find the whole ring empty: it is
 * "drained".  The first entry that is filled after that shows where dirty is,
 * modulo the size.  Once fetch has met it, the ring is no longer suspect.
 *
 * If dirty - reset is still beyond the soft limit then, the vCPU leaves KVM
 * with a full ring in which there is nothing to collect, and would do so for
 * ever.  ring_unstick() lets reset catch up.  Reset never passes dirty, or
 * dirty - reset would be about 2^32, and the vCPU stuck for good.
 */

#include "mechanism.h"
#include "ordering.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <signal.h>
#include <sys/mman.h>

/*
 * Entries collected from a ring per reset.  They are few enough for the
 * argument above: resetting an entry takes a tenth of the time of a fault, so
 * at most 51 entries fill meanwhile, of at least 64 in reserve.  And they are
 * enough that the TLB flush that ends a reset is cheap per page.
 */
#define BATCH_MAX 512

/* A batch is at most 1 / BATCH_FRACTION of a ring. */
#define BATCH_FRACTION 4

/*
 * Entries that KVM keeps in reserve behind the soft limit, at most: 64 and
 * what the CPU logs by itself (512 with PML).
 */
#define RESERVE_MAX (64 + 512)

/* And at least this part is left: the smallest ring without PML has 256. */
#define SOFT_LIMIT_FRACTION 4

/*
 * Resets that may do nothing, although there is something to do.  Since
 * signals are blocked, only work that the kernel queued for this thread can
 * cause that, and this work is done when the ioctl returns.
 */
#define RESET_TRIES 1000

typedef struct RingPage {
    uint32_t slot_id;
    uint64_t offset;
} RingPage;

/* A vCPU's ring. */
typedef struct Ring {
    KvmDirty *kvmd;
    KvmDirtyVcpu *vcpu;
    struct kvm_dirty_gfn *gfns;
    uint32_t fetch;
    uint32_t reset;
    uint32_t batch_reset;       /* reset when the batch began */
    uint32_t left;              /* entries this reap may still take */
    bool suspect;
    bool drained;
    bool full_in_vain;          /* it left with a full ring, but we had */
    uint32_t full_fetch;        /* ... collected all entries up to here */
    uint32_t waiting;           /* entries to be collected, at the last look */
    uint32_t seen;              /* dirty, at the last look */
    uint32_t n;
    RingPage batch[BATCH_MAX];
} Ring;

typedef struct RingVm {
    GPtrArray *rings;           /* Ring *, of removed vCPUs too */
    bool reset_failed;          /* once, and the operator was told */
    bool unarmed;               /* all pages stay dirty until it is re-armed */
} RingVm;

static struct kvm_dirty_gfn *ring_entry(const Ring *r, uint32_t index)
{
    return &r->gfns[index & (r->kvmd->ring_size - 1)];
}

static bool ring_is_dirty(const Ring *r, uint32_t index)
{
    return gfn_flags(ring_entry(r, index)) & KVM_DIRTY_GFN_F_DIRTY;
}

static bool ring_lapped(const Ring *r)
{
    uint32_t size = r->kvmd->ring_size;

    return r->fetch - r->batch_reset == size ||
           ring_is_dirty(r, r->batch_reset + size - 1);
}

static void ring_suspect(Ring *r)
{
    r->suspect = true;
    r->drained = false;
}

static void ring_take(Ring *r)
{
    struct kvm_dirty_gfn *gfn = ring_entry(r, r->fetch++);

    r->batch[r->n++] = (RingPage) { gfn_slot(gfn), gfn_offset(gfn) };
    gfn_give_back(gfn);
}

/*
 * Have KVM's reset pass @n empty entries.  KVM must not re-arm the pages that
 * they named before: it re-arms neighbouring entries together, and none of
 * them if one is past the end of its slot.
 */
static void ring_pass_over(Ring *r, uint32_t n)
{
    while (n--) {
        struct kvm_dirty_gfn *gfn = ring_entry(r, r->fetch++);

        gfn_name_no_page(gfn);
        gfn_give_back(gfn);
    }
}

/* Entries from @from on that are not dirty, up to @end. */
static uint32_t ring_clean_run(const Ring *r, uint32_t from, uint32_t end)
{
    uint32_t n = 0;

    while (from + n != end && !ring_is_dirty(r, from + n)) {
        n++;
    }
    return n;
}

/*
 * In a suspect ring, a filled entry beyond a free one shows that dirty has
 * passed both: the entries between were lost.  The vCPU may fill entries that
 * were free when fetch came there, but it does so before it fills the one
 * beyond.  So a second look, after we have seen that one filled, shows which
 * entries are really free.
 */
static bool ring_close_gap(Ring *r)
{
    uint32_t end = r->reset + r->kvmd->ring_size;
    uint32_t n = ring_clean_run(r, r->fetch, end);

    if (r->fetch + n == end) {
        return false;
    }
    ring_pass_over(r, ring_clean_run(r, r->fetch, r->fetch + n));
    return true;
}

/* All of a suspect ring was searched; @found says if anything was in it. */
static void ring_settle(Ring *r, bool found)
{
    if (!found) {
        r->drained = r->fetch == r->reset;
    } else if (r->drained && !ring_lapped(r)) {
        r->suspect = false;
    }
}

/*
 * Returns: true if the ring is suspect and what we found in it shows an
 * overflow; or if it is not, and what we found in it shows that KVM is wrong:
 * the ring is suspect then.
 */
static bool ring_collect(Ring *r)
{
    uint32_t size = r->kvmd->ring_size;
    uint32_t batch = CLAMP(size / BATCH_FRACTION, 1, BATCH_MAX);
    uint32_t most = MIN(batch, r->left);
    bool known = !r->suspect || r->drained;
    bool found = false, strange = false;

    r->n = 0;
    r->batch_reset = r->reset;
    while (r->fetch - r->reset < size) {
        uint32_t flags = gfn_flags(ring_entry(r, r->fetch));

        if (flags & KVM_DIRTY_GFN_F_RESET) {
            /* Collected before a reset that fell short, if it is suspect. */
            strange = strange || !r->suspect;
            r->fetch++;
        } else if (r->n == most) {
            break;
        } else if (flags & KVM_DIRTY_GFN_F_DIRTY) {
            ring_take(r);
            found = true;
        } else if (r->suspect && ring_close_gap(r)) {
            found = true;
        } else {
            if (r->suspect) {
                ring_settle(r, found);
            }
            break;
        }
    }
    r->left -= r->n;
    if (strange) {
        ring_suspect(r);
    }
    return strange || (found && !known);
}

/*
 * Linux 6.16 and later stop a reset when a signal is pending, and then do not
 * re-arm the last entries that they counted.  So no signal may be pending.
 */
static int ring_reset_ioctl(KvmDirty *kvmd)
{
    sigset_t all, old;
    int ret;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    ret = kvmd_vm_ioctl(kvmd, KVM_RESET_DIRTY_RINGS, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ret;
}

static void ring_warn_of_reset(KvmDirty *kvmd, int error)
{
    RingVm *vm = kvmd->state;

    if (!vm->reset_failed) {
        vm->reset_failed = true;
        kvmd_warn(kvmd, "KVM_RESET_DIRTY_RINGS failed (%s): all pages are "
                  "taken as dirty", g_strerror(error));
    }
}

/* Only KVM frees an entry, and KVM has then passed it, whatever it counted. */
static void ring_follow_reset(Ring *r)
{
    while (r->reset != r->fetch &&
           !(gfn_flags(ring_entry(r, r->reset)) &
             (KVM_DIRTY_GFN_F_DIRTY | KVM_DIRTY_GFN_F_RESET))) {
        r->reset++;
    }
}

/* Whether KVM has reset the entry before fetch, even if it is filled again. */
static bool ring_reset_has_come(const Ring *r)
{
    return !(gfn_flags(ring_entry(r, r->fetch - 1)) & KVM_DIRTY_GFN_F_RESET);
}

/*
 * Have KVM reset the entries that were collected from @r.  No other ring then
 * has entries to reset, so KVM's count is about this ring, unless a reset of
 * another ring has failed: then this count is too high, and the next count for
 * that ring is too low.  KVM stops before fetch at an entry that the vCPU has
 * filled again too early.
 * Returns: false if KVM has not re-armed exactly what was collected.
 */
static bool ring_reset(Ring *r)
{
    bool whole = true;
    int tries = 0;

    while (r->fetch != r->reset && tries < RESET_TRIES) {
        uint32_t left = r->fetch - r->reset;
        int ret = ring_reset_ioctl(r->kvmd);

        if (ret < 0) {
            ring_warn_of_reset(r->kvmd, -ret);
            ring_follow_reset(r);
            return false;
        }
        /* If KVM counts what it has not done, reset would pass dirty later. */
        if ((uint32_t)ret >= left && !ring_reset_has_come(r)) {
            ret = 0;
        }
        whole = whole && (uint32_t)ret == left;
        r->reset += MIN((uint32_t)ret, left);
        r->full_in_vain = r->full_in_vain && !ret;
        if (!ret && ring_is_dirty(r, r->reset)) {
            r->fetch = r->reset;
        } else if (!ret) {
            ring_follow_reset(r);
            tries++;
        }
    }
    return whole;
}

/*
 * Returns: false if an entry names no page.  An overflow has torn it, or KVM
 * is wrong: it is unknown which page was written.
 */
static bool ring_publish(KvmDirty *kvmd, const Ring *r)
{
    KvmDirtySlot *slot = NULL;
    uint64_t first = 0, word = 0;
    bool known = true;

    for (uint32_t i = 0; i < r->n; i++) {
        const RingPage *page = &r->batch[i];
        KvmDirtySlot *of = kvmd_slot_get(kvmd, page->slot_id);
        uint64_t bit = page->offset % KVMD_WORD_PAGES;

        if (!of || page->offset >= kvmd_slot_pages(kvmd, of)) {
            known = false;
            continue;
        }
        if (word && (of != slot || page->offset - bit != first)) {
            kvmd_publish(kvmd, slot, first, &word, 1);
            word = 0;
        }
        slot = of;
        first = page->offset - bit;
        word |= GUINT64_TO_LE(UINT64_C(1) << bit);
    }
    if (word) {
        kvmd_publish(kvmd, slot, first, &word, 1);
    }
    if (r->n && r->vcpu->vcpu && kvmd->vmm.collected) {
        kvmd->vmm.collected(kvmd->opaque, r->vcpu->vcpu, r->n);
    }
    return known;
}

/* Returns: false if @r overflowed, or may have. */
static bool ring_reap_batch(KvmDirty *kvmd, Ring *r)
{
    int64_t start = kvmd_now(), collected, armed;
    bool overflow = ring_collect(r);

    collected = kvmd_now();
    if (!ring_reset(r) || ring_lapped(r)) {
        overflow = true;
        ring_suspect(r);
    }
    armed = kvmd_now();
    overflow = !ring_publish(kvmd, r) || overflow;
    kvmd->stats.harvest_ns += collected - start;
    kvmd->stats.rearm_ns += armed - collected;
    kvmd->stats.publish_ns += kvmd_now() - armed;
    return !overflow;
}

/*
 * Reap all entries that were in the ring when the reap began, and at most as
 * many as a ring holds, since a vCPU may go on writing for ever.
 * Returns: false if the ring overflowed, or may have.
 */
static bool ring_reap_one(KvmDirty *kvmd, Ring *r, uint64_t *pages)
{
    bool good = true, again = true;

    r->left = kvmd->ring_size;
    while (again) {
        bool was_good = good;

        good = ring_reap_batch(kvmd, r) && good;
        *pages += r->n;
        /* A ring that turns out suspect has to be searched. */
        again = r->fetch == r->reset && (r->n || (was_good && !good));
    }
    return good;
}

/* Reap @n rings.  Returns: the pages taken. */
static uint64_t ring_reap(KvmDirty *kvmd, Ring **rings, guint n)
{
    RingVm *vm = kvmd->state;
    bool good = !vm->unarmed;
    uint64_t pages = 0;

    for (guint i = 0; i < n; i++) {
        good = ring_reap_one(kvmd, rings[i], &pages) && good;
    }
    kvmd->stats.pages += pages;
    kvmd->stats.harvests += pages != 0;
    if (!good) {
        kvmd_overflow(kvmd, &vm->unarmed);
    }
    return pages;
}

static void ring_reap_all(KvmDirty *kvmd)
{
    RingVm *vm = kvmd->state;

    ring_reap(kvmd, (Ring **)vm->rings->pdata, vm->rings->len);
}

/* No ring of @size entries has a soft limit below this. */
static uint32_t ring_soft_limit_min(uint32_t size)
{
    return MAX(MAX(size / SOFT_LIMIT_FRACTION, 1),
               size - MIN(size, RESERVE_MAX));
}

/*
 * Entries to be collected: they follow each other from fetch on.  A ring that
 * overflowed, or whose reset failed, is suspect and counts as full.  All rings
 * count as full while memory is to be re-armed after an overflow.
 */
static uint32_t ring_count_waiting(const Ring *r)
{
    const RingVm *vm = r->kvmd->state;
    uint32_t n = 0, end = r->kvmd->ring_size;

    if (r->suspect || vm->unarmed) {
        return end;
    }
    while (n < end) {
        uint32_t middle = n + (end - n) / 2;

        if (ring_is_dirty(r, r->fetch + middle)) {
            n = middle + 1;
        } else {
            end = middle;
        }
    }
    return n;
}

/* Reads at most 17 entries of a ring of 65,536. */
static KvmDirtyFill ring_look(KvmDirty *kvmd)
{
    double whole = ring_soft_limit_min(kvmd->ring_size);
    const RingVm *vm = kvmd->state;
    uint32_t most = 0;
    int32_t grown = 0;

    for (guint i = 0; i < vm->rings->len; i++) {
        Ring *r = g_ptr_array_index(vm->rings, i);
        uint32_t dirty;

        r->waiting = ring_count_waiting(r);
        dirty = r->fetch + r->waiting;
        most = MAX(most, r->waiting);
        /* Negative if the ring counted as full then. */
        grown = MAX(grown, (int32_t)(dirty - r->seen));
        r->seen = dirty;
    }
    return (KvmDirtyFill) { .most = most / whole, .grown = grown / whole };
}

static void ring_reap_filled(KvmDirty *kvmd, double least)
{
    g_autoptr(GPtrArray) filled = g_ptr_array_new();
    const RingVm *vm = kvmd->state;

    for (guint i = 0; i < vm->rings->len; i++) {
        Ring *r = g_ptr_array_index(vm->rings, i);

        if (r->waiting >= least * ring_soft_limit_min(kvmd->ring_size)) {
            g_ptr_array_add(filled, r);
        }
    }
    ring_reap(kvmd, (Ring **)filled->pdata, filled->len);
}

/* Whether KVM has reset all entries that were given to it. */
static bool ring_nothing_to_reset(KvmDirty *kvmd)
{
    int ret = ring_reset_ioctl(kvmd);

    if (ret < 0) {
        ring_warn_of_reset(kvmd, -ret);
    }
    return ret == 0;
}

/*
 * The vCPU of @r left KVM with a full ring, and there was nothing to collect.
 * If this happens once, another thread may have reaped the ring since the
 * exit.  If it happens twice with no entry collected in between, KVM has found
 * dirty - reset at the soft limit or beyond while reset was where it is now,
 * unless KVM has not reset what it said it had.
 */
static void ring_unstick(KvmDirty *kvmd, Ring *r)
{
    RingVm *vm = kvmd->state;

    if (!r->full_in_vain || r->full_fetch != r->fetch) {
        r->full_in_vain = true;
        r->full_fetch = r->fetch;
        return;
    }
    r->full_in_vain = false;
    if (!r->suspect) {
        ring_suspect(r);
        kvmd_overflow(kvmd, &vm->unarmed);
    } else if (ring_nothing_to_reset(kvmd)) {
        ring_pass_over(r, ring_soft_limit_min(kvmd->ring_size));
        ring_reset(r);
    }
}

static void ring_vcpu_full(KvmDirtyVcpu *vcpu)
{
    Ring *r = vcpu->state;

    if (!ring_reap(vcpu->kvmd, &r, 1)) {
        ring_unstick(vcpu->kvmd, r);
    }
}

static size_t ring_bytes(const KvmDirty *kvmd)
{
    return kvmd->ring_size * sizeof(struct kvm_dirty_gfn);
}

static struct kvm_dirty_gfn *ring_map(KvmDirty *kvmd, int fd, GError **error)
{
    void *p = mmap(NULL, ring_bytes(kvmd), PROT_READ | PROT_WRITE, MAP_SHARED,
                   fd, KVM_DIRTY_LOG_PAGE_OFFSET * kvmd->page_size);

    if (p == MAP_FAILED) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "mapping a vCPU's dirty ring failed: %s",
                    g_strerror(errno));
        return NULL;
    }
    return p;
}

/* The mapping of a removed vCPU's ring is kept: it may come back. */
static bool ring_vcpu_add(KvmDirtyVcpu *vcpu, int fd, GError **error)
{
    KvmDirty *kvmd = vcpu->kvmd;
    RingVm *vm = kvmd->state;
    struct kvm_dirty_gfn *gfns;
    Ring *r;

    if (vcpu->state) {
        return true;
    }
    gfns = ring_map(kvmd, fd, error);
    if (!gfns) {
        return false;
    }
    r = g_new0(Ring, 1);
    r->kvmd = kvmd;
    r->vcpu = vcpu;
    r->gfns = gfns;
    vcpu->state = r;
    g_ptr_array_add(vm->rings, r);
    return true;
}

static void ring_vcpu_remove(KvmDirtyVcpu *vcpu)
{
    Ring *r = vcpu->state;

    ring_reap(vcpu->kvmd, &r, 1);
}

/* KVM tells a number of bytes, which need not be a power of two. */
uint32_t kvmd_ring_most(KvmDirty *kvmd)
{
    uint32_t entries = kvmd_check_extension(kvmd, KVM_CAP_DIRTY_LOG_RING) /
        sizeof(struct kvm_dirty_gfn);

    return entries ? UINT32_C(1) << (31 - __builtin_clz(entries)) : 0;
}

/*
 * KVM_WRITE_PROTECT_ALL_MEM answers an overflow in O(1).  But a CPU's own log
 * of writes is worth more: without it the guest pays a fault for each page
 * that it writes.
 */
static void ring_need_protect(KvmDirty *kvmd)
{
    int can = kvmd_check_extension(kvmd, KVM_CAP_WRITE_PROTECT_ALL_MEM);

    if (!(can & KVM_WRITE_PROTECT_DISABLES_CPU_LOG)) {
        kvmd_cap_need(kvmd, KVMD_CAP_PROTECT, kvmd_ring_ops.name, NULL);
    }
}

static bool ring_enable(KvmDirty *kvmd, GError **error)
{
    uint32_t most = kvmd_ring_most(kvmd);
    int ret;

    if (!most) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking=ring is not possible: this host's KVM "
                    "has no dirty rings (KVM_CAP_DIRTY_LOG_RING)");
        return false;
    }
    if (!kvmd->ring_size) {
        kvmd->ring_size = MIN(most, KVMD_RING_DEFAULT);
    }
    if (kvmd->ring_size > most) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-ring-size=%u is more than this host's KVM can "
                    "give: allowed are 0 (no ring) and powers of two up to "
                    "%u", kvmd->ring_size, most);
        return false;
    }
    ret = kvmd_enable_cap(kvmd, KVM_CAP_DIRTY_LOG_RING, ring_bytes(kvmd));
    if (ret < 0) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_REFUSED,
                    "dirty-ring-size=%u is refused by this host's KVM (%s): "
                    "allowed are 0 (no ring) and powers of two up to %u; "
                    "from 1024 on a ring holds what any CPU logs by itself",
                    kvmd->ring_size, g_strerror(-ret), most);
        return false;
    }
    ring_need_protect(kvmd);
    return true;
}

static void ring_begin(KvmDirty *kvmd)
{
    RingVm *vm = g_new0(RingVm, 1);

    vm->rings = g_ptr_array_new_with_free_func(g_free);
    kvmd->state = vm;
}

static void ring_end(KvmDirty *kvmd)
{
    RingVm *vm = kvmd->state;

    for (guint i = 0; i < vm->rings->len; i++) {
        Ring *r = g_ptr_array_index(vm->rings, i);

        munmap(r->gfns, ring_bytes(kvmd));
    }
    g_ptr_array_unref(vm->rings);
    g_clear_pointer(&kvmd->state, g_free);
}

static int ring_sync_all(KvmDirty *kvmd)
{
    ring_reap_all(kvmd);
    return 0;
}

/*
 * Initially-all-set (KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2) must stay off.  With
 * it KVM does not write-protect a slot when logging begins, and a page that is
 * never re-armed never enters a ring.
 */
const KvmDirtyOps kvmd_ring_ops = {
    .name = "ring",
    .enable = ring_enable,
    .begin = ring_begin,
    .end = ring_end,
    .sync_all = ring_sync_all,
    .harvest_all = ring_sync_all,
    .vcpu_add = ring_vcpu_add,
    .vcpu_remove = ring_vcpu_remove,
    .vcpu_full = ring_vcpu_full,
    .look = ring_look,
    .reap = ring_reap_filled,
    .outlives_slot = true,
    .kick_first = true,
    .for_life = "dirty rings",
};
