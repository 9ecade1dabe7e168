/*
 * A KVM made of ordinary memory, to run the engine on.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "fake_kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BITS 64

static uint64_t slot_huge_pages(const FakeSlot *slot)
{
    uint64_t n = 0;

    for (uint64_t i = 0; slot && i < slot->pages / FAKE_HUGE; i++) {
        n += slot->huge[i];
    }
    return n;
}

static uint64_t huge_pages(FakeKvm *k)
{
    uint64_t n = 0;

    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            n += slot_huge_pages(k->slots[as][id]);
        }
    }
    return n;
}

/* As KVM_GET_STATS_FD has them; the last two only on a patched KVM. */
static void stats_write(FakeKvm *k)
{
    enum { NAME = 16, N = 5 };
    struct {
        struct kvm_stats_header header;
        struct {
            struct kvm_stats_desc desc;
            char name[NAME];
        } descs[N];
        uint64_t values[N];
    } stats = {
        .header = { .name_size = NAME,
                    .num_desc = k->config.patched ? N : N - 2 },
        .descs = {
            { .desc.offset = 0, .name = "pages_4k" },
            { .desc.offset = 8, .name = "pages_2m" },
            { .desc.offset = 16, .name = "pages_1g" },
            { .desc.offset = 24, .name = "write_faults" },
            { .desc.offset = 32, .name = "write_fault_ns" },
        },
        .values = { 1234567, huge_pages(k), 0, k->faults, k->fault_ns },
    };

    stats.header.desc_offset = (char *)stats.descs - (char *)&stats;
    stats.header.data_offset = (char *)stats.values - (char *)&stats;
    g_assert_cmpint(pwrite(k->stats_fd, &stats, sizeof(stats), 0), ==,
                    sizeof(stats));
}

void fake_set_faults(FakeKvm *k, uint64_t faults, uint64_t ns)
{
    g_mutex_lock(&k->slots_lock);
    k->faults = faults;
    k->fault_ns = ns;
    stats_write(k);
    g_mutex_unlock(&k->slots_lock);
}

FakeKvm *fake_new(const FakeConfig *config)
{
    FakeKvm *k = g_new0(FakeKvm, 1);

    k->config = *config;
    g_mutex_init(&k->slots_lock);
    g_mutex_init(&k->mmu_lock);
    k->vcpus = g_ptr_array_new();
    k->stats_fd = memfd_create("stats", MFD_CLOEXEC);
    g_assert_cmpint(k->stats_fd, >=, 0);
    k->stats_given = -1;
    stats_write(k);
    return k;
}

/* Other mappings of the bitmap stay. */
static void bitmap_free(FakeSlot *slot)
{
    if (slot->fd >= 0) {
        munmap(slot->dirty, slot->bitmap_size + slot->summary_size);
        close(slot->fd);
        slot->fd = -1;
    } else {
        g_free(slot->dirty);
    }
    slot->dirty = slot->summary = NULL;
}

static void slot_free(FakeSlot *slot)
{
    if (slot) {
        bitmap_free(slot);
        g_free(slot->huge);
        g_free(slot->dirty_bit);
        g_free(slot->braked);
        g_free(slot->writable);
        g_free(slot);
    }
}

void fake_free(FakeKvm *k)
{
    for (guint i = 0; i < k->vcpus->len; i++) {
        FakeVcpu *v = g_ptr_array_index(k->vcpus, i);

        if (v->map) {
            munmap(v->map, v->mapped);
        }
        close(v->fd);
        g_free(v);
    }
    g_ptr_array_unref(k->vcpus);
    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            slot_free(k->slots[as][id]);
        }
    }
    close(k->stats_fd);
    g_mutex_clear(&k->mmu_lock);
    g_mutex_clear(&k->slots_lock);
    g_free(k);
}

static void at(FakeKvm *k, FakePoint point, FakeVcpu *v)
{
    if (k->hook) {
        k->hook(k->hook_opaque, point, v);
    }
}

static FakeSlot **slot_at(FakeKvm *k, uint32_t slot_id)
{
    uint32_t as = slot_id >> 16, id = slot_id & 0xffff;

    return as < FAKE_SPACES && id < FAKE_SLOTS ? &k->slots[as][id] : NULL;
}

static FakeSlot *slot_get(FakeKvm *k, uint32_t slot_id)
{
    FakeSlot **at_id = slot_at(k, slot_id);

    return at_id ? *at_id : NULL;
}

static bool slot_logs(const FakeSlot *slot)
{
    return slot->region.flags & KVM_MEM_LOG_DIRTY_PAGES;
}

static bool starts_all_set(const FakeKvm *k)
{
    return k->manual & KVM_DIRTY_LOG_INITIALLY_SET;
}

static size_t slot_words(const FakeSlot *slot)
{
    return (slot->pages + BITS - 1) / BITS;
}

/* The vCPU */

