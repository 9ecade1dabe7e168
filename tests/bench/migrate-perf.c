/*
 * The cost of a migration's fetches beside vCPUs that write, by each way that
 * the host's KVM has.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Needs /dev/kvm and nothing else.  Prints lines of a name, a number and a
 * unit; a line that begins with # says why a way is missing.
 */

#include "vmm.h"

#include <errno.h>
#include <getopt.h>
#include <linux/kvm_dirty_tracking.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define PAGE UINT64_C(4096)
#define MIB_PAGES ((UINT64_C(1) << 20) / PAGE)
#define GIB_PAGES ((UINT64_C(1) << 30) / PAGE)

/* Clear of the code, and below what x86 has under 4 GiB for devices. */
#define MEMORY_GPA (UINT64_C(16) << 20)
#define MEMORY_MIB_MAX 3840
#define TIMES_MAX 1000000
#define INTERVAL_MAX 60000

#define EXIT_USAGE 2

typedef struct Way {
    const char *name;
    KvmDirtyMechanism mechanism;
    /* KVM_GET_DIRTY_LOG re-arms what it fetches. */
    bool plain;
    /* KVM_WRITE_PROTECT_ALL_MEM instead of regions of 2 MiB. */
    bool all;
    /* Nothing is logged, and nothing fetched. */
    bool off;
} Way;

static const Way ways[] = {
    { .name = "off", .mechanism = KVMD_LOG, .off = true },
    { .name = "get", .mechanism = KVMD_LOG, .plain = true },
    { .name = "clear", .mechanism = KVMD_LOG },
    { .name = "ring", .mechanism = KVMD_RING },
    { .name = "wrprot", .mechanism = KVMD_WRPROT },
    { .name = "wrprot-all", .mechanism = KVMD_WRPROT, .all = true },
    { .name = "shared", .mechanism = KVMD_SHARED },
    { .name = "shared-all", .mechanism = KVMD_SHARED, .all = true },
};

typedef struct Options {
    unsigned vcpus;
    unsigned mib;
    unsigned times;
    unsigned interval_ms;
    const Way *way;             /* NULL: all that the host has */
} Options;

typedef struct Bench {
    const Options *options;
    const Way *way;
    Vmm *vmm;
    uint64_t pages;
    int64_t *fetch_ns;          /* of each time */
    int64_t cpu_ns;             /* of all */
    int64_t rearm_ns;           /* that the engine does not know of */
} Bench;

