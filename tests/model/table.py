# SPDX-License-Identifier: GPL-2.0-or-later
"""What spin is to verify, and the mutants that it is to refute.

The texts of the mutants are those of the models; where one of them changes, so
does the mutant here.  The invariants are in docs/design.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LOST = "!(stale"
LEFT_BEHIND = "!(leaf"
DEADLOCK = "invalid end state"
FAULTS = "(faults==1)"


@dataclass(frozen=True)
class Model:
    """A file of this directory, and a size in which to search all of it."""

    name: str
    macros: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *self.macros))


@dataclass(frozen=True)
class Mutant:
    """In the model, each old text becomes the new one.

    Spin must then find the error `killer`: part of an assertion, as pan prints
    it, or an invalid end state.
    """

    invariant: str
    name: str
    model: Model
    killer: str
    edits: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.model.name}: {self.invariant}: {self.name}"


def mutants(
    model: Model,
    killer: str,
    rows: Sequence[tuple[str, str, str, str]],
) -> tuple[Mutant, ...]:
    """Those of one model that the same error kills, by one edit each."""
    return tuple(
        Mutant(invariant, name, model, killer, ((old, new),))
        for invariant, name, old, new in rows
    )


ORDER = Model("order", ("VCPUS=2", "PAGES=1"))
ORDER_PAGES = Model("order", ("VCPUS=1", "PAGES=2"))
PROPAGATE = Model("propagate", ("VCPUS=2",))
PROPAGATE_THREE = Model("propagate", ("VCPUS=3",))
PROPAGATE_LAST = Model("propagate", ("VCPUS=2", "LAST_WRITE"))

LINK = Model("link", ("VCPUS=2", "TABLES=2"))
SUMMARY = Model("summary", ("WRITERS=2",))
BITS = Model("bits", ("VCPUS=1",))
BITS_BESIDE = Model("bits", ("VCPUS=1", "BESIDE"))
BITS_TWO = Model("bits", ("VCPUS=2",))
RING = Model("ring", ("SIZE=2", "MOST=2"))
RING_LONGER = Model("ring", ("SIZE=3", "MOST=1"))

MODELS = (
    ORDER,
    ORDER_PAGES,
    PROPAGATE,
    PROPAGATE_LAST,
    LINK,
    SUMMARY,
    BITS,
    BITS_BESIDE,
    RING,
    RING_LONGER,
)

# Searched in make soak only.
SOAKED = (PROPAGATE_THREE, BITS_TWO)

ROUND = """\
    :: harvest();
        protect();
        flush();
        copy()
"""

ORDER_MUTANTS = mutants(
    ORDER,
    LOST,
    (
        (
            "I1",
            "a page is logged before it is writable",
            """\
!writable[page] -> writable[page] = true };
            atomic {
                reach(LATE_BIT, !writable[page]);
                dirty[page] = true
            }
""",
            """\
!writable[page] -> dirty[page] = true };
            writable[page] = true
""",
        ),
        (
            "I1",
            "a page is not logged",
            "                dirty[page] = true\n",
            "                skip\n",
        ),
        (
            "I1",
            "the host logs a page before it writes it",
            """\
        stale[page] = true;
        dirty[page] = true
""",
            """\
        dirty[page] = true;
        stale[page] = true
""",
        ),
        (
            "I2",
            "dirty pages are re-armed before the harvest",
            ROUND,
            """\
    :: for (each(i, PAGES)) { got[i] = dirty[i] };
        protect();
        flush();
        harvest();
        copy()
""",
        ),
        (
            "I2",
            "all pages are re-armed before the harvest",
            ROUND,
            """\
    :: for (each(i, PAGES)) { got[i] = true };
        protect();
        flush();
        harvest();
        copy()
""",
        ),
        (
            "I2",
            "a harvest reads and clears in two steps",
            "        atomic { got[i] = dirty[i]; dirty[i] = false }\n",
            "        got[i] = dirty[i]; dirty[i] = false\n",
        ),
        (
            "I3",
            "pages are copied before their re-arm",
            ROUND,
            """\
    :: harvest();
        copy();
        protect();
        flush()
