/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A guest that tells the host which of its pages are free, by the balloon's
 * VIRTIO_BALLOON_F_FREE_PAGE_HINT.  It is the whole firmware: a ROM of 64 KiB,
 * which begins with this.
 *
 * It writes to the pages of [KEPT, FREE) all the time.  [FREE, END), which it
 * wrote once, is divided into regions of REGION pages, of three kinds in turn:
 *
 *   - one is free, and the host is told so whenever it asks;
 *   - the next is free when it asks, but taken back as soon as the host has the
 *     hint, and written: that has to arrive, although the host was told to
 *     forget these pages a moment before;
 *   - the third is not free, and never written again.
 *
 * Counters, as in writer.S, and two more:
 *
 *      +0   u64  page writes made since the guest started
 *      +8   u32  1 while it runs
 *      +12  u32  passes made over [KEPT, FREE)
 *      +16  u32  commands of the host that it has answered in full
 *      +20  u32  the address of the region that the host has or had, and that
 *                it has yet to write as a whole; or 0
 */

#include <stdint.h>

#define MIB 0x100000
#define PAGE 4096
#define COUNTERS 0x10000
#define RING 0x100000
#define KEPT (16 * MIB)
#define FREE (32 * MIB)
#define END (60 * MIB)
#define REGION 300              /* pages, so that groups of 512 are divided */

enum { STAYS_FREE, TAKEN_BACK, IN_USE, KINDS };

#define PCI_ADDR 0xcf8
#define PCI_DATA 0xcfc
#define PCI_COMMAND 4
#define PCI_IO_AND_MASTER 5
#define PCI_BAR0 0x10
#define BALLOON 0x10021af4      /* device, vendor: transitional */
#define BAR 0xc000

/* The registers of a legacy virtio device in its I/O space. */
#define HOST_FEATURES (BAR + 0)
#define GUEST_FEATURES (BAR + 4)
#define QUEUE_PFN (BAR + 8)
#define QUEUE_NUM (BAR + 12)
#define QUEUE_SELECT (BAR + 14)
#define QUEUE_NOTIFY (BAR + 16)
#define STATUS (BAR + 18)
#define CONFIG_COMMAND (BAR + 20 + 8)

#define STATUS_DRIVER 3
#define STATUS_DRIVER_OK 7
#define F_FREE_PAGE_HINT (1 << 3)
#define HINT_QUEUE 3
#define COMMAND_STOP 0
#define COMMAND_FIRST 2         /* those below are no requests */
#define DESC_F_WRITE 2

__asm__(
    ".code16\n"
    ".globl _start\n"
    "_start:\n"
    ".org 0xc0\n"               /* the reset vector leads here */
    "   cli\n"
    "   cld\n"
    "   xor %ax, %ax\n"
    "   mov %ax, %ds\n"
    "   mov %ax, %es\n"
    "   xor %si, %si\n"
    "   mov $0x7c00, %di\n"
    "   mov $0x1000 / 4, %cx\n"
    "   rep movsl %cs:(%si), %es:(%di)\n"
    "   ljmp $0, $copied\n"
    "copied:\n"
    "   in $0x92, %al\n"
    "   or $2, %al\n"
    "   and $0xfe, %al\n"
    "   out %al, $0x92\n"
    "   lgdtl gdt_desc\n"
    "   mov %cr0, %eax\n"
    "   or $1, %al\n"
    "   mov %eax, %cr0\n"
    "   ljmpl $8, $protected\n"
    ".balign 8\n"
    "gdt:\n"
    "   .quad 0\n"
    "   .quad 0x00cf9b000000ffff\n"
    "   .quad 0x00cf93000000ffff\n"
    "gdt_end:\n"
    "gdt_desc:\n"
    "   .word gdt_end - gdt - 1\n"
    "   .long gdt\n"
    ".code32\n"
    "protected:\n"
    "   mov $16, %eax\n"
    "   mov %eax, %ds\n"
    "   mov %eax, %es\n"
    "   mov %eax, %ss\n"
    "   mov $0x10000, %esp\n"
    "   call run\n"
);

static volatile struct {
    uint64_t writes;
    uint32_t alive;
    uint32_t passes;
    uint32_t answered;
    uint32_t region;
} *const counters = (void *)COUNTERS;

typedef struct Desc {
    uint64_t address;
    uint32_t size;
    uint16_t flags;
    uint16_t next;
} Desc;