static void ring_alloc(FakeVcpu *v, size_t bytes)
{
    size_t page = sysconf(_SC_PAGESIZE);
    size_t offset = KVM_DIRTY_LOG_PAGE_OFFSET * page;

    v->mapped = (offset + bytes + page - 1) / page * page;
    g_assert_no_errno(ftruncate(v->fd, v->mapped));
    v->map = mmap(NULL, v->mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                  v->fd, 0);
    g_assert_true(v->map != MAP_FAILED);
    v->gfns = (struct kvm_dirty_gfn *)((char *)v->map + offset);
}

FakeVcpu *fake_vcpu_new(FakeKvm *k, unsigned long id)
{
    FakeVcpu *v = g_new0(FakeVcpu, 1);

    v->kvm = k;
    v->id = id;
    v->fd = memfd_create("vcpu", MFD_CLOEXEC);
    g_assert_cmpint(v->fd, >=, 0);
    if (k->ring_size) {
        ring_alloc(v, k->ring_size * sizeof(struct kvm_dirty_gfn));
    }
    g_mutex_lock(&k->slots_lock);
    g_ptr_array_add(k->vcpus, v);
    g_mutex_unlock(&k->slots_lock);
    return v;
}

uint32_t fake_vcpu_used(const FakeVcpu *v)
{
    return __atomic_load_n(&v->dirty_index, __ATOMIC_RELAXED) -
        __atomic_load_n(&v->reset_index, __ATOMIC_RELAXED);
}

bool fake_vcpu_enters(const FakeVcpu *v)
{
    const FakeKvm *k = v->kvm;

    return !k->ring_size || k->soft_limit_off ||
        fake_vcpu_used(v) < k->ring_size - k->config.reserve;
}

/* kvm_dirty_ring_push() */
void fake_vcpu_fill(FakeVcpu *v, const struct kvm_dirty_gfn *gfn)
{
    uint32_t size = v->kvm->ring_size;
    struct kvm_dirty_gfn *to = &v->gfns[v->dirty_index & (size - 1)];

    v->lost += fake_vcpu_used(v) >= size;
    __atomic_store_n(&to->slot, gfn->slot, __ATOMIC_RELAXED);
    __atomic_store_n(&to->offset, gfn->offset, __ATOMIC_RELAXED);
    __atomic_store_n(&to->flags, gfn->flags, __ATOMIC_RELEASE);
    __atomic_store_n(&v->dirty_index, v->dirty_index + 1, __ATOMIC_RELAXED);
}

static void ring_push(FakeVcpu *v, uint32_t slot_id, uint64_t page)
{
    const struct kvm_dirty_gfn gfn = {
        .flags = KVM_DIRTY_GFN_F_DIRTY, .slot = slot_id, .offset = page,
    };

    fake_vcpu_fill(v, &gfn);
}

/* The page first, then what stands for it: ordering.h tells why. */
static void bitmap_mark(FakeSlot *slot, uint64_t page)
{
    uint64_t group = page / KVM_DIRTY_SUMMARY_PAGES;
    uint64_t bit = UINT64_C(1) << group % BITS;

    __atomic_fetch_or(&slot->dirty[page / BITS], UINT64_C(1) << page % BITS,
                      __ATOMIC_SEQ_CST);
    if (slot->summary &&
        !(__atomic_load_n(&slot->summary[group / BITS], __ATOMIC_SEQ_CST) &
          bit)) {
        __atomic_fetch_or(&slot->summary[group / BITS], bit,
                          __ATOMIC_SEQ_CST);
    }
}

static bool has_dirty_bits(const FakeKvm *k)
{
    return k->patched & FAKE_CAN_COLLECT;
}

/* mark_page_dirty_in_slot(): @v is NULL if no vCPU has written the page. */
static void mark_dirty(FakeKvm *k, FakeVcpu *v, FakeSlot *slot, uint64_t page)
{
    if (!slot_logs(slot)) {
        return;
    }
    if (k->ring_size) {
        ring_push(v, slot->region.slot, page);
    } else {
        bitmap_mark(slot, page);
    }
    if (k->logged) {
        k->logged(k->logged_opaque, slot->region.slot, page);
    }
}

void fake_write_begin(FakeVcpu *v, uint32_t slot_id, uint64_t page,
                      uint64_t stamp)
{
    g_assert_false(v->write.active);
    v->write.active = true;
    v->write.slot_id = slot_id;
    v->write.page = page;
    v->write.stamp = stamp;
}

/* Where the region of @page ends, or the slot. */
static uint64_t region_end(const FakeSlot *slot, uint64_t page)
{
    uint64_t size = sysconf(_SC_PAGESIZE);
    uint64_t gpa = slot->region.guest_phys_addr + page * size;
    uint64_t left = (FAKE_REGION - gpa % FAKE_REGION) / size;

    return MIN(page + left, slot->pages);
}

/* The pages of the region that @page is in. */
static void region_set_writable(FakeSlot *slot, uint64_t page, bool writable)
{
    uint64_t end = region_end(slot, page);

    while (page && region_end(slot, page - 1) == end) {
        page--;
    }
    for (; page < end; page++) {
        slot->writable[page] = writable;
    }
}

