/*
 * A virtual machine on the real /dev/kvm, as small as the engine allows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define PAGE 4096
#define CODE_SLOT VMM_SLOTS
#define CODE_GPA 0x1000
#define CHUNK 100               /* pages per kvmd_slot_clear() */
#define X86_CR0_PE (1u << 0)
#define X86_CR0_WP (1u << 16)
#define X86_CR0_PG (1u << 31)
#define X86_CR4_PAE (1u << 5)
#define EFER_LME (1u << 8)
#define EFER_LMA (1u << 10)

/* Present, writable, for users, accessed; and dirty, of 2 MiB. */
#define PTE_TABLE 0x27
#define PTE_LARGE 0xe7

#define KICK SIGUSR1
#define STORM SIGUSR2

/*
 * Each signal makes a vCPU leave KVM: let it get something done, in the lab on a
 * busy machine, too.
 */
#define VCPU_STORM_SLOWER 50

/*
 * The same in 32-bit and 64-bit mode.  esi: the first page, ebx: how many,
 * eax: the stamp, ebp: where in a page.  Each page is stamped twice, so that
 * a copy that was taken between two stores is seen.
 */
static const uint8_t code[] = {
    0xff, 0xc0,                         /* pass: inc %eax */
    0x89, 0xf7,                         /* mov %esi, %edi */
    0x89, 0xd9,                         /* mov %ebx, %ecx */
    0x89, 0x04, 0x2f,                   /* page: mov %eax, (%edi,%ebp) */
    0x89, 0x84, 0x2f, 0x00, 0x0f, 0, 0, /* mov %eax, 0xf00(%edi,%ebp) */
    0x81, 0xc7, 0x00, 0x10, 0, 0,       /* add $4096, %edi */
    0xff, 0xc9,                         /* dec %ecx */
    0x75, 0xec,                         /* jnz page */
    0xeb, 0xe4,                         /* jmp pass */
};

/* Where "page" is in it: "pass" comes first. */
#define CODE_PAGE_LABEL 6

/* The slot of the code has the page tables of 64-bit mode behind the code. */
enum { CODE, PML4, PDPT, PD, CODE_PAGES = PD + VMM_USER_GIB };

bool vmm_possible(void)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* What the engine borrows */

/*
 * Linux 6.16 on drops what it has yet to re-arm if a signal comes.  The
 * oracle sees that, but only if one does in the right microsecond.
 */
static void check_no_signals(void)
{
    sigset_t blocked;

    g_assert_cmpint(pthread_sigmask(SIG_BLOCK, NULL, &blocked), ==, 0);
    g_assert_true(sigismember(&blocked, STORM));
    g_assert_true(sigismember(&blocked, KICK));
}

static int on_ioctl(void *opaque, unsigned long request, void *arg)
{
    Vmm *m = opaque;
    int ret;

    if (request == KVM_RESET_DIRTY_RINGS) {
        check_no_signals();
    }
    ret = ioctl(m->vm, request, arg);
    return ret < 0 ? -errno : ret;
}

/* Locked, or an older copy might overtake a newer one. */
static void copy_page(Vmm *m, VmmSlot *s, uint64_t page)
{
    g_mutex_lock(&m->copy_lock);
    memcpy(s->shadow + page * PAGE, s->memory + page * PAGE, PAGE);
    m->copied++;
    g_mutex_unlock(&m->copy_lock);
}

static void on_publish(void *opaque, uint64_t tag, uint64_t first,
                       const uint64_t *words, size_t n)
{
    Vmm *m = opaque;
    VmmSlot *s = &m->slots[tag];

    if (!s->shadow) {
        return;
    }
    for (uint64_t i = 0; i < n * KVMD_WORD_PAGES; i++) {
        uint64_t word = GUINT64_FROM_LE(words[i / KVMD_WORD_PAGES]);

        if (!((word >> i % KVMD_WORD_PAGES) & 1)) {
            continue;
        }
        g_assert_cmpuint(tag, <, VMM_SLOTS);
        g_assert_cmpuint(first + i, <, s->pages);
        if (kvmd_clears(m->kvmd)) {
            s->pending[first + i] = true;
        } else {
            copy_page(m, s, first + i);
        }
    }
}

