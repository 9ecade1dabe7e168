/*
 * Slots that come, go and change (I7).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <errno.h>
#include <unistd.h>

#define SIZE 256
#define PAGES 333               /* not a multiple of 64 */

/* Have a vCPU write just before, or just after, KVM changes a slot. */
static struct {
    RigVcpu *vcpu;
    FakePoint point;
    uint64_t first;
    uint64_t pages;
} racer;

static void race(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (point == racer.point) {
        for (uint64_t i = 0; i < racer.pages; i++) {
            rig_force(racer.vcpu, 0, racer.first + i);
        }
        racer.pages = 0;
    }
}

static void race_at(RigVcpu *v, FakePoint point, uint64_t first,
                    uint64_t pages)
{
    racer.vcpu = v;
    racer.point = point;
    racer.first = first;
    racer.pages = pages;
    v->rig->fake->hook = race;
}

static Rig *strict_rig(void)
{
    Rig *r = rig_new_ring(SIZE);

    r->strict = r->exact = true;
    return r;
}

/* Entries of a slot are published before it goes, and at its own tag. */
static void test_remove_harvests(void)
{
    Rig *r = strict_rig();
    RigBlock *b = rig_add(r, 0, PAGES, true);
    RigVcpu *v = rig_vcpu(r, 0), *w = rig_vcpu(r, 1);

    rig_write_range(v, 0, 0, 100);
    rig_write_range(w, 0, 200, 100);
    rig_remove(r, 0);
    g_assert_cmpuint(rig_published(b), ==, 200);
    rig_vcpu_free(v);
    rig_vcpu_free(w);
    rig_free(r);
}

/*
 * A vCPU writes after the first reap, while KVM still has the slot.  The next
 * slot with the id inherits nothing.
 */
static void test_written_while_removed(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *successor;

    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 50);
    race_at(v, FAKE_REGION_BEGIN, 40, 60);
    rig_remove(r, 0);
    r->fake->hook = NULL;
    successor = rig_add(r, 0, PAGES, true);
    rig_sync(r);
    g_assert_cmpuint(rig_published(successor), ==, 0);
    rig_write(v, 0, 45);
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_published(successor), ==, 1);
    rig_vcpu_free(v);
    rig_free(r);
}

/* The same with more than a batch in the rings of two vCPUs. */
static void test_much_written_while_removed(void)
{
    Rig *r = rig_new_ring(1024);
    RigVcpu *v = rig_vcpu(r, 0), *w = rig_vcpu(r, 1);

    r->strict = r->exact = true;
    for (int i = 0; i < 10; i++) {
        RigBlock *b = rig_add(r, 0, 5000, true);

        rig_write_range(w, 0, 900, 700);
        race_at(v, FAKE_REGION_BEGIN, 0, 900);
        rig_remove(r, 0);
        r->fake->hook = NULL;
        g_assert_cmpuint(rig_published(b), ==, 1600);
    }
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_vcpu_free(w);
    rig_free(r);
}

/* An entry beyond the end of the next, smaller slot must not reach it. */
static void test_smaller_successor(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    race_at(v, FAKE_REGION_BEGIN, 300, 33);
    rig_remove(r, 0);
    r->fake->hook = NULL;
    rig_add(r, 0, 10, true);
    rig_write_range(v, 0, 0, 10);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* KVM may log a page of a new slot before the ioctl has returned. */
static void test_written_while_added(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b;

    race_at(v, FAKE_REGION_END, 10, 20);
    b = rig_add(r, 0, PAGES, true);
    r->fake->hook = NULL;
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_published(b), ==, 20);
    rig_vcpu_free(v);
    rig_free(r);
}

/* Both address spaces, and ids with gaps between. */
static void test_ids(void)
{
    static const uint32_t ids[] = { 0, 31, 7, 1 << 16, 1 << 16 | 31 };
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);

    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        rig_add(r, ids[i], PAGES, true);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        rig_write_range(v, ids[i], i * 10, 20);
    }
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
        rig_write_range(v, ids[i], i * 10, 20);
        rig_remove(r, ids[i]);
    }
    rig_vcpu_free(v);
    rig_free(r);
}

/* A slot that KVM refuses to remove is still tracked. */
static void test_remove_fails(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_write_range(v, 0, 0, 20);
    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 1);
    g_assert_cmpint(rig_set(r, b, 0, 0, 0), ==, -ENOMEM);
    rig_write_range(v, 0, 0, 40);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* A slot that KVM refuses to add is forgotten, and its id is free. */
static void test_add_fails(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 1, PAGES, true);
    KvmDirtyStats stats;

    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, EINVAL, 1);
    g_assert_cmpint(rig_set(r, b, 0, PAGES * sysconf(_SC_PAGESIZE),
                            KVM_MEM_LOG_DIRTY_PAGES), ==, -EINVAL);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 1);
    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 20);
    rig_sync(r);
    rig_check(r);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 2);
    rig_vcpu_free(v);
    rig_free(r);
}