static void store(FakeVcpu *v, FakeSlot *slot)
{
    uint64_t *memory = (uint64_t *)(uintptr_t)slot->region.userspace_addr;

    slot->dirty_bit[v->write.page] = true;
    __atomic_store_n(&memory[v->write.page], v->write.stamp,
                     __ATOMIC_RELAXED);
    v->write.active = false;
}

/* Make the page writable, or with dirty bits its region, and log it if so. */
static void open_page(FakeVcpu *v, FakeSlot *slot, uint64_t page)
{
    bool log = !has_dirty_bits(v->kvm) || slot->braked[page];

    if (has_dirty_bits(v->kvm)) {
        region_set_writable(slot, page, true);
    } else {
        slot->writable[page] = true;
    }
    slot->braked[page] = false;
    if (log) {
        mark_dirty(v->kvm, v, slot, page);
    }
}

static void unit_split(FakeKvm *k, FakeSlot *slot, uint64_t unit)
{
    if (slot->huge[unit]) {
        slot->huge[unit] = false;
        stats_write(k);
    }
}

bool fake_write_step(FakeVcpu *v)
{
    FakeKvm *k = v->kvm;
    FakeSlot *slot;

    g_assert_true(v->write.active);
    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, v->write.slot_id);
    if (!slot || v->write.page >= slot->pages) {
        v->write.active = false;
    } else if (slot->writable[v->write.page] &&
               !slot->braked[v->write.page]) {
        store(v, slot);
    } else {
        if (slot_logs(slot)) {
            unit_split(k, slot, v->write.page / FAKE_HUGE);
        }
        open_page(v, slot, v->write.page);
    }
    g_mutex_unlock(&k->mmu_lock);
    return !v->write.active;
}

void fake_write(FakeVcpu *v, uint32_t slot_id, uint64_t page, uint64_t stamp)
{
    fake_write_begin(v, slot_id, page, stamp);
    while (!fake_write_step(v)) {
    }
}

/* KVM_RESET_DIRTY_RINGS */

typedef struct Group {
    uint32_t slot_id;
    uint64_t offset;
    uint64_t mask;
} Group;

/* kvm_reset_dirty_gfn(): all or none of a group that leaves its slot. */
static void group_rearm(FakeKvm *k, const Group *group)
{
    FakeSlot *slot;

    if (!group->mask) {
        return;
    }
    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, group->slot_id);
    if (slot && group->offset < slot->pages &&
        BITS - 1 - (uint64_t)__builtin_clzll(group->mask) <
        slot->pages - group->offset) {
        for (uint64_t mask = group->mask; mask; mask &= mask - 1) {
            slot->writable[group->offset + __builtin_ctzll(mask)] = false;
            k->rearmed++;
        }
    }
    g_mutex_unlock(&k->mmu_lock);
}

/* The coalescing of kvm_dirty_ring_reset(). */
static bool group_takes(Group *group, uint32_t slot_id, uint64_t offset)
{
    int64_t delta = offset - group->offset;

    if (!group->mask || slot_id != group->slot_id) {
        return false;
    }
    if (delta >= 0 && delta < BITS) {
        group->mask |= UINT64_C(1) << delta;
        return true;
    }
    if (delta < 0 && delta > -BITS &&
        (group->mask << -delta >> -delta) == group->mask) {
        group->offset = offset;
        group->mask = (group->mask << -delta) | 1;
        return true;
    }
    return false;
}

static bool signals_blocked(void)
{
    sigset_t mask;

    g_assert_cmpint(pthread_sigmask(SIG_BLOCK, NULL, &mask), ==, 0);
    return sigismember(&mask, SIGUSR1);
}

/* signal_pending(): true if it stops the reset here. */
static bool signalled(FakeKvm *k, int count)
{
    if (!k->reset_stops || count < k->reset_stops_after ||
        (signals_blocked() && !k->reset_stops_by_work)) {
        return false;
    }
    k->reset_stops--;
    return true;
}

static bool entry_reset(FakeVcpu *v, Group *group)
{
    FakeKvm *k = v->kvm;
    struct kvm_dirty_gfn *gfn =
        &v->gfns[v->reset_index & (k->ring_size - 1)];
    uint32_t flags = __atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE);
    uint32_t slot_id;
    uint64_t offset;

    at(k, FAKE_RESET_FLAGS, v);
    if (!(flags & KVM_DIRTY_GFN_F_RESET)) {
        return false;
    }
    slot_id = __atomic_load_n(&gfn->slot, __ATOMIC_RELAXED);
    at(k, FAKE_RESET_SLOT, v);
    offset = __atomic_load_n(&gfn->offset, __ATOMIC_RELAXED);
    at(k, FAKE_RESET_OFFSET, v);
    __atomic_store_n(&gfn->flags, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&v->reset_index, v->reset_index + 1, __ATOMIC_RELAXED);
    at(k, FAKE_RESET_FREED, v);
    if (!group_takes(group, slot_id, offset)) {
        group_rearm(k, group);
        *group = (Group) { slot_id, offset, 1 };
    }
    return true;
}

