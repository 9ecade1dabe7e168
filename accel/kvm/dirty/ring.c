/*
 * The mechanism "ring": a ring of dirty pages per vCPU, filled by KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Indices count up for ever and are taken modulo the size.  KVM keeps two per
 * ring: "dirty", where the vCPU fills the next entry, and "reset", the oldest
 * entry not yet re-armed.  Neither can be read.  We keep "fetch", the next
 * entry to collect, and "reset", which is KVM's.  A batch is: collect some
 * entries of a ring, KVM_RESET_DIRTY_RINGS, publish them (I2, I3).  Each ring
 * has a reset of its own, since KVM tells only how many entries it has reset
 * in all rings together: so reset is always known, and between batches fetch
 * is reset.
 *
 * Overflow (I8).  KVM asks a vCPU to stop when dirty - reset reaches a soft
 * limit, but not every KVM enforces it, and the vCPU fills on.  An entry is
 * lost, or a collected one is not re-armed, only by filling an entry when
 * dirty - reset >= size.  Say that happens between the ends of two batches,
 * and let R be reset as the first one left it: then dirty >= R + size, so the
 * vCPU had by then filled the entry R + size - 1, and only the collector,
 * after the second batch, takes DIRTY from it.  So after each reset one look
 * at that entry (ring_lapped()) sees every overflow there is, whatever the
 * race it made: a page overwritten before it was collected, an entry
 * overwritten before it was reset (the reset comes back short), one
 * overwritten while it is being reset (it is left free, with entries filled
 * behind it: a gap), or a torn read by either side.
 *
 * The converse does not hold, and the answer to a false alarm is only slow.
 * It takes a vCPU that fills the rest of the ring during one reset; a batch
 * is short enough that it would have to fill more than the entries that KVM
 * keeps in reserve behind the soft limit.
 *
 * After an overflow dirty - reset is unknown, and may exceed the size.  The
 * ring is then "suspect": it is searched as a whole, and each batch that finds
 * anything is an overflow too, since the entry to look at may have gone with
 * an earlier batch.  That ends when the whole ring is found empty: it is
 * "drained".  The first entry filled after that shows where dirty is, modulo
 * the size; once fetch has met it, nothing is suspect any more.
 *
 * If dirty - reset is still beyond the soft limit then, the vCPU leaves KVM
 * with a full ring in which nothing is to be found, and would do so for ever:
 * ring_unstick() lets reset catch up.  reset never passes dirty: dirty - reset
 * would be about 2^32, which is stuck for good.
 */

#include "mechanism.h"
#include "ordering.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <signal.h>
#include <sys/mman.h>

/*
 * Entries collected from a ring per reset: few enough for the argument above
 * (a reset takes a tenth of the time of a fault, so at most 51 entries fill
 * meanwhile, of at least 64 in reserve), enough that the TLB flush that ends
 * a reset is cheap per page.
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
 * Resets that may do nothing, although there is something to do: with signals
 * blocked only work that the kernel queued for this thread can cause it, and
 * that is done when the ioctl returns.
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
    bool full_in_vain;          /* it left with a full ring, all of which */
    uint32_t full_fetch;        /* ... had been collected up to here */
    uint32_t waiting;           /* entries to be collected, at the last look */
    uint32_t seen;              /* and dirty */
    uint32_t n;
    RingPage batch[BATCH_MAX];
} Ring;

