# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the kernel's KVM selftests run in the lab, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Selftest:
    """A program with its arguments; limit is in seconds."""

    command: str
    limit: int = 60
    # Not on every make check, or there but not with the shadow MMU as well.
    soak: bool = False
    once: bool = False
    # It tests a feature of the TDP MMU alone.
    tdp: bool = False
    # The only release of Linux that has it.
    only: str = ""

    @property
    def name(self) -> str:
        """Short enough for the name of a test."""
        return self.command.replace("x86_64/", "").replace(" ", "_")


def soaks(command: str, limit: int = 120, only: str = "") -> Selftest:
    """Longer than a make check allows, or about nothing that we change."""
    return Selftest(command, limit, soak=True, only=only)


HUGE = "anonymous_hugetlb_2mb"

# Upstream's, as far as they have to do with memory, nested guests and exits.
UPSTREAM = (
    Selftest("dirty_log_test -M dirty-log -i 3", 120, soak=True),
    Selftest("dirty_log_test -M clear-log -i 3", 120, soak=True),
    Selftest("dirty_log_test -M dirty-ring -i 3", 120, soak=True),
    Selftest("dirty_log_test -M dirty-ring -i 3 -c 1024", 120),
    Selftest("dirty_log_perf_test -i 2 -v 2 -b 16M", once=True),
    Selftest("dirty_log_perf_test -i 2 -v 2 -b 16M -g", once=True),
    Selftest(f"dirty_log_perf_test -i 2 -v 2 -b 16M -s {HUGE} -x 2"),
    Selftest("demand_paging_test -v 2 -b 16M", once=True),
    Selftest(
        "demand_paging_test -v 2 -b 16M -u MISSING -s shmem", once=True
    ),
    Selftest("memslot_modification_stress_test -v 2 -b 16M -i 3"),
    Selftest("memslot_perf_test -l 1 -s 32 -e 1", 120, soak=True),
    # To mark a page as idle took 6 to 10 ms in the lab.
    Selftest("access_tracking_perf_test -v 2 -b 2M", once=True),
    Selftest("kvm_page_table_test -v 2 -b 32M", once=True),
    Selftest("kvm_page_table_test -v 2 -b 32M -s anonymous_thp", once=True),
    Selftest(f"kvm_page_table_test -v 2 -b 32M -s {HUGE}"),
    Selftest("set_memory_region_test", 180, soak=True),
    Selftest("kvm_binary_stats_test", once=True),
    Selftest("x86_64/smm_test"),
    Selftest("x86_64/state_test"),
    Selftest("x86_64/svm_vmcall_test", once=True),
    Selftest("x86_64/svm_int_ctl_test", once=True),
    Selftest("x86_64/svm_nested_shutdown_test", once=True),
    Selftest("x86_64/hyperv_svm_test", once=True),
    # The same with more work, and all others but for NOT_RUN.
    Selftest("dirty_log_test -i 32", 900, soak=True),
    Selftest("dirty_log_perf_test -v 4 -b 64M -s anonymous_thp", soak=True),
    Selftest("dirty_log_perf_test -v 4 -b 64M -s shmem", 120, soak=True),
    Selftest("dirty_log_perf_test -v 2 -b 64M -x 16 -o -e", soak=True),
    Selftest("dirty_log_perf_test -v 2 -b 64M -p 1 -f 4", soak=True),
    Selftest("demand_paging_test -v 4 -b 64M -s anonymous_thp", soak=True),
    Selftest("demand_paging_test -v 2 -b 64M -u MINOR -s shmem", soak=True),
    Selftest("memslot_modification_stress_test -v 4 -b 32M -i 30", soak=True),
    Selftest("memslot_perf_test -l 1 -s 512", 300, soak=True),
    Selftest("access_tracking_perf_test -v 4 -b 16M", 300, soak=True),
    Selftest("kvm_page_table_test -v 4 -b 128M -s shmem", 300, soak=True),
    Selftest("max_guest_memory_test -s 1 -m 1 -c 1", 300, soak=True),
    Selftest("kvm_create_max_vcpus", 120, soak=True),
    Selftest("system_counter_offset_test", soak=True),
    Selftest("x86_64/cpuid_test", soak=True),
    Selftest("x86_64/cr4_cpuid_sync_test", soak=True),
    Selftest("x86_64/debug_regs", soak=True),
    Selftest("x86_64/fix_hypercall_test", soak=True),
    Selftest("x86_64/get_msr_index_features", soak=True),
    Selftest("x86_64/hyperv_clock", soak=True),
    Selftest("x86_64/hyperv_cpuid", soak=True),
    Selftest("x86_64/hyperv_features", soak=True),
    Selftest("x86_64/kvm_clock_test", soak=True),
    Selftest("x86_64/kvm_pv_test", soak=True),
    Selftest("x86_64/max_vcpuid_cap_test", soak=True),
    Selftest("x86_64/monitor_mwait_test", soak=True),
    Selftest("x86_64/nested_exceptions_test", soak=True),
    Selftest("x86_64/platform_info_test", soak=True),
    Selftest("x86_64/set_boot_cpu_id", soak=True),
    Selftest("x86_64/set_sregs_test", soak=True),
    Selftest("x86_64/svm_nested_soft_inject_test", soak=True),
    Selftest("x86_64/sync_regs_test", soak=True),
    Selftest("x86_64/triple_fault_event_test", soak=True),
    Selftest("x86_64/tsc_msrs_test", soak=True),
    Selftest("x86_64/userspace_io_test", soak=True),
    Selftest("x86_64/userspace_msr_exit_test", soak=True),
    Selftest("x86_64/xapic_ipi_test", 120, soak=True),
    Selftest("x86_64/xapic_state_test", soak=True),
    Selftest("x86_64/xen_shinfo_test", 120, soak=True),
    Selftest("x86_64/xen_vmcall_test", soak=True),
    Selftest("x86_64/xss_msr_test", soak=True),
    soaks("steal_time"),
    soaks("x86_64/amx_test"),
    soaks("x86_64/pmu_event_filter_test"),
    soaks("x86_64/sev_migrate_tests"),
    soaks("x86_64/tsc_scaling_sync"),
    soaks("x86_64/ucna_injection_test"),
    *(
        soaks(f"x86_64/{name}", only="6.1")
        for name in ("emulator_error_test", "evmcs_test", "mmio_warning_test")
    ),
    *(
        soaks(name, only="6.12")
        for name in (
            "coalesced_io_test",
            "guest_memfd_test",
            "guest_print_test",
            "pre_fault_memory_test",
        )
    ),
    *(
        soaks(f"x86_64/{name}", only="6.12")
        for name in (
            "apic_bus_clock_test",
            "dirty_log_page_splitting_test -b 64M",
            "exit_on_emulation_failure_test",
            "hwcr_msr_test",
            "hyperv_evmcs",
            "hyperv_extended_hypercalls",
            "hyperv_ipi",
            "hyperv_tlb_flush",
            "pmu_counters_test",
            "private_mem_conversions_test",
            "private_mem_kvm_exits_test",
            "recalc_apic_map_test",
            "sev_init2_tests",
            "sev_smoke_test",
            "smaller_maxphyaddr_emulation_test",
            "xcr0_cpuid_test",
        )
    ),
)

