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
 * at that entry (lapped()) sees every overflow there is, whatever the race it
 * made: a page overwritten before it was collected, an entry overwritten
 * before it was reset (the reset comes back short), one overwritten while it
 * is being reset (it is left free, with entries filled behind it: a gap), or
 * a torn read by either side.
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
 * unstick() lets reset catch up.  reset never passes dirty: dirty - reset
 * would be about 2^32, which is stuck for good.
 */

#include "engine.h"
#include "ordering.h"

#include <errno.h>
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

struct KvmDirtyVcpu {
    KvmDirty *kvmd;
    unsigned long id;
    void *vcpu;                 /* the VMM's; NULL while it is removed */
    struct kvm_dirty_gfn *gfns; /* NULL without rings */
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
};

static struct kvm_dirty_gfn *entry(const KvmDirtyVcpu *v, uint32_t index)
{
    return &v->gfns[index & (v->kvmd->ring_size - 1)];
}

static bool is_dirty(const KvmDirtyVcpu *v, uint32_t index)
{
    return gfn_flags(entry(v, index)) & KVM_DIRTY_GFN_F_DIRTY;
}

static bool lapped(const KvmDirtyVcpu *v)
{
    uint32_t size = v->kvmd->ring_size;

    return v->fetch - v->batch_reset == size ||
           is_dirty(v, v->batch_reset + size - 1);
}

static void suspect(KvmDirtyVcpu *v)
{
    v->suspect = true;
    v->drained = false;
}

static void take(KvmDirtyVcpu *v)
{
    struct kvm_dirty_gfn *gfn = entry(v, v->fetch++);

    v->batch[v->n++] = (RingPage) { gfn_slot(gfn), gfn_offset(gfn) };
    gfn_give_back(gfn);
}

/*
 * Have KVM's reset pass @n entries in which nothing is.  What they held once
 * must not be re-armed: KVM does that to neighbouring entries together, and
 * not at all if one of them is past the end of its slot.
 */
static void pass_over(KvmDirtyVcpu *v, uint32_t n)
{
    while (n--) {
        struct kvm_dirty_gfn *gfn = entry(v, v->fetch++);

        gfn_name_no_page(gfn);
        gfn_give_back(gfn);
    }
}