/* kvm_dirty_ring_reset(); returns true if a signal ended it. */
static bool ring_reset(FakeVcpu *v, int *count)
{
    FakeKvm *k = v->kvm;
    Group group = { 0 };
    bool stopped;

    for (;;) {
        stopped = signalled(k, *count);
        if (stopped || !entry_reset(v, &group)) {
            break;
        }
        ++*count;
    }
    if (!stopped || !k->reset_drops_group) {
        group_rearm(k, &group);
    }
    g_mutex_lock(&k->mmu_lock);
    /* Beyond "dirty" KVM would take the ring for full, for ever. */
    g_assert_cmpint((int32_t)fake_vcpu_used(v), >=, 0);
    g_mutex_unlock(&k->mmu_lock);
    return stopped;
}

static int reset_rings(FakeKvm *k)
{
    int count = 0;

    if (!k->ring_size) {
        return -EINVAL;
    }
    k->resets++;
    at(k, FAKE_RESET_BEGIN, NULL);
    for (guint i = 0; i < k->vcpus->len; i++) {
        if (k->reset_lies && k->reset_idles) {
            break;
        }
        if (ring_reset(g_ptr_array_index(k->vcpus, i), &count)) {
            break;
        }
    }
    at(k, FAKE_RESET_END, NULL);
    if (k->reset_lies) {
        k->reset_lies--;
        return k->reset_says;
    }
    return count;
}

/* KVM_SET_USER_MEMORY_REGION */

static void protect_all(FakeSlot *slot)
{
    for (uint64_t i = 0; i < slot->pages; i++) {
        slot->writable[i] = false;
    }
}

