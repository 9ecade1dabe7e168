/*
 * An engine on a fake KVM, and the oracle that finds a lost page.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define WORD_PAGES 64
#define BLOCKS_MAX 256

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

/* Without the lock an older copy might overtake a newer one. */
static void copy_page(Rig *r, RigBlock *b, uint64_t page)
{
    g_mutex_lock(&r->copy_lock);
    b->shadow[page] = load(&b->memory[page]);
    g_mutex_unlock(&r->copy_lock);
}

static RigBlock **block_at(Rig *r, uint32_t slot_id)
{
    return &r->at[slot_id >> 16][slot_id & 0xffff];
}

static void copy_armed(Rig *r, RigBlock *b, uint64_t page)
{
    if (r->strict) {
        g_assert_true(fake_page_armed(r->fake, b->slot_id, page));
    }
    copy_page(r, b, page);
}

/* Another thread may have switched the mechanism: r->clears may be late. */
static void publish_page(Rig *r, RigBlock *b, uint64_t page)
{
    g_assert_cmpuint(page, <, b->pages);
    b->published[page]++;
    if (r->exact && !r->removing) {
        g_assert_cmpuint(b->published[page], <=, load(&b->logged[page]));
    }
    if (kvmd_clears(r->kvmd)) {
        __atomic_store_n(&b->pending[page], true, __ATOMIC_RELAXED);
    } else {
        copy_armed(r, b, page);
    }
}

static void on_publish(void *opaque, uint64_t tag, uint64_t first,
                       const uint64_t *words, size_t n)
{
    Rig *r = opaque;
    RigBlock *b;

    g_assert_cmpuint(tag, >, 0);
    g_assert_cmpuint(tag, <=, r->blocks->len);
    g_assert_cmpuint(first % WORD_PAGES, ==, 0);
    b = g_ptr_array_index(r->blocks, tag - 1);
    /* A page of a removed slot would go to the next slot with its id. */
    g_assert_true(__atomic_load_n(&b->attached, __ATOMIC_RELAXED));
    if (r->watch) {
        r->watch(r);
    }
    for (size_t w = 0; w < n; w++) {
        for (uint64_t mask = GUINT64_FROM_LE(words[w]); mask;
             mask &= mask - 1) {
            publish_page(r, b, first + w * WORD_PAGES +
                         __builtin_ctzll(mask));
        }
    }
}

static void on_logged(void *opaque, uint32_t slot_id, uint64_t page)
{
    RigBlock *b = *block_at(opaque, slot_id);

    g_assert_nonnull(b);        /* KVM has a slot that nobody set */
    __atomic_add_fetch(&b->logged[page], 1, __ATOMIC_RELAXED);
}

static void on_collected(void *opaque, void *vcpu, uint32_t pages)
{
    Rig *r = opaque;
    RigVcpu *v = vcpu;

    g_assert_true(v->rig == r);
    r->collected += pages;
}

static void on_overflowed(void *opaque)
{
    Rig *r = opaque;

    __atomic_add_fetch(&r->overflowed, 1, __ATOMIC_RELAXED);
}

static void on_kick(void *opaque)
{
    Rig *r = opaque;

    __atomic_add_fetch(&r->kicks, 1, __ATOMIC_RELAXED);
}

static bool on_reaper_held(void *opaque)
{
    Rig *r = opaque;

    return __atomic_load_n(&r->held, __ATOMIC_RELAXED);
}

static void on_warn(void *opaque, const char *message)
{
    Rig *r = opaque;

    g_test_message("warning: %s", message);
    g_ptr_array_add(r->warnings, g_strdup(message));
}

static int on_ioctl(void *opaque, unsigned long request, void *arg)
{
    Rig *r = opaque;
    int ret = fake_vm_ioctl(r->fake, request, arg);

    if (r->returned) {
        r->returned(r);
    }
    return ret;
}

static int on_vcpu_ioctl(void *opaque, void *vcpu, unsigned long request,
                         void *arg)
{
    const RigVcpu *v = vcpu;

    (void)opaque, (void)arg;
    g_assert_cmpuint(request, ==, KVM_GET_STATS_FD);
    /* At any other time it may run, and KVM would wait until it does not. */
    g_assert_null(v->kvmd);
    return v->stats_fd ? dup(v->stats_fd) : -ENOTTY;
}

