/*
 * One life of a virtual machine on a KVM that is broken or hostile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * usage: broken_kvm [CASE]     CASE, or else the standard input, has the case
 *
 * A case is a text with one command on each line.  The first commands choose
 * the kind of KVM, and "ask" makes the engine.  The commands after that are
 * the actions of the guest, the engine's user and KVM.  Numbers that are too
 * large are taken modulo the number of choices, so that test_broken_kvm.py can
 * make a case of any numbers.  "in N COMMAND" runs COMMAND in the middle of
 * the engine's next work: before the engine, or KVM on its behalf, looks at a
 * ring or bitmap for the Nth time.
 *
 * Whatever KVM does, the engine must not touch memory that is not its own, nor
 * publish a page that does not exist, nor hang, nor repeat its warnings.  As
 * long as KVM does not lie in a way that nobody could notice ("lied"), no page
 * may be lost either: at each "check", and in the end, KVM no longer fails and
 * all pages that the guest wrote must be found.
 */

#include "rig.h"
#include "ordering_hook.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VCPUS 2
#define PAGES_MAX 1500
#define ARGS 6
#define HANG 10                 /* seconds */
#define PATIENCE 4              /* full rings in a row, of a KVM that fails */

static const uint32_t slot_ids[] = { 0, 1, 2, 1 << 16 };
#define SLOTS G_N_ELEMENTS(slot_ids)

static struct {
    FakeConfig config;
    FakeKvm *fake;
    Rig *rig;
    RigVcpu *vcpus[VCPUS];
    uint64_t syncs;
    bool lied;
    unsigned countdown;         /* to amid(), if not 0 */
    char *amid;                 /* the command that it then runs */
    bool busy;                  /* the command is running */
} w;

typedef struct Command {
    const char *name;
    int args;
    void (*run)(const uint64_t *args);
    enum { BEFORE = 1, AFTER = 2, AMID = 4 } when; /* "ask"; during a call */
} Command;

static void G_GNUC_NORETURN G_GNUC_PRINTF(1, 2) bad_case(const char *format,
                                                         ...)
{
    va_list ap;

    va_start(ap, format);
    fputs("broken_kvm: ", stderr);
    vfprintf(stderr, format, ap);
    fputs("\n", stderr);
    va_end(ap);
    exit(2);
}

static RigVcpu *vcpu(uint64_t n)
{
    return w.vcpus[n % VCPUS];
}

static uint32_t slot_id(uint64_t n)
{
    return slot_ids[n % SLOTS];
}

static RigBlock *block(uint64_t n)
{
    uint32_t id = slot_id(n);

    return w.rig->at[id >> 16][id & 0xffff];
}

static FakeSlot *fake_slot(uint64_t n)
{
    uint32_t id = slot_id(n);

    return w.fake->slots[id >> 16][id & 0xffff];
}

/* Whether KVM fails, or is about to. */
static bool fails(void)
{
    for (int i = 0; i < FAKE_INJECTIONS; i++) {
        if (w.fake->inject[i].times) {
            return true;
        }
    }
    return w.fake->reset_lies || w.fake->reset_stops;
}

/* What KVM is like */

static void do_rings(const uint64_t *args)
{
    w.config.ring_max = args[0];
    w.config.reserve = args[1];
}

static void do_manual(const uint64_t *args)
{
    w.config.manual_caps = args[0];
    w.config.manual_refused = args[1];
}

static void do_patched(const uint64_t *args)
{
    w.config.patched = args[0];
    w.config.patched_refused = args[1];
}

static FakeKvm *fake(void)
{
    if (!w.fake) {
        w.config.tiny_rings = true;
        w.fake = fake_new(&w.config);
    }
    return w.fake;
}

static unsigned long request_of(uint64_t n)
{
    static const unsigned long requests[] = {
        KVM_CHECK_EXTENSION, KVM_ENABLE_CAP, KVM_GET_STATS_FD,
        KVM_SET_USER_MEMORY_REGION, KVM_GET_DIRTY_BITMAP_FD,
        KVM_GET_DIRTY_LOG, KVM_CLEAR_DIRTY_LOG, KVM_RESET_DIRTY_RINGS,
        KVM_WRITE_PROTECT_ALL_MEM, KVM_WRITE_PROTECT_RANGE,
        KVM_COLLECT_DIRTY_BITS, KVM_SPLIT_HUGE_PAGES,
    };

    return requests[n % G_N_ELEMENTS(requests)];
}

