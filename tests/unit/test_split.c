/*
 * Huge pages are split ahead of the guest: all, none, or as it goes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <string.h>

#define UNITS 40
#define PAGES (UNITS * FAKE_HUGE)
#define MIB2 (UINT64_C(2) << 20)

/* Long enough for whatever is wrong to happen, and for a busy machine. */
#define A_WHILE (100 * 1000)
#define PATIENCE (30 * G_TIME_SPAN_SECOND)

static void set(Rig *r, KvmDirtySplit split, uint64_t size)
{
    g_autoptr(GError) error = NULL;

    g_assert_true(kvmd_split_set(r->kvmd, split, size, &error));
    g_assert_no_error(error);
}

/* A logged slot and one that is not logged, both of huge pages. */
static Rig *rig_of(KvmDirtySplit split, uint64_t size)
{
    Rig *r = rig_new_patched(KVMD_SHARED);

    set(r, split, size);
    rig_add(r, 0, PAGES, true);
    rig_add(r, 1, PAGES, false);
    fake_map_huge(r->fake, 0);
    fake_map_huge(r->fake, 1);
    return r;
}

static KvmDirtyStats stats(Rig *r)
{
    KvmDirtyStats s;

    kvmd_stats(r->kvmd, &s);
    return s;
}

static void *run_thread(void *opaque)
{
    kvmd_split_run(opaque);
    return NULL;
}

static GThread *begin(Rig *r)
{
    g_assert_true(kvmd_split_begin(r->kvmd));
    g_assert_true(stats(r).split_active);
    return g_thread_new("splitter", run_thread, r->kvmd);
}

static void refused(FakeKvm *fake, Rig *r, KvmDirtySplit split, uint64_t size,
                    KvmDirtyError code, const char *says)
{
    g_autoptr(GError) error = NULL;
    uint64_t mode = fake->split_mode;

    g_assert_false(kvmd_split_set(r->kvmd, split, size, &error));
    g_assert_error(error, KVMD_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, says));
    g_assert_cmpuint(fake->split_mode, ==, mode);
    g_assert_cmpint(kvmd_split(r->kvmd), ==, KVMD_SPLIT_OFF);
}

static void test_sizes(void)
{
    Rig *r = rig_new_patched(KVMD_AUTO);

    refused(r->fake, r, KVMD_SPLIT_ON, 0, KVMD_ERROR_CONFIG, "2 MiB");
    refused(r->fake, r, KVMD_SPLIT_AUTO, MIB2 / 2, KVMD_ERROR_CONFIG,
            "dirty-eager-split-chunk=1048576");
    refused(r->fake, r, KVMD_SPLIT_OFF, MIB2 + 4096, KVMD_ERROR_CONFIG,
            "2 MiB");
    set(r, KVMD_SPLIT_ON, 3 * MIB2);
    g_assert_cmpuint(r->fake->split_mode, ==, KVM_EAGER_PAGE_SPLIT_OFF);
    g_assert_cmpuint(r->fake->split_chunk, ==, 3 * MIB2);
    g_assert_cmpint(kvmd_split(r->kvmd), ==, KVMD_SPLIT_ON);
    rig_free(r);
}

/* Asked for by name, it is an error; with auto, nothing is split. */
static void test_not_offered(void)
{
    Rig *r = rig_new_log(0);

    refused(r->fake, r, KVMD_SPLIT_ON, MIB2, KVMD_ERROR_HOST,
            "dirty-eager-split=on is not possible");
    refused(r->fake, r, KVMD_SPLIT_OFF, MIB2, KVMD_ERROR_HOST,
            "KVM_CAP_EAGER_PAGE_SPLIT");
    set(r, KVMD_SPLIT_AUTO, MIB2);
    g_assert_cmpint(kvmd_split(r->kvmd), ==, KVMD_SPLIT_OFF);
    rig_add(r, 0, PAGES, true);
    g_assert_false(kvmd_split_begin(r->kvmd));
    rig_free(r);
}

