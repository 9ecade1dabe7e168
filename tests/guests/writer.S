/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A guest that writes to memory as fast as it can.  It is a boot sector and
 * what that loads; or, at the start of a ROM of 64 KiB, the whole firmware.
 *
 * Every vCPU owns every ncpus-th page of the working set, stores a stamp that
 * changes from write to write into one page after the other, and counts its
 * writes on a page of its own at CPU_PAGES + 4096 * APIC id:
 *
 *      +0   u64  page writes made since the guest started
 *      +8   u32  1 while the vCPU runs
 *      +12  u32  passes made over its part of the working set
 *      +32  u64  its time stamp counter at the end of the last of them
 *
 * If `writers` is not 0, vCPUs with that APIC id or a higher one compute instead:
 * they write to no other page than their own, and count what they compute.
 *
 * vCPU 0 prints "writer ready" on COM1 when it starts and one 'B' every
 * `report` passes.  At the end of each of its passes it also starts vCPUs that
 * do not run yet, ejects those the machine asks back, paints the frame buffer
 * and may move it to another address, and writes to a DIMM until the machine
 * asks for it, so that the store loops stay free of anything but stores.
 *
 * There is no stack and no interrupt: nothing but the stores named above makes
 * a page dirty, and with a DIMM the page table through which it is seen.
 */

        .set    MAGIC,          0x31575444      /* "DTW1" */
        .set    LOAD,           0x7c00
        .set    SECTORS,        7               /* after the boot sector */
        .set    TRAMPOLINE,     0x8000
        .set    CPU_PAGES,      0x10000
        .set    MAX_CPUS,       16
        .set    PAGE_DIRECTORY, 0x20000

        .set    CPU_COUNT,      0
        .set    CPU_ALIVE,      8
        .set    CPU_PASSES,     12
        .set    CPU_FIRST,      16
        .set    CPU_SEED,       20
        .set    CPU_HOT,        24
        .set    CPU_TSC,        32
        .set    CPU_INITED,     40

        .set    COM1,           0x3f8
        .set    PCI_ADDR,       0xcf8
        .set    PCI_DATA,       0xcfc
        .set    PCI_CLASS,      8
        .set    PCI_COMMAND,    4
        .set    PCI_MEMORY,     2
        .set    PCI_BAR0,       0x10
        .set    VGA_INDEX,      0x3c0
        .set    VGA_STATUS,     0x3da
        .set    VGA_ON,         0x20
        .set    FB_FIRST,       0xfc000000      /* 16 MiB there, and after */
        .set    FB_STEP,        0x01000000
        .set    VBE_INDEX,      0x1ce
        .set    VBE_DATA,       0x1cf

        .set    APIC,           0xfee00000
        .set    APIC_ID,        APIC + 0x20
        .set    APIC_SPURIOUS,  APIC + 0xf0
        .set    APIC_ICR_LOW,   APIC + 0x300
        .set    APIC_ICR_HIGH,  APIC + 0x310
        .set    ICR_INIT,       0x4500
        .set    ICR_STARTUP,    0x4600 + TRAMPOLINE / 4096

        .set    HOTPLUG_INSERT, 2
        .set    HOTPLUG_REMOVE, 4
        .set    HOTPLUG_EJECT,  8

        .set    DIMM_PORT,      0xa00           /* number; address of that one */
        .set    DIMM_STATE,     DIMM_PORT + 20
        .set    DIMM_ENABLED,   1
        .set    DIMM_REMOVE,    4
        .set    DIMM_EJECT,     8

        /* A large page that is there and writable: accessed and dirty, too, so
           that no CPU has to write that down. */
        .set    LARGE_PAGE,     0xe3
        .set    LARGE_SHIFT,    22
        .set    PSE36_SHIFT,    13              /* bit 32 of the address */
        .set    WINDOW,         0xf0000000

        .set    LCG_MUL,        1664525
        .set    LCG_ADD,        1013904223
        .set    NINE_TENTHS,    0xe6666666
        .set    COMPUTED,       1000

        .text
        .code16
        .globl  _start