static size_t whole_pages(size_t bytes)
{
    size_t page = sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

static void bitmap_new(FakeKvm *k, FakeSlot *slot)
{
    size_t groups = (slot->pages + KVM_DIRTY_SUMMARY_PAGES - 1) /
        KVM_DIRTY_SUMMARY_PAGES;

    if (!(k->patched & FAKE_CAN_MAP)) {
        slot->dirty = g_new0(uint64_t, slot_words(slot));
        return;
    }
    slot->bitmap_size = whole_pages(slot_words(slot) * sizeof(uint64_t));
    slot->summary_size = whole_pages((groups + BITS - 1) / BITS *
                                     sizeof(uint64_t));
    slot->fd = memfd_create("bitmap", MFD_CLOEXEC);
    g_assert_no_errno(ftruncate(slot->fd,
                                slot->bitmap_size + slot->summary_size));
    slot->dirty = mmap(NULL, slot->bitmap_size + slot->summary_size,
                       PROT_READ | PROT_WRITE, MAP_SHARED, slot->fd, 0);
    g_assert_true(slot->dirty != MAP_FAILED);
    slot->summary = slot->dirty + slot->bitmap_size / sizeof(uint64_t);
}

/* Returns: whether any of [@page, @end) was dirty. */
static bool collect_pages(FakeKvm *k, FakeSlot *slot, uint64_t page,
                          uint64_t end, bool brake)
{
    bool found = false;

    for (; page < end; page++) {
        if (slot->dirty_bit[page]) {
            slot->dirty_bit[page] = false;
            slot->braked[page] |= brake;
            mark_dirty(k, NULL, slot, page);
            found = true;
        }
    }
    return found;
}

/* The slot's regions that are in [@gpa, @gpa + @size); idle ones are wrprot. */
static void collect_part(FakeKvm *k, FakeSlot *slot, uint64_t gpa,
                         uint64_t size, bool brake)
{
    uint64_t page_size = sysconf(_SC_PAGESIZE);
    uint64_t end;

    for (uint64_t page = 0; page < slot->pages; page = end) {
        end = region_end(slot, page);
        if (slot->region.guest_phys_addr + page * page_size - gpa < size &&
            !collect_pages(k, slot, page, end, brake)) {
            region_set_writable(slot, page, false);
        }
    }
}

/* Returns: false if KVM refuses the range; else widens it to whole regions. */
static bool widen(__u64 *gpa, __u64 *size)
{
    uint64_t start = *gpa / FAKE_REGION * FAKE_REGION;
    uint64_t end = (*gpa + *size + FAKE_REGION - 1) / FAKE_REGION * FAKE_REGION;

    if (!*size || (*gpa | *size) % sysconf(_SC_PAGESIZE) ||
        *gpa + *size < *gpa) {
        return false;
    }
    *gpa = start;
    *size = end - start;
    return true;
}

/* kvm_arch_sync_dirty_log(): the log has to be complete when it is read. */
static void sync_part(FakeKvm *k, FakeSlot *slot, uint64_t gpa, uint64_t size)
{
    if (has_dirty_bits(k)) {
        g_mutex_lock(&k->mmu_lock);
        collect_part(k, slot, gpa, size, false);
        g_mutex_unlock(&k->mmu_lock);
    }
}

static void log_start(FakeKvm *k, FakeSlot *slot)
{
    if (!k->ring_size) {
        bitmap_new(k, slot);
    }
    if (!starts_all_set(k)) {
        protect_all(slot);
        return;
    }
    for (uint64_t i = 0; slot->dirty && i < slot->pages; i++) {
        bitmap_mark(slot, i);
    }
}

static FakeSlot *slot_new(FakeKvm *k,
                          const struct kvm_userspace_memory_region *region)
{
    FakeSlot *slot = g_new0(FakeSlot, 1);

    slot->region = *region;
    slot->pages = region->memory_size / sysconf(_SC_PAGESIZE);
    slot->writable = g_new0(bool, slot->pages);
    slot->dirty_bit = g_new0(bool, slot->pages);
    slot->braked = g_new0(bool, slot->pages);
    slot->huge = g_new0(bool, slot->pages / FAKE_HUGE + 1);
    slot->fd = -1;
    if (slot_logs(slot)) {
        log_start(k, slot);
    }
    return slot;
}

static int slot_change(FakeKvm *k, FakeSlot *slot,
                       const struct kvm_userspace_memory_region *region)
{
    uint32_t diff = slot->region.flags ^ region->flags;

    if (region->memory_size != slot->region.memory_size ||
        region->userspace_addr != slot->region.userspace_addr ||
        (diff & KVM_MEM_READONLY)) {
        return -EINVAL;
    }
    if (region->guest_phys_addr != slot->region.guest_phys_addr) {
        protect_all(slot);
    }
    slot->region = *region;
    if (diff && slot_logs(slot)) {
        log_start(k, slot);
    } else if (diff) {
        bitmap_free(slot);
    }
    return 0;
}

static int region_apply(FakeKvm *k,
                        const struct kvm_userspace_memory_region *region)
{
    FakeSlot **at_id = slot_at(k, region->slot);

    if (!at_id) {
        return -EINVAL;
    }
    if (*at_id && region->memory_size) {
        return slot_change(k, *at_id, region);
    }
    if (region->memory_size) {
        *at_id = slot_new(k, region);
        return 0;
    }
    if (!*at_id) {
        return -EINVAL;
    }
    if (has_dirty_bits(k) && slot_logs(*at_id)) {
        collect_part(k, *at_id, 0, UINT64_MAX, false);
    }
    slot_free(*at_id);
    *at_id = NULL;
    return 0;
}

static int set_region(FakeKvm *k,
                      const struct kvm_userspace_memory_region *region)
{
    int ret;

    k->region_sets++;
    at(k, FAKE_REGION_BEGIN, NULL);
    g_mutex_lock(&k->mmu_lock);
    ret = region_apply(k, region);
    g_mutex_unlock(&k->mmu_lock);
    at(k, FAKE_REGION_END, NULL);
    return ret;
}

/* KVM_GET_DIRTY_LOG, KVM_CLEAR_DIRTY_LOG */

static void word_rearm(FakeSlot *slot, size_t word, uint64_t mask)
{
    for (; mask; mask &= mask - 1) {
        uint64_t page = word * BITS + __builtin_ctzll(mask);

        if (page < slot->pages) {   /* else it is a broken KVM's */
            slot->writable[page] = false;
        }
    }
}

static uint64_t word_take(uint64_t *word)
{
    return __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
}

static int get_log(FakeKvm *k, const struct kvm_dirty_log *log)
{
    FakeSlot *slot = slot_get(k, log->slot);
    uint64_t *words = log->dirty_bitmap;
    bool fetch = (k->patched & FAKE_CAN_FETCH) && log->padding1;

    k->gets++;
    if (k->ring_size) {
        return -ENXIO;
    }
    if (!slot || !slot->dirty) {
        return -ENOENT;
    }
    sync_part(k, slot, 0, UINT64_MAX);
    for (size_t i = 0; i < slot_words(slot); i++) {
        g_mutex_lock(&k->mmu_lock);
        if (fetch) {
            words[i] = word_take(&slot->dirty[i]);
        } else if (k->manual) {
            words[i] = slot->dirty[i];
        } else {
            words[i] = word_take(&slot->dirty[i]);
            word_rearm(slot, i, words[i]);
        }
        g_mutex_unlock(&k->mmu_lock);
    }
    return 0;
}

static int clear_log(FakeKvm *k, const struct kvm_clear_dirty_log *log)
{
    FakeSlot *slot = slot_get(k, log->slot);
    const uint64_t *words = log->dirty_bitmap;
    uint64_t first = log->first_page, page_size = sysconf(_SC_PAGESIZE);
    __u64 gpa, size;

    k->clears++;
    if (k->ring_size) {
        return -ENXIO;
    }
    if (first % BITS) {
        return -EINVAL;
    }
    if (!slot || !slot->dirty) {
        return -ENOENT;
    }
    if (first > slot->pages || log->num_pages > slot->pages - first ||
        (log->num_pages < slot->pages - first && log->num_pages % BITS)) {
        return -EINVAL;
    }
    gpa = slot->region.guest_phys_addr + first * page_size;
    size = log->num_pages * page_size;
    if (widen(&gpa, &size)) {
        sync_part(k, slot, gpa, size);
    }
    g_mutex_lock(&k->mmu_lock);
    for (size_t i = 0; i * BITS < log->num_pages; i++) {
        uint64_t mask = words[i] & slot->dirty[first / BITS + i];

        slot->dirty[first / BITS + i] &= ~mask;
        word_rearm(slot, first / BITS + i, mask);
    }
    g_mutex_unlock(&k->mmu_lock);
    return 0;
}

/* What a patched KVM can do besides */

/* The pages of the slot that are in [@gpa, @gpa + @size). */
static void protect_part(FakeSlot *slot, uint64_t gpa, uint64_t size)
{
    uint64_t page = sysconf(_SC_PAGESIZE);

    for (uint64_t i = 0; i < slot->pages; i++) {
        if (slot->region.guest_phys_addr + i * page - gpa < size) {
            slot->writable[i] = false;
        }
    }
}

static int protect_range(FakeKvm *k, uint64_t gpa, uint64_t size)
{
    if (!(k->patched & FAKE_CAN_PROTECT)) {
        return -ENXIO;
    }
    at(k, FAKE_PROTECT_BEGIN, NULL);
    g_mutex_lock(&k->mmu_lock);
    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            if (k->slots[as][id]) {
                protect_part(k->slots[as][id], gpa, size);
            }
        }
    }
    g_mutex_unlock(&k->mmu_lock);
    at(k, FAKE_PROTECT_END, NULL);
    return 0;
}