/* KVM is told nothing unless splitting is asked for. */
static void test_unset(void)
{
    Rig *r = rig_new_patched(KVMD_AUTO);

    rig_add(r, 0, PAGES, true);
    g_assert_false(kvmd_split_begin(r->kvmd));
    g_assert_cmpint(r->fake->patched & FAKE_CAN_SPLIT, ==, 0);
    rig_free(r);
}

static void test_nothing_logged(void)
{
    Rig *r = rig_new_patched(KVMD_SHARED);

    set(r, KVMD_SPLIT_ON, MIB2);
    rig_add(r, 0, PAGES, false);
    g_assert_false(kvmd_split_begin(r->kvmd));
    rig_free(r);
}

/* Logged slots, and no others, are split chunk by chunk. */
static void test_on(void)
{
    Rig *r = rig_of(KVMD_SPLIT_ON, 3 * MIB2);

    g_thread_join(begin(r));
    g_assert_cmpuint(fake_huge_pages(r->fake), ==, UNITS);
    g_assert_cmpuint(r->fake->splits, ==, (UNITS + 2) / 3);
    g_assert_cmpuint(stats(r).split_done, ==, UNITS * MIB2);
    g_assert_cmpuint(stats(r).split_total, ==, UNITS * MIB2);
    g_assert_false(stats(r).split_active);

    /* The next migration begins anew. */
    fake_map_huge(r->fake, 0);
    g_thread_join(begin(r));
    g_assert_cmpuint(fake_huge_pages(r->fake), ==, UNITS);
    g_assert_cmpuint(stats(r).split_done, ==, UNITS * MIB2);
    rig_free(r);
}

/* System management mode has the same memory at the same addresses. */
static void test_smm(void)
{
    Rig *r = rig_of(KVMD_SPLIT_ON, MIB2);

    rig_add(r, 1 << 16, PAGES, true);
    g_thread_join(begin(r));
    g_assert_cmpuint(r->fake->splits, ==, UNITS);
    g_assert_cmpuint(stats(r).split_done, ==, UNITS * MIB2);
    g_assert_cmpuint(stats(r).split_total, ==, UNITS * MIB2);
    rig_free(r);
}

/* Under the fake KVM's locks, where nobody calls the engine. */
static struct {
    bool begun;                 /* the last chunk has begun */
    bool stopped;
} stop;

static void await(const bool *what)
{
    gint64 start = g_get_monotonic_time();

    while (!__atomic_load_n(what, __ATOMIC_RELAXED)) {
        g_assert_cmpint(g_get_monotonic_time() - start, <, PATIENCE);
        g_usleep(100);
    }
}

static void await_stop(void *opaque, FakePoint point, FakeVcpu *v)
{
    FakeKvm *k = opaque;

    (void)v;
    if (point == FAKE_SPLIT_BEGIN && k->splits == 4) {
        __atomic_store_n(&stop.begun, true, __ATOMIC_RELAXED);
        await(&stop.stopped);
    }
}

/* After a stop, no chunk follows the one that was under way. */
static void test_stop(void)
{
    Rig *r = rig_of(KVMD_SPLIT_ON, MIB2);
    GThread *thread;

    stop.begun = stop.stopped = false;
    r->fake->hook = await_stop;
    r->fake->hook_opaque = r->fake;
    thread = begin(r);
    await(&stop.begun);
    kvmd_split_stop(r->kvmd);
    __atomic_store_n(&stop.stopped, true, __ATOMIC_RELAXED);
    g_thread_join(thread);
    g_assert_cmpuint(r->fake->splits, ==, 4);
    g_assert_cmpuint(stats(r).split_done, ==, 4 * MIB2);
    g_assert_false(stats(r).split_active);
    rig_free(r);
}

/* A slot's removal does not wait for a lock between two chunks. */
static void test_slot_goes(void)
{
    Rig *r = rig_of(KVMD_SPLIT_ON, MIB2);
    GThread *thread = begin(r);

    rig_remove(r, 0);
    g_thread_join(thread);
    g_assert_cmpuint(stats(r).split_done, ==, UNITS * MIB2);
    g_assert_cmpuint(fake_huge_pages(r->fake), ==, UNITS);
    rig_free(r);
}