""",
        ),
        (
            "I3",
            "pages are copied before the flush",
            ROUND,
            """\
    :: harvest();
        protect();
        copy();
        flush()
""",
        ),
        (
            "I3",
            "no flush",
            ROUND,
            """\
    :: harvest();
        protect();
        copy()
""",
        ),
        (
            "I3",
            "the flush comes before the write-protect",
            ROUND,
            """\
    :: harvest();
        flush();
        protect();
        copy()
""",
        ),
        (
            "I3",
            "the flush leaves a vCPU out",
            "    for (each(i, VCPUS)) {\n",
            "    for (each(i, VCPUS - 1)) {\n",
        ),
        (
            "I3",
            "the last harvest comes while vCPUs run",
            "    running == 0;\n",
            "",
        ),
    ),
)

CLOSE = """\
    lock(child_lock);
    bit_ = false;
    if
    :: atomic { w -> w = false }
    :: !w -> bit_ = true
    fi;
    unlock(child_lock)
"""

CLOSE_LEAVES = """\
    :: atomic { x_bit -> x_bit = false };
        atomic { reach(CLOSED_CHILD, x_w); x_w = false }
"""

OPEN_R = """\
    lock(t_lock);
    if
    :: !r_w ->
        r_bit = true;
        close_table();
        flush();
        r_w = true
    :: else
    fi;
    unlock(t_lock)
"""

OPEN_P = """\
    lock(c_lock);
    if
    :: !p_w ->
        p_bit = true;
        close_leaves();
        atomic { reach(OVERTAKEN, !r_w); p_w = true }
    :: else
    fi;
    unlock(c_lock)
"""

FIX_LEAF = """\
    :: atomic { !x_w -> reach(UNDER_CLOSED, !r_w || !p_w); x_w = true };
        x_bit = true;
        dirty = true
"""

RANGE = """\
    lock(t_lock);
    atomic { reach(RANGE_WAITED, !p_w && c_lock); skip };
    close(p_w, p_bit, c_lock);
    unlock(t_lock);
"""

HANDLER = """\
        look();
        if
        :: good -> reach(LAST_SPURIOUS, true)
"""


def without(text: str, *lines: str) -> str:
    """The text without some of its lines, each of which is in it once."""
    for line in lines:
        assert text.count(line) == 1, line
        text = text.replace(line, "")
    return text


OPEN_R_FLUSH = "        close_table();\n        flush();\n"

PROPAGATE_MUTANTS = mutants(
    PROPAGATE,
    LOST,
    (
        (
            "I1",
            "a leaf is logged before it is writable",
            FIX_LEAF,
            "    :: !x_w -> dirty = true; x_w = true; x_bit = true\n",
        ),
        (
            "I2",
            "re-arm before the harvest",
            """\
    :: harvest();
        if
        :: true -> write_protect_all()
        :: true -> write_protect_range()
        fi;
""",
            """\
    :: if
        :: true -> write_protect_all()
        :: true -> write_protect_range()
        fi;
        harvest();
""",
        ),
        (
            "I3",
            "write-protect all: no flush",
            """\
    unlock(r_lock);
    flush()
""",
            "    unlock(r_lock)\n",
        ),
        (
            "I3",
            "write-protect range: no flush",
            """\
    unlock(t_lock);
    flush()
""",
            "    unlock(t_lock)\n",
        ),
        (
            "I3",
            "a flush leaves upper entries",
            "        r_seen[v] = false;\n        p_seen[v] = false;\n",
            "",
        ),
        (
            "I4",
            "r is made writable before its children are closed",
            """\
        close_table();
        flush();
        r_w = true
""",
            """\
        r_w = true;
        close_table();
        flush()
""",
        ),
        (
            "I4",
            "p is made writable before its children are closed",
            """\
        close_leaves();
        atomic { reach(OVERTAKEN, !r_w); p_w = true }
""",
            """\
        p_w = true;
        close_leaves()
