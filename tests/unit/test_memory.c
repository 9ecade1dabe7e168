/*
 * The engine's own memory: none for what a reap finds, and for a harvest of
 * bitmaps what its dirty pages take.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A reap must not fail, nor make a host that is short of memory swap.  However
 * many pages it finds, it allocates no more than the rings themselves have.
 * Pages of a bitmap have to be kept until they are re-armed.
 */

#include "rig.h"

#include <malloc.h>

#define MILLION 1000000

/* glibc's own figures are those of a malloc that a sanitizer replaced. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#else
static const bool sanitized;
#endif

static struct {
    size_t before, most;
    unsigned calls;
} used;

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

static void look(Rig *r)
{
    (void)r;
    if (used.calls++ % 256 == 0) {
        used.most = MAX(used.most, allocated());
    }
}

static void look_each(Rig *r)
{
    (void)r;
    used.calls++;
    used.most = MAX(used.most, allocated());
}

static size_t ring_bytes(uint32_t size, unsigned vcpus)
{
    return size * vcpus * sizeof(struct kvm_dirty_gfn);
}

/* The guest's million pages; memory allocated by then does not count. */
static Rig *rig_of(uint32_t size)
{
    Rig *r = rig_new_ring(size);

    rig_add(r, 0, MILLION, true);
    r->watch = look;
    return r;
}

static bool skipped(void)
{
    if (sanitized) {
        g_test_skip("a sanitizer replaces malloc, which then has no figures");
    }
    return sanitized;
}

static void start(void)
{
    used.calls = 0;
    used.before = used.most = allocated();
}

static void check(Rig *r, size_t allowed)
{
    used.most = MAX(used.most, allocated());
    g_assert_cmpuint(rig_published(r->blocks->pdata[0]), ==, MILLION);
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    g_assert_cmpuint(used.calls, >, MILLION / 64);
    g_test_message("%zu bytes at most, %zu allowed", used.most - used.before,
                   allowed);
    g_assert_cmpuint(used.most - used.before, <=, allowed);
}

/* All pages are in the rings when they are reaped. */
static void test_one_reap(void)
{
    enum { VCPUS = 20, PART = MILLION / VCPUS };
    RigVcpu *vcpus[VCPUS];
    Rig *r;

    if (skipped()) {
        return;
    }
    r = rig_of(65536);
    for (int i = 0; i < VCPUS; i++) {
        vcpus[i] = rig_vcpu(r, i);
        rig_write_range(vcpus[i], 0, i * PART, PART);
    }
    start();
    rig_sync(r);
    check(r, ring_bytes(65536, VCPUS));
    for (int i = 0; i < VCPUS; i++) {
        rig_vcpu_free(vcpus[i]);
    }
    rig_free(r);
}

/* One small ring, filled a thousand times over. */
static void test_many_reaps(void)
{
    RigVcpu *v;
    Rig *r;

    if (skipped()) {
        return;
    }
    r = rig_of(1024);
    v = rig_vcpu(r, 0);
    start();
    rig_write_range(v, 0, 0, MILLION);
    rig_sync(r);
    check(r, ring_bytes(1024, 1));
    rig_vcpu_free(v);
    rig_free(r);
}

/* The memory that a vCPU takes before it has written anything. */
static void test_vcpu(void)
{
    enum { VCPUS = 64 };
    RigVcpu *vcpus[VCPUS];
    Rig *r;

    if (skipped()) {
        return;
    }
    r = rig_new_ring(1024);
    start();
    for (int i = 0; i < VCPUS; i++) {
        vcpus[i] = rig_vcpu(r, i);
    }
    g_assert_cmpuint(allocated() - used.before, <=,
                     ring_bytes(1024, VCPUS));
    for (int i = 0; i < VCPUS; i++) {
        rig_vcpu_free(vcpus[i]);
    }
    rig_free(r);
}

static void look_in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)point, (void)v;
    look_each(opaque);
}

/* All points of a sync, as there are few. */
static size_t used_by_sync(Rig *r)
{
    size_t most;

    start();
    rig_harvest(r);
    most = used.most - used.before;
    rig_sync(r);
    return most;
}

static Rig *patched_rig(KvmDirtyMechanism mechanism)
{
    Rig *r = rig_new_patched(mechanism);

    rig_add(r, 0, MILLION, true);
    rig_add(r, 1, MILLION, true);
    r->watch = look_each;
    r->fake->hook = look_in_kvm;
    r->fake->hook_opaque = r;
    return r;
}

/*
 * However many pages are dirty, nothing is allocated, except that "wrprot" has
 * KVM copy one slot's bitmap at a time.
 */
static void test_bitmaps(gconstpointer number)
{
    KvmDirtyMechanism mechanism = GPOINTER_TO_INT(number);
    size_t copy = mechanism == KVMD_WRPROT ? MILLION / 8 + 64 : 0;
    Rig *r;
    RigVcpu *v;

    if (skipped()) {
        return;
    }
    r = patched_rig(mechanism);
    v = rig_vcpu(r, 0);
    g_assert_cmpuint(used_by_sync(r), <=, copy + 1024);
    for (uint64_t words = 1; words < MILLION / 128; words *= 4) {
        for (uint64_t i = 0; i < words; i++) {
            rig_write(v, i % 2, i / 2 * 128);
        }
        g_assert_cmpuint(used_by_sync(r), <=, copy + 1024);
        g_assert_cmpuint(used.calls, >, 0);
    }
    rig_write_range(v, 0, 0, MILLION);
    rig_write_range(v, 1, 0, MILLION);
    g_assert_cmpuint(used_by_sync(r), <=, copy + 1024);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/memory/one-reap", test_one_reap);
    g_test_add_func("/memory/many-reaps", test_many_reaps);
    g_test_add_func("/memory/vcpu", test_vcpu);
    g_test_add_data_func("/memory/wrprot", GINT_TO_POINTER(KVMD_WRPROT),
                         test_bitmaps);
    g_test_add_data_func("/memory/shared", GINT_TO_POINTER(KVMD_SHARED),
                         test_bitmaps);
    return g_test_run();
}