# Upstream's that do not run, and why.
NOT_RUN = {
    "hardware_disable_test": "had not ended after four minutes",
    "rseq_test": "had not ended after four minutes",
    "x86_64/nx_huge_pages_test.sh": "takes huge pages from the others",
}

RACE = "x86_64/write_protect_race_test"
MODEL = "x86_64/write_protect_all_test"
NESTED = "x86_64/nested_write_protect_test"
EVERYBODY = "rearm,slot,log,get,split,zap,thp,ksm,age"


# These test which pages are found to be written.  A CPU that keeps what it may
# is hostile to them, so it runs them as well.
WHICH_PAGE = (
    Selftest("x86_64/dirty_bits_test", 120, tdp=True),
    # Since Linux 6.8, and with the TDP MMU only.
    Selftest("x86_64/private_memory_test", tdp=True),
    Selftest(NESTED, 120),
    Selftest(f"{RACE} -v 3 -t 4"),
    Selftest(f"{RACE} -v 3 -t 4 -n"),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -n", tdp=True),
    Selftest(f"{RACE} -v 3 -t 10 -m bits -x {EVERYBODY}", tdp=True),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -x rearm,zap,age,map", tdp=True),
)

OURS = (
    Selftest(f"{MODEL} -n 5", 180),
    Selftest("dirty_bitmap_fd_test", 120, once=True),
    Selftest("x86_64/eager_page_split_test", 120),
    *WHICH_PAGE,
    Selftest(f"{RACE} -v 3 -t 4 -m ring"),
    Selftest(f"{RACE} -v 3 -t 4 -m ring -w none"),
    Selftest(f"{RACE} -v 3 -t 4 -m manual"),
    # KVM_PRE_FAULT_MEMORY: since Linux 6.11.
    Selftest(f"{RACE} -v 3 -t 4 -x rearm,zap,map"),
    Selftest(f"{RACE} -v 3 -t 4 -N"),
    Selftest(f"{RACE} -v 3 -t 4 -x rearm,split -s {HUGE}"),
    Selftest(f"{RACE} -v 3 -t 4 -m bits", tdp=True),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -N", tdp=True),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -x rearm,split -s {HUGE}", tdp=True),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -W", tdp=True),
    Selftest(f"{RACE} -v 3 -t 10 -m bits -W -x {EVERYBODY}", tdp=True),
    # A slot that goes takes only its own pages along: since Linux 6.12.
    Selftest(f"{RACE} -v 3 -t 4 -m mix -z -x rearm,slot,zap"),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -z -x rearm,slot,zap,map", tdp=True),
    # A round of these may take seconds on a busy machine.  They notice by
    # themselves that a vCPU is stuck: for 20 s, in which the shadow MMU may have
    # to try a fault again and again, as memory is invalidated all the time.
    Selftest(f"{RACE} -v 3 -t 10 -x {EVERYBODY} -s anonymous_thp", 180, once=True),
    Selftest(f"{RACE} -v 3 -t 10 -x {EVERYBODY} -s shmem -n", 180, once=True),
    *(soaks(f"{MODEL} -n 300 -r {seed}", 400) for seed in range(2, 5)),
    *(soaks(f"{NESTED} -n 3000 -r {seed}", 300) for seed in range(2, 5)),
    *(
        soaks(f"{RACE} -v {vcpus} -t 10 -m {mode} -P {pattern}")
        for vcpus, mode, pattern in (
            (2, "mix", "mix"),
            (4, "mix", "hot"),
            (6, "mix", "dense"),
            (4, "shared", "random"),
            (4, "ring", "stride"),
            (4, "manual", "mix"),
        )
    ),
    *(
        soaks(f"{RACE} -t 10 -x {who} -s {backing}{nested}")
        for who in ("rearm", "rearm,age", "zap,split,slot", EVERYBODY)
        for backing in ("shmem", "anonymous_thp", HUGE)
        for nested in ("", " -n")
    ),
)