static uint16_t queue_size;
static uint16_t queued;
static volatile Desc *desc;             /* one for all */
static volatile uint16_t *avail_index;
static volatile uint16_t *used_index;
static uint32_t command;                /* what is being answered */

static void out32(uint16_t port, uint32_t value)
{
    __asm__ volatile("outl %0, %1" : : "a" (value), "Nd" (port) : "memory");
}

static void out16(uint16_t port, uint16_t value)
{
    __asm__ volatile("outw %0, %1" : : "a" (value), "Nd" (port) : "memory");
}

static void out8(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a" (value), "Nd" (port) : "memory");
}

static uint32_t in32(uint16_t port)
{
    uint32_t value;

    __asm__ volatile("inl %1, %0" : "=a" (value) : "Nd" (port) : "memory");
    return value;
}

static uint16_t in16(uint16_t port)
{
    uint16_t value;

    __asm__ volatile("inw %1, %0" : "=a" (value) : "Nd" (port) : "memory");
    return value;
}

static uint32_t pci_read(uint32_t device, uint32_t at)
{
    out32(PCI_ADDR, device + at);
    return in32(PCI_DATA);
}

static void pci_write(uint32_t device, uint32_t at, uint32_t value)
{
    out32(PCI_ADDR, device + at);
    out32(PCI_DATA, value);
}

/* There is no BIOS to do so. */
static void place_balloon(void)
{
    uint32_t device = 0x80000000;

    while (pci_read(device, 0) != BALLOON) {
        device += 0x800;
    }
    pci_write(device, PCI_BAR0, BAR);
    pci_write(device, PCI_COMMAND, PCI_IO_AND_MASTER);
}

static void set_up_queue(void)
{
    uint32_t avail;

    out16(QUEUE_SELECT, HINT_QUEUE);
    queue_size = in16(QUEUE_NUM);
    desc = (void *)RING;
    avail = RING + queue_size * sizeof(Desc);
    avail_index = (void *)(avail + 2);
    used_index = (void *)(((avail + 6 + 2 * queue_size + PAGE - 1) & -PAGE) +
                          2);
    out32(QUEUE_PFN, RING / PAGE);
}

static void start_balloon(void)
{
    place_balloon();
    out8(STATUS, 0);
    out8(STATUS, STATUS_DRIVER);
    out32(GUEST_FEATURES, in32(HOST_FEATURES) & F_FREE_PAGE_HINT);
    set_up_queue();
    out8(STATUS, STATUS_DRIVER_OK);
}

/* Give a buffer to the host, and wait until it is back. */
static void exchange(uint32_t address, uint32_t size, uint16_t flags)
{
    desc->address = address;
    desc->size = size;
    desc->flags = flags;
    /* All of the available ring names the descriptor 0, as it is zeros. */
    __asm__ volatile("" : : : "memory");
    *avail_index = ++queued;
    out16(QUEUE_NOTIFY, HINT_QUEUE);
    while (*used_index != queued) {
        __asm__ volatile("pause" : : : "memory");
    }
}

static void tell(uint32_t id)
{
    static uint32_t told;

    told = id;
    exchange((uint32_t)&told, sizeof(told), 0);
}

/* What is written is never zeros, and another each time. */
static void write_pages(uint32_t first, uint32_t end)
{
    for (uint32_t page = first; page < end; page += PAGE) {
        *(volatile uint32_t *)page = (uint32_t)counters->writes | 1;
        *(volatile uint32_t *)(page + 4) = page;
        counters->writes++;
    }
}

static void hint_all(void)
{
    uint32_t number = 0;

    for (uint32_t at = FREE; at < END; at += REGION * PAGE) {
        uint32_t end = at + REGION * PAGE < END ? at + REGION * PAGE : END;

        unsigned kind = number++ % KINDS;

        if (kind == IN_USE) {
            continue;
        }
        counters->region = at;
        exchange(at, end - at, DESC_F_WRITE);
        if (kind == TAKEN_BACK) {
            write_pages(at, end);
        }
        counters->region = 0;
    }
}

static void answer(void)
{
    uint32_t asked = in32(CONFIG_COMMAND);

    if (asked == command) {
        return;
    }
    command = asked;
    if (command >= COMMAND_FIRST) {
        tell(command);
        hint_all();
        tell(COMMAND_STOP);
        counters->answered++;
    }
}

void run(void);

void run(void)
{
    write_pages(FREE, END);
    counters->writes = 0;
    counters->alive = 1;
    start_balloon();
    for (;;) {
        write_pages(KEPT, FREE);
        counters->passes++;
        answer();
    }
}