Rig *rig_new_on(FakeKvm *fake, const KvmDirtyConfig *config, GError **error)
{
    static const KvmDirtyVmm vmm = {
        .vm_ioctl = on_ioctl,
        .vcpu_ioctl = on_vcpu_ioctl,
        .publish = on_publish,
        .collected = on_collected,
        .overflowed = on_overflowed,
        .kick = on_kick,
        .reaper_held = on_reaper_held,
        .warn = on_warn,
    };
    Rig *r = g_new0(Rig, 1);

    g_mutex_init(&r->copy_lock);
    r->gpa_shift = 32;
    r->fake = fake;
    r->fake->logged = on_logged;
    r->fake->logged_opaque = r;
    /* The array must not move: another thread may publish meanwhile. */
    r->blocks = g_ptr_array_sized_new(BLOCKS_MAX);
    r->warnings = g_ptr_array_new_with_free_func(g_free);
    r->kvmd = kvmd_new(&vmm, r, config, error);
    if (!r->kvmd) {
        rig_free(r);
        return NULL;
    }
    r->clears = kvmd_clears(r->kvmd);
    return r;
}

Rig *rig_new(const FakeConfig *fake, const KvmDirtyConfig *config)
{
    g_autoptr(GError) error = NULL;
    Rig *r = rig_new_on(fake_new(fake), config, &error);

    g_assert_no_error(error);
    return r;
}

Rig *rig_new_ring(uint32_t size)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .tiny_rings = true };
    KvmDirtyConfig config = { KVMD_RING, size };

    return rig_new(&fake, &config);
}

Rig *rig_new_log(int manual_caps)
{
    FakeConfig fake = { FAKE_LINUX_6_1 };
    KvmDirtyConfig config = { KVMD_LOG, 0 };

    fake.manual_caps = manual_caps;
    return rig_new(&fake, &config);
}

Rig *rig_new_patched(KvmDirtyMechanism mechanism)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };
    KvmDirtyConfig config = { mechanism, 0 };

    return rig_new(&fake, &config);
}

static void block_free(RigBlock *b)
{
    g_free(b->memory);
    g_free(b->shadow);
    g_free(b->logged);
    g_free(b->published);
    g_free(b->pending);
    g_free(b);
}

void rig_free(Rig *r)
{
    g_clear_pointer(&r->kvmd, kvmd_free);
    fake_free(r->fake);
    for (guint i = 0; i < r->blocks->len; i++) {
        block_free(g_ptr_array_index(r->blocks, i));
    }
    g_ptr_array_unref(r->blocks);
    g_ptr_array_unref(r->warnings);
    g_mutex_clear(&r->copy_lock);
    g_free(r);
}

int rig_set(Rig *r, const RigBlock *b, uint32_t slot_id, uint64_t size,
            uint32_t flags)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot_id,
        .flags = flags,
        .guest_phys_addr = ((uint64_t)(slot_id & 0xffff) << r->gpa_shift) +
                           r->gpa_offset,
        .memory_size = size,
        .userspace_addr = (uintptr_t)b->memory,
    };

    return kvmd_slot_set(r->kvmd, &region, b->tag);
}

static uint64_t block_size(const RigBlock *b)
{
    return b->pages * sysconf(_SC_PAGESIZE);
}

static void copy_all(Rig *r, RigBlock *b)
{
    for (uint64_t i = 0; i < b->pages; i++) {
        copy_page(r, b, i);
    }
}

/* The slot has no block, unless it is @b. */
static void put(Rig *r, RigBlock *b, uint32_t slot_id, bool attached)
{
    b->slot_id = slot_id;
    __atomic_store_n(&b->attached, attached, __ATOMIC_RELAXED);
    *block_at(r, slot_id) = attached ? b : NULL;
}

int rig_try_attach(Rig *r, RigBlock *b, uint32_t slot_id, bool log)
{
    int ret;

    g_assert_null(*block_at(r, slot_id));
    put(r, b, slot_id, true);
    ret = rig_set(r, b, slot_id, block_size(b),
                  log ? KVM_MEM_LOG_DIRTY_PAGES : 0);
    if (ret < 0) {
        put(r, b, slot_id, false);
        return ret;
    }
    b->tracked = log;
    copy_all(r, b);
    return ret;
}

void rig_attach(Rig *r, RigBlock *b, uint32_t slot_id, bool log)
{
    g_assert_cmpint(rig_try_attach(r, b, slot_id, log), ==, 0);
}

RigBlock *rig_block(Rig *r, uint64_t pages)
{
    RigBlock *b = g_new0(RigBlock, 1);

    b->pages = pages;
    b->memory = g_new0(uint64_t, pages);
    b->shadow = g_new0(uint64_t, pages);
    b->logged = g_new0(uint64_t, pages);
    b->published = g_new0(uint64_t, pages);
    b->pending = g_new0(bool, pages);
    g_ptr_array_add(r->blocks, b);
    b->tag = r->blocks->len;
    return b;
}

RigBlock *rig_add(Rig *r, uint32_t slot_id, uint64_t pages, bool log)
{
    RigBlock *b = rig_block(r, pages);

    rig_attach(r, b, slot_id, log);
    return b;
}

