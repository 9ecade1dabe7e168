/*
 * The mechanism "ring": a ring of dirty pages per vCPU, filled by KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Indices count up for ever and are taken modulo the size.  KVM keeps two per
 * ring: "dirty", where the vCPU fills the next entry, and "reset", the oldest
 * entry not yet re-armed.  Neither can be read.  We keep "fetch", the next
 * entry to collect, and "reset", which is KVM's.  A batch is: collect some
 * entries, KVM_RESET_DIRTY_RINGS, publish them (I2, I3).  Between batches
 * fetch is reset.
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
 * After an overflow dirty - reset is unknown.  The ring is then "suspect",
 * and is searched as a whole until the entries found show where dirty is.  If
 * dirty - reset is still beyond the soft limit, the vCPU leaves KVM with a
 * full ring in which nothing is to be found, and would do so for ever:
 * unstick() lets reset catch up.  reset never passes dirty: dirty - reset
 * would be about 2^32, which is stuck for good.
 */

#include "engine.h"
#include "ordering.h"

#include <errno.h>
#include <sys/mman.h>

/*
 * Entries collected from one ring per reset: few enough for the argument
 * above (a reset takes a tenth of the time of a fault, so at most 51 entries
 * fill meanwhile, of at least 64 in reserve), enough that the TLB flush that
 * ends a reset is cheap per page.
 */
#define BATCH_MAX 512

/* A batch is at most 1 / BATCH_FRACTION of a ring. */
#define BATCH_FRACTION 4

/*
 * A soft limit is at least this part of the size: KVM keeps 64 entries and
 * the CPU's own log (512 with PML) in reserve, and wants 1,024 in all then.
 */
#define SOFT_LIMIT_FRACTION 4

/* Resets that may find nothing to do because a signal was pending. */
#define RESET_TRIES 4

typedef struct RingPage {
    uint32_t slot_id;
    uint64_t offset;
} RingPage;

struct KvmDirtyVcpu {
    KvmDirty *kvmd;
    unsigned long id;
    void *vcpu;                 /* the VMM's */
    struct kvm_dirty_gfn *gfns; /* NULL while the vCPU is removed */
    uint32_t fetch;
    uint32_t reset;
    uint32_t batch_reset;       /* reset when the batch began */
    uint32_t left;              /* entries this reap may still take */
    bool suspect;
    bool full_in_vain;          /* it left with a full ring, all of which */
    uint32_t full_fetch;        /* ... had been collected up to here */
    uint64_t taken;             /* since kvmd_ring_take_fill() */
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

    return v->gfns && (v->fetch - v->batch_reset == size ||
                       is_dirty(v, v->batch_reset + size - 1));
}

/* Have KVM's reset pass @n entries, whatever they hold: it re-arms a page. */
static void give_back(KvmDirtyVcpu *v, uint32_t n)
{
    while (n--) {
        gfn_give_back(entry(v, v->fetch++));
    }
}

/*
 * In a suspect ring an entry filled beyond a free one shows that dirty has
 * passed both: what lies between was lost.
 */
static bool close_gap(KvmDirtyVcpu *v)
{
    for (uint32_t n = 1; v->fetch + n - v->reset < v->kvmd->ring_size; n++) {
        if (is_dirty(v, v->fetch + n)) {
            give_back(v, n);
            return true;
        }
    }
    return false;
}

static void take(KvmDirtyVcpu *v)
{
    struct kvm_dirty_gfn *gfn = entry(v, v->fetch);

    v->batch[v->n++] = (RingPage) { gfn_slot(gfn), gfn_offset(gfn) };
    give_back(v, 1);
}

static void collect(KvmDirtyVcpu *v)
{
    uint32_t size = v->kvmd->ring_size;
    uint32_t most = MIN(MIN(size / BATCH_FRACTION, BATCH_MAX), v->left);
    bool gap = false;

    v->n = 0;
    v->batch_reset = v->reset;
    while (v->n < most && v->fetch - v->reset < size) {
        uint32_t flags = gfn_flags(entry(v, v->fetch));

        if (flags & KVM_DIRTY_GFN_F_DIRTY) {
            take(v);
        } else if (flags & KVM_DIRTY_GFN_F_RESET) {
            v->fetch++;         /* collected before a reset that fell short */
        } else if (v->suspect && close_gap(v)) {
            gap = true;
        } else {
            /* Entries at fetch and none elsewhere: fetch meets dirty again. */
            v->suspect = v->suspect && (gap || !v->n || lapped(v));
            break;
        }
    }
    v->left -= v->n;
    v->taken += v->n;
}