static void test_failure(void)
{
    Rig *r = rig_of(KVMD_SPLIT_ON, MIB2);

    fake_fail(r->fake, KVM_SPLIT_HUGE_PAGES, ENXIO, 1);
    g_thread_join(begin(r));
    g_assert_cmpint(rig_warned(r, "splitting huge pages ahead failed"), ==, 1);
    g_assert_cmpuint(r->fake->splits, ==, 0);
    g_assert_false(stats(r).split_active);
    rig_free(r);
}

/* A guest that splits nothing keeps all of its huge pages. */
static void test_auto_idle(void)
{
    Rig *r = rig_of(KVMD_SPLIT_AUTO, MIB2);
    GThread *thread = begin(r);

    g_usleep(A_WHILE);
    g_assert_true(stats(r).split_active);
    kvmd_split_stop(r->kvmd);
    g_thread_join(thread);
    g_assert_cmpuint(r->fake->splits, ==, 0);
    g_assert_cmpuint(fake_huge_pages(r->fake), ==, 2 * UNITS);
    rig_free(r);
}

/* There is nothing to wait for. */
static void test_auto_nothing_huge(void)
{
    Rig *r = rig_new_patched(KVMD_SHARED);
    GThread *thread;

    set(r, KVMD_SPLIT_AUTO, MIB2);
    rig_add(r, 0, PAGES, true);
    thread = begin(r);
    for (int i = 0; i < 50 && stats(r).split_active; i++) {
        g_usleep(A_WHILE);
    }
    g_assert_false(stats(r).split_active);
    g_thread_join(thread);
    g_assert_cmpuint(r->fake->splits, ==, 0);
    rig_free(r);
}

static void wait_splits(Rig *r, uint64_t bytes)
{
    gint64 begun = g_get_monotonic_time();

    while (stats(r).split_done < bytes) {
        g_assert_cmpint(g_get_monotonic_time() - begun, <, PATIENCE);
        g_usleep(1000);
    }
}

/* The thread splits four times as much as the guest did, and waits. */
static void test_auto_follows(void)
{
    Rig *r = rig_of(KVMD_SPLIT_AUTO, MIB2);
    RigVcpu *v = rig_vcpu(r, 0);
    GThread *thread = begin(r);

    g_usleep(5 * A_WHILE);      /* until it watches */
    rig_write(v, 0, (UNITS - 1) * FAKE_HUGE + 7);
    wait_splits(r, 4 * MIB2);
    g_usleep(A_WHILE);
    g_assert_cmpuint(stats(r).split_done, ==, 4 * MIB2);
    g_assert_true(stats(r).split_active);

    /* Together they finish long before the guest alone would. */
    for (int i = 1; i < UNITS && fake_huge_pages(r->fake) > UNITS; i++) {
        g_assert_cmpint(i, <, UNITS / 2);
        rig_write(v, 0, (UNITS - 1 - i) * FAKE_HUGE);
        g_usleep(A_WHILE);
    }
    kvmd_split_stop(r->kvmd);
    g_thread_join(thread);
    rig_vcpu_free(v);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/split/sizes", test_sizes);
    g_test_add_func("/split/not-offered", test_not_offered);
    g_test_add_func("/split/unset", test_unset);
    g_test_add_func("/split/nothing-logged", test_nothing_logged);
    g_test_add_func("/split/on", test_on);
    g_test_add_func("/split/smm", test_smm);
    g_test_add_func("/split/stop", test_stop);
    g_test_add_func("/split/slot-goes", test_slot_goes);
    g_test_add_func("/split/failure", test_failure);
    g_test_add_func("/split/auto-idle", test_auto_idle);
    g_test_add_func("/split/auto-nothing-huge", test_auto_nothing_huge);
    g_test_add_func("/split/auto-follows", test_auto_follows);
    return g_test_run();
}