/* All but a few errors are the same to the engine; 0 would be none. */
static int errno_of(uint64_t n)
{
    return 1 + n % 4095;
}

static void do_fail(const uint64_t *args)
{
    fake_fail(fake(), request_of(args[0]), errno_of(args[1]), (int)args[2]);
}

/*
 * Some requests fail early all the same: the engine, or its user, has to
 * believe KVM that a slot was not changed, a capability not enabled, or that
 * there is no file.
 */
static void do_fail_late(const uint64_t *args)
{
    switch (request_of(args[0])) {
    case KVM_ENABLE_CAP:
    case KVM_GET_STATS_FD:
    case KVM_SET_USER_MEMORY_REGION:
    case KVM_GET_DIRTY_BITMAP_FD:
        do_fail(args);
        break;
    default:
        fake_fail_late(fake(), request_of(args[0]), errno_of(args[1]),
                       (int)args[2]);
    }
}

static void do_stats(const uint64_t *args)
{
    uint64_t value = args[1];

    g_assert_cmpint(pwrite(fake()->stats_fd, &value, sizeof(value),
                           args[0] % 512), ==, sizeof(value));
}

/*
 * The user of the engine may ask for anything.  KVM decides what is available,
 * and the engine has to say why something is not; but auto always works.
 */
static void do_ask(const uint64_t *args)
{
    const KvmDirtyConfig config = {
        .mechanism = args[0] % KVMD__MAX, .ring_size = args[1],
    };
    g_autoptr(GError) error = NULL;

    w.rig = rig_new_on(fake(), &config, &error);
    if (!w.rig) {
        g_assert_nonnull(error);
        g_assert_cmpuint(strlen(error->message), >, 0);
        g_assert_true(config.mechanism != KVMD_AUTO || config.ring_size);
        exit(0);
    }
    w.rig->heedless = true;
    for (int i = 0; i < VCPUS; i++) {
        w.vcpus[i] = rig_vcpu(w.rig, i);
    }
}

/* What the guest does */

static bool enters(RigVcpu *v)
{
    int patience = fails() || w.lied ? PATIENCE : RIG_FULL_MAX;

    while (!fake_vcpu_enters(v->fake) && patience--) {
        v->in_full = true;
        kvmd_vcpu_ring_full(v->kvmd);
        v->in_full = false;
    }
    g_assert_true(fake_vcpu_enters(v->fake) || patience < 0);
    return fake_vcpu_enters(v->fake);
}

/* While the engine is at work, nobody answers full rings. */
static void write_pages(const uint64_t *args, bool (*may)(RigVcpu *v))
{
    RigVcpu *v = vcpu(args[0]);
    RigBlock *b = block(args[1]);
    uint64_t n = args[3] % PAGES_MAX;

    for (uint64_t i = 0; b && v->kvmd && i < n && may(v); i++) {
        rig_force(v, b->slot_id, (args[2] + i) % b->pages);
    }
}

static bool enters_at_once(RigVcpu *v)
{
    return fake_vcpu_enters(v->fake);
}

static void do_write(const uint64_t *args)
{
    write_pages(args, w.busy ? enters_at_once : enters);
}

/* A KVM that lets a vCPU fill on. */
static bool anyhow(RigVcpu *v)
{
    (void)v;
    return true;
}

static void do_flood(const uint64_t *args)
{
    write_pages(args, anyhow);
}

/* What the user of the engine does */

static void do_sync(const uint64_t *args)
{
    (void)args;
    w.syncs++;
    rig_sync(w.rig);
}

static void do_harvest(const uint64_t *args)
{
    (void)args;
    w.syncs++;
    rig_harvest(w.rig);
}

static void do_look(const uint64_t *args)
{
    (void)args;
    w.syncs++;                  /* it may warn, as a sync does */
    rig_look(w.rig);
}

static void do_ahead(const uint64_t *args)
{
    rig_ahead(w.rig, args[0] % 2 ? KVMD_AHEAD_STOP : KVMD_AHEAD_ROUND);
}

static void do_brake(const uint64_t *args)
{
    (void)args;
    kvmd_brake(w.rig->kvmd);
}

static void do_slot_sync(const uint64_t *args)
{
    w.syncs++;
    rig_slot_sync(w.rig, slot_id(args[0]));
}