_start:
        cli
        cld
        xor     %ax, %ax
        mov     %ax, %ds
        mov     %ax, %es
        ljmp    $0, $load

        .org    0x40
params:
magic:          .long   MAGIC
base:           .long   0x01000000      /* first byte of the working set */
mib:            .long   64              /* its size */
pattern:        .long   0               /* 0 sequential, 1 random, 2 hot spot */
ncpus:          .long   1               /* vCPUs that share it, at most 16 */
delay:          .long   0               /* idle loops after each write */
report:         .long   1               /* passes per 'B', 0 for none */
fb_pages:       .long   0               /* frame buffer pages to paint */
hotplug:        .long   0               /* CPU hot-plug I/O port, 0 for none */
fb_moves:       .long   0               /* 1: the frame buffer moves */
dimm_pages:     .long   0               /* of the first DIMM, at most 1024 */
writers:        .long   0               /* vCPUs that write, 0 for all */
pause:          .long   0               /* idle loops after each pass */

        .org    0x80
load:
        mov     $0x0200 + SECTORS, %ax
        mov     $0x0002, %cx
        xor     %dh, %dh
        mov     $LOAD + 512, %bx
        int     $0x13
        jc      load
loaded:
        in      $0x92, %al
        or      $2, %al
        and     $0xfe, %al
        out     %al, $0x92
        jmp     enter_protected

/* The reset vector leads here, where the code segment begins with the ROM. */
        .org    0xc0
from_rom:
        xor     %ax, %ax
        mov     %ax, %ds
        mov     %ax, %es
        xor     %si, %si
        mov     $LOAD, %di
        mov     $512 * (SECTORS + 1) / 4, %cx
        rep movsl %cs:(%si), %es:(%di)
        ljmp    $0, $loaded

        .org    510
        .word   0xaa55

        .balign 8
gdt:
        .quad   0
        .quad   0x00cf9b000000ffff
        .quad   0x00cf93000000ffff
gdt_end:
gdt_desc:
        .word   gdt_end - gdt - 1
        .long   gdt

/* An AP starts here by its SIPI, which can only name a page boundary. */
        .org    TRAMPOLINE - LOAD
        cli
        xor     %ax, %ax
        mov     %ax, %ds
enter_protected:
        lgdtl   gdt_desc
        mov     %cr0, %eax
        or      $1, %al
        mov     %eax, %cr0
        ljmpl   $8, $protected

        .code32
protected:
        mov     $16, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     %eax, %ss
        mov     APIC_ID, %eax
        shr     $24, %eax
        mov     %eax, %ebx
        shl     $12, %ebx
        add     $CPU_PAGES, %ebx

        /* Memory survives a reset, so nothing may be left of an earlier run. */
        xor     %ecx, %ecx
        mov     %ecx, CPU_COUNT(%ebx)
        mov     %ecx, CPU_COUNT + 4(%ebx)
        mov     %ecx, CPU_PASSES(%ebx)
        lea     1(%eax), %ecx
        imul    $0x9e3779b1, %ecx, %ecx
        mov     %ecx, CPU_SEED(%ebx)
        mov     %eax, %edx
        shl     $12, %edx
        add     base, %edx
        mov     %edx, CPU_FIRST(%ebx)
        test    %eax, %eax
        jnz     ap_ready

        /* Computed once here: the APs start only when this is in place. */
        mov     mib, %eax
        shl     $8, %eax
        xor     %edx, %edx
        divl    ncpus
        mov     %eax, pages
        mov     $10, %ecx
        xor     %edx, %edx
        div     %ecx
        mov     %eax, hot_pages
        mov     ncpus, %eax
        shl     $12, %eax
        mov     %eax, stride
        mov     pages, %ecx
        imul    %eax, %ecx
        mov     %ecx, span
        mov     report, %eax
        mov     %eax, report_left

        mov     $1, %ecx
clear_alive:
        mov     %ecx, %edi
        shl     $12, %edi
        movl    $0, CPU_PAGES + CPU_ALIVE(%edi)
        movl    $0, CPU_PAGES + CPU_INITED(%edi)
        inc     %ecx
        cmp     $MAX_CPUS, %ecx
        jb      clear_alive

        cmpl    $0, dimm_pages
        jne     make_window
