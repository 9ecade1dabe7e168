# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernels that are broken on purpose, and what finds each of them out.

mutants.patch builds all of them into one kernel; kvm.mutant=NAME chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

RACE = "x86_64/write_protect_race_test"
MODEL = "x86_64/write_protect_all_test"
BITMAP = "dirty_bitmap_fd_test"
SPLIT = "x86_64/eager_page_split_test"
BITS = "x86_64/dirty_bits_test"
FUZZER = "x86_64/dirty_tracking_fuzz_test"
FUZZ = (FUZZER, *"-s 1 -t 60".split())

SHADOW = "kvm.tdp_mmu=0"

# The lab's options: a CPU that keeps what it may, and page tables of 5 levels.
HOSTILE = ("--cpu", "hostile")
LA57 = ("--cpu-model", "max")
# More guest-physical addresses than four levels of page tables map.
WIDE = ("--cpu", "hostile=1,phys-bits=52")

LOST = r"page \d+ is lost"


Run = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Mutant:
    """One way to break the kernel."""

    name: str
    breaks: str  # the invariant, or the promise
    how: str
    test: tuple[str, ...]
    kernel_arguments: tuple[str, ...] = ()
    soak: bool = False  # one of its kind is in every make check
    says: str = LOST  # what the test says of this, and of nothing else
    machine: tuple[str, ...] = ()  # options of the lab
    panics: bool = False  # it is the kernel that says so

    @property
    def run(self) -> Run:
        """What is run, and on what."""
        return self.test, self.kernel_arguments, self.machine

    @property
    def title(self) -> str:
        """Which it is; of the pauses, in which test."""
        words = self.test if self.name == "pause" else ()
        on = (*self.kernel_arguments, *self.machine[1:])
        return "-".join((self.name, *words, *on))