static void do_clear(const uint64_t *args)
{
    RigBlock *b = block(args[0]);

    if (b && w.rig->clears) {
        w.rig->chunk = 1 + args[1] % PAGES_MAX;
        rig_clear(w.rig, b);
    }
}

static void do_add(const uint64_t *args)
{
    if (!block(args[0])) {
        rig_try_attach(w.rig, rig_block(w.rig, 1 + args[1] % PAGES_MAX),
                       slot_id(args[0]), args[2] % 4);
    }
}

static void check_block(const RigBlock *b)
{
    for (uint64_t i = 0; !w.lied && b->tracked && i < b->pages; i++) {
        if (b->shadow[i] != b->memory[i]) {
            fprintf(stderr, "page %" G_GUINT64_FORMAT " of slot %#x is lost\n",
                    (guint64)i, b->slot_id);
        }
        g_assert_cmpuint(b->shadow[i], ==, b->memory[i]);
    }
}

/*
 * "log" and "wrprot" have pages that are written between the last harvest and
 * the removal in the bitmap that goes with the slot: nobody can have them.
 */
static void do_remove(const uint64_t *args)
{
    KvmDirtyMechanism mechanism = kvmd_mechanism(w.rig->kvmd);
    RigBlock *b = block(args[0]);

    if (!b) {
        return;
    }
    if (mechanism == KVMD_LOG || mechanism == KVMD_WRPROT || fails()) {
        w.countdown = 0;
    }
    if (rig_try_remove(w.rig, slot_id(args[0])) == 0) {
        check_block(b);
        b->tracked = false;
    }
}

static void do_log(const uint64_t *args)
{
    RigBlock *b = block(args[0]);

    if (b) {
        rig_try_log(w.rig, b->slot_id, args[1] % 2);
    }
}

static void do_vcpu(const uint64_t *args)
{
    RigVcpu *v = vcpu(args[0]);

    if (v->kvmd) {
        rig_vcpu_remove(v);
    } else {
        rig_vcpu_add(v);
    }
}

static void do_switch(const uint64_t *args)
{
    g_autoptr(GError) error = NULL;

    if (!rig_try_switch(w.rig, args[0] % KVMD__MAX, &error)) {
        g_assert_nonnull(error);
        g_assert_cmpuint(strlen(error->message), >, 0);
    }
}

static void do_reaper(const uint64_t *args)
{
    (void)args;
    if (!w.rig->reaper) {
        w.countdown = 0;
        rig_reaper_start(w.rig);
    }
}

static void do_split(const uint64_t *args)
{
    g_autoptr(GError) error = NULL;

    if (!kvmd_split_set(w.rig->kvmd, args[0] % 3, args[1], &error)) {
        g_assert_nonnull(error);
    } else if (kvmd_split_begin(w.rig->kvmd)) {
        kvmd_split_run(w.rig->kvmd);
    }
}

/* What KVM does */

static bool has_ring(const RigVcpu *v)
{
    return v->fake->gfns;
}

/* KVM makes up an entry: it stands for no write, or for a write elsewhere. */
static void do_fill(const uint64_t *args)
{
    RigVcpu *v = vcpu(args[0]);
    const struct kvm_dirty_gfn gfn = {
        .slot = args[1], .offset = args[2], .flags = args[3],
    };

    if (has_ring(v)) {
        fake_vcpu_fill(v->fake, &gfn);
        /* An entry that is not dirty hides those behind it. */
        w.lied |= !(gfn.flags & KVM_DIRTY_GFN_F_DIRTY);
        /* A reset for another ring may take it before anybody has seen it. */
        w.lied |= gfn.flags & KVM_DIRTY_GFN_F_RESET;
    }
}

/* One of the entries in use, counted from the youngest. */
static struct kvm_dirty_gfn *entry(const RigVcpu *v, uint64_t n)
{
    uint32_t size = w.fake->ring_size;
    uint32_t used = MIN(fake_vcpu_used(v->fake), size);

    if (!has_ring(v) || !used) {
        return NULL;
    }
    return &v->fake->gfns[(v->fake->dirty_index - 1 - n % used) & (size - 1)];
}

/* A page that was written comes to be one that there is not. */
static void do_tear(const uint64_t *args)
{
    struct kvm_dirty_gfn *gfn = entry(vcpu(args[0]), args[1]);

    if (gfn && gfn->flags == KVM_DIRTY_GFN_F_DIRTY) {
        gfn->slot = args[2] % 2 ? gfn->slot : UINT32_MAX;
        gfn->offset = UINT64_MAX - args[2] % 4096;
    }
}