window_done:
        movl    $0, fb_base
        cmpl    $0, fb_pages
        jne     find_vga
vga_done:
        movl    $0x1ff, APIC_SPURIOUS
        mov     $ready_text, %esi
        mov     $COM1, %edx
print_ready:
        lodsb
        test    %al, %al
        jz      bsp_ready
        out     %al, %dx
        jmp     print_ready

bsp_ready:
        movl    $1, CPU_ALIVE(%ebx)
        jmp     start_aps
ap_ready:
        movl    $1, CPU_ALIVE(%ebx)
        cmp     ncpus, %eax
        jb      pass
idle:
        hlt
        jmp     idle

/* One store to the page at `page`, counted; `stamp` must change every time. */
        .macro  WRITE stamp:req, page:req
        mov     \stamp, (\page)
        mov     \page, 4(\page)
        addl    $1, CPU_COUNT(%ebx)
        adcl    $0, CPU_COUNT + 4(%ebx)
        .endm

        .macro  DELAY
        mov     delay, %eax
        test    %eax, %eax
        jz      2f
1:      dec     %eax
        jnz     1b
2:
        .endm

        /* Steps the generator in EBP, and leaves EDX in [0, \limit). */
        .macro  RANDOM limit:req
        imul    $LCG_MUL, %ebp, %ebp
        add     $LCG_ADD, %ebp
        mov     %ebp, %eax
        mull    \limit
        .endm

pass:
        mov     writers, %eax
        test    %eax, %eax
        jz      pass_writes
        shl     $12, %eax
        add     $CPU_PAGES, %eax
        cmp     %eax, %ebx
        jae     pass_computes
pass_writes:
        mov     CPU_SEED(%ebx), %ebp
        mov     pattern, %eax
        cmp     $1, %eax
        je      pass_random
        cmp     $2, %eax
        je      pass_hot

        mov     CPU_PASSES(%ebx), %ecx
        inc     %ecx
        mov     stride, %esi
        mov     CPU_FIRST(%ebx), %edi
        mov     %edi, %ebp
        add     span, %ebp
sequential:
        WRITE   %ecx, %edi
        DELAY
        add     %esi, %edi
        cmp     %ebp, %edi
        jb      sequential
        mov     CPU_SEED(%ebx), %ebp
        jmp     pass_end

pass_random:
        mov     pages, %ecx
random:
        RANDOM  pages
        imul    stride, %edx
        add     CPU_FIRST(%ebx), %edx
        WRITE   %ebp, %edx
        DELAY
        dec     %ecx
        jnz     random
        jmp     pass_end

pass_hot:
        mov     pages, %ecx
hot:
        mov     hot_pages, %edi
        imul    $LCG_MUL, %ebp, %ebp
        add     $LCG_ADD, %ebp
        cmp     $NINE_TENTHS, %ebp
        jb      hot_pick
        mov     pages, %edi
hot_pick:
        RANDOM  %edi
        imul    stride, %edx
        add     CPU_FIRST(%ebx), %edx
        WRITE   %ebp, %edx
        DELAY
        dec     %ecx
        jnz     hot

        jmp     pass_end

/* What it counts is no write, but so many steps of the generator. */
pass_computes:
        mov     CPU_SEED(%ebx), %ebp
        mov     $COMPUTED, %ecx
compute:
        RANDOM  pages
        dec     %ecx
        jnz     compute
        addl    $1, CPU_COUNT(%ebx)
        adcl    $0, CPU_COUNT + 4(%ebx)
        jmp     pass_over

pass_end:
        mov     pause, %eax
        test    %eax, %eax
        jz      pass_over
paused: dec     %eax
        jnz     paused
pass_over:
        mov     %ebp, CPU_SEED(%ebx)
        rdtsc
        mov     %eax, CPU_TSC(%ebx)
        mov     %edx, CPU_TSC + 4(%ebx)
        incl    CPU_PASSES(%ebx)
        cmp     $CPU_PAGES, %ebx
        jne     pass

        cmpl    $0, report
        je      paint
        decl    report_left
        jnz     paint
        mov     report, %eax
        mov     %eax, report_left
        mov     $'B', %al
        mov     $COM1, %edx
        out     %al, %dx