static int protect_regions(FakeKvm *k, struct kvm_write_protect_range range)
{
    if (range.flags || !widen(&range.gpa, &range.size)) {
        return -EINVAL;
    }
    return protect_range(k, range.gpa, range.size);
}

static int collect(FakeKvm *k, struct kvm_collect_dirty_bits range)
{
    const uint64_t brake = KVM_COLLECT_DIRTY_BITS_WRPROT;

    if (!has_dirty_bits(k) ||
        range.flags & ~(k->config.no_brake ? 0 : brake) ||
        !widen(&range.gpa, &range.size)) {
        return -EINVAL;
    }
    k->brakes += range.flags & brake;
    at(k, FAKE_COLLECT_BEGIN, NULL);
    g_mutex_lock(&k->mmu_lock);
    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            FakeSlot *slot = k->slots[as][id];

            if (slot && slot_logs(slot)) {
                collect_part(k, slot, range.gpa, range.size,
                             range.flags & brake);
            }
        }
    }
    g_mutex_unlock(&k->mmu_lock);
    at(k, FAKE_COLLECT_END, NULL);
    return 0;
}

static int bitmap_fd(FakeKvm *k, struct kvm_dirty_bitmap_fd *args)
{
    FakeSlot *slot = slot_get(k, args->slot);

    if (!(k->patched & FAKE_CAN_MAP) || k->ring_size) {
        return -ENXIO;
    }
    if (!slot || slot->fd < 0) {
        return -ENOENT;
    }
    k->maps++;
    args->bitmap_offset = 0;
    args->bitmap_size = slot->bitmap_size;
    args->summary_offset = slot->bitmap_size;
    args->summary_size = slot->summary_size;
    if (k->map_lies) {
        *args = k->map_says;
    }
    return k->unmappable ? open("/dev/null", O_RDONLY | O_CLOEXEC) :
        fcntl(slot->fd, F_DUPFD_CLOEXEC, 0);
}

static void split_in_slot(FakeKvm *k, FakeSlot *slot, uint64_t gpa,
                          uint64_t size)
{
    uint64_t unit = FAKE_HUGE * sysconf(_SC_PAGESIZE);

    for (uint64_t i = 0; slot && i < slot->pages / FAKE_HUGE; i++) {
        if (slot->region.guest_phys_addr + i * unit - gpa < size) {
            unit_split(k, slot, i);
        }
    }
}

static int split(FakeKvm *k, struct kvm_split_huge_pages *range)
{
    uint64_t size = MIN(range->size, k->split_chunk);

    k->splits++;
    at(k, FAKE_SPLIT_BEGIN, NULL);
    g_mutex_lock(&k->mmu_lock);
    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            split_in_slot(k, k->slots[as][id], range->gpa, size);
        }
    }
    g_mutex_unlock(&k->mmu_lock);
    range->gpa += size;
    range->size -= size;
    return 0;
}

void fake_map_huge(FakeKvm *k, uint32_t slot_id)
{
    FakeSlot *slot;

    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, slot_id);
    for (uint64_t i = 0; i < slot->pages / FAKE_HUGE; i++) {
        slot->huge[i] = true;
    }
    stats_write(k);
    g_mutex_unlock(&k->mmu_lock);
}