static void on_kick(void *opaque)
{
    Vmm *m = opaque;

    g_mutex_lock(&m->lock);
    for (int i = 0; i < m->n_vcpus; i++) {
        VmmVcpu *v = &m->vcpus[i];
        uint64_t leaves = v->leaves;

        if (v->in_kvm) {
            __atomic_store_n(&v->run->immediate_exit, 1, __ATOMIC_RELAXED);
            pthread_kill(v->pthread, KICK);
        }
        while (v->in_kvm && v->leaves == leaves) {
            g_cond_wait(&m->changed, &m->lock);
        }
    }
    g_mutex_unlock(&m->lock);
}

static void on_warn(void *opaque, const char *message)
{
    (void)opaque;
    g_test_message("warning: %s", message);
}

static const KvmDirtyVmm lent = {
    .vm_ioctl = on_ioctl,
    .publish = on_publish,
    .kick = on_kick,
    .warn = on_warn,
};

/* The vCPU's thread */

static void on_signal(int signo)
{
    (void)signo;
}

timer_t vmm_storm(unsigned microseconds)
{
    struct itimerspec every = {
        .it_interval.tv_nsec = microseconds * 1000,
        .it_value.tv_nsec = microseconds * 1000,
    };
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD_ID,
        .sigev_signo = STORM,
    };
    timer_t timer;

    event.sigev_notify_thread_id = gettid();
    g_assert_no_errno(timer_create(CLOCK_MONOTONIC, &event, &timer));
    g_assert_no_errno(timer_settime(timer, 0, &every, NULL));
    return timer;
}

/* Returns false when the vCPU is to end. */
static bool enter(VmmVcpu *v)
{
    Vmm *m = v->vmm;

    g_mutex_lock(&m->lock);
    while (v->stopped && !v->quit) {
        g_cond_wait(&m->changed, &m->lock);
    }
    v->in_kvm = !v->quit;
    g_mutex_unlock(&m->lock);
    return v->in_kvm;
}

static void leave(VmmVcpu *v)
{
    Vmm *m = v->vmm;

    g_mutex_lock(&m->lock);
    v->in_kvm = false;
    v->leaves++;
    __atomic_store_n(&v->run->immediate_exit, 0, __ATOMIC_RELAXED);
    g_cond_broadcast(&m->changed);
    g_mutex_unlock(&m->lock);
}

static void run_once(VmmVcpu *v)
{
    int ret = ioctl(v->fd, KVM_RUN, NULL);
    int err = ret < 0 ? errno : 0;

    leave(v);
    if (err) {
        g_assert_true(err == EINTR || err == EAGAIN);
    } else if (v->run->exit_reason == KVM_EXIT_DIRTY_RING_FULL) {
        kvmd_vcpu_ring_full(v->kvmd);
    } else {
        /* A store to where no slot is at present. */
        g_assert_cmpuint(v->run->exit_reason, ==, KVM_EXIT_MMIO);
        g_assert_true(v->run->mmio.is_write);
    }
}

static void *vcpu_thread(void *opaque)
{
    VmmVcpu *v = opaque;
    timer_t timer = NULL;

    v->pthread = pthread_self();
    if (v->storm) {
        timer = vmm_storm(v->storm * VCPU_STORM_SLOWER);
    }
    while (enter(v)) {
        run_once(v);
    }
    if (v->storm) {
        timer_delete(timer);
    }
    return NULL;
}

static uint64_t code_gpa(int page)
{
    return CODE_GPA + page * PAGE;
}

/* Flat 32-bit protected mode, without paging. */
static void set_protected_mode(struct kvm_sregs *sregs)
{
    struct kvm_segment flat = {
        .limit = ~0u, .selector = 8, .type = 11, .present = 1, .s = 1,
        .db = 1, .g = 1,
    };

    sregs->cs = flat;
    flat.selector = 16;
    flat.type = 3;
    sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = flat;
    sregs->cr0 |= X86_CR0_PE;
}

/* An unprivileged program in 64-bit mode, its memory mapped as it is. */
static void set_user_mode(struct kvm_sregs *sregs)
{
    struct kvm_segment flat = {
        .limit = ~0u, .selector = 0x33, .type = 11, .present = 1, .s = 1,
        .dpl = 3, .l = 1, .g = 1,
    };

    sregs->cs = flat;
    flat.selector = 0x2b;
    flat.type = 3;
    flat.l = 0;
    flat.db = 1;
    sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = flat;
    sregs->cr0 = X86_CR0_PE | X86_CR0_WP | X86_CR0_PG;
    sregs->cr3 = code_gpa(PML4);
    sregs->cr4 = X86_CR4_PAE;
    sregs->efer = EFER_LME | EFER_LMA;
}