static int64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int64_t now(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* The guest */

/*
 * Pages that a vCPU has written since it ended its first pass.  Those of this
 * pass come first in memory.
 */
static uint64_t written_by(const Bench *b, const VmmVcpu *v)
{
    uint32_t pass = vmm_vcpu_stamp(v, 0, 0);
    uint64_t low = 0, high = b->pages;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (vmm_vcpu_stamp(v, 0, middle) >= pass) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (pass - 2) * b->pages + low;
}

static uint64_t written(const Bench *b)
{
    uint64_t sum = 0;

    for (int i = 0; i < b->vmm->n_vcpus; i++) {
        sum += written_by(b, &b->vmm->vcpus[i]);
    }
    return sum;
}

/* All memory is there, and mapped, when every vCPU is in its second pass. */
static void wait_for_second_pass(const Bench *b)
{
    for (int i = 0; i < b->vmm->n_vcpus; i++) {
        while (vmm_vcpu_stamp(&b->vmm->vcpus[i], 0, 0) < 2) {
            g_usleep(1000);
        }
    }
}

/* One after the other: otherwise all vCPUs would take the same fault. */
static void start_guest(Bench *b)
{
    for (int i = 0; i < b->vmm->n_vcpus; i++) {
        vmm_vcpu_program_from(&b->vmm->vcpus[i], MEMORY_GPA, b->pages,
                              b->pages * i / b->vmm->n_vcpus);
    }
    vmm_start(b->vmm);
    wait_for_second_pass(b);
}

/* The measurement */

/* KVM has it on by now, since the engine prefers it. */
static void turn_off_manual_protect(const Vmm *m)
{
    struct kvm_enable_cap cap = { .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 };

    if (ioctl(m->vm, KVM_CHECK_EXTENSION, cap.cap) > 0) {
        g_assert_no_errno(ioctl(m->vm, KVM_ENABLE_CAP, &cap));
    }
}

/* Re-arm as QEMU does: at most 1 GiB at a time. */
static void clear_by_gib(const Bench *b)
{
    for (uint64_t first = 0; first < b->pages; first += GIB_PAGES) {
        uint64_t n = MIN(GIB_PAGES, b->pages - first);

        g_assert_cmpint(kvmd_slot_clear(b->vmm->kvmd, 0, first, n), ==, 0);
    }
}

static void rearm(Bench *b)
{
    int64_t start = now();

    if (b->way->all) {
        g_assert_no_errno(ioctl(b->vmm->vm, KVM_WRITE_PROTECT_ALL_MEM, NULL));
        b->rearm_ns += now() - start;
    } else if (!b->way->plain) {
        clear_by_gib(b);
    }
}

static int64_t fetch(Bench *b)
{
    int64_t start = now(), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);

    g_assert_cmpint(kvmd_sync(b->vmm->kvmd), ==, 0);
    rearm(b);
    b->cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return now() - start;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void print(const Bench *b, const char *what, double value,
                  const char *unit)
{
    printf("%s.%s %.0f %s\n", what, b->way->name, value, unit);
}

static void print_fetches(Bench *b, const KvmDirtyStats *s,
                          const KvmDirtyStats *t)
{
    unsigned times = b->options->times;
    uint64_t rearm_ns = b->rearm_ns + t->rearm_ns - s->rearm_ns;
    double sum = 0;

    for (unsigned i = 0; i < times; i++) {
        sum += b->fetch_ns[i];
    }
    qsort(b->fetch_ns, times, sizeof(b->fetch_ns[0]), compare);
    print(b, "fetch", sum / times, "ns");
    print(b, "fetch-median", b->fetch_ns[times / 2], "ns");
    print(b, "fetch-cpu", (double)b->cpu_ns / times, "ns");
    print(b, "harvest", (double)(t->harvest_ns - s->harvest_ns) / times, "ns");
    print(b, "rearm", (double)rearm_ns / times, "ns");
    print(b, "dirty", (double)(t->pages - s->pages) / times, "pages");
    if (b->way->mechanism == KVMD_RING) {
        print(b, "overflows", t->overflows - s->overflows, "times");
    }
}

static void measure(Bench *b)
{
    const Options *o = b->options;
    KvmDirtyStats s, t;
    uint64_t pages = written(b);
    int64_t begun = now();

    b->cpu_ns = b->rearm_ns = 0;
    kvmd_stats(b->vmm->kvmd, &s);
    for (unsigned i = 0; i < o->times; i++) {
        g_usleep(o->interval_ms * 1000);
        if (!b->way->off) {
            b->fetch_ns[i] = fetch(b);
        }
    }
    kvmd_stats(b->vmm->kvmd, &t);
    pages = written(b) - pages;
    print(b, "writes", pages * 1e9 / (now() - begun), "per-s");
    if (!b->way->off) {
        print_fetches(b, &s, &t);
    }
}

/* The first fetch differs, since the log starts with it. */
static void start_log(Bench *b)
{
    int64_t start = now();

    vmm_slot_set(b->vmm, 0, true, true);
    print(b, "start", now() - start, "ns");
    if (b->way->mechanism == KVMD_RING) {
        vmm_reaper_start(b->vmm);
    }
    fetch(b);
}

static void run_way(const Options *o, const Way *way,
                    const KvmDirtyConfig *config)
{
    g_autofree int64_t *fetch_ns = g_new0(int64_t, o->times);
    Bench b = {
        .options = o,
        .way = way,
        .vmm = vmm_new(config, o->vcpus, true),
        .pages = o->mib * MIB_PAGES,
        .fetch_ns = fetch_ns,
    };

    if (way->plain) {
        turn_off_manual_protect(b.vmm);
    }
    vmm_slot_init_bare(b.vmm, 0, MEMORY_GPA, b.pages);
    vmm_slot_set(b.vmm, 0, true, false);
    start_guest(&b);
    if (!way->off) {
        start_log(&b);
    }
    measure(&b);
    if (b.vmm->reaper) {
        vmm_reaper_stop(b.vmm);
    }
    vmm_free(b.vmm);
}

/* Returns: false if the host lacks a way that was asked for. */
static bool try_way(const Options *o, const Way *way)
{
    KvmDirtyConfig config = { .mechanism = way->mechanism };
    g_autofree char *why = vmm_refusal(&config);

    if (!why) {
        run_way(o, way, &config);
    } else if (o->way) {
        fprintf(stderr, "migrate-perf: %s\n", why);
        return false;
    } else {
        printf("# %s: %s\n", way->name, why);
    }
    return true;
}

/* The command line */

static void help(void)
{
    printf("usage: migrate-perf [-c vcpus] [-m MiB] [-t times] [-i ms] "
           "[-w way]\n\n"
           "vCPUs write to all of a guest's memory, over and over, while its "
           "dirty pages are\nfetched: harvested and re-armed.\n\n"
           "  -c  vCPUs, 1 to %d (1)\n"
           "  -m  MiB of memory, 1 to %d (256)\n"
           "  -t  how often they are fetched, 1 to %d (20)\n"
           "  -i  ms between two fetches, 0 to %d (100)\n"
           "  -w  one way only:", VMM_VCPUS, MEMORY_MIB_MAX, TIMES_MAX,
           INTERVAL_MAX);
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        printf(" %s", ways[i].name);
    }
    printf("\n\n"
           "off logs nothing.  get is KVM_GET_DIRTY_LOG, which re-arms; clear "
           "re-arms by\nKVM_CLEAR_DIRTY_LOG; ring has a reaper beside it, "
           "whose work is in harvest and\nrearm.  On a kernel of this project "
           "wrprot and shared re-arm regions of 2 MiB, and\nwith -all the "
           "whole guest at once.\n\n"
           "fetch is the average, and fetch-cpu what the CPU spent on it; all "
           "of that includes the\nwait for vCPUs to flush their TLBs.  start "
           "is the ioctl that turns on logging.\n");
}