""",
        ),
        (
            "I4",
            "r is opened without closing its children",
            "        close_table();\n",
            "",
        ),
        (
            "I4",
            "p is opened without closing its children",
            "        close_leaves();\n",
            "",
        ),
        (
            "I4",
            "r's bit is set after r is writable",
            """\
        r_bit = true;
        close_table();
        flush();
        r_w = true
""",
            """\
        close_table();
        flush();
        r_w = true;
        r_bit = true
""",
        ),
        (
            "I4",
            "p's bit is set after p is writable",
            """\
        p_bit = true;
        close_leaves();
        atomic { reach(OVERTAKEN, !r_w); p_w = true }
""",
            """\
        close_leaves();
        p_w = true;
        p_bit = true
""",
        ),
        (
            "I4",
            "r's bit is set after its children are closed",
            """\
        r_bit = true;
        close_table();
""",
            """\
        close_table();
        r_bit = true;
""",
        ),
        (
            "I4",
            "p's bit is set after its children are closed",
            """\
        p_bit = true;
        close_leaves();
""",
            """\
        close_leaves();
        p_bit = true;
""",
        ),
        (
            "I4",
            "a leaf is logged before its bit is set",
            """\
        x_bit = true;
        dirty = true
""",
            """\
        dirty = true;
        x_bit = true
""",
        ),
        (
            "I4",
            "a leaf's bit is set before it is writable",
            FIX_LEAF,
            "    :: !x_w -> x_bit = true; x_w = true; dirty = true\n",
        ),
        (
            "I4",
            "leaves are closed before their bits are taken",
            CLOSE_LEAVES,
            "    :: x_bit -> x_w = false; x_bit = false\n",
        ),
        (
            "I5",
            "r is opened without its child's lock",
            OPEN_R,
            without(OPEN_R, "    lock(t_lock);\n", ";\n    unlock(t_lock)"),
        ),
        (
            "I5",
            "p is opened without its child's lock",
            OPEN_P,
            without(OPEN_P, "    lock(c_lock);\n", ";\n    unlock(c_lock)"),
        ),
        (
            "I5",
            "an entry is closed without its child's lock",
            CLOSE,
            without(
                CLOSE, "    lock(child_lock);\n", ";\n    unlock(child_lock)"
            ),
        ),
        (
            "I5",
            "an entry that is not writable is left alone without the lock",
            CLOSE,
            f"    if\n    :: w ->\n{CLOSE}    :: else\n    fi\n",
        ),
        (
            "I5",
            "an entry is made writable after its child's lock is dropped",
            OPEN_P,
            """\
    lock(c_lock);
    if
    :: !p_w ->
        p_bit = true;
        close_leaves();
        unlock(c_lock);
        p_w = true
    :: else ->
        unlock(c_lock)
    fi
""",
        ),
        (
            "I10",
            "r is opened without a flush of what was closed below",
            OPEN_R_FLUSH,
            "        close_table();\n",
        ),
        (
            "I10",
            "r is opened before the flush",
            f"{OPEN_R_FLUSH}        r_w = true\n",
            "        close_table();\n        r_w = true;\n        flush()\n",
        ),
        (
            "I10",
            "only what this opening has closed is flushed",
            OPEN_R_FLUSH,
            """\
        if
        :: p_w -> close_table(); flush()
        :: else -> close_table()
        fi;
""",
        ),
        (
            "I5",
            "write-protect range leaves p alone if r is read-only",
            RANGE,
            f"    if\n    :: r_w ->\n{RANGE.rstrip(chr(10) + ';')}\n"
            "    :: else\n    fi;\n",
        ),
    ),
) + (
    Mutant(
        "I5",
        "p is opened with T's lock inside C's",
        PROPAGATE,
        DEADLOCK,
        (
            (
                OPEN_P,
                OPEN_P.replace(
                    "    lock(c_lock);\n",
                    "    lock(c_lock);\n    lock(t_lock);\n",
                ).replace(
                    "    unlock(c_lock)\n",
                    "    unlock(t_lock);\n    unlock(c_lock)\n",
                ),
            ),
        ),
    ),
    Mutant(
        "I6",
        "a fault looks at the leaf only",
        PROPAGATE_LAST,
        FAULTS,
        ((HANDLER, HANDLER.replace("look()", "good = x_w")),),
    ),
    Mutant(
        "I6",
        "a fault looks at the leaf and its parent only",
        PROPAGATE_LAST,
        FAULTS,
        ((HANDLER, HANDLER.replace("look()", "good = p_w && x_w")),),
    ),
)

LINK_STEP = """\
    p_bit = true;
    if
    :: atomic { p == NONE && used < TABLES -> use_table(false) }
    :: p != NONE || used == TABLES
    fi