/* 64-bit mode has to be in CPUID. */
static void set_cpuid(VmmVcpu *v)
{
    enum { LEAVES = 256 };
    g_autofree struct kvm_cpuid2 *cpuid =
        g_malloc0(sizeof(*cpuid) + LEAVES * sizeof(cpuid->entries[0]));

    cpuid->nent = LEAVES;
    g_assert_no_errno(ioctl(v->vmm->kvm, KVM_GET_SUPPORTED_CPUID, cpuid));
    g_assert_no_errno(ioctl(v->fd, KVM_SET_CPUID2, cpuid));
}

static void vcpu_reset(VmmVcpu *v)
{
    struct kvm_sregs sregs;

    set_cpuid(v);
    g_assert_no_errno(ioctl(v->fd, KVM_GET_SREGS, &sregs));
    if (v->vmm->user) {
        set_user_mode(&sregs);
    } else {
        set_protected_mode(&sregs);
    }
    g_assert_no_errno(ioctl(v->fd, KVM_SET_SREGS, &sregs));
}

static void vcpu_new(Vmm *m, int id)
{
    g_autoptr(GError) error = NULL;
    VmmVcpu *v = &m->vcpus[id];
    int size = ioctl(m->kvm, KVM_GET_VCPU_MMAP_SIZE, NULL);

    v->vmm = m;
    v->id = id;
    v->stopped = true;
    v->fd = ioctl(m->vm, KVM_CREATE_VCPU, (unsigned long)id);
    g_assert_cmpint(v->fd, >=, 0);
    v->run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
    g_assert_true(v->run != MAP_FAILED);
    v->kvmd = kvmd_vcpu_add(m->kvmd, id, v->fd, v, &error);
    g_assert_no_error(error);
    vcpu_reset(v);
}

/* Each has its own place in every page. */
static uint64_t stamp_offset(const VmmVcpu *v)
{
    return v->id * 8;
}

void vmm_vcpu_program_from(VmmVcpu *v, uint64_t gpa, uint64_t pages,
                           uint64_t first)
{
    struct kvm_regs regs = {
        .rip = CODE_GPA + CODE_PAGE_LABEL,
        .rax = 1,
        .rdi = gpa + first * PAGE,
        .rcx = pages - first,
        .rsi = gpa,
        .rbx = pages,
        .rbp = stamp_offset(v),
        .rflags = 2,
    };

    g_assert_no_errno(ioctl(v->fd, KVM_SET_REGS, &regs));
}

void vmm_vcpu_program(VmmVcpu *v, uint64_t gpa, uint64_t pages)
{
    vmm_vcpu_program_from(v, gpa, pages, 0);
}

void vmm_vcpu_start(VmmVcpu *v)
{
    g_mutex_lock(&v->vmm->lock);
    v->stopped = false;
    g_cond_broadcast(&v->vmm->changed);
    g_mutex_unlock(&v->vmm->lock);
    if (!v->thread) {
        v->storm = v->vmm->storm;
        v->thread = g_thread_new("vcpu", vcpu_thread, v);
    }
}

void vmm_vcpu_stop(VmmVcpu *v)
{
    g_mutex_lock(&v->vmm->lock);
    v->stopped = true;
    g_mutex_unlock(&v->vmm->lock);
    on_kick(v->vmm);
}

void vmm_start(Vmm *m)
{
    for (int i = 0; i < m->n_vcpus; i++) {
        vmm_vcpu_start(&m->vcpus[i]);
    }
}

void vmm_stop(Vmm *m)
{
    for (int i = 0; i < m->n_vcpus; i++) {
        vmm_vcpu_stop(&m->vcpus[i]);
    }
}

uint32_t vmm_vcpu_stamp(const VmmVcpu *v, int slot, uint64_t page)
{
    const uint8_t *p = v->vmm->slots[slot].memory + page * PAGE;

    return __atomic_load_n((const uint32_t *)(p + stamp_offset(v)),
                           __ATOMIC_RELAXED);
}