# The hostile CPU runs these.
DIRTY_LOG = tuple(
    test for test in UPSTREAM if test.command.startswith("dirty_log_test")
)
DIRTY_RING = tuple(test for test in DIRTY_LOG if "-c 1024" in test.command)
HOSTILE_OURS = (
    *WHICH_PAGE,
    Selftest(f"{MODEL} -n 3", 180),
    Selftest("x86_64/guest_flush_test"),
    Selftest(f"{RACE} -v 3 -t 4 -m ring", tdp=True),
    Selftest(f"{RACE} -v 1 -t 4 -m bits", tdp=True),
    Selftest(f"{RACE} -v 1 -t 4 -m bits -W", tdp=True),
    Selftest(f"{RACE} -v 3 -t 4 -m bits -W -n", tdp=True),
)
HOSTILE_STOCK = (
    *DIRTY_LOG,
    Selftest(f"{RACE} -v 3 -t 4 -m get -w none"),
    Selftest(f"{RACE} -v 3 -t 4 -m manual -w none"),
    Selftest(f"{RACE} -v 3 -t 4 -m ring -w none"),
    Selftest(f"{RACE} -v 3 -t 4 -m get -w none -n"),
)

# An Intel CPU differs from AMD's in the formats of its tables, in what nested
# guests see of them, and in its flushes.
INTEL_UPSTREAM = (
    Selftest("dirty_log_test -M dirty-log -i 3", 120, soak=True),
    Selftest("dirty_log_test -M dirty-ring -i 3 -c 1024", 180),
    Selftest("dirty_log_perf_test -i 2 -v 2 -b 16M"),
    Selftest("dirty_log_perf_test -i 2 -v 2 -b 16M -g", soak=True),
    Selftest(f"dirty_log_perf_test -i 2 -v 2 -b 16M -s {HUGE} -x 2"),
    Selftest("demand_paging_test -v 2 -b 16M", soak=True),
    Selftest("demand_paging_test -v 2 -b 16M -u MISSING -s shmem", soak=True),
    Selftest("memslot_modification_stress_test -v 2 -b 16M -i 3"),
    Selftest("kvm_page_table_test -v 2 -b 32M", soak=True),
    Selftest(f"kvm_page_table_test -v 2 -b 32M -s {HUGE}", soak=True),
    Selftest("memslot_perf_test -l 1 -s 32 -e 1", 120, soak=True),
    Selftest("x86_64/smm_test"),
    Selftest("x86_64/state_test"),
    Selftest("x86_64/vmx_apic_access_test", once=True),
    Selftest("x86_64/vmx_close_while_nested_test", once=True),
    Selftest("x86_64/vmx_dirty_log_test"),
    Selftest("x86_64/vmx_invalid_nested_guest_state", once=True),
    Selftest("x86_64/vmx_msrs_test", once=True),
    Selftest("x86_64/vmx_nested_tsc_scaling_test", soak=True),
    Selftest("x86_64/vmx_preemption_timer_test", 120, soak=True),
    Selftest("x86_64/vmx_set_nested_state_test", once=True),
    Selftest("x86_64/vmx_tsc_adjust_test", once=True),
    soaks("x86_64/vmx_exception_with_invalid_guest_state"),
    soaks("x86_64/vmx_pmu_caps_test"),
)
INTEL_OURS = (
    Selftest(f"{MODEL} -n 3", 180),
    Selftest("dirty_bitmap_fd_test", 180),
    Selftest("x86_64/eager_page_split_test", 120),
    Selftest("x86_64/dirty_bits_test", 120, tdp=True),
    Selftest("x86_64/private_memory_test", tdp=True),
    Selftest(NESTED, 120),
    Selftest(f"{RACE} -v 2 -t 2"),
    Selftest(f"{RACE} -v 2 -t 2 -n"),
    Selftest(f"{RACE} -v 2 -t 2 -N"),
    Selftest(f"{RACE} -v 2 -t 2 -m bits -n", tdp=True),
    Selftest(f"{RACE} -v 2 -t 2 -m bits -N", tdp=True),
    Selftest(f"{RACE} -v 2 -t 2 -m ring"),
    Selftest(f"{RACE} -v 2 -t 2 -m ring -n", soak=True),
    Selftest(f"{RACE} -v 2 -t 2 -m manual"),
    Selftest(f"{RACE} -v 2 -t 2 -m bits", tdp=True),
    Selftest(f"{RACE} -v 2 -t 2 -m bits -W", tdp=True),
    Selftest(f"{RACE} -v 2 -t 2 -m bits -x rearm,split -s {HUGE}", tdp=True),
)

