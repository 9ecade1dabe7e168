/*
 * The engine's hot loops, one at a time, on the unit tests' fake KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * To be run under callgrind, which counts instructions: engine_loops.py does.
 * Instructions count within kvmd_sync() or kvmd_slot_clear(), but not within
 * hot_ioctl(), which is KVM's.  Prints how many pages each loop handles.
 */

#include "fake_kvm.h"
#include "kvmdirty.h"

#include <getopt.h>
#include <linux/kvm_dirty_tracking.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE UINT64_C(4096)
#define GIB_PAGES (UINT64_C(1) << 18)
#define GIB_MAX 1024
#define TIMES_MAX 1000
#define SPARSE_PAGES 1000
#define RING_SIZE 65536
#define EXIT_USAGE 2

typedef struct Loop {
    const char *name;
    KvmDirtyMechanism mechanism;
    uint64_t dirty;             /* pages; 0: all */
} Loop;

static const Loop loops[] = {
    { "ring", KVMD_RING, RING_SIZE },
    { "log-sparse", KVMD_LOG, SPARSE_PAGES },
    { "log-all", KVMD_LOG, 0 },
    { "wrprot-sparse", KVMD_WRPROT, SPARSE_PAGES },
    { "wrprot-all", KVMD_WRPROT, 0 },
    { "shared-sparse", KVMD_SHARED, SPARSE_PAGES },
    { "shared-all", KVMD_SHARED, 0 },
};

typedef struct Bench {
    const Loop *loop;
    uint64_t pages;             /* of the guest */
    FakeKvm *fake;
    FakeVcpu *vcpu;
    KvmDirty *kvmd;
    uint64_t *memory;           /* a stamp for each page */
    uint64_t published;
    bool hot;
} Bench;

/* The least that the engine needs of its user */

/*
 * Callgrind leaves it out by its name.  The fake looks at all pages to re-arm
 * a region, which takes too long and makes no difference to set_bits().
 */
static int G_GNUC_NO_INLINE hot_ioctl(Bench *b, unsigned long request,
                                      void *arg)
{
    return request == KVM_WRITE_PROTECT_RANGE ? 0 :
        fake_vm_ioctl(b->fake, request, arg);
}

static int on_ioctl(void *opaque, unsigned long request, void *arg)
{
    Bench *b = opaque;

    return b->hot ? hot_ioctl(b, request, arg) :
        fake_vm_ioctl(b->fake, request, arg);
}

static void on_publish(void *opaque, uint64_t tag, uint64_t first,
                       const uint64_t *words, size_t n)
{
    Bench *b = opaque;

    (void)tag;
    (void)first;
    (void)words;
    b->published += n;
}

static void on_kick(void *opaque)
{
    (void)opaque;
}

static void on_warn(void *opaque, const char *message)
{
    (void)opaque;
    g_error("%s", message);
}

static const KvmDirtyVmm lent = {
    .vm_ioctl = on_ioctl,
    .publish = on_publish,
    .kick = on_kick,
    .warn = on_warn,
};

/* The guest */

static void set_slot(Bench *b)
{
    struct kvm_userspace_memory_region region = {
        .flags = KVM_MEM_LOG_DIRTY_PAGES,
        .memory_size = b->pages * PAGE,
        .userspace_addr = (uintptr_t)b->memory,
    };

    g_assert_cmpint(kvmd_slot_set(b->kvmd, &region, 0), ==, 0);
}

static void add_vcpu(Bench *b)
{
    g_autoptr(GError) error = NULL;

    b->vcpu = fake_vcpu_new(b->fake, 0);
    kvmd_vcpu_add(b->kvmd, 0, b->vcpu->fd, NULL, &error);
    g_assert_no_error(error);
}

static void fill_ring(Bench *b, uint64_t stamp)
{
    for (uint64_t i = 0; fake_vcpu_enters(b->vcpu); i++) {
        fake_write(b->vcpu, 0, i, stamp);
    }
}