static void do_scribble(const uint64_t *args)
{
    struct kvm_dirty_gfn *gfn = entry(vcpu(args[0]), args[1]);

    if (gfn) {
        __atomic_store_n(&gfn->slot, args[2], __ATOMIC_RELAXED);
        __atomic_store_n(&gfn->offset, args[3], __ATOMIC_RELAXED);
        __atomic_store_n(&gfn->flags, args[4], __ATOMIC_RELEASE);
        w.lied = true;
    }
}

static void set_bits(uint64_t *words, size_t bytes, uint64_t n, uint64_t bits)
{
    __atomic_fetch_or(&words[n % (bytes / sizeof(*words))], bits,
                      __ATOMIC_SEQ_CST);
}

static void do_dirty(const uint64_t *args)
{
    FakeSlot *slot = fake_slot(args[0]);

    if (slot && slot->dirty) {
        size_t bytes = slot->summary ? slot->bitmap_size :
            (slot->pages + 63) / 64 * sizeof(uint64_t);

        set_bits(slot->dirty, bytes, args[1], args[2]);
    }
}

static void do_summary(const uint64_t *args)
{
    FakeSlot *slot = fake_slot(args[0]);

    if (slot && slot->summary) {
        set_bits(slot->summary, slot->summary_size, args[1], args[2]);
    }
}

/*
 * A wrong offset within the file may go unnoticed.  KVM lets nobody map more
 * than the file.
 */
static void do_map(const uint64_t *args)
{
    const uint64_t file = 2 * sysconf(_SC_PAGESIZE);

    w.fake->map_lies = true;
    w.fake->map_says = (struct kvm_dirty_bitmap_fd) {
        .bitmap_offset = args[0], .bitmap_size = args[1],
        .summary_offset = args[2], .summary_size = args[3],
    };
    w.fake->unmappable = args[1] + args[3] > file;
    w.lied = true;
}

static void do_resets(const uint64_t *args)
{
    w.fake->reset_says = args[0] % INT_MAX;
    w.fake->reset_lies = args[1] % 8;
    w.fake->reset_idles = args[2] % 2;
}

static void do_stops(const uint64_t *args)
{
    w.fake->reset_stops_after = args[0] % 512;
    w.fake->reset_stops = args[1] % 8;
    w.fake->reset_stops_by_work = true;
}

/* KVM no longer fails, and all that the guest wrote until then is found. */
static void do_check(const uint64_t *args)
{
    (void)args;
    fake_fail_no_more(w.fake);
    w.fake->reset_lies = w.fake->reset_stops = 0;
    w.countdown = 0;
    w.syncs++;
    rig_last_sync(w.rig);
    for (guint i = 0; i < w.rig->blocks->len; i++) {
        check_block(g_ptr_array_index(w.rig->blocks, i));
    }
}

/* The commands of a case */

static const Command commands[] = {
    { "rings", 2, do_rings, BEFORE },       /* bytes, entries in reserve */
    { "manual", 2, do_manual, BEFORE },     /* capabilities, refused */
    { "patched", 2, do_patched, BEFORE },   /* the same, as FakePatched */
    { "stats", 2, do_stats, BEFORE },       /* offset, value */
    { "fail", 3, do_fail, BEFORE | AFTER }, /* request, errno, times */
    { "fail-late", 3, do_fail_late, BEFORE | AFTER },
    { "ask", 2, do_ask, BEFORE },           /* mechanism, ring size */
    { "write", 4, do_write, AFTER | AMID },     /* vCPU, slot, page, pages */
    { "flood", 4, do_flood, AFTER | AMID },
    { "sync", 0, do_sync, AFTER },
    { "harvest", 0, do_harvest, AFTER },
    { "look", 0, do_look, AFTER },
    { "ahead", 1, do_ahead, AFTER },        /* of the end */
    { "brake", 0, do_brake, AFTER },
    { "slot-sync", 1, do_slot_sync, AFTER },
    { "clear", 2, do_clear, AFTER },        /* slot, pages at a time */
    { "add", 3, do_add, AFTER },            /* slot, pages, logged */
    { "remove", 1, do_remove, AFTER },
    { "log", 2, do_log, AFTER },
    { "vcpu", 1, do_vcpu, AFTER },
    { "switch", 1, do_switch, AFTER },
    { "reaper", 0, do_reaper, AFTER },
    { "split", 2, do_split, AFTER },        /* how, bytes at a time */
    { "fill", 4, do_fill, AFTER | AMID },       /* vCPU, slot, offset, flags */
    { "tear", 3, do_tear, AFTER },          /* vCPU, entry, what */
    { "scribble", 5, do_scribble, AFTER | AMID },
    { "dirty", 3, do_dirty, AFTER | AMID },     /* slot, word, bits */
    { "summary", 3, do_summary, AFTER | AMID },
    { "map", 4, do_map, AFTER },            /* as KVM_GET_DIRTY_BITMAP_FD */
    { "resets", 3, do_resets, AFTER },      /* entries, times, in vain */
    { "stops", 2, do_stops, AFTER },        /* after entries, times */
    { "check", 0, do_check, AFTER },
};