static void check_block(const RigBlock *b)
{
    for (uint64_t i = 0; i < b->pages; i++) {
        if (b->shadow[i] != b->memory[i]) {
            g_test_message("page %" G_GUINT64_FORMAT " of slot %#x is lost",
                           (guint64)i, b->slot_id);
        }
        g_assert_cmpuint(b->shadow[i], ==, b->memory[i]);
    }
}

static bool take_pending(RigBlock *b, uint64_t page)
{
    return __atomic_exchange_n(&b->pending[page], false, __ATOMIC_RELAXED);
}

/* Pages that are published and pending can no longer change: copy them. */
static void copy_pending(Rig *r, RigBlock *b)
{
    for (uint64_t i = 0; i < b->pages; i++) {
        if (take_pending(b, i)) {
            copy_page(r, b, i);
        }
    }
}

void rig_read_elsewhere(Rig *r, RigBlock *b)
{
    copy_pending(r, b);
}

static void foreach_block(Rig *r, void (*func)(Rig *, RigBlock *))
{
    for (guint i = 0; i < r->blocks->len; i++) {
        func(r, g_ptr_array_index(r->blocks, i));
    }
}

int rig_try_remove(Rig *r, uint32_t slot_id)
{
    RigBlock *b = *block_at(r, slot_id);
    int ret;

    r->removing = true;
    ret = rig_set(r, b, slot_id, 0, 0);
    r->removing = false;
    if (ret == 0) {
        put(r, b, slot_id, false);
        copy_pending(r, b);
    }
    return ret;
}

void rig_remove(Rig *r, uint32_t slot_id)
{
    RigBlock *b = *block_at(r, slot_id);

    g_assert_cmpint(rig_try_remove(r, slot_id), ==, 0);
    if (b->tracked) {
        check_block(b);
    }
    b->tracked = false;
}

int rig_try_log(Rig *r, uint32_t slot_id, bool log)
{
    RigBlock *b = *block_at(r, slot_id);
    int ret = rig_set(r, b, slot_id, block_size(b),
                      log ? KVM_MEM_LOG_DIRTY_PAGES : 0);

    if (ret == 0) {
        b->tracked = log;
        copy_all(r, b);
    }
    return ret;
}

void rig_log(Rig *r, uint32_t slot_id, bool log)
{
    (*block_at(r, slot_id))->tracked = false;
    g_assert_cmpint(rig_try_log(r, slot_id, log), ==, 0);
}

RigVcpu *rig_vcpu(Rig *r, unsigned long id)
{
    RigVcpu *v = g_new0(RigVcpu, 1);

    v->rig = r;
    v->id = id;
    v->fake = fake_vcpu_new(r->fake, id);
    rig_vcpu_add(v);
    return v;
}

void rig_vcpu_add(RigVcpu *v)
{
    g_autoptr(GError) error = NULL;

    v->kvmd = kvmd_vcpu_add(v->rig->kvmd, v->id, v->fake->fd, v, &error);
    g_assert_no_error(error);
}

void rig_vcpu_remove(RigVcpu *v)
{
    kvmd_vcpu_remove(v->kvmd);
    v->kvmd = NULL;
}

void rig_vcpu_free(RigVcpu *v)
{
    if (v->kvmd) {
        rig_vcpu_remove(v);
    }
    g_free(v);
}

void rig_enter(RigVcpu *v)
{
    int n = 0;

    while (!fake_vcpu_enters(v->fake)) {
        v->in_full = true;
        kvmd_vcpu_ring_full(v->kvmd);
        v->in_full = false;
        g_assert_cmpint(n++, <, RIG_FULL_MAX);
    }
}

static uint64_t next_stamp(Rig *r)
{
    return __atomic_add_fetch(&r->stamp, 1, __ATOMIC_RELAXED);
}

void rig_force(RigVcpu *v, uint32_t slot_id, uint64_t page)
{
    fake_write(v->fake, slot_id, page, next_stamp(v->rig));
}

void rig_write(RigVcpu *v, uint32_t slot_id, uint64_t page)
{
    fake_write_begin(v->fake, slot_id, page, next_stamp(v->rig));
    do {
        rig_enter(v);
    } while (!fake_write_step(v->fake));
}

void rig_write_range(RigVcpu *v, uint32_t slot_id, uint64_t first,
                     uint64_t pages)
{
    for (uint64_t i = 0; i < pages; i++) {
        rig_write(v, slot_id, first + i);
    }
}

/*
 * Pages that another thread harvests after the re-arm are for the next clear;
 * pages that the re-arm itself publishes are not.
 */
