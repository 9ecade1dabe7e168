/*
 * KVM's own statistics of a virtual machine or a vCPU, by their names.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The format is that of KVM_GET_STATS_FD, in KVM's API document, 4.133: a
 * header, descriptors of a fixed size, and the values, which descriptors tell
 * where to find.
 */

#include "ground.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* There are some ten or some fifty, and KVM_STATS_NAME_SIZE is 48. */
#define DESCS_MAX 4096
#define NAME_SIZE_MAX 4096

struct KvmDirtyKvmStats {
    int fd;
    struct kvm_stats_header header;
    size_t desc_size;           /* a descriptor and its name */
    char *descs;
};

static bool stats_read(int fd, void *buffer, size_t size, off_t offset)
{
    return pread(fd, buffer, size, offset) == (ssize_t)size;
}

KvmDirtyKvmStats *kvmd_kvm_stats_open(int fd)
{
    KvmDirtyKvmStats *stats;

    if (fd < 0) {
        return NULL;
    }
    /* Not every KVM does that by itself. */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    stats = g_new0(KvmDirtyKvmStats, 1);
    stats->fd = fd;
    if (!stats_read(fd, &stats->header, sizeof(stats->header), 0) ||
        stats->header.num_desc > DESCS_MAX ||
        stats->header.name_size > NAME_SIZE_MAX) {
        kvmd_kvm_stats_close(stats);
        return NULL;
    }
    stats->desc_size = sizeof(struct kvm_stats_desc) + stats->header.name_size;
    stats->descs = g_malloc(stats->header.num_desc * stats->desc_size);
    if (!stats_read(fd, stats->descs, stats->header.num_desc * stats->desc_size,
                 stats->header.desc_offset)) {
        kvmd_kvm_stats_close(stats);
        return NULL;
    }
    return stats;
}

void kvmd_kvm_stats_close(KvmDirtyKvmStats *stats)
{
    if (stats) {
        close(stats->fd);
        g_free(stats->descs);
        g_free(stats);
    }
}

bool kvmd_kvm_stat(const KvmDirtyKvmStats *stats, const char *name,
                   uint64_t *value)
{
    size_t size = strlen(name) + 1;

    for (uint32_t i = 0; i < stats->header.num_desc; i++) {
        const char *at = stats->descs + i * stats->desc_size;
        struct kvm_stats_desc desc;

        memcpy(&desc, at, sizeof(desc));
        if (size <= stats->header.name_size &&
            memcmp(at + sizeof(desc), name, size) == 0) {
            return stats_read(stats->fd, value, sizeof(*value),
                              (off_t)stats->header.data_offset + desc.offset);
        }
    }
    return false;
}
