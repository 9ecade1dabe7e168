/*
 * A KVM that is broken or hostile: what it says is nonsense.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each was found by reading, or by test_broken_kvm.py, which has them in any
 * order.
 */

#include "rig.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PAGES 1003              /* not a multiple of 64 */
#define SIZE 128

static RigVcpu *the_vcpu;

static Rig *rig_of(Rig *r)
{
    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    return r;
}

static void done(Rig *r)
{
    rig_vcpu_free(the_vcpu);
    rig_free(r);
}

/* From now on, exactly the pages that the guest writes are found. */
static void lives_on(Rig *r)
{
    uint64_t overflows;

    for (int i = 0; i < 4; i++) {
        rig_write_range(the_vcpu, 0, 100 * i, 150);
        rig_sync(r);
        rig_check(r);
    }
    rig_sync(r);
    overflows = rig_overflows(r);
    rig_forget(r);
    r->exact = true;
    rig_write_range(the_vcpu, 0, 0, SIZE / 4);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    r->exact = false;
    g_assert_cmpuint(rig_overflows(r), ==, overflows);
}

/* Rings */

static struct kvm_dirty_gfn *entry(uint32_t index)
{
    return &the_vcpu->fake->gfns[index % SIZE];
}

/* A page was written, and nobody can know which one. */
static void names_no_page(uint32_t slot_id, uint64_t offset)
{
    Rig *r = rig_of(rig_new_ring(SIZE));

    rig_write_range(the_vcpu, 0, 0, 50);
    entry(17)->slot = slot_id;
    entry(17)->offset = offset;
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_overflows(r), ==, 1);
    lives_on(r);
    done(r);
}

static void test_names_no_page(void)
{
    names_no_page(1, 17);
    names_no_page(UINT32_MAX, 17);
    names_no_page(0, PAGES);
    names_no_page(0, UINT64_MAX);
    names_no_page(0, (UINT64_C(1) << 63) | 17);
}

/* Only the collector hands an entry back. */
static void handed_back(uint32_t flags)
{
    Rig *r = rig_of(rig_new_ring(SIZE));

    rig_write_range(the_vcpu, 0, 0, 50);
    entry(17)->flags = flags;
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_overflows(r), >=, 1);
    lives_on(r);
    done(r);
}

static void test_handed_back(void)
{
    handed_back(KVM_DIRTY_GFN_F_RESET);
    handed_back(KVM_DIRTY_GFN_F_RESET | KVM_DIRTY_GFN_F_DIRTY);
    handed_back(UINT32_MAX);
}

/* KVM says @times that it has reset @entries; if @idles, none is reset. */
static void reset_says(int entries, int times, bool idles)
{
    Rig *r = rig_of(rig_new_ring(SIZE));

    rig_write_range(the_vcpu, 0, 0, 20);
    r->fake->reset_says = entries;
    r->fake->reset_lies = times;
    r->fake->reset_idles = idles;
    for (int i = 0; i < 12; i++) {
        rig_write_range(the_vcpu, 0, 50 * i, 50);
        rig_sync(r);
        rig_check(r);
    }
    g_assert_cmpint(r->fake->reset_lies, ==, 0);
    g_assert_cmpuint(rig_overflows(r), >=, 1);
    g_assert_cmpint(rig_warned(r, "overflowed or could not"), ==, 1);
    lives_on(r);
    done(r);
}

static void test_reset_miscounts(void)
{
    static const int entries[] = {
        0, 1, 31, 33, SIZE, SIZE + 1, INT_MAX,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(entries); i++) {
        for (int times = 1; times < 4; times++) {
            reset_says(entries[i], times, false);
            reset_says(entries[i], times, true);
        }
    }
    reset_says(32, 1, true);    /* a batch, as if it were reset */
}

/* KVM says that it has reset entries, but has re-armed no page. */
static void test_reset_does_nothing(void)
{
    Rig *r = rig_of(rig_new_ring(SIZE));

    rig_write_range(the_vcpu, 0, 0, 20);
    r->fake->reset_says = 20;
    r->fake->reset_lies = 1;
    r->fake->reset_idles = true;
    rig_sync(r);
    g_assert_cmpint(r->fake->reset_lies, ==, 0);
    rig_write_range(the_vcpu, 0, 0, 20);
    rig_sync(r);
    rig_check(r);
    lives_on(r);
    done(r);
}

/*
 * Nor has it reset the one entry that it has filled, as if that had been
 * collected before.  Reset stays behind dirty: the fake sees to that.
 */
static void test_reset_counts_alone(void)
{
    const struct kvm_dirty_gfn gfn = {
        .flags = KVM_DIRTY_GFN_F_DIRTY | KVM_DIRTY_GFN_F_RESET,
    };
    Rig *r = rig_of(rig_new_ring(SIZE));

    fake_vcpu_fill(the_vcpu->fake, &gfn);
    r->fake->reset_says = 1;
    r->fake->reset_lies = 1;
    r->fake->reset_idles = true;
    rig_sync(r);
    g_assert_cmpint(r->fake->reset_lies, ==, 0);
    lives_on(r);
    done(r);
}