"""

SPLIT = """\
    p_bit = true;
    if
    :: atomic {
"""

ZAP = """\
        reach(TAKEN_OUT, p < TABLES);
        p = NONE;
        p_w = false
       }
"""

LINK_MUTANTS = mutants(
    LINK,
    LOST,
    (
        (
            "I4",
            "a bit is not put back if W was not found",
            """\
        p_bit = true
    fi
}

/* Close p""",
            """\
        skip
    fi
}

/* Close p""",
        ),
        (
            "I4",
            "an entry is closed before its bit is taken",
            """\
    p_bit = false;
    if
    :: atomic { p_w -> reach(CLOSED_OTHER, p != seen); p_w = false }
    :: atomic { !p_w -> reach(RESTORED, true) };
        p_bit = true
    fi
""",
            """\
    if
    :: atomic { p_w -> p_w = false }; p_bit = false
    :: !p_w
    fi
""",
        ),
        (
            "I4",
            "a table is linked before its bit is set",
            LINK_STEP,
            without(LINK_STEP, "    p_bit = true;\n")
            .replace("use_table(false) }", "use_table(false) }; p_bit = true"),
        ),
        (
            "I4",
            "a table is linked without a bit",
            LINK_STEP,
            without(LINK_STEP, "    p_bit = true;\n"),
        ),
        (
            "I4",
            "a split does not set the bit",
            SPLIT,
            without(SPLIT, "    p_bit = true;\n"),
        ),
        (
            "I4",
            "a split leaves the bits of its table clear",
            "    x_bit[used] = writable;\n",
            "    x_bit[used] = false;\n",
        ),
        (
            "I4",
            "a split of a read-only page makes writable leaves",
            "        use_table(saw_w)\n",
            "        use_table(true)\n",
        ),
        (
            "I4",
            "zapping takes the bit away",
            ZAP,
            f"{ZAP.rstrip()}; p_bit = false\n",
        ),
        (
            "I4",
            "a table is zapped while another is about to be linked",
            "(p < TABLES && !readers)",
            "p < TABLES",
        ),
        (
            "I4",
            "p is opened without closing its children",
            "        :: atomic { x_bit[seen] -> x_bit[seen] = false };\n"
            "            x_w[seen] = false\n"
            "        :: !x_bit[seen]\n",
            "        :: true\n",
        ),
        (
            "I5",
            "an entry that is not writable is left alone without the lock",
            """\
    :: seen = p;
        if
        :: seen == NONE ->
            break
""",
            """\
    :: seen = p;
        if
        :: seen == NONE || !p_w ->
            break
""",
        ),
    ),
) + (
    Mutant(
        "I4",
        "a split does not look whether the page is still writable",
        LINK,
        LOST,
        (
            ("p == HUGE && p_w == saw_w", "p == HUGE"),
            ("p != HUGE || p_w != saw_w", "p != HUGE"),
        ),
    ),
)

LOG = """\
        leaf[w] = true;
        if
        :: atomic { !(summary & bit_of(w)) -> reach(LATE_SUMMARY, !leaf[w]) };
            atomic { summary = summary | bit_of(w); w = 0 }
        :: atomic { summary & bit_of(w) -> reach(SET_ALREADY, true); w = 0 }
        fi
"""

USER_ROUND = """\
    :: take_summary();
        take_words()
"""

SUMMARY_MUTANTS = mutants(
    SUMMARY,
    LEFT_BEHIND,
    (
        (
            "summary",
            "the user clears the summary after it has read the words",
            USER_ROUND,
            """\
    :: groups = summary;
        take_words();
        summary = 0
""",
        ),
        (
            "summary",
            "the user reads and clears the summary in two steps",
            USER_ROUND,
            """\
    :: groups = summary;
        summary = 0;
        take_words()
""",
        ),
        (
            "summary",
            "the user clears all of the summary to take one group",
            "groups = summary & 1; summary = summary & ~1 }",
            "groups = summary & 1; summary = 0 }",
        ),
        (
            "summary",
            "the user takes the first word of a group only",
            "            got ->\n            found = true;\n",
            "            got ->\n            found = true;\n"
            "            groups = groups & ~bit_of(w);\n",
        ),
        (
            "summary",
            "the kernel sets the summary before the page's bit",
            LOG,
            """\
        if
        :: !(summary & bit_of(w)) -> summary = summary | bit_of(w)
        :: summary & bit_of(w)
        fi;
        leaf[w] = true
""",
        ),
        (
            "summary",
            "the kernel looks at the summary before it sets the page's bit",
            LOG,
            """\
        if
        :: !(summary & bit_of(w)) ->
            leaf[w] = true;
            summary = summary | bit_of(w)
        :: summary & bit_of(w) ->
            leaf[w] = true
        fi
""",
        ),
        (
            "summary",
            "the kernel does not set the summary",
            "atomic { summary = summary | bit_of(w); w = 0 }",
            "skip",
        ),
    ),
) + mutants(
    SUMMARY,
    LOST,
    (
        (
            "summary",
            "the user reads and clears a word in two steps",
            "atomic { got = leaf[w]; leaf[w] = false };",
            "got = leaf[w]; leaf[w] = false;",
        ),
    ),
) + (
    Mutant(
        "summary",
        "the kernel sets a summary bit with a read and a write",
        SUMMARY,
        LEFT_BEHIND,
        (
            ("proctype writer()\n{", "proctype writer()\n{ byte seen;"),
            (
                "atomic { summary = summary | bit_of(w); w = 0 }",
                "seen = summary; "
                "atomic { summary = seen | bit_of(w); seen = 0; w = 0 }",
            ),
        ),
    ),
)

BATCH_CHECK = """\
    look_if_lapped();
    atomic {
        if
        :: !whole || lapped ->
"""

RING_MUTANTS = mutants(
    RING,
    LOST,
    (
        (
            "I2",
            "entries are collected after the reset",
            """\
    collect();
    whole = true;
    reset_collected();
""",
            """\
    whole = true;
    reset_collected();
    collect();
""",
        ),
        (
            "I3",
            "pages are published before the reset",
            """\
    whole = true;
    reset_collected();
""",
            """\
    publish();
    whole = true;
    reset_collected();
""",
        ),
        (
            "I8",
            "nobody looks whether the ring was lapped",
            BATCH_CHECK,
            BATCH_CHECK.replace("    look_if_lapped();\n", ""),
        ),
        (
            "I8",
            "only a short reset is an overflow",
            BATCH_CHECK,
            BATCH_CHECK.replace(" || lapped", ""),
        ),
        (
            "I8",
            "the first entry of a batch tells whether it was lapped",
            "flags[at(batch_reset + SIZE - 1)] == DIRTY",
            "flags[at(batch_reset)] == DIRTY",
        ),
        (
            "I8",
            "a ring that overflowed is not suspect",
            "            suspect = true;\n",
            "",
        ),
        (
            "I8",
            "an overflow is only counted",
            "    :: !all_good -> overflow()\n",
            "    :: !all_good\n",
        ),
        (
            "I8",
            "an overflow publishes all, but re-arms nothing",
            "    writable = false;\n    stale = false\n",
            "    stale = false\n",
        ),
        (
            "I8",
            "an overflow publishes all before it re-arms",
            "    writable = false;\n    stale = false\n",
            "    stale = false;\n    writable = false\n",
        ),
        (
            "I8",
            "what a suspect ring still had is no overflow",
            "good = !found || known;",
            "good = true;",
        ),
    ),
) + mutants(
    RING_LONGER,
    LOST,
    (
        (
            "I8",
            "a gap hides what is behind it",
            "        :: suspect -> close_gap()\n",
            "        :: false\n",
        ),
    ),
)

LOG_LOST = """\
        dirty = true;
        note_again();
        lost = false
"""

BITS_MUTANTS = mutants(
    BITS,
    LOST,
    (
        (
            "I3",
            "a collect without a flush",
            "    flush(v);\n    unlock(slots_lock)\n}\n\ninline harvest()",
            "    unlock(slots_lock)\n}\n\ninline harvest()",
        ),
        (
            "dirty bits",
            "write-protect of a range without slots_lock",
            """\
    lock(slots_lock);
    lock(p_lock);
    lock(c_lock);
    p_w = false;
    unlock(c_lock);
    unlock(p_lock);
    flush(v);
    unlock(slots_lock)
""",
            """\
    lock(p_lock);
    lock(c_lock);
    p_w = false;
    unlock(c_lock);
    unlock(p_lock);
    flush(v)
""",
        ),
        (
            "dirty bits",
            "opened is not set by who opens",
            "    :: p == PRESENT && !p_w ->\n        note_opened();\n",
            "    :: p == PRESENT && !p_w ->\n",
        ),
        (
            "dirty bits",
            "opened is not set for a new table",
            "    lock(p_lock);\n    note_opened();\n",
            "    lock(p_lock);\n",
        ),
        (
            "dirty bits",
            "opened is set before the lock is taken",
            """\
    lock(c_lock);
    if
    :: p == PRESENT && !p_w ->
        note_opened();
""",
            """\
    note_opened();
    lock(c_lock);
    if
    :: p == PRESENT && !p_w ->
""",
        ),
        (
            "dirty bits",
            "a new table is noted without the lock",
            """\
    lock(p_lock);
    note_opened();
""",
            """\
    note_opened();
    lock(p_lock);
""",
        ),
        (
            "dirty bits",
            "opened is taken away after the look",
            """\
        look();
        atomic { looking = false; found = false };
""",
            """\
        look();
        opened = false;
        atomic { looking = false; found = false };
""",
        ),
        (
            "dirty bits",
            "opened is taken away of what is closed now",
            "open && !found -> reach(QUIET, true); p_w = false }",
            "open && !found -> p_w = false; open = false }",
        ),
        (
            "dirty bits",
            "a collect looks without the lock of the table",
            """\
        lock(c_lock);
        open = p_w;
        if
""",
            """\
        open = p_w;
        lock(c_lock);
        if
""",
        ),
        (
            "dirty bits",
            "what is zapped is not logged",
            LOG_LOST,
            "        lost = false\n",
        ),
        (
            "dirty bits",
            "what is zapped is logged once",
            LOG_LOST,
            "        dirty = true;\n        lost = false\n",
        ),
        (
            "dirty bits",
            "what is to be logged again is not noted in opened",
            "    again = true;\n    opened = true\n",
            "    again = true\n",
        ),
        (
            "dirty bits",
            "opened is noted before again",
            "    again = true;\n    opened = true\n",
            "    opened = true;\n    again = true\n",
        ),
    ),
) + mutants(
    BITS,
    LOST,
    (
        (
            "I10",
            "r is opened without a flush of what was closed below",
            "        flush(v);\n        r_w = true\n",
            "        r_w = true\n",
        ),
    ),
) + mutants(
    BITS_BESIDE,
    LOST,
    (
        (
            "I10",
            "a table that two slots share is not flushed at once",
            "        flush(v);\n        unlock(c_lock)\n",
            "        unlock(c_lock)\n",
        ),
    ),
)

MUTANTS = (
    ORDER_MUTANTS
    + PROPAGATE_MUTANTS
    + LINK_MUTANTS
    + SUMMARY_MUTANTS
    + BITS_MUTANTS
    + RING_MUTANTS
)