paint:
        mov     fb_base, %edi
        test    %edi, %edi
        jz      eject
        mov     fb_pages, %ecx
        mov     CPU_PASSES(%ebx), %eax
        imul    $0x00010307, %eax, %eax
paint_page:
        mov     %eax, (%edi)
        mov     %eax, 2048(%edi)
        add     $4096, %edi
        add     $0x00000101, %eax
        dec     %ecx
        jnz     paint_page
        cmpl    $0, fb_moves
        je      eject
        xorl    $FB_STEP, fb_base
        mov     $eject, %ebp
        jmp     place_vga

/* The registers answer in the CPU hot-plug layout only after a 0 is written. */
eject:
        mov     hotplug, %edx
        test    %edx, %edx
        jz      dimm
        xor     %eax, %eax
        out     %eax, %dx
        mov     $1, %ecx
eject_next:
        cmp     $MAX_CPUS, %ecx
        jae     dimm
        mov     hotplug, %edx
        mov     %ecx, %eax
        out     %eax, %dx
        add     $4, %edx
        in      %dx, %al
        test    $HOTPLUG_INSERT, %al
        jz      eject_asked
        mov     %ecx, %edi
        shl     $12, %edi
        movl    $0, CPU_PAGES + CPU_INITED(%edi)
        mov     $HOTPLUG_INSERT, %al
        out     %al, %dx
        in      %dx, %al
eject_asked:
        test    $HOTPLUG_REMOVE, %al
        jz      eject_skip
        mov     %ecx, %eax
        shl     $24, %eax
        mov     %eax, APIC_ICR_HIGH
        movl    $ICR_INIT, APIC_ICR_LOW
        mov     %ecx, %edi
        shl     $12, %edi
        movl    $0, CPU_PAGES + CPU_ALIVE(%edi)
        /* Left set, the request would eject the vCPU that comes next. */
        mov     $HOTPLUG_REMOVE, %al
        out     %al, %dx
        mov     $HOTPLUG_EJECT, %al
        out     %al, %dx
eject_skip:
        inc     %ecx
        jmp     eject_next

/* A DIMM is above 4 GiB: the window shows the first 4 MiB of it. */
dimm:
        cmpl    $0, dimm_pages
        je      start_aps
        mov     $DIMM_PORT, %edx
        xor     %eax, %eax
        out     %eax, %dx
        mov     $DIMM_STATE, %edx
        in      %dx, %al
        test    $DIMM_REMOVE, %al
        jnz     dimm_eject
        test    $DIMM_ENABLED, %al
        jz      start_aps
        mov     $DIMM_PORT, %edx
        in      %dx, %eax
        mov     %eax, %ecx
        add     $4, %edx
        in      %dx, %eax
        shl     $PSE36_SHIFT, %eax
        or      %ecx, %eax
        or      $LARGE_PAGE, %eax
        mov     %eax, PAGE_DIRECTORY + (WINDOW >> LARGE_SHIFT) * 4
        invlpg  WINDOW
        mov     $WINDOW, %edi
        mov     dimm_pages, %ecx
        mov     CPU_PASSES(%ebx), %eax
dimm_page:
        mov     %eax, (%edi)
        mov     %edi, 4(%edi)
        add     $4096, %edi
        dec     %ecx
        jnz     dimm_page
        jmp     start_aps
dimm_eject:
        mov     $DIMM_REMOVE, %al
        out     %al, %dx
        mov     $DIMM_EJECT, %al
        out     %al, %dx

/*
 * A vCPU gets one INIT, and a SIPI at the end of each pass after that until it
 * runs: the time of a pass lets the one take effect before the other.  It
 * ignores a SIPI while it runs, but a second INIT, sent just before it says
 * so, would stop it for good.
 */
start_aps:
        mov     $1, %ecx