static int reset_once(KvmDirty *kvmd)
{
    int ret = 0;

    for (int i = 0; i < RESET_TRIES && ret == 0; i++) {
        ret = kvmd_vm_ioctl(kvmd, KVM_RESET_DIRTY_RINGS, NULL);
    }
    return ret;
}

/*
 * A reset stopped before fetch, at an entry that was filled again before its
 * time.  Which one, among those now dirty, only KVM knows: offer them one by
 * one, until it goes on.
 */
static void find_reset(KvmDirtyVcpu *v)
{
    uint32_t end = v->fetch;

    for (v->fetch = v->reset; v->fetch != end; v->fetch++) {
        uint32_t at = v->fetch;
        int ret;

        if (!is_dirty(v, at)) {
            continue;
        }
        gfn_give_back(entry(v, at));
        ret = kvmd_vm_ioctl(v->kvmd, KVM_RESET_DIRTY_RINGS, NULL);
        if (ret > 0) {
            v->reset = v->fetch = at + ret;
            return;
        }
    }
    v->reset = end;
}

/* Returns: false if KVM re-armed less than was collected. */
static bool reset_rings(KvmDirty *kvmd, KvmDirtyVcpu **rings, guint n)
{
    uint64_t due = 0, done = 0;
    int ret = 1;

    for (guint i = 0; i < n; i++) {
        due += rings[i]->fetch - rings[i]->reset;
    }
    while (done < due && ret > 0) {
        ret = reset_once(kvmd);
        done += MAX(ret, 0);
    }
    if (ret < 0 && !kvmd->reset_failed) {
        kvmd->reset_failed = true;
        kvmd_warn(kvmd, "KVM_RESET_DIRTY_RINGS failed (%s): all pages are "
                  "taken as dirty", g_strerror(-ret));
    }
    for (guint i = 0; i < n; i++) {
        if (ret == 0) {
            find_reset(rings[i]);
        }
        rings[i]->reset = rings[i]->fetch;
    }
    return done >= due;
}

static void publish(KvmDirty *kvmd, const KvmDirtyVcpu *v)
{
    KvmDirtySlot *slot = NULL;
    uint64_t first = 0, word = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        const RingPage *page = &v->batch[i];
        KvmDirtySlot *of = kvmd_slot_get(kvmd, page->slot_id);
        uint64_t bit = page->offset % KVMD_WORD_PAGES;

        if (!of || page->offset >= kvmd_slot_pages(kvmd, of)) {
            continue;           /* torn by an overflow */
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
    if (v->n && kvmd->vmm.collected) {
        kvmd->vmm.collected(kvmd->opaque, v->vcpu, v->n);
    }
}

/* Harvest, re-arm and publish up to a batch of each ring; adds to @overflow. */
static uint64_t reap_batch(KvmDirty *kvmd, KvmDirtyVcpu **rings, guint n,
                           bool *overflow)
{
    int64_t start = kvmd_now(), collected, armed;
    uint64_t pages = 0;

    for (guint i = 0; i < n; i++) {
        collect(rings[i]);
        pages += rings[i]->n;
    }
    collected = kvmd_now();
    if (!reset_rings(kvmd, rings, n)) {
        *overflow = true;
    }
    for (guint i = 0; i < n; i++) {
        if (lapped(rings[i])) {
            *overflow = rings[i]->suspect = true;
        }
    }
    armed = kvmd_now();
    for (guint i = 0; i < n; i++) {
        publish(kvmd, rings[i]);
    }
    kvmd->stats.harvest_ns += collected - start;
    kvmd->stats.rearm_ns += armed - collected;
    kvmd->stats.publish_ns += kvmd_now() - armed;
    return pages;
}

/*
 * Reap @n rings: every entry that was there when the reap began, and at most
 * as many as a ring has, as a vCPU may go on writing for ever.
 */
static uint64_t reap(KvmDirty *kvmd, KvmDirtyVcpu **rings, guint n)
{
    uint64_t pages, total = 0;
    bool overflow = false;

    for (guint i = 0; i < n; i++) {
        rings[i]->left = rings[i]->gfns ? kvmd->ring_size : 0;
    }
    do {
        bool known = overflow;

        pages = reap_batch(kvmd, rings, n, &overflow);
        total += pages;
        if (overflow && !known) {
            pages = 1;          /* look again, the ring is suspect now */
        }
    } while (pages);
    kvmd->stats.pages += total;
    kvmd->stats.harvests += total != 0;
    if (overflow || kvmd->rearm_failed) {
        kvmd_overflow(kvmd);
    }
    return total;
}

uint64_t kvmd_ring_reap(KvmDirty *kvmd, KvmDirtyVcpu *vcpu)
{
    if (vcpu) {
        return reap(kvmd, &vcpu, 1);
    }
    return reap(kvmd, (KvmDirtyVcpu **)kvmd->vcpus->pdata, kvmd->vcpus->len);
}

double kvmd_ring_take_fill(KvmDirty *kvmd)
{
    uint64_t most = 0;

    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *v = g_ptr_array_index(kvmd->vcpus, i);

        most = MAX(most, v->taken);
        v->taken = 0;
    }
    return (double)most / kvmd->ring_size;
}