static void vcpu_free(VmmVcpu *v)
{
    Vmm *m = v->vmm;

    if (v->thread) {
        g_mutex_lock(&m->lock);
        v->quit = true;
        g_cond_broadcast(&m->changed);
        g_mutex_unlock(&m->lock);
        on_kick(m);
        g_thread_join(v->thread);
    }
    kvmd_vcpu_remove(v->kvmd);
    munmap(v->run, ioctl(m->kvm, KVM_GET_VCPU_MMAP_SIZE, NULL));
    close(v->fd);
}

/* Slots */

static void *memfd_map(uint64_t bytes)
{
    int fd = memfd_create("guest", MFD_CLOEXEC);
    void *p;

    g_assert_no_errno(ftruncate(fd, bytes));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    g_assert_true(p != MAP_FAILED);
    close(fd);
    return p;
}

static void region_set(Vmm *m, uint32_t n, const VmmSlot *s)
{
    struct kvm_userspace_memory_region region = {
        .slot = n,
        .flags = s->logged ? KVM_MEM_LOG_DIRTY_PAGES : 0,
        .guest_phys_addr = s->gpa,
        .memory_size = s->present ? s->pages * PAGE : 0,
        .userspace_addr = (uintptr_t)s->memory,
    };

    g_assert_cmpint(kvmd_slot_set(m->kvmd, &region, n), ==, 0);
}

void vmm_slot_init(Vmm *m, int n, uint64_t gpa, uint64_t pages)
{
    m->slots[n] = (VmmSlot) {
        .gpa = gpa,
        .pages = pages,
        .memory = memfd_map(pages * PAGE),
        .shadow = g_malloc0(pages * PAGE),
        .pending = g_new0(bool, pages),
    };
}

void vmm_slot_init_bare(Vmm *m, int n, uint64_t gpa, uint64_t pages)
{
    m->slots[n] = (VmmSlot) {
        .gpa = gpa,
        .pages = pages,
        .memory = memfd_map(pages * PAGE),
    };
}

/* What is not logged is not tracked: the shadow begins where logging does. */
void vmm_slot_set(Vmm *m, int n, bool present, bool logged)
{
    VmmSlot *s = &m->slots[n];

    s->present = present;
    s->logged = present && logged;
    region_set(m, n, s);
    for (uint64_t i = 0; s->shadow && i < s->pages; i++) {
        if (s->logged || s->pending[i]) {
            copy_page(m, s, i);
        }
        s->pending[i] = false;
    }
}

uint64_t vmm_slot_lost(const VmmSlot *s)
{
    uint64_t lost = 0;

    for (uint64_t i = 0; i < s->pages; i++) {
        lost += memcmp(s->shadow + i * PAGE, s->memory + i * PAGE, PAGE) != 0;
    }
    return lost;
}

/* What is pending is re-armed, if it has yet to be, and copied. */
static void slot_clear(Vmm *m, int n)
{
    VmmSlot *s = &m->slots[n];

    for (uint64_t first = 0; s->shadow && first < s->pages; first += CHUNK) {
        uint64_t end = MIN(first + CHUNK, s->pages);

        g_assert_cmpint(kvmd_slot_clear(m->kvmd, n, first, end - first), ==,
                        0);
        for (uint64_t i = first; i < end; i++) {
            if (s->pending[i]) {
                s->pending[i] = false;
                copy_page(m, s, i);
            }
        }
    }
}

static void clear_all(Vmm *m)
{
    for (int n = 0; n < VMM_SLOTS; n++) {
        slot_clear(m, n);
    }
}

void vmm_sync(Vmm *m)
{
    g_assert_cmpint(kvmd_sync(m->kvmd), ==, 0);
    clear_all(m);
}

void vmm_slot_sync(Vmm *m, int n)
{
    g_assert_cmpint(kvmd_slot_sync(m->kvmd, n), ==, 0);
    slot_clear(m, n);
}

void vmm_harvest(Vmm *m)
{
    g_assert_cmpint(kvmd_sync(m->kvmd), ==, 0);
}