start_next:
        cmp     ncpus, %ecx
        jae     pass
        mov     %ecx, %edi
        shl     $12, %edi
        cmpl    $0, CPU_PAGES + CPU_ALIVE(%edi)
        jne     start_skip
        mov     %ecx, %edx
        shl     $24, %edx
        mov     %edx, APIC_ICR_HIGH
        mov     $ICR_STARTUP, %eax
        cmpl    $0, CPU_PAGES + CPU_INITED(%edi)
        jne     start_send
        movl    $1, CPU_PAGES + CPU_INITED(%edi)
        mov     $ICR_INIT, %eax
start_send:
        mov     %eax, APIC_ICR_LOW
start_skip:
        inc     %ecx
        jmp     start_next

/* Every address is itself, but for the window, which is set when it is used. */
make_window:
        mov     $PAGE_DIRECTORY, %edi
        mov     $LARGE_PAGE, %eax
map_next:
        stosl
        add     $1 << LARGE_SHIFT, %eax
        jnc     map_next
        mov     $PAGE_DIRECTORY, %eax
        mov     %eax, %cr3
        mov     %cr4, %eax
        or      $0x10, %eax             /* PSE */
        mov     %eax, %cr4
        mov     %cr0, %eax
        or      $0x80000000, %eax       /* PG */
        mov     %eax, %cr0
        jmp     window_done

/* Looks on PCI bus 0 for a display and puts it into 1024x768x32. */
find_vga:
        mov     $0x80000000 + PCI_CLASS, %esi
find_next:
        mov     $PCI_ADDR, %edx
        mov     %esi, %eax
        out     %eax, %dx
        mov     $PCI_DATA, %edx
        in      %dx, %eax
        shr     $16, %eax
        cmp     $0x0300, %eax
        je      found_vga
        add     $0x800, %esi
        cmp     $0x80010000 + PCI_CLASS, %esi
        jb      find_next
        jmp     vga_done
found_vga:
        sub     $PCI_CLASS, %esi
        mov     %esi, vga
        movl    $FB_FIRST, fb_base
        mov     $vga_placed, %ebp
        jmp     place_vga
vga_placed:
        /* A BIOS switches the display on; and here is none. */
        mov     $VGA_STATUS, %edx
        in      %dx, %al
        mov     $VGA_INDEX, %edx
        mov     $VGA_ON, %al
        out     %al, %dx
        mov     $vbe_mode, %esi
        mov     $(vbe_mode_end - vbe_mode) / 4, %ecx
set_mode:
        mov     $VBE_INDEX, %edx
        lodsw
        out     %ax, %dx
        mov     $VBE_DATA, %edx
        lodsw
        out     %ax, %dx
        dec     %ecx
        jnz     set_mode
        jmp     vga_done

/* Has the frame buffer vanish, and come back at fb_base; goes on at EBP. */
        .macro  PCI_REGISTER number:req
        mov     $PCI_ADDR, %edx
        mov     vga, %eax
        add     $\number, %eax
        out     %eax, %dx
        mov     $PCI_DATA, %edx
        .endm
place_vga:
        PCI_REGISTER PCI_COMMAND
        in      %dx, %ax
        and     $~PCI_MEMORY, %ax
        out     %ax, %dx
        PCI_REGISTER PCI_BAR0
        mov     fb_base, %eax
        out     %eax, %dx
        PCI_REGISTER PCI_COMMAND
        in      %dx, %ax
        or      $PCI_MEMORY, %ax
        out     %ax, %dx
        jmp     *%ebp

        .balign 4
vbe_mode:
        .word   4, 0            /* off while it changes */
        .word   1, 1024
        .word   2, 768
        .word   3, 32
        .word   4, 0x41         /* on, linear frame buffer */
vbe_mode_end:
ready_text:
        .asciz  "writer ready\n"

        .balign 4
pages:          .long   0       /* of one vCPU */
hot_pages:      .long   0       /* of these, written nine times in ten */
stride:         .long   0       /* bytes from one page of a vCPU to its next */
span:           .long   0       /* bytes from its first page to past its last */
report_left:    .long   0
fb_base:        .long   0
vga:            .long   0       /* where its PCI configuration begins */

        /* The boot sector loads no more than this: the assembler refuses to go back. */
        .org    512 * (SECTORS + 1)
        /* SeaBIOS boots no disk that is smaller than one of its cylinders. */
        .org    0x100000