uint64_t fake_huge_pages(FakeKvm *k)
{
    uint64_t n;

    g_mutex_lock(&k->mmu_lock);
    n = huge_pages(k);
    g_mutex_unlock(&k->mmu_lock);
    return n;
}

/* Capabilities */

static int patched_bit(uint32_t capability)
{
    switch (capability) {
    case KVM_CAP_WRITE_PROTECT_ALL_MEM:
        return FAKE_CAN_PROTECT;
    case KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT:
        return FAKE_CAN_FETCH;
    case KVM_CAP_DIRTY_BITMAP_FD:
        return FAKE_CAN_MAP;
    case KVM_CAP_EAGER_PAGE_SPLIT:
        return FAKE_CAN_SPLIT;
    case KVM_CAP_DIRTY_BITS:
        return FAKE_CAN_COLLECT;
    default:
        return 0;
    }
}

static bool any_slot_logs(const FakeKvm *k)
{
    for (int as = 0; as < FAKE_SPACES; as++) {
        for (int id = 0; id < FAKE_SLOTS; id++) {
            if (k->slots[as][id] && slot_logs(k->slots[as][id])) {
                return true;
            }
        }
    }
    return false;
}

static int enable_dirty_bits(FakeKvm *k)
{
    const int needed = FAKE_CAN_PROTECT | FAKE_CAN_MAP;

    if (k->vcpus->len || any_slot_logs(k)) {
        return -EBUSY;
    }
    if (k->ring_size || needed & ~k->patched) {
        return -EINVAL;
    }
    k->patched |= FAKE_CAN_COLLECT;
    return 0;
}

static int enable_patched(FakeKvm *k, int bit)
{
    if (!(k->config.patched & bit) || (k->config.patched_refused & bit)) {
        return -EINVAL;
    }
    if (bit == FAKE_CAN_COLLECT) {
        return enable_dirty_bits(k);
    }
    if (bit == FAKE_CAN_PROTECT && k->vcpus->len) {
        return -EBUSY;
    }
    k->patched |= bit;
    return 0;
}

static int check_extension(FakeKvm *k, long capability)
{
    switch (capability) {
    case KVM_CAP_DIRTY_LOG_RING:
        return k->config.ring_max;
    case KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2:
        return k->config.manual_caps;
    case KVM_CAP_WRITE_PROTECT_ALL_MEM:
        return k->config.patched & FAKE_CAN_PROTECT ?
            1 | (k->config.cpu_log ? KVM_WRITE_PROTECT_DISABLES_CPU_LOG : 0) :
            0;
    case KVM_CAP_DIRTY_BITS:
        return k->config.patched & FAKE_CAN_COLLECT ?
            1 | (k->config.no_brake ? 0 : KVM_DIRTY_BITS_CAN_WRPROT) : 0;
    default:
        return !!(k->config.patched & patched_bit(capability));
    }
}

static int enable_ring(FakeKvm *k, uint64_t bytes)
{
    uint64_t entries = bytes / sizeof(struct kvm_dirty_gfn);

    /* KVM's reserves are no powers of two: no ring is all reserve. */
    if (!k->config.ring_max || !bytes || (bytes & (bytes - 1)) ||
        entries <= k->config.reserve) {
        return -EINVAL;
    }
    if (bytes < (uint64_t)sysconf(_SC_PAGESIZE) && !k->config.tiny_rings) {
        return -EINVAL;
    }
    if (bytes > (uint64_t)k->config.ring_max) {
        return -E2BIG;
    }
    if (k->ring_size || k->vcpus->len) {
        return -EINVAL;
    }
    k->ring_size = entries;
    return 0;
}

static int enable_cap(FakeKvm *k, const struct kvm_enable_cap *cap)
{
    switch (cap->cap) {
    case KVM_CAP_DIRTY_LOG_RING:
        return cap->flags ? -EINVAL : enable_ring(k, cap->args[0]);
    case KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2:
        if (cap->flags || k->config.manual_refused ||
            (cap->args[0] & ~(uint64_t)k->config.manual_caps)) {
            return -EINVAL;
        }
        k->manual = cap->args[0];
        return 0;
    case KVM_CAP_EAGER_PAGE_SPLIT:
        k->split_mode = cap->args[0];
        k->split_chunk = cap->args[1];
        return enable_patched(k, FAKE_CAN_SPLIT);
    default:
        return enable_patched(k, patched_bit(cap->cap));
    }
}

static void inject(FakeKvm *k, FakeInjection injection)
{
    g_mutex_lock(&k->slots_lock);
    for (int i = 0; i < FAKE_INJECTIONS; i++) {
        FakeInjection *f = &k->inject[i];

        if (!f->times || f->request == injection.request) {
            *f = injection;
            break;
        }
    }
    g_mutex_unlock(&k->slots_lock);
}

void fake_fail(FakeKvm *k, unsigned long request, int err, int times)
{
    inject(k, (FakeInjection) { request, err, times, false });
}