# These need the CPU's own log, and find what is lost in it.
INTEL_PML = (
    Selftest("x86_64/pml_test log"),
    Selftest("x86_64/pml_test write-protect"),
    Selftest("x86_64/pml_test dirty-bits", tdp=True),
    Selftest("x86_64/pml_test late-vcpu", tdp=True),
)
INTEL_NO_PML = (Selftest(f"{RACE} -v 2 -t 2 -m ring -w none"),)

# The test has to notice orders that lose pages.  Otherwise it would prove
# nothing that the other orders lose none.
MUST_FAIL = tuple(
    Selftest(f"{RACE} -v 3 -t 20 -b {order} -m {mode} -w {rearm}")
    for order in ("rearm-first", "copy-first")
    for mode, rearm in (("nowp", "all"), ("shared", "range"), ("ring", "all"))
)

# Programs that fail on Debian's kernel in the lab, and so on ours: their
# message, and the reason.
KNOWN_FAILURES = {
    "x86_64/debug_regs": (
        r"INT3: exit",
        "the emulated CPU does not intercept INT3 in the guest as SVM does",
    ),
    "x86_64/hyperv_clock": (
        r"r1 - t1 < 100000",
        "the clocks of the emulated CPU are too coarse",
    ),
    "x86_64/kvm_clock_test": (
        r"unexpected kvm-clock value",
        "the clocks of the emulated CPU are too coarse",
    ),
    "x86_64/nested_exceptions_test": (
        r"exit_info_1 == error_code",
        "the emulated CPU does not give the error code of a nested exception",
    ),
    "x86_64/svm_nested_soft_inject_test": (
        r"nRIP Save",
        "the emulated CPU has no NRIPS",
    ),
}