MUTANTS = (
    Mutant(
        "log-first",
        "I1",
        "the page is logged before its SPTE is writable",
        (RACE,),
    ),
    Mutant(
        "log-first",
        "I1",
        "the same for shadow pages",
        (RACE,),
        (SHADOW,),
        soak=True,
    ),
    Mutant(
        "rearm-first",
        "I2",
        "KVM_GET_DIRTY_LOG write-protects before it takes the bits",
        (RACE, "-m", "get", "-w", "none"),
    ),
    Mutant(
        "no-flush",
        "I3",
        "write-protect all returns without a TLB flush",
        (RACE, *"-m shared -w all -P hot".split()),
    ),
    Mutant(
        "no-flush",
        "I3",
        "the same for shadow pages",
        (RACE, *"-m shared -w all -P hot".split()),
        (SHADOW,),
        soak=True,
    ),
    Mutant(
        "parent-first",
        "I4",
        "an SPTE becomes writable before its children are wrprot",
        (RACE,),
    ),
    Mutant(
        "no-children",
        "I4",
        "the leaves of a table that becomes writable are not wrprot",
        (RACE,),
        soak=True,
    ),
    Mutant(
        "shadow-no-children",
        "I4",
        "shadow pages of an old generation are linked as they are",
        (RACE,),
        (SHADOW,),
    ),
    Mutant(
        "shadow-stale-split",
        "I4",
        "a huge shadow page of an old generation is split as it is",
        (SPLIT, "logged"),
        (SHADOW, "hugepages=16"),
        says=r"ASSERT_EQ\(count_bits\(bitmap, NR_PAGES\), NR_PAGES",
    ),
    Mutant(
        "note-after-log",
        "I4",
        "a leaf is marked after the page is logged",
        (RACE,),
        soak=True,
    ),
    Mutant(
        "note-after-open",
        "I4",
        "a non-leaf SPTE is marked after it is writable",
        (RACE,),
        soak=True,
    ),
    Mutant(
        "stale-parent",
        "I5",
        "a write-protect does not wait for a fault that makes it writable",
        (RACE, *"-m shared -w range -P dense -v 6 -t 20".split()),
    ),
    Mutant(
        "range-trusts-parent",
        "I5",
        "a range leaves SPTEs alone that are about to become writable",
        (RACE, *"-m shared -w range -P dense -v 6 -t 20".split()),
        soak=True,
    ),
    Mutant(
        "leaf-only",
        "I6",
        "the fast path looks at the leaf only: the fault never ends",
        (RACE,),
        says=r"vCPU \d+ is stuck",
    ),
    Mutant(
        "trusting",
        "I9",
        "bits beyond the slot's end are taken for pages",
        (BITMAP,),
        says="reached into the next slot",
    ),
    Mutant(
        "summary-first",
        "two levels",
        "the summary bit is set before the page's bit",
        (RACE, "-m", "shared"),
    ),
    Mutant(
        "no-shadow",
        "write-protect all",
        "shadow roots are left as they are",
        (RACE,),
        (SHADOW,),
        soak=True,
    ),
    Mutant(
        "no-smm",
        "write-protect all",
        "the address space of SMM is left out",
        (MODEL,),
        says=r"page \d+ of slot 0x\w+ is lost",
    ),
    Mutant(
        "no-protect-on-log",
        "logging in O(1)",
        "turning on logging write-protects nothing",
        (RACE,),
        soak=True,
    ),
    Mutant(
        "no-give-back",
        "EFAULT loses nothing",
        "what could not be copied is forgotten",
        (MODEL,),
        soak=True,
        says="a harvest that failed lost a page",
    ),
    Mutant(
        "bits-no-flush",
        "I3",
        "a collect returns without a TLB flush",
        (RACE, *"-m bits".split()),
    ),
    Mutant(
        "bits-forget-zap",
        "dirty bits",
        "a dirty bit that goes away with its page is forgotten",
        (RACE, *"-m bits -x zap,ksm -s shmem".split()),
    ),
    Mutant(
        "bits-opened-lost",
        "dirty bits",
        "a region is not marked when its table becomes writable",
        (RACE, *"-m bits".split()),
    ),
    Mutant(
        "bits-clear-last",
        "dirty bits",
        "a collect unmarks the region after it has looked, not before",
        (RACE, *"-m bits -x rearm".split()),
        soak=True,
    ),
    Mutant(
        "bits-not-again",
        "dirty bits",
        "pages of nested guests are logged once, like others",
        (RACE, *"-m bits -n".split()),
    ),
    Mutant(
        "bits-no-shadow",
        "dirty bits",
        "a collect leaves shadow pages writable",
        (RACE, *"-m bits -n".split()),
        soak=True,
    ),
    Mutant(
        "bits-again-dies",
        "dirty bits",
        "pages that are marked for relog are forgotten with the slot",
        (BITS, "slot-goes"),
    ),
    Mutant(
        "bits-flush-late",
        "I10",
        "a table that two slots share is wrprot and flushed at the end only",
        (RACE, *"-m bits -v 1 -t 10".split()),
        machine=HOSTILE,
    ),
    Mutant(
        "open-no-flush",
        "I10",
        "a non-leaf SPTE becomes writable without a flush of those below it",
        (RACE, *"-m shared -w all -v 1 -t 10".split()),
        machine=HOSTILE,
    ),
    Mutant(
        "open-no-flush",
        "I10",
        "the same for shadow pages",
        (RACE, *"-m shared -w all -v 1 -t 10".split()),
        (SHADOW,),
        machine=HOSTILE,
    ),
    Mutant(
        "range-no-flush",
        "I3",
        "write-protecting a range returns without a TLB flush",
        (RACE, *"-m shared -w range -v 2 -t 10".split()),
        machine=HOSTILE,
    ),
    Mutant(
        "forget-last",
        "I4",
        "leaves are unmarked after they are wrprot",
        (RACE, *"-m shared -w all -P dense -v 6 -t 20".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "map-note-late",
        "I4",
        "a leaf that is mapped is marked after the page is logged",
        (RACE, *"-m shared -w all -v 3 -t 20 -x slot".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "link-note-late",
        "I4",
        "an SPTE that links a table is marked after it is writable",
        (RACE, *"-m shared -w all -v 3 -t 20 -x slot".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "open-unlocked",
        "I5",
        "an SPTE becomes writable without the lock of the table it points to",
        (RACE, *"-m shared -w all -v 3 -t 20 -x rearm".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "range-unlocked",
        "I4",
        "an SPTE is wrprot without the lock of the table it is in",
        (RACE, *"-m shared -w all -v 3 -t 20 -x rearm".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "shadow-parent-first",
        "I4",
        "an SPTE becomes writable before the shadow page below it is wrprot",
        (RACE, *"-m shared -w all -v 6 -t 20 -p 600".split()),
        (SHADOW,),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "bits-shadow-no-flush",
        "I3",
        "a collect wrprots shadow pages without a TLB flush",
        (RACE, *"-m bits -n -v 2 -t 20".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "bits-shadow-first",
        "dirty bits",
        "a collect wrprots shadow pages before it takes their marks",
        (RACE, *"-m bits -n -v 2 -t 20".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "bits-note-first",
        "dirty bits",
        "a region is marked before the page in it that is marked for relog",
        (RACE, *"-m bits -n -v 1 -t 20 -p 8000".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "bits-zap-once",
        "I10",
        "a page that is zapped is logged, but not once more after the flush",
        (BITS, "slot-goes"),
        says=r"moved and collected: page \d+ is lost",
        soak=True,
    ),
    Mutant(
        "bits-closed-forgotten",
        "I10",
        "a collect unmarks a region that it wrprots before TLBs are flushed",
        (RACE, *"-m bits -v 1 -t 20 -p 40000".split()),
        machine=HOSTILE,
        soak=True,
    ),
    Mutant(
        "bits-collect-unlocked",
        "dirty bits",
        "a collect reads an SPTE without the lock that faults take",
        (RACE, *"-m bits -v 2 -t 20 -p 20000".split()),
        machine=HOSTILE,
    ),
    Mutant(
        "indices-wrap",
        "dirty bits",
        "what a root does not cover is taken for other pages of it",
        (BITS, "beyond"),
        machine=WIDE,
        says="where nothing is mapped: 1024 pages instead of 0",
    ),
    Mutant(
        "clear-inclusive",
        "a safe host",
        "KVM_CLEAR_DIRTY_LOG splits [0, 0) by the reverse maps: a panic",
        (SPLIT, "first-page"),
        (SHADOW,),
        says=r"BUG: unable to handle page fault",
        machine=LA57,
        panics=True,
    ),
    # What the fuzzer has to find by itself.
    Mutant(
        "clear-inclusive",
        "a safe host",
        "the same, found by the fuzzer",
        FUZZ,
        (SHADOW,),
        soak=True,
        says=r"BUG: unable to handle page fault",
        machine=LA57,
        panics=True,
    ),
    Mutant(
        "root-stays",
        "a safe host",
        "a shadow root that nobody has loaded stays in the list of those",
        FUZZ,
        (SHADOW,),
        soak=True,
        says=r"BUG: |general protection fault|list_(?:add|del) corruption",
        panics=True,
    ),
    Mutant(
        "map-unbounded",
        "a safe host",
        "the mapping of a dirty bitmap goes on behind it",
        FUZZ,
        says=r"BUG: |general protection fault",
        panics=True,
    ),
    Mutant(
        "fd-no-ref",
        "a safe host",
        "the file of a dirty bitmap has no reference to it",
        FUZZ,
        soak=True,
        says=r"refcount_t: |BUG: |general protection fault",
        panics=True,
    ),
)

# Those of the controls that are in every make check.
COMMON: tuple[Run, ...] = (
    ((RACE,), (), ()),
    ((RACE,), (SHADOW,), ()),
    ((RACE, "-m", "bits"), (), ()),
    ((RACE, *"-m bits -v 1 -t 10".split()), (), HOSTILE),
    ((RACE, *"-m shared -w all -v 1 -t 10".split()), (), HOSTILE),
    ((RACE, *"-m shared -w all -v 1 -t 10".split()), (SHADOW,), HOSTILE),
    ((RACE, *"-m shared -w range -v 2 -t 10".split()), (), HOSTILE),
    ((SPLIT, "first-page"), (SHADOW,), LA57),
)


def controls() -> tuple[Mutant, ...]:
    """The pauses alone, which give a mutant its chance, in each test."""
    runs = dict.fromkeys(one.run for one in MUTANTS)
    return tuple(
        Mutant(
            "pause",
            "nothing",
            "only the pauses",
            test,
            arguments,
            soak=(test, arguments, machine) not in COMMON,
            machine=machine,
        )
        for test, arguments, machine in runs
    )


CONTROLS = controls()