/* If KVM refuses a change, logging stays as it was. */
static void change_fails(Rig *r)
{
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    uint64_t size = PAGES * sysconf(_SC_PAGESIZE);
    KvmDirtyStats stats;

    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 1);
    g_assert_cmpint(rig_set(r, b, 0, size, 0), ==, -ENOMEM);
    rig_write_range(v, 0, 0, 20);
    rig_sync(r);
    rig_check(r);
    rig_log(r, 0, false);
    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 1);
    g_assert_cmpint(rig_set(r, b, 0, size, KVM_MEM_LOG_DIRTY_PAGES), ==,
                    -ENOMEM);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 0);
    rig_sync(r);
    rig_log(r, 0, true);
    rig_write_range(v, 0, 0, 20);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

static void test_change_fails_ring(void)
{
    change_fails(rig_new_ring(SIZE));
}

static void test_change_fails_log(void)
{
    change_fails(rig_new_log(FAKE_MANUAL_CAPS));
    change_fails(rig_new_log(0));
}

/* KVM, not the engine, refuses to remove a slot that is not there. */
static void test_remove_nothing(void)
{
    struct kvm_userspace_memory_region none = { .slot = 3 };
    Rig *r = strict_rig();

    g_assert_cmpint(kvmd_slot_set(r->kvmd, &none, 0), ==, -EINVAL);
    rig_free(r);
}

/* Logging goes on and off, as migrations begin and are cancelled. */
static void log_on_and_off(Rig *r)
{
    RigVcpu *v = rig_vcpu(r, 0);
    KvmDirtyStats stats;

    rig_add(r, 0, PAGES, false);
    rig_add(r, 1, PAGES, false);
    for (int i = 0; i < 10; i++) {
        rig_write_range(v, 0, 0, 50);
        rig_log(r, 0, true);
        rig_log(r, 1, true);
        rig_write_range(v, 0, i, 60);
        rig_write_range(v, 1, 100 + i, 60);
        rig_sync(r);
        rig_check(r);
        rig_write_range(v, 0, i, 60);
        rig_sync(r);
        rig_check(r);
        rig_write_range(v, 1, 100, 60);
        rig_log(r, 0, false);
        rig_write_range(v, 0, 0, PAGES);
        rig_sync(r);
        rig_check(r);
        rig_log(r, 1, false);
    }
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 0);
    g_assert_cmpuint(stats.overflows, ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

static void test_log_on_and_off_ring(void)
{
    log_on_and_off(rig_new_ring(SIZE));
}

static void test_log_on_and_off_log(void)
{
    log_on_and_off(rig_new_log(FAKE_MANUAL_CAPS));
    log_on_and_off(rig_new_log(KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE));
    log_on_and_off(rig_new_log(0));
}

/* Removing a slot that is not logged takes no harvest, and does no harm. */
static void test_remove_unlogged(void)
{
    Rig *r = strict_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, false);

    rig_add(r, 1, PAGES, true);
    rig_write_range(v, 0, 0, 20);
    rig_write_range(v, 1, 0, 20);
    rig_remove(r, 0);
    g_assert_cmpuint(rig_published(b), ==, 0);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* With "log", pages in the bitmap of a slot are published before it goes. */
static void test_remove_harvests_log(void)
{
    static const int caps[] = {
        0, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, FAKE_MANUAL_CAPS
    };

    for (size_t i = 0; i < G_N_ELEMENTS(caps); i++) {
        Rig *r = rig_new_log(caps[i]);
        RigVcpu *v = rig_vcpu(r, 0);
        RigBlock *b = rig_add(r, 0, PAGES, true);

        rig_write_range(v, 0, 300, 33);
        rig_remove(r, 0);
        g_assert_cmpuint(rig_published(b), >=, 33);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/slot/remove-harvests", test_remove_harvests);
    g_test_add_func("/slot/remove-harvests-log", test_remove_harvests_log);
    g_test_add_func("/slot/written-while-removed",
                    test_written_while_removed);
    g_test_add_func("/slot/much-written-while-removed",
                    test_much_written_while_removed);
    g_test_add_func("/slot/smaller-successor", test_smaller_successor);
    g_test_add_func("/slot/written-while-added", test_written_while_added);
    g_test_add_func("/slot/ids", test_ids);
    g_test_add_func("/slot/remove-fails", test_remove_fails);
    g_test_add_func("/slot/remove-nothing", test_remove_nothing);
    g_test_add_func("/slot/remove-unlogged", test_remove_unlogged);
    g_test_add_func("/slot/add-fails", test_add_fails);
    g_test_add_func("/slot/change-fails-ring", test_change_fails_ring);
    g_test_add_func("/slot/change-fails-log", test_change_fails_log);
    g_test_add_func("/slot/log-on-and-off-ring", test_log_on_and_off_ring);
    g_test_add_func("/slot/log-on-and-off-log", test_log_on_and_off_log);
    return g_test_run();
}