static void clear_chunk(Rig *r, RigBlock *b, uint64_t first, uint64_t pages)
{
    g_autofree bool *taken = g_new(bool, pages);
    int ret;

    for (uint64_t i = 0; i < pages; i++) {
        taken[i] = take_pending(b, first + i);
    }
    ret = kvmd_slot_clear(r->kvmd, b->slot_id, first, pages);
    for (uint64_t i = 0; i < pages && kvmd_clear_publishes(r->kvmd); i++) {
        taken[i] |= take_pending(b, first + i);
    }
    for (uint64_t i = 0; i < pages; i++) {
        if (taken[i] && ret == 0) {
            copy_armed(r, b, first + i);
        } else if (taken[i] && r->heedless) {
            copy_page(r, b, first + i);
        } else if (taken[i]) {
            __atomic_store_n(&b->pending[first + i], true, __ATOMIC_RELAXED);
        }
    }
}

void rig_clear(Rig *r, RigBlock *b)
{
    uint64_t chunk = r->chunk ? r->chunk : b->pages;

    for (uint64_t first = 0; first < b->pages; first += chunk) {
        clear_chunk(r, b, first, MIN(chunk, b->pages - first));
    }
}

static void clear(Rig *r, RigBlock *b)
{
    if (b->attached) {
        rig_clear(r, b);
    }
}

int rig_sync(Rig *r)
{
    int ret = kvmd_sync(r->kvmd);

    if (r->clears) {
        foreach_block(r, clear);
    }
    return ret;
}

int rig_slot_sync(Rig *r, uint32_t slot_id)
{
    return kvmd_slot_sync(r->kvmd, slot_id);
}

int rig_harvest(Rig *r)
{
    return kvmd_sync(r->kvmd);
}

void rig_look(Rig *r)
{
    kvmd_look(r->kvmd);
}

void rig_ahead(Rig *r, KvmDirtyAhead of)
{
    r->ahead = of == KVMD_AHEAD_ROUND;
    kvmd_sync_ahead(r->kvmd, of);
}

int rig_last_sync(Rig *r)
{
    if (r->ahead) {
        rig_ahead(r, KVMD_AHEAD_STOP);
    }
    return rig_sync(r);
}

/*
 * A switch re-arms all pages.  If nobody clears after it, pending pages stay
 * armed.
 */
bool rig_try_switch(Rig *r, KvmDirtyMechanism mechanism, GError **error)
{
    bool cleared = r->clears;

    if (!kvmd_switch(r->kvmd, mechanism, error)) {
        return false;
    }
    r->clears = kvmd_clears(r->kvmd);
    if (cleared && !r->clears) {
        foreach_block(r, copy_pending);
    }
    return true;
}

void rig_switch(Rig *r, KvmDirtyMechanism mechanism)
{
    g_autoptr(GError) error = NULL;

    g_assert_true(rig_try_switch(r, mechanism, &error));
    g_assert_no_error(error);
}

void rig_check(Rig *r)
{
    for (guint i = 0; i < r->blocks->len; i++) {
        RigBlock *b = g_ptr_array_index(r->blocks, i);

        if (b->tracked) {
            check_block(b);
        }
    }
}

void rig_check_exact(Rig *r)
{
    for (guint i = 0; i < r->blocks->len; i++) {
        RigBlock *b = g_ptr_array_index(r->blocks, i);

        for (uint64_t j = 0; b->attached && j < b->pages; j++) {
            g_assert_cmpuint(!b->published[j], ==, !b->logged[j]);
            g_assert_cmpuint(b->published[j], <=, b->logged[j]);
        }
    }
}

void rig_forget(Rig *r)
{
    for (guint i = 0; i < r->blocks->len; i++) {
        RigBlock *b = g_ptr_array_index(r->blocks, i);

        for (uint64_t j = 0; j < b->pages; j++) {
            b->logged[j] = b->published[j] = 0;
        }
    }
}

int rig_warned(const Rig *r, const char *text)
{
    int n = 0;

    for (guint i = 0; i < r->warnings->len; i++) {
        n += strstr(g_ptr_array_index(r->warnings, i), text) != NULL;
    }
    return n;
}

uint64_t rig_overflows(Rig *r)
{
    uint64_t told = load(&r->overflowed);
    KvmDirtyStats stats;

    kvmd_stats(r->kvmd, &stats);
    /* More may come between the two looks. */
    g_assert_cmpuint(told, <=, stats.overflows);
    g_assert_cmpuint(stats.overflows, <=, load(&r->overflowed));
    return stats.overflows;
}

uint64_t rig_published(const RigBlock *b)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < b->pages; i++) {
        n += b->published[i] != 0;
    }
    return n;
}

static void *reaper_thread(void *opaque)
{
    Rig *r = opaque;

    kvmd_reaper_run(r->kvmd);
    return NULL;
}

void rig_reaper_start(Rig *r)
{
    r->reaper = g_thread_new("reaper", reaper_thread, r);
}

void rig_reaper_stop(Rig *r)
{
    kvmd_reaper_stop(r->kvmd);
    g_thread_join(r->reaper);
    r->reaper = NULL;
}