typedef struct RingVm {
    GPtrArray *rings;           /* Ring *, of removed vCPUs too */
    bool reset_failed;          /* once, and the operator knows */
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
 * Have KVM's reset pass @n entries in which nothing is.  What they held once
 * must not be re-armed: KVM does that to neighbouring entries together, and
 * not at all if one of them is past the end of its slot.
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
 * In a suspect ring an entry filled beyond a free one shows that dirty has
 * passed both: what lies between was lost.  The vCPU may fill what was free
 * when fetch came there, but it does so before it fills the one beyond:
 * having seen that, a second look sees which are free indeed.
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

/* The whole of a suspect ring was searched; @found says if in vain. */
static void ring_settle(Ring *r, bool found)
{
    if (!found) {
        r->drained = r->fetch == r->reset;
    } else if (r->drained && !ring_lapped(r)) {
        r->suspect = false;
    }
}

/*
 * Returns: true if, by what it found in a suspect ring, that overflowed; or if
 * by what it found in another, which then is suspect, KVM cannot be right.
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
            /* It was collected before a reset that fell short, if that is so. */
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
 * re-arm the last entries that they counted, so none may be.
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

/* Only KVM frees an entry, and then it has passed it, whatever it counted. */
static void ring_follow_reset(Ring *r)
{
    while (r->reset != r->fetch &&
           !(gfn_flags(ring_entry(r, r->reset)) &
             (KVM_DIRTY_GFN_F_DIRTY | KVM_DIRTY_GFN_F_RESET))) {
        r->reset++;
    }
}

/* Whether KVM has reset the entry before fetch; it may be filled again. */
static bool ring_reset_has_come(const Ring *r)
{
    return !(gfn_flags(ring_entry(r, r->fetch - 1)) & KVM_DIRTY_GFN_F_RESET);
}

/*
 * Have KVM reset what was collected of @r.  No other ring has anything for it
 * to reset then, so that the count is about this one: unless a reset of
 * another has failed, and then this one counts too much, and that one's next
 * too little.  KVM stops before fetch at an entry that was filled again before
 * its time.
 * Returns: false if what was re-armed is not just what was collected.
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
            return false;
        }
        whole = whole && (uint32_t)ret == left && ring_reset_has_come(r);
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
 * Returns: false if an entry names no page: it was torn by an overflow, or KVM
 * is not right, and which page was written is unknown.
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
 * Reap a ring: every entry that was there when the reap began, and at most as
 * many as it has, as a vCPU may go on writing for ever.
 * Returns: false if it overflowed, or may have.
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
 * Entries to be collected: they follow each other from fetch on.  A ring
 * counts as full if it overflowed, or its reset failed, which makes it suspect
 * too; and each does if memory is to be re-armed after an overflow.
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

/* Reads 16 entries of a ring of 65,536. */
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

/* Whether KVM has reset all that it was given to reset. */
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
 * Once, that can be another thread's doing, which reaped it on its way here.
 * Twice with no entry collected in between, KVM has since found dirty - reset
 * at the soft limit or beyond, while reset was where it is now; unless KVM has
 * not reset what it said it had.
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

/* KVM says how many bytes, which may be no power of two. */
uint32_t kvmd_ring_most(KvmDirty *kvmd)
{
    uint32_t entries = kvmd_check_extension(kvmd, KVM_CAP_DIRTY_LOG_RING) /
        sizeof(struct kvm_dirty_gfn);

    return entries ? UINT32_C(1) << (31 - __builtin_clz(entries)) : 0;
}

/*
 * With KVM_WRITE_PROTECT_ALL_MEM, an overflow is over in O(1).  A CPU's own
 * log of writes is worth more: without it the guest pays a fault for each page
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

static void ring_sync_ahead(KvmDirty *kvmd, KvmDirtyAhead of)
{
    (void)of;
    ring_reap_all(kvmd);
}

/*
 * Logging of a slot begins with KVM write-protecting it, so initially-all-set
 * (KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2), which leaves that out, must stay off:
 * a page that is never re-armed never enters a ring.
 */
const KvmDirtyOps kvmd_ring_ops = {
    .name = "ring",
    .enable = ring_enable,
    .begin = ring_begin,
    .end = ring_end,
    .sync_all = ring_sync_all,
    .sync_ahead = ring_sync_ahead,
    .vcpu_add = ring_vcpu_add,
    .vcpu_remove = ring_vcpu_remove,
    .vcpu_full = ring_vcpu_full,
    .look = ring_look,
    .reap = ring_reap_filled,
    .outlives_slot = true,
    .kick_first = true,
    .for_life = "dirty rings",
};