# In the place of those, on one release of Linux.
FAILURES_OF = {
    "6.12": {
        "x86_64/debug_regs": (
            r"Unhandled exception '0x3'",
            "the emulated CPU does not intercept INT3 in the guest as SVM does",
        ),
        "x86_64/monitor_mwait_test": (
            r"Expected success on MONITOR for testcase '0x6'",
            "the emulated CPU does not intercept MONITOR as the test wants",
        ),
    },
}

# And on the hostile CPU.
HOSTILE_FAILURES_OF = {
    "6.12": {
        # The test excuses a value that is two iterations old.
        "dirty_log_test": (
            r"(?s)collected 0 pages((?!collected).)*collected \d+ pages"
            r"((?!collected).)*Set page \d+ value (?P<value>\d+) incorrect "
            r"\(iteration=(?P<iteration>\d+)\)",
            "a vCPU has a value in a register while an iteration finds nothing",
        ),
    },
}

# Programs that give up when the guest takes more than ten seconds, and their
# message: the machine is busy, or the guest faults without end.
TOO_SLOW = {
    "memslot_perf_test": r"sem_timedwait\(\) failed|SIGALRM|Alarm clock",
}

# What some programs of ours ask for and only later Linux has, and a name that its
# <linux/kvm.h> or <asm/kvm.h> has then.
LATER = {
    "private memory": "KVM_CREATE_GUEST_MEMFD",  # 6.8
    "KVM_PRE_FAULT_MEMORY": "KVM_PRE_FAULT_MEMORY",  # 6.11
    "KVM_X86_QUIRK_SLOT_ZAP_ALL": "KVM_X86_QUIRK_SLOT_ZAP_ALL",  # 6.12
}

# Parts of ours that need not run: the kernel, and their message.
MAY_SKIP = {
    # debug.config has it.
    ("patched", "no fault injection"),
}
# On any kernel, if the CPU has no more guest-physical addresses than four
# levels of page tables map.  indices-wrap in tests/mutants/kernel has more.
CPU_MAY_SKIP = {"no such addresses"}
# With the shadow MMU, on any kernel.
SHADOW_MAY_SKIP = {"no dirty bits on this host"}
# What a host without nested paging lacks; programs of ours ask for it by these names.
UNNESTED_LACKS = (
    "KVM_CAP_DIRTY_BITS",
    "kvm_is_tdp_enabled",
    "nested_guests_supported",
)
# Without nested paging, on any kernel.
UNNESTED_MAY_SKIP = {"no KVM_PRE_FAULT_MEMORY"}
# On the machine with an Intel CPU, which has 2 GiB.
INTEL_MAY_SKIP = {
    "no anonymous_hugetlb_1gb on this host",
    "no such pages on this host",
}