/* Entries from @from on that are not dirty, up to @end. */
static uint32_t clean_run(const KvmDirtyVcpu *v, uint32_t from, uint32_t end)
{
    uint32_t n = 0;

    while (from + n != end && !is_dirty(v, from + n)) {
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
static bool close_gap(KvmDirtyVcpu *v)
{
    uint32_t end = v->reset + v->kvmd->ring_size;
    uint32_t n = clean_run(v, v->fetch, end);

    if (v->fetch + n == end) {
        return false;
    }
    pass_over(v, clean_run(v, v->fetch, v->fetch + n));
    return true;
}

/* The whole of a suspect ring was searched; @found says if in vain. */
static void settle(KvmDirtyVcpu *v, bool found)
{
    if (!found) {
        v->drained = v->fetch == v->reset;
    } else if (v->drained && !lapped(v)) {
        v->suspect = false;
    }
}

/*
 * Returns: true if, by what it found in a suspect ring, that overflowed; or if
 * by what it found in another, which then is suspect, KVM cannot be right.
 */
static bool collect(KvmDirtyVcpu *v)
{
    uint32_t size = v->kvmd->ring_size;
    uint32_t batch = CLAMP(size / BATCH_FRACTION, 1, BATCH_MAX);
    uint32_t most = MIN(batch, v->left);
    bool known = !v->suspect || v->drained;
    bool found = false, strange = false;

    v->n = 0;
    v->batch_reset = v->reset;
    while (v->fetch - v->reset < size) {
        uint32_t flags = gfn_flags(entry(v, v->fetch));

        if (flags & KVM_DIRTY_GFN_F_RESET) {
            /* It was collected before a reset that fell short, if that is so. */
            strange = strange || !v->suspect;
            v->fetch++;
        } else if (v->n == most) {
            break;
        } else if (flags & KVM_DIRTY_GFN_F_DIRTY) {
            take(v);
            found = true;
        } else if (v->suspect && close_gap(v)) {
            found = true;
        } else {
            if (v->suspect) {
                settle(v, found);
            }
            break;
        }
    }
    v->left -= v->n;
    if (strange) {
        suspect(v);
    }
    return strange || (found && !known);
}

/*
 * Linux 6.16 and later stop a reset when a signal is pending, and then do not
 * re-arm the last entries that they counted, so none may be.
 */
static int reset_ioctl(KvmDirty *kvmd)
{
    sigset_t all, old;
    int ret;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    ret = kvmd_vm_ioctl(kvmd, KVM_RESET_DIRTY_RINGS, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ret;
}

static void warn_of_reset(KvmDirty *kvmd, int error)
{
    if (!kvmd->reset_failed) {
        kvmd->reset_failed = true;
        kvmd_warn(kvmd, "KVM_RESET_DIRTY_RINGS failed (%s): all pages are "
                  "taken as dirty", g_strerror(error));
    }
}

/* Only KVM frees an entry, and then it has passed it, whatever it counted. */
static void follow_reset(KvmDirtyVcpu *v)
{
    while (v->reset != v->fetch &&
           !(gfn_flags(entry(v, v->reset)) &
             (KVM_DIRTY_GFN_F_DIRTY | KVM_DIRTY_GFN_F_RESET))) {
        v->reset++;
    }
}

/* Whether KVM has reset the entry before fetch; it may be filled again. */
static bool reset_has_come(const KvmDirtyVcpu *v)
{
    return !(gfn_flags(entry(v, v->fetch - 1)) & KVM_DIRTY_GFN_F_RESET);
}

/*
 * KVM stops before fetch at an entry that was filled again before its time.
 * Returns: false if what was re-armed is not just what was collected.
 */
static bool reset_collected(KvmDirtyVcpu *v)
{
    bool whole = true;
    int tries = 0;

    while (v->fetch != v->reset && tries < RESET_TRIES) {
        uint32_t left = v->fetch - v->reset;
        int ret = reset_ioctl(v->kvmd);

        if (ret < 0) {
            warn_of_reset(v->kvmd, -ret);
            return false;
        }
        whole = whole && (uint32_t)ret == left && reset_has_come(v);
        v->reset += MIN((uint32_t)ret, left);
        v->full_in_vain = v->full_in_vain && !ret;
        if (!ret && is_dirty(v, v->reset)) {
            v->fetch = v->reset;
        } else if (!ret) {
            follow_reset(v);
            tries++;
        }
    }
    return whole;
}

/*
 * Have KVM reset what was collected of @v, while no other ring has anything
 * for it to reset, so that the count is about this one.  What it leaves is
 * owed.
 * Returns: as reset_collected().
 */
static bool reset_ring(KvmDirtyVcpu *v)
{
    bool whole = reset_collected(v);

    v->kvmd->owing = v->fetch == v->reset ? NULL : v;
    return whole;
}

/*
 * Returns: false if an entry names no page: it was torn by an overflow, or KVM
 * is not right, and which page was written is unknown.
 */
static bool publish(KvmDirty *kvmd, const KvmDirtyVcpu *v)
{
    KvmDirtySlot *slot = NULL;
    uint64_t first = 0, word = 0;
    bool known = true;

    for (uint32_t i = 0; i < v->n; i++) {
        const RingPage *page = &v->batch[i];
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
    if (v->n && v->vcpu && kvmd->vmm.collected) {
        kvmd->vmm.collected(kvmd->opaque, v->vcpu, v->n);
    }
    return known;
}

/* Returns: false if @v overflowed, or may have. */
static bool reap_batch(KvmDirty *kvmd, KvmDirtyVcpu *v)
{
    int64_t start = kvmd_now(), collected, armed;
    bool overflow = collect(v);

    collected = kvmd_now();
    if (!reset_ring(v) || lapped(v)) {
        overflow = true;
        suspect(v);
    }
    armed = kvmd_now();
    overflow = !publish(kvmd, v) || overflow;
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
static bool reap_ring(KvmDirty *kvmd, KvmDirtyVcpu *v, uint64_t *pages)
{
    bool good = true, again = true;

    v->left = kvmd->ring_size;
    while (again) {
        bool was_good = good;

        good = reap_batch(kvmd, v) && good;
        *pages += v->n;
        /* A ring that turns out suspect has to be searched. */
        again = v->fetch == v->reset && (v->n || (was_good && !good));
    }
    return good;
}

/*
 * A ring whose reset failed may be reset by the next one, whichever ring that
 * is for: it comes first, and as long as it fails no ring is reaped.
 */
static bool settle_debt(KvmDirty *kvmd)
{
    if (kvmd->owing) {
        reset_ring(kvmd->owing);
    }
    return !kvmd->owing;
}

static uint64_t reap(KvmDirty *kvmd, KvmDirtyVcpu **rings, guint n)
{
    bool good = !kvmd->owing && !kvmd->rearm_failed;
    uint64_t pages = 0;

    for (guint i = 0; i < n && settle_debt(kvmd); i++) {
        good = reap_ring(kvmd, rings[i], &pages) && good;
    }
    kvmd->stats.pages += pages;
    kvmd->stats.harvests += pages != 0;
    if (!good) {
        kvmd_overflow(kvmd);
    }
    return pages;
}

uint64_t kvmd_ring_reap(KvmDirty *kvmd, KvmDirtyVcpu *vcpu)
{
    if (vcpu) {
        return reap(kvmd, &vcpu, 1);
    }
    return reap(kvmd, (KvmDirtyVcpu **)kvmd->vcpus->pdata, kvmd->vcpus->len);
}

/* No ring of @size entries has a soft limit below this. */
static uint32_t soft_limit_min(uint32_t size)
{
    return MAX(MAX(size / SOFT_LIMIT_FRACTION, 1),
               size - MIN(size, RESERVE_MAX));
}

/*
 * Entries to be collected: they follow each other from fetch on.  A ring
 * counts as full if it overflowed, or owes a reset, which makes it suspect
 * too; and each does if memory is to be re-armed after an overflow.
 */
static uint32_t count_waiting(const KvmDirtyVcpu *v)
{
    uint32_t n = 0, end = v->kvmd->ring_size;

    if (v->suspect || v->kvmd->rearm_failed) {
        return end;
    }
    while (n < end) {
        uint32_t middle = n + (end - n) / 2;

        if (is_dirty(v, v->fetch + middle)) {
            n = middle + 1;
        } else {
            end = middle;
        }
    }
    return n;
}

KvmDirtyFill kvmd_ring_look(KvmDirty *kvmd)
{
    double whole = soft_limit_min(kvmd->ring_size);
    uint32_t most = 0;
    int32_t grown = 0;

    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *v = g_ptr_array_index(kvmd->vcpus, i);
        uint32_t dirty;

        v->waiting = count_waiting(v);
        dirty = v->fetch + v->waiting;
        most = MAX(most, v->waiting);
        /* Negative if the ring counted as full then. */
        grown = MAX(grown, (int32_t)(dirty - v->seen));
        v->seen = dirty;
    }
    return (KvmDirtyFill) { .most = most / whole, .grown = grown / whole };
}

void kvmd_ring_reap_filled(KvmDirty *kvmd, double least)
{
    g_autoptr(GPtrArray) filled = g_ptr_array_new();

    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *v = g_ptr_array_index(kvmd->vcpus, i);

        if (v->waiting >= least * soft_limit_min(kvmd->ring_size)) {
            g_ptr_array_add(filled, v);
        }
    }
    reap(kvmd, (KvmDirtyVcpu **)filled->pdata, filled->len);
}

/* Whether KVM has reset all that it was given to reset. */
static bool nothing_to_reset(KvmDirty *kvmd)
{
    int ret = reset_ioctl(kvmd);

    if (ret < 0) {
        warn_of_reset(kvmd, -ret);
    }
    return ret == 0;
}

/*
 * The vCPU of @v left KVM with a full ring, and there was nothing to collect.
 * Once, that can be another thread's doing, which reaped it on its way here.
 * Twice with no entry collected in between, KVM has since found dirty - reset
 * at the soft limit or beyond, while reset was where it is now; unless KVM has
 * not reset what it said it had.
 */
static void unstick(KvmDirty *kvmd, KvmDirtyVcpu *v)
{
    if (!v->full_in_vain || v->full_fetch != v->fetch) {
        v->full_in_vain = true;
        v->full_fetch = v->fetch;
        return;
    }
    v->full_in_vain = false;
    if (!v->suspect) {
        suspect(v);
        kvmd_overflow(kvmd);
    } else if (!kvmd->owing && nothing_to_reset(kvmd)) {
        pass_over(v, soft_limit_min(kvmd->ring_size));
        reset_ring(v);
    }
}

void kvmd_vcpu_ring_full(KvmDirtyVcpu *v)
{
    KvmDirty *kvmd = v->kvmd;
    int64_t start = kvmd_now();

    g_mutex_lock(&kvmd->lock);
    if (!kvmd_ring_reap(kvmd, v)) {
        unstick(kvmd, v);
    }
    kvmd_reaper_hurry(kvmd);
    kvmd->stats.ring_full_exits++;
    kvmd->stats.ring_full_ns += kvmd_now() - start;
    g_mutex_unlock(&kvmd->lock);
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

static KvmDirtyVcpu *vcpu_get(KvmDirty *kvmd, unsigned long id)
{
    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *v = g_ptr_array_index(kvmd->vcpus, i);

        if (v->id == id) {
            return v;
        }
    }
    return NULL;
}

static KvmDirtyVcpu *vcpu_new(KvmDirty *kvmd, unsigned long id, int fd,
                              GError **error)
{
    struct kvm_dirty_gfn *gfns = NULL;
    KvmDirtyVcpu *v;

    if (kvmd->ring_size) {
        gfns = ring_map(kvmd, fd, error);
        if (!gfns) {
            return NULL;
        }
    }
    v = g_new0(KvmDirtyVcpu, 1);
    v->kvmd = kvmd;
    v->id = id;
    v->gfns = gfns;
    g_ptr_array_add(kvmd->vcpus, v);
    return v;
}

/* The mapping of a removed vCPU's ring is kept: it may come back. */
KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error)
{
    KvmDirtyVcpu *v;

    g_mutex_lock(&kvmd->lock);
    v = vcpu_get(kvmd, id);
    if (!v) {
        v = vcpu_new(kvmd, id, fd, error);
    }
    if (v) {
        v->vcpu = vcpu;
    }
    g_mutex_unlock(&kvmd->lock);
    return v;
}

void kvmd_vcpu_remove(KvmDirtyVcpu *v)
{
    KvmDirty *kvmd = v->kvmd;

    g_mutex_lock(&kvmd->lock);
    if (v->gfns) {
        kvmd_ring_reap(kvmd, v);
    }
    v->vcpu = NULL;
    g_mutex_unlock(&kvmd->lock);
}

/* KVM says how many bytes, which may be no power of two. */
uint32_t kvmd_ring_most(KvmDirty *kvmd)
{
    uint32_t entries = kvmd_check_extension(kvmd, KVM_CAP_DIRTY_LOG_RING) /
        sizeof(struct kvm_dirty_gfn);

    return entries ? UINT32_C(1) << (31 - __builtin_clz(entries)) : 0;
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
    /* If it can be: logging then begins in O(1), and so ends an overflow. */
    kvmd_protect_enable(kvmd, KVMD_RING, NULL);
    return true;
}

static void ring_end(KvmDirty *kvmd)
{
    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *v = g_ptr_array_index(kvmd->vcpus, i);

        munmap(v->gfns, ring_bytes(kvmd));
    }
}

static int ring_sync_all(KvmDirty *kvmd)
{
    kvmd_ring_reap(kvmd, NULL);
    return 0;
}

/*
 * Logging of a slot begins with KVM write-protecting it, so initially-all-set
 * (KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2), which leaves that out, must stay off:
 * a page that is never re-armed never enters a ring.
 */
const KvmDirtyOps kvmd_ring_ops = {
    .enable = ring_enable,
    .end = ring_end,
    .sync_all = ring_sync_all,
    .outlives_slot = true,
};