void vmm_switch(Vmm *m, KvmDirtyMechanism mechanism)
{
    g_autoptr(GError) error = NULL;

    g_assert_true(kvmd_switch(m->kvmd, mechanism, &error));
    g_assert_no_error(error);
    g_assert_cmpint(kvmd_mechanism(m->kvmd), ==, mechanism);
    clear_all(m);
}

/* The reaper */

static void *reaper_thread(void *opaque)
{
    Vmm *m = opaque;
    timer_t timer = NULL;

    if (m->storm) {
        timer = vmm_storm(m->storm);
    }
    kvmd_reaper_run(m->kvmd);
    if (m->storm) {
        timer_delete(timer);
    }
    return NULL;
}

void vmm_reaper_start(Vmm *m)
{
    m->reaper = g_thread_new("reaper", reaper_thread, m);
}

void vmm_reaper_stop(Vmm *m)
{
    kvmd_reaper_stop(m->kvmd);
    g_thread_join(m->reaper);
    m->reaper = NULL;
}

/* The machine */

static void signals_handled(void)
{
    struct sigaction action = { .sa_handler = on_signal };

    g_assert_no_errno(sigaction(KICK, &action, NULL));
    g_assert_no_errno(sigaction(STORM, &action, NULL));
}

static void page_tables(uint8_t *memory)
{
    uint64_t *pml4 = (uint64_t *)(memory + PML4 * PAGE);
    uint64_t *pdpt = (uint64_t *)(memory + PDPT * PAGE);
    uint64_t *pd = (uint64_t *)(memory + PD * PAGE);

    pml4[0] = code_gpa(PDPT) | PTE_TABLE;
    for (int i = 0; i < VMM_USER_GIB; i++) {
        pdpt[i] = code_gpa(PD + i) | PTE_TABLE;
    }
    for (uint64_t i = 0; i < VMM_USER_GIB * PAGE / sizeof(*pd); i++) {
        pd[i] = i << 21 | PTE_LARGE;
    }
}

static void code_load(Vmm *m)
{
    VmmSlot s = {
        .gpa = CODE_GPA,
        .pages = CODE_PAGES,
        .memory = memfd_map(CODE_PAGES * PAGE),
        .present = true,
    };

    m->code = s.memory;
    memcpy(m->code, code, sizeof(code));
    page_tables(m->code);
    region_set(m, CODE_SLOT, &s);
}

static void vm_open(Vmm *m)
{
    m->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    m->vm = ioctl(m->kvm, KVM_CREATE_VM, NULL);
    g_assert_cmpint(m->vm, >=, 0);
}

static void vm_close(Vmm *m)
{
    close(m->vm);
    close(m->kvm);
}

char *vmm_refusal(const KvmDirtyConfig *config)
{
    g_autoptr(GError) error = NULL;
    Vmm m = { 0 };

    vm_open(&m);
    m.kvmd = kvmd_new(&lent, &m, config, &error);
    if (m.kvmd) {
        kvmd_free(m.kvmd);
    }
    vm_close(&m);
    return error ? g_strdup(error->message) : NULL;
}

Vmm *vmm_new(const KvmDirtyConfig *config, int vcpus, bool user)
{
    g_autoptr(GError) error = NULL;
    Vmm *m = g_new0(Vmm, 1);

    signals_handled();
    g_mutex_init(&m->lock);
    g_mutex_init(&m->copy_lock);
    g_cond_init(&m->changed);
    vm_open(m);
    m->kvmd = kvmd_new(&lent, m, config, &error);
    g_assert_no_error(error);
    code_load(m);
    m->n_vcpus = vcpus;
    m->user = user;
    for (int i = 0; i < vcpus; i++) {
        vcpu_new(m, i);
    }
    return m;
}

void vmm_free(Vmm *m)
{
    for (int i = 0; i < m->n_vcpus; i++) {
        vcpu_free(&m->vcpus[i]);
    }
    kvmd_free(m->kvmd);
    for (int n = 0; n < VMM_SLOTS; n++) {
        VmmSlot *s = &m->slots[n];

        if (s->memory) {
            munmap(s->memory, s->pages * PAGE);
        }
        g_free(s->shadow);
        g_free(s->pending);
    }
    munmap(m->code, CODE_PAGES * PAGE);
    vm_close(m);
    g_cond_clear(&m->changed);
    g_mutex_clear(&m->lock);
    g_mutex_clear(&m->copy_lock);
    g_free(m);
}