static void G_GNUC_NORETURN refuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "migrate-perf: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(EXIT_USAGE);
}

static unsigned parse_number(char option, const char *text, unsigned least,
                             unsigned most)
{
    guint64 value;

    if (!g_ascii_string_to_unsigned(text, 10, least, most, &value, NULL)) {
        refuse("-%c %s is not allowed: it takes a number from %u to %u",
               option, text, least, most);
    }
    return value;
}

static const Way *parse_way(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        if (g_str_equal(ways[i].name, name)) {
            return &ways[i];
        }
    }
    refuse("-w %s is not a way; -h names all", name);
}

static void parse(int argc, char **argv, Options *o)
{
    int option;

    opterr = 0;
    while ((option = getopt(argc, argv, ":c:m:t:i:w:h")) != -1) {
        if (option == 'c') {
            o->vcpus = parse_number('c', optarg, 1, VMM_VCPUS);
        } else if (option == 'm') {
            o->mib = parse_number('m', optarg, 1, MEMORY_MIB_MAX);
        } else if (option == 't') {
            o->times = parse_number('t', optarg, 1, TIMES_MAX);
        } else if (option == 'i') {
            o->interval_ms = parse_number('i', optarg, 0, INTERVAL_MAX);
        } else if (option == 'w') {
            o->way = parse_way(optarg);
        } else if (option == 'h') {
            help();
            exit(EXIT_SUCCESS);
        } else if (option == ':') {
            refuse("-%c needs a value; -h tells which", optopt);
        } else {
            refuse("-%c is not an option; -h names all", optopt);
        }
    }
    if (optind < argc) {
        refuse("'%s' is no option; -h names all", argv[optind]);
    }
}

int main(int argc, char **argv)
{
    Options o = { .vcpus = 1, .mib = 256, .times = 20, .interval_ms = 100 };
    bool ok = true;

    parse(argc, argv, &o);
    if (!vmm_possible()) {
        fprintf(stderr, "migrate-perf: /dev/kvm cannot be used: %s\n",
                g_strerror(errno));
        return EXIT_FAILURE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        if (!o.way || o.way == &ways[i]) {
            ok = try_way(&o, &ways[i]) && ok;
        }
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