/*
 * The vCPU of @v left KVM with a full ring, and there was nothing to collect.
 * Once, that can be another thread's doing, which reaped it on its way here.
 * Twice with no entry collected in between, KVM has since found dirty - reset
 * at the soft limit or beyond, while reset was where it is now.
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
        v->suspect = true;
        kvmd_overflow(kvmd);
        return;
    }
    give_back(v, kvmd->ring_size / SOFT_LIMIT_FRACTION);
    reset_rings(kvmd, &v, 1);
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

static KvmDirtyVcpu *vcpu_get(KvmDirty *kvmd, unsigned long id)
{
    KvmDirtyVcpu *v;

    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        v = g_ptr_array_index(kvmd->vcpus, i);
        if (v->id == id) {
            return v;
        }
    }
    v = g_new0(KvmDirtyVcpu, 1);
    v->kvmd = kvmd;
    v->id = id;
    g_ptr_array_add(kvmd->vcpus, v);
    return v;
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

KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error)
{
    struct kvm_dirty_gfn *gfns = NULL;
    KvmDirtyVcpu *v;

    if (kvmd->ring_size) {
        gfns = ring_map(kvmd, fd, error);
        if (!gfns) {
            return NULL;
        }
    }
    g_mutex_lock(&kvmd->lock);
    v = vcpu_get(kvmd, id);
    v->vcpu = vcpu;
    v->gfns = gfns;
    g_mutex_unlock(&kvmd->lock);
    return v;
}

void kvmd_vcpu_remove(KvmDirtyVcpu *v)
{
    KvmDirty *kvmd = v->kvmd;

    g_mutex_lock(&kvmd->lock);
    if (v->gfns) {
        kvmd_ring_reap(kvmd, v);
        munmap(v->gfns, ring_bytes(kvmd));
        v->gfns = NULL;
    }
    v->vcpu = NULL;
    g_mutex_unlock(&kvmd->lock);
}

static bool ring_enable(KvmDirty *kvmd, GError **error)
{
    uint32_t most = kvmd_check_extension(kvmd, KVM_CAP_DIRTY_LOG_RING) /
        sizeof(struct kvm_dirty_gfn);
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
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-ring-size=%u is refused by this host's KVM (%s): "
                    "allowed are 0 (no ring) and powers of two up to %u; "
                    "from 1024 on a ring holds what any CPU logs by itself",
                    kvmd->ring_size, g_strerror(-ret), most);
        return false;
    }
    return true;
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
    .sync_all = ring_sync_all,
};