/* KVM has reset entries, but says that it has not. */
static void test_reset_fails_late(void)
{
    Rig *r = rig_of(rig_new_ring(SIZE));

    rig_write_range(the_vcpu, 0, 0, 20);
    fake_fail_late(r->fake, KVM_RESET_DIRTY_RINGS, EIO, 1);
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_overflows(r), ==, 1);
    lives_on(r);
    done(r);
}

/*
 * The vCPU goes on meanwhile.  Three quarters of the ring are behind its soft limit,
 * so each batch has it fill a quarter more, until the first is in use again.
 */
static void test_reset_fails_late_thrice(void)
{
    const uint32_t size = 2 * SIZE;
    Rig *r = rig_of(rig_new_ring(size));

    fake_fail_late(r->fake, KVM_RESET_DIRTY_RINGS, EINTR, -1);
    rig_write_range(the_vcpu, 0, 0, size + size / 4 + 1);
    fake_fail_no_more(r->fake);
    rig_sync(r);
    rig_check(r);
    lives_on(r);
    done(r);
}

/* KVM offers sizes that no other KVM does, or that no ring can have. */
static void test_ring_sizes(void)
{
    static const struct {
        int bytes;
        uint32_t asked;
        uint32_t size;
    } cases[] = {
        { 16 * SIZE, 0, SIZE }, { 16 * SIZE + 1, 0, SIZE },
        { 32 * SIZE - 1, 0, SIZE }, { INT_MAX, 0, KVMD_RING_DEFAULT },
        { INT_MAX, 2, 2 }, { 79, 0, 4 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const FakeConfig fake = {
            .ring_max = cases[i].bytes, .tiny_rings = true,
        };
        const KvmDirtyConfig config = { KVMD_RING, cases[i].asked };
        Rig *r = rig_of(rig_new(&fake, &config));

        g_assert_cmpuint(kvmd_ring_size(r->kvmd), ==, cases[i].size);
        for (int j = 0; j < 20; j++) {
            rig_write_range(the_vcpu, 0, 30 * j, 40);
            rig_sync(r);
            rig_check(r);
        }
        done(r);
    }
}

static void test_no_size(void)
{
    static const int bytes[] = { INT_MIN, -1, 1, 15 };

    for (size_t i = 0; i < G_N_ELEMENTS(bytes); i++) {
        const FakeConfig fake = { .ring_max = bytes[i] };
        const KvmDirtyConfig config = { KVMD_AUTO, SIZE };
        Rig *r = rig_of(rig_new(&fake, &config));

        g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_LOG);
        g_assert_cmpint(rig_warned(r, "has no dirty rings"), ==, 1);
        done(r);
    }
}

/* Bitmaps */

/* Bits are set that stand for no page, in the bitmap and in the summary. */
static void behind_the_end(KvmDirtyMechanism mechanism, int manual_caps)
{
    const FakeConfig fake = {
        .manual_caps = manual_caps,
        .patched = mechanism == KVMD_LOG ? 0 : FAKE_PATCHED,
    };
    const KvmDirtyConfig config = { mechanism, 0 };
    Rig *r = rig_of(rig_new(&fake, &config));
    FakeSlot *slot = r->fake->slots[0][0];

    slot->dirty[PAGES / 64] = UINT64_MAX;
    if (slot->summary) {
        memset(slot->dirty, 0xff, slot->bitmap_size);
        memset(slot->summary, 0xff, slot->summary_size);
    }
    rig_sync(r);                /* which checks what is published */
    rig_write_range(the_vcpu, 0, PAGES - 80, 80);
    rig_sync(r);
    rig_check(r);
    done(r);
}

static void test_behind_the_end(void)
{
    behind_the_end(KVMD_LOG, 0);
    behind_the_end(KVMD_LOG, FAKE_MANUAL_CAPS);
    behind_the_end(KVMD_WRPROT, 0);
    behind_the_end(KVMD_SHARED, 0);
    behind_the_end(KVMD_DIRTY_BITS, 0);
}

/* A file that lacks what it must have is not used. */
static void test_map_too_small(void)
{
    const uint64_t page = sysconf(_SC_PAGESIZE), all = UINT64_MAX;
    const struct {
        uint64_t bitmap_offset, bitmap_size, summary_offset, summary_size;
    } cases[] = {
        { 0, 0, 0, 8 }, { 0, 8, 8, 8 }, { 0, page, 2 * page, page },
        { 2 * page, page, page, page }, { 2 * page - 64, page, page, page },
        { 4, page, page, page }, { 0, page, page + 1, page },
        { all - 7, page, page, page }, { 0, page, all - 7, page },
        { 0, all, 0, 2 }, { 0, 2 * page, 0, all - page },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Rig *r = rig_new_patched(KVMD_SHARED);

        r->fake->map_lies = true;
        r->fake->map_says = (struct kvm_dirty_bitmap_fd) {
            .bitmap_offset = cases[i].bitmap_offset,
            .bitmap_size = cases[i].bitmap_size,
            .summary_offset = cases[i].summary_offset,
            .summary_size = cases[i].summary_size,
        };
        rig_of(r);
        g_assert_cmpint(rig_warned(r, "cannot be mapped"), ==, 1);
        rig_write_range(the_vcpu, 0, 0, 300);
        rig_sync(r);
        rig_check(r);
        done(r);
    }
}