void fake_fail_late(FakeKvm *k, unsigned long request, int err, int times)
{
    inject(k, (FakeInjection) { request, err, times, true });
}

void fake_fail_no_more(FakeKvm *k)
{
    g_mutex_lock(&k->slots_lock);
    memset(k->inject, 0, sizeof(k->inject));
    g_mutex_unlock(&k->slots_lock);
}

/* Counts this call of @request, and decides how it ends. */
static FakeInjection injected(FakeKvm *k, unsigned long request)
{
    for (int i = 0; i < FAKE_INJECTIONS; i++) {
        FakeInjection *f = &k->inject[i];

        if (f->times && f->request == request) {
            f->times -= f->times > 0;
            return *f;
        }
    }
    return (FakeInjection) { .err = 0 };
}

static int dispatch(FakeKvm *k, unsigned long request, void *arg)
{
    int ret;

    switch (request) {
    case KVM_WRITE_PROTECT_ALL_MEM:
        k->protects++;
        return protect_range(k, 0, UINT64_MAX);
    case KVM_WRITE_PROTECT_RANGE:
        k->range_protects++;
        return protect_regions(k, *(struct kvm_write_protect_range *)arg);
    case KVM_COLLECT_DIRTY_BITS:
        k->collects++;
        return collect(k, *(struct kvm_collect_dirty_bits *)arg);
    case KVM_GET_DIRTY_BITMAP_FD:
        return bitmap_fd(k, arg);
    case KVM_SPLIT_HUGE_PAGES:
        return split(k, arg);
    case KVM_GET_STATS_FD:
        /* Without close-on-exec, as older KVMs do. */
        return k->stats_given = fcntl(k->stats_fd, F_DUPFD, 0);
    case KVM_CHECK_EXTENSION:
        return check_extension(k, (long)arg);
    case KVM_ENABLE_CAP:
        return enable_cap(k, arg);
    case KVM_SET_USER_MEMORY_REGION:
        return set_region(k, arg);
    case KVM_RESET_DIRTY_RINGS:
        return reset_rings(k);
    case KVM_GET_DIRTY_LOG:
    case KVM_CLEAR_DIRTY_LOG:
        at(k, FAKE_LOG_BEGIN, NULL);
        ret = request == KVM_GET_DIRTY_LOG ? get_log(k, arg) :
            clear_log(k, arg);
        at(k, FAKE_LOG_END, NULL);
        return ret;
    default:
        return -ENOTTY;
    }
}

int fake_vm_ioctl(void *opaque, unsigned long request, void *arg)
{
    FakeKvm *k = opaque;
    FakeInjection f;
    int ret = 0;

    g_mutex_lock(&k->slots_lock);
    k->ioctls++;
    f = injected(k, request);
    if (!f.err || f.late) {
        ret = dispatch(k, request, arg);
    }
    g_mutex_unlock(&k->slots_lock);
    return f.err ? -f.err : ret;
}

/* What a test may ask */

static bool ring_has(const FakeVcpu *v, uint32_t slot_id, uint64_t page)
{
    for (uint32_t i = 0; i < v->kvm->ring_size; i++) {
        const struct kvm_dirty_gfn *gfn = &v->gfns[i];

        if ((__atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE) &
             KVM_DIRTY_GFN_F_DIRTY) &&
            __atomic_load_n(&gfn->slot, __ATOMIC_RELAXED) == slot_id &&
            __atomic_load_n(&gfn->offset, __ATOMIC_RELAXED) == page) {
            return true;
        }
    }
    return false;
}

bool fake_page_writable(FakeKvm *k, uint32_t slot_id, uint64_t page)
{
    FakeSlot *slot;
    bool writable;

    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, slot_id);
    writable = slot && slot->writable[page] && !slot->braked[page];
    g_mutex_unlock(&k->mmu_lock);
    return writable;
}

static bool slot_is_logged(FakeKvm *k, uint32_t slot_id)
{
    FakeSlot *slot;
    bool logged;

    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, slot_id);
    logged = slot && slot_logs(slot);
    g_mutex_unlock(&k->mmu_lock);
    return logged;
}

/* A page of a VM with dirty bits tells of itself. */
bool fake_page_armed(FakeKvm *k, uint32_t slot_id, uint64_t page)
{
    FakeSlot *slot;
    bool in_log;

    if (has_dirty_bits(k) || !slot_is_logged(k, slot_id) ||
        !fake_page_writable(k, slot_id, page)) {
        return true;
    }
    for (guint i = 0; i < k->vcpus->len && k->ring_size; i++) {
        if (ring_has(g_ptr_array_index(k->vcpus, i), slot_id, page)) {
            return true;
        }
    }
    g_mutex_lock(&k->mmu_lock);
    slot = slot_get(k, slot_id);
    in_log = slot && slot->dirty &&
        (__atomic_load_n(&slot->dirty[page / BITS], __ATOMIC_RELAXED) &
         UINT64_C(1) << page % BITS);
    g_mutex_unlock(&k->mmu_lock);
    return in_log;
}