static void run(char *line, int when);

/* The engine, or KVM for it, is about to look at a ring or bitmap. */
static void amid(void)
{
    if (w.countdown && --w.countdown == 0) {
        w.busy = true;
        run(w.amid, AMID);
        w.busy = false;
    }
}

static void amid_in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)point, (void)v;
    amid();
}

/* The reaper's thread, once there is one, would come here as well. */
static void in(char *text)
{
    char *command = NULL;

    w.countdown = strtoul(text, &command, 10) % 4096;
    if (w.rig->reaper) {
        w.countdown = 0;
    }
    w.amid = command;
}

/* Runs one @line of the case, if it is allowed at this time. */
static void run(char *line, int when)
{
    char name[16];
    unsigned long long n[ARGS] = { 0 };
    uint64_t args[ARGS];
    int count = sscanf(line, "%15s %llu %llu %llu %llu %llu %llu", name, &n[0],
                       &n[1], &n[2], &n[3], &n[4], &n[5]) - 1;

    for (int i = 0; i < ARGS; i++) {
        args[i] = n[i];
    }
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        const Command *c = &commands[i];

        if (strcmp(name, c->name) == 0 && count == c->args &&
            (c->when & when)) {
            c->run(args);
            return;
        }
    }
    bad_case("'%s' is no command, has not its arguments or must not be here",
             line);
}

/* Some may come in each sync, for each slot, or for each worsening. */
static void check_warnings(void)
{
    g_assert_cmpint(rig_warned(w.rig, "overflowed or could not be reset"), <=,
                    1);
    g_assert_cmpint(rig_warned(w.rig, "KVM_RESET_DIRTY_RINGS"), <=, 1);
    for (size_t i = 0; i < SLOTS; i++) {
        g_autofree char *slot = g_strdup_printf("harvesting the dirty pages "
                                                "of slot 0x%x ", slot_ids[i]);

        g_assert_cmpint(rig_warned(w.rig, slot), <=, w.syncs);
    }
}

/* On a KVM that no longer fails, the guest lives on. */
static void end(void)
{
    do_check(NULL);
    for (int i = 0; i < VCPUS; i++) {
        if (!w.vcpus[i]->kvmd) {
            rig_vcpu_add(w.vcpus[i]);
        }
        for (uint64_t n = 0; n < SLOTS; n++) {
            do_write((uint64_t[]) { i, n, 7 * i, 300 });
        }
        do_check(NULL);
    }
    if (w.rig->reaper) {
        rig_reaper_stop(w.rig);
    }
    check_warnings();
    for (int i = 0; i < VCPUS; i++) {
        rig_vcpu_free(w.vcpus[i]);
    }
    rig_free(w.rig);
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    g_autofree char *amid_line = NULL;
    g_autofree char *line = NULL;
    size_t size = 0;

    if (!file) {
        bad_case("cannot open %s: %s", argv[1], strerror(errno));
    }
    alarm(HANG);
    while (getline(&line, &size, file) > 0) {
        g_strchomp(line);
        if (strncmp(line, "in ", 3) == 0 && w.rig) {
            g_free(amid_line);
            amid_line = g_strdup(line + 3);
            in(amid_line);
        } else {
            run(line, w.rig ? AFTER : BEFORE);
        }
        if (w.rig) {
            ordering_hook = w.rig->reaper ? NULL : amid;
            w.fake->hook = w.rig->reaper ? NULL : amid_in_kvm;
        }
    }
    if (!w.rig) {
        bad_case("there is no 'ask'");
    }
    end();
    return 0;
}