/* Any answer but an error is a success, also of the first of several. */
static void test_more_than_success(void)
{
    Rig *r = rig_of(rig_new_patched(KVMD_SHARED));

    r->strict = true;
    rig_add(r, 1, 2000, true);
    rig_write(the_vcpu, 1, 0);
    rig_write(the_vcpu, 1, 1999);
    fake_fail_late(r->fake, KVM_WRITE_PROTECT_RANGE, -1, -1);
    rig_sync(r);                /* pages that are copied must be armed */
    g_assert_cmpuint(r->fake->range_protects, ==, 2);
    rig_check(r);
    done(r);
}

/* Others */

/* A call that is interrupted every time has failed. */
static void test_interrupted_for_ever(void)
{
    Rig *r = rig_of(rig_new_log(FAKE_MANUAL_CAPS));

    rig_write_range(the_vcpu, 0, 0, 50);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EINTR, -1);
    g_assert_cmpint(rig_sync(r), ==, -EINTR);
    g_assert_cmpuint(rig_published(r->at[0][0]), ==, PAGES);
    fake_fail_no_more(r->fake);
    rig_sync(r);
    rig_check(r);
    done(r);
}

/* KVM splits nothing and reports success: this must not go on for ever. */
static void test_split_does_nothing(void)
{
    Rig *r = rig_of(rig_new_patched(KVMD_SHARED));
    g_autoptr(GError) error = NULL;
    KvmDirtyStats stats;

    g_assert_true(kvmd_split_set(r->kvmd, KVMD_SPLIT_ON, KVMD_SPLIT_DEFAULT,
                                 &error));
    g_assert_true(kvmd_split_begin(r->kvmd));
    r->fake->split_chunk = 0;
    kvmd_split_run(r->kvmd);
    g_assert_cmpint(rig_warned(r, "splitting huge pages ahead failed"), ==, 1);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.split_done, ==, 0);
    g_assert_false(stats.split_active);
    done(r);
}

/* Runs with a broken header of the statistics. */
static void stats_say(const struct kvm_stats_header *header)
{
    const FakeConfig config = { .patched = FAKE_PATCHED };
    const KvmDirtyConfig shared = { KVMD_SHARED, 0 };
    FakeKvm *fake = fake_new(&config);
    g_autoptr(GError) error = NULL;
    KvmDirtyStats stats;
    Rig *r;

    g_assert_cmpint(pwrite(fake->stats_fd, header, sizeof(*header), 0), ==,
                    sizeof(*header));
    r = rig_new_on(fake, &shared, &error);
    g_assert_no_error(error);
    kvmd_stats(r->kvmd, &stats);
    g_assert_false(stats.faults_known);
    rig_free(r);
}

static void test_stats(void)
{
    static const struct kvm_stats_header headers[] = {
        { .name_size = UINT32_MAX, .num_desc = UINT32_MAX },
        { .name_size = UINT32_MAX - 15, .num_desc = 1u << 31 },
        { .name_size = UINT32_MAX - 15, .num_desc = 1 },
        { .name_size = 0, .num_desc = 4, .desc_offset = 24 },
        { .name_size = 3, .num_desc = 4, .desc_offset = 24 },
        { .name_size = 16, .num_desc = 5, .desc_offset = UINT32_MAX },
        { .name_size = 16, .num_desc = 5, .desc_offset = 24,
          .data_offset = UINT32_MAX },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(headers); i++) {
        stats_say(&headers[i]);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/broken/names-no-page", test_names_no_page);
    g_test_add_func("/broken/handed-back", test_handed_back);
    g_test_add_func("/broken/reset-miscounts", test_reset_miscounts);
    g_test_add_func("/broken/reset-does-nothing", test_reset_does_nothing);
    g_test_add_func("/broken/reset-counts-alone", test_reset_counts_alone);
    g_test_add_func("/broken/reset-fails-late", test_reset_fails_late);
    g_test_add_func("/broken/reset-fails-late-thrice",
                    test_reset_fails_late_thrice);
    g_test_add_func("/broken/ring-sizes", test_ring_sizes);
    g_test_add_func("/broken/no-size", test_no_size);
    g_test_add_func("/broken/behind-the-end", test_behind_the_end);
    g_test_add_func("/broken/map-too-small", test_map_too_small);
    g_test_add_func("/broken/more-than-success", test_more_than_success);
    g_test_add_func("/broken/interrupted-for-ever", test_interrupted_for_ever);
    g_test_add_func("/broken/split-does-nothing", test_split_does_nothing);
    g_test_add_func("/broken/stats", test_stats);
    return g_test_run();
}
