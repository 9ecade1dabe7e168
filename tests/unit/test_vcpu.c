/*
 * What KVM's own statistics tell of a vCPU.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct Stats {
    struct kvm_stats_header header;
    struct {
        struct kvm_stats_desc desc;
        char name[16];
    } descs[3];
    uint64_t values[3];
} Stats;

/* As KVM_GET_STATS_FD has them, with the last two of a vCPU's under @name. */
static int stats_new(const char *name)
{
    Stats stats = {
        .header = {
            .name_size = sizeof(stats.descs[0].name),
            .num_desc = G_N_ELEMENTS(stats.descs),
            .desc_offset = offsetof(Stats, descs),
            .data_offset = offsetof(Stats, values),
        },
        .descs = {
            { .desc.offset = 0, .name = "pf_taken" },
            { .desc.offset = 16, .name = "exits" },
            { .desc.offset = 8 },
        },
        .values = { 111, 0, 333 },
    };
    int fd = memfd_create("vcpu", MFD_CLOEXEC);

    g_strlcpy(stats.descs[2].name, name, sizeof(stats.descs[2].name));
    g_assert_cmpint(write(fd, &stats, sizeof(stats)), ==, sizeof(stats));
    return fd;
}

static void stats_set_faults(int fd, uint64_t faults)
{
    g_assert_cmpint(pwrite(fd, &faults, sizeof(faults),
                           offsetof(Stats, values[1])), ==, sizeof(faults));
}

/* KVM gives them while a vCPU is added, and at no other time. */
static RigVcpu *vcpu_new(Rig *r, unsigned long id, const char *name)
{
    RigVcpu *v = rig_vcpu(r, id);

    rig_vcpu_remove(v);
    v->stats_fd = stats_new(name);
    rig_vcpu_add(v);
    return v;
}

static int open_files(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    int n = 0;

    while (g_dir_read_name(dir)) {
        n++;
    }
    return n;
}

/* Each vCPU has its own, up to date, and none after it was removed. */
static void test_faults(void)
{
    int files_before = open_files(), files;
    Rig *r = rig_new_log(0);
    RigVcpu *a = vcpu_new(r, 0, "pf_fixed"), *b = vcpu_new(r, 1, "pf_fixed");
    KvmDirtyVcpu *removed = b->kvmd;
    uint64_t faults = 0;

    stats_set_faults(a->stats_fd, 5);
    stats_set_faults(b->stats_fd, 7);
    files = open_files();
    g_assert_true(kvmd_vcpu_faults(a->kvmd, &faults));
    g_assert_cmpuint(faults, ==, 5);
    g_assert_true(kvmd_vcpu_faults(b->kvmd, &faults));
    g_assert_cmpuint(faults, ==, 7);
    stats_set_faults(a->stats_fd, 6);
    g_assert_true(kvmd_vcpu_faults(a->kvmd, &faults));
    g_assert_cmpuint(faults, ==, 6);
    rig_vcpu_remove(b);
    g_assert_false(kvmd_vcpu_faults(removed, &faults));
    rig_vcpu_add(b);
    g_assert_true(kvmd_vcpu_faults(b->kvmd, &faults));
    rig_vcpu_remove(b);
    g_assert_cmpint(open_files(), ==, files - 1);
    close(a->stats_fd);
    close(b->stats_fd);
    rig_vcpu_free(a);
    rig_vcpu_free(b);
    rig_free(r);
    g_assert_cmpint(open_files(), ==, files_before);
}

static void test_unknown(void)
{
    Rig *r = rig_new_log(0);
    RigVcpu *v = rig_vcpu(r, 0);
    uint64_t faults = 0;

    g_assert_false(kvmd_vcpu_faults(v->kvmd, &faults));
    rig_vcpu_free(v);
    v = vcpu_new(r, 1, "pf_fixed_long");
    g_assert_false(kvmd_vcpu_faults(v->kvmd, &faults));
    close(v->stats_fd);
    rig_vcpu_free(v);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vcpu/faults", test_faults);
    g_test_add_func("/vcpu/unknown", test_unknown);
    return g_test_run();
}