/* Set bits as if KVM had logged the pages: logging takes too long here. */
static void set_bits(Bench *b, uint64_t count)
{
    FakeSlot *slot = b->fake->slots[0][0];
    uint64_t stride = b->pages / count;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t page = i * stride, group = page / KVM_DIRTY_SUMMARY_PAGES;

        slot->dirty[page / 64] |= UINT64_C(1) << page % 64;
        if (slot->summary) {
            slot->summary[group / 64] |= UINT64_C(1) << group % 64;
        }
    }
}

/* Returns: pages that are dirty now. */
static uint64_t write_pages(Bench *b, uint64_t stamp)
{
    uint64_t count = b->loop->dirty ? b->loop->dirty : b->pages;

    if (b->vcpu) {
        fill_ring(b, stamp);
        return fake_vcpu_used(b->vcpu);
    }
    set_bits(b, count);
    return count;
}

/* Clear as QEMU does: 1 GiB at a time. */
static void clear_all(Bench *b)
{
    for (uint64_t first = 0; first < b->pages; first += GIB_PAGES) {
        g_assert_cmpint(kvmd_slot_clear(b->kvmd, 0, first, GIB_PAGES), ==, 0);
    }
}

static void run(Bench *b)
{
    b->hot = true;
    g_assert_cmpint(kvmd_sync(b->kvmd), ==, 0);
    clear_all(b);
    b->hot = false;
}

static void begin(Bench *b)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };
    KvmDirtyConfig config = { .mechanism = b->loop->mechanism };
    g_autoptr(GError) error = NULL;

    /* Otherwise the first sync would find all pages. */
    fake.manual_caps = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE;
    b->fake = fake_new(&fake);
    b->memory = g_new0(uint64_t, b->pages);
    b->kvmd = kvmd_new(&lent, b, &config, &error);
    g_assert_no_error(error);
    if (b->loop->mechanism == KVMD_RING) {
        add_vcpu(b);
    }
    set_slot(b);
}

static void run_loop(const Loop *loop, uint64_t gib, uint64_t times)
{
    Bench b = { .loop = loop, .pages = gib * GIB_PAGES };
    uint64_t pages = 0;

    begin(&b);
    for (uint64_t i = 0; i < times; i++) {
        pages += write_pages(&b, i + 1);
        b.published = 0;
        run(&b);
        g_assert_cmpuint(b.published, >, 0);
    }
    printf("pages.%s %" G_GUINT64_FORMAT " pages\n", loop->name, pages);
}

/* The command line */

static void help(void)
{
    printf("usage: engine-loops [-g GiB] [-n times] LOOP\n\n"
           "  -g  GiB of the guest, 1 to %d (64)\n"
           "  -n  how often, 1 to %d (1)\n\n"
           "LOOP is one of:", GIB_MAX, TIMES_MAX);
    for (size_t i = 0; i < G_N_ELEMENTS(loops); i++) {
        printf(" %s", loops[i].name);
    }
    printf("\n");
}

static void G_GNUC_NORETURN refuse(const char *what)
{
    fprintf(stderr, "engine-loops: %s is not allowed; -h tells what is\n",
            what);
    exit(EXIT_USAGE);
}

static uint64_t parse_number(const char *text, uint64_t most)
{
    guint64 value;

    if (!g_ascii_string_to_unsigned(text, 10, 1, most, &value, NULL)) {
        refuse(text);
    }
    return value;
}

static const Loop *parse_loop(const char *name)
{
    for (size_t i = 0; name && i < G_N_ELEMENTS(loops); i++) {
        if (g_str_equal(loops[i].name, name)) {
            return &loops[i];
        }
    }
    refuse(name ? name : "no LOOP");
}

int main(int argc, char **argv)
{
    uint64_t gib = 64, times = 1;
    int option;

    opterr = 0;
    while ((option = getopt(argc, argv, "g:n:h")) != -1) {
        if (option == 'g') {
            gib = parse_number(optarg, GIB_MAX);
        } else if (option == 'n') {
            times = parse_number(optarg, TIMES_MAX);
        } else if (option == 'h') {
            help();
            return EXIT_SUCCESS;
        } else {
            refuse(argv[optind - 1]);
        }
    }
    if (argc > optind + 1) {
        refuse(argv[optind + 1]);
    }
    run_loop(parse_loop(argv[optind]), gib, times);
    return EXIT_SUCCESS;
}
