#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Break the page bitmaps and the pages that wait, and see their tests fail.

usage: mutants.py [--sanitize KIND] [--cc COMMAND] ROOT [NAME...]

As tests/mutants does it with the engine, where an assertion of the tests is all
that kills.  ROOT is the checkout; names, or
parts of them, choose among the mutants.

Left out, since no test of what is in a bitmap can tell them:

- close_group() that never closes, and bits past the last page: a group then
  stays behind that has no page, which costs a look.
- add_word() that does not know full groups: it writes their words in vain.
- page_bitmap_next() that stops before the last group: it does not end.
- page_block_mark() that comes before the bit of the page: it is the caller
  who sets that.
- hot_pages_next() that looks at one waiting group after the other.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

BLOCK = "include/exec/page-block.h"
HEADER = "include/exec/page-bitmap.h"  # declares only: nothing to break
SOURCE = "migration/page-bitmap.c"
HOT_HEADER = "migration/hot-pages.h"
HOT = "migration/hot-pages.c"
DIRTY_HEADER = "include/exec/dirty-memory.h"
DIRTY = "softmmu/dirty-memory.c"
TESTS = "tests/bitmap"
PROGRAMS = {
    BLOCK: "test_page_bitmap",
    SOURCE: "test_page_bitmap",
    HOT_HEADER: "test_hot_pages",
    HOT: "test_hot_pages",
    DIRTY_HEADER: "test_dirty_memory",
    DIRTY: "test_dirty_memory",
}
STATES = "test_page_states"  # which has SOURCE in it

# How GLib ends a program at an assertion of the tests.
ASSERTED = re.compile(rf"^Bail out! ERROR:{TESTS}/\w+\.c:\d+:", re.MULTILINE)

SEED = "--seed=R02S" + 32 * "1"
LIMIT = 120  # seconds


@dataclass(frozen=True)
class Mutant:
    """In file, old becomes new; its tests must then fail."""

    name: str
    file: str
    old: str
    new: str
    program: str = ""  # where it is not the one of its file

    def noticed_by(self) -> str:
        """Return the program that has to fail."""
        return self.program or PROGRAMS[self.file]


SUMMARY = (
    Mutant(
        "mark: no bit is set",
        BLOCK,
        "        qatomic_or(word, BIT_MASK(bit));\n",
        "",
    ),
    Mutant(
        "mark: any bit that is set will do",
        BLOCK,
        "page_block_look(word) & BIT_MASK(bit))) {\n",
        "page_block_look(word))) {\n",
    ),
    Mutant(
        "mark: the last group of a range is left",
        BLOCK,
        "group <= last; group++",
        "group < last; group++",
    ),
    Mutant(
        "mark: the block is not",
        BLOCK,
        "    page_block_set_unless_set(page_block_any(block, size), 0);\n",
        "",
    ),
    Mutant(
        "mark: the block is first",
        BLOCK,
        """\
    for (unsigned long group = first / PAGE_GROUP; group <= last; group++) {
        page_block_set_unless_set(summary, group);
    }
    page_block_set_unless_set(page_block_any(block, size), 0);
""",
        """\
    page_block_set_unless_set(page_block_any(block, size), 0);
    for (unsigned long group = first / PAGE_GROUP; group <= last; group++) {
        page_block_set_unless_set(summary, group);
    }
""",
    ),
    Mutant(
        "mark: the block is not if the group is",
        BLOCK,
        """\
        page_block_set_unless_set(summary, group);
    }
    page_block_set_unless_set(page_block_any(block, size), 0);
""",
        """\
        if (test_bit(group, summary)) {
            continue;
        }
        page_block_set_unless_set(summary, group);
        page_block_set_unless_set(page_block_any(block, size), 0);
    }
""",
    ),
    Mutant(
        "harvest: the block's bit is cleared after the groups'",
        SOURCE,
        """\
    if (pages == size) {
        qatomic_fetch_and(any, 0UL);
    }
    return harvest_groups(&harvest, page_block_summary(block, size));
""",
        """\
    pages = pages == size;
    size = harvest_groups(&harvest, page_block_summary(block, size));
    if (pages) {
        qatomic_fetch_and(any, 0UL);
    }
    return size;
""",
    ),
    Mutant(
        "harvest: the block's bit is cleared for all",
        SOURCE,
        "    if (pages == size) {\n",
        "    if (true) {\n",
    ),
    Mutant(
        "harvest: the block's bit stays",
        SOURCE,
        "    if (pages == size) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "harvest: the summary is cleared after the words are taken",
        SOURCE,
        """\
        touched &= qatomic_fetch_and(word, ~whole);
        for (; touched; touched &= touched - 1) {
            count += take_group(harvest, group + ctzl(touched));
        }
""",
        """\
        touched &= qatomic_read(word);
        for (; touched; touched &= touched - 1) {
            count += take_group(harvest, group + ctzl(touched));
        }
        qatomic_fetch_and(word, ~whole);
""",
    ),
    Mutant(
        "harvest: what was marked is read before it is cleared",
        SOURCE,
        "        touched &= qatomic_fetch_and(word, ~whole);\n",
        "        touched &= qatomic_read(word);\n"
        "        qatomic_fetch_and(word, ~whole);\n",
    ),
    Mutant(
        "harvest: the summary is not cleared",
        SOURCE,
        "qatomic_fetch_and(word, ~whole)",
        "qatomic_read(word)",
    ),
    Mutant(
        "harvest: a group that others share is cleared too",
        SOURCE,
        "qatomic_fetch_and(word, ~whole)",
        "qatomic_fetch_and(word, ~touched)",
    ),
    Mutant(
        "harvest: a group that others share is not looked at",
        SOURCE,
        "        touched &= qatomic_fetch_and(word, ~whole);\n",
        "        touched &= whole & qatomic_fetch_and(word, ~whole);\n",
    ),
    Mutant(
        "harvest: the last group is left",
        SOURCE,
        "    unsigned long end = page_groups(harvest->end);\n",
        "    unsigned long end = harvest->end / PAGE_GROUP;\n",
    ),
    Mutant(
        "harvest: one word of the summary is all",
        SOURCE,
        "group < end; group += BITS_PER_LONG) {",
        "group < MIN(end, BITS_PER_LONG); group += BITS_PER_LONG) {",
    ),
    Mutant(
        "harvest: the last word is taken whole",
        SOURCE,
        "    if (harvest->end - page < BITS_PER_LONG) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "harvest: a word is looked at, then cleared",
        SOURCE,
        "    return qatomic_fetch_and(word, ~mask) & mask;\n",
        "    mask &= qatomic_read(word);\n"
        "    qatomic_fetch_and(word, 0UL);\n"
        "    return mask;\n",
    ),
    Mutant(
        "harvest: a word is looked at, then written",
        SOURCE,
        "    return qatomic_fetch_and(word, ~mask) & mask;\n",
        "    unsigned long seen = page_block_look(word);\n"
        "    __atomic_store_n(word, seen & ~mask, __ATOMIC_SEQ_CST);\n"
        "    return seen & mask;\n",
    ),
    Mutant(
        "harvest: the summary is looked at, then written",
        SOURCE,
        "        touched &= qatomic_fetch_and(word, ~whole);\n",
        "        touched &= page_block_look(word);\n"
        "        __atomic_store_n(word, page_block_look(word) & ~whole,\n"
        "                         __ATOMIC_SEQ_CST);\n",
    ),
    Mutant(
        "harvest: a range goes to its own place",
        SOURCE,
        "page - harvest->first + harvest->dest_first",
        "page - harvest->first",
    ),
    Mutant(
        "harvest: pages count that were known",
        SOURCE,
        "    return bits & ~old;\n",
        "    return bits | (old & 0);\n",
    ),
    Mutant(
        "harvest: nobody is told what was added",
        SOURCE,
        "        add_word(harvest->added, page, added);\n",
        "",
    ),
    Mutant(
        "harvest: what was known is told as added",
        SOURCE,
        "        add_word(harvest->added, page, added);\n",
        "        add_word(harvest->added, page, bits);\n",
    ),
)

GROUPS = (
    Mutant(
        "full: the bit of a whole group is dropped",
        SOURCE,
        "        bitmap_set(words, 0, "
        "part_at(group * PAGE_GROUP, map->pages).pages);\n",
        "",
    ),
    Mutant(
        "full: a group stays so",
        SOURCE,
        "        set_state(map, group, MIXED);\n    }\n    return words;\n",
        "    }\n    return words;\n",
    ),
    Mutant(
        "full: it is forgotten by set_all",
        SOURCE,
        "    bitmap_set(map->states, 0, page_groups(map->pages) * STATE_BITS);\n",
        "",
    ),
    Mutant(
        "full: a part counts as the whole",
        SOURCE,
        "        return part.pages;\n    }\n    return bitmap_count",
        "        return PAGE_GROUP;\n    }\n    return bitmap_count",
    ),
    Mutant(
        "clear: full groups do not count",
        SOURCE,
        "        count += ctpopl(full) * PAGE_GROUP;\n",
        "",
    ),
    Mutant(
        "clear: the others of a word go too",
        SOURCE,
        "word_mask(group * STATE_BITS, group * STATE_BITS,\n",
        "word_mask(group * STATE_BITS, base * STATE_BITS,\n",
    ),
    Mutant(
        "clear: one word of groups is all",
        SOURCE,
        "        group = base + per_word;\n",
        "        break;\n",
    ),
    Mutant(
        "empty: old words come back",
        SOURCE,
        "        bitmap_zero(words, PAGE_GROUP);\n"
        "        set_state(map, group, MIXED);\n",
        "        set_state(map, group, MIXED);\n",
    ),
    Mutant(
        "empty: a group stays so",
        SOURCE,
        "        set_state(map, group, MIXED);\n    } else",
        "    } else",
    ),
    Mutant(
        "empty: a group is so when one word is",
        SOURCE,
        "    if (bitmap_empty(words_of(map, group), PAGE_GROUP)) {\n",
        "    if (true) {\n",
    ),
    Mutant(
        "empty: a group that is cleared is not",
        SOURCE,
        "        *states &= ~mask;\n",
        "",
    ),
)

COUNTED = (
    Mutant(
        "counted: what the sync has found counts by itself",
        DIRTY,
        "        page_bitmap_clear(rb->written,",
        "        synced + page_bitmap_clear(rb->written,",
    ),
    Mutant(
        "counted: what a sync has found alone",
        DIRTY,
        "    if (!rb->written) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "counted: what clears have found alone",
        DIRTY,
        "    count = harvest(rb, first, pages);\n",
        "    PageBitmap *written = rb->written;\n"
        "    rb->written = NULL;\n"
        "    count = harvest(rb, first, pages);\n"
        "    rb->written = written;\n",
    ),
    Mutant(
        "counted: once for all periods",
        DIRTY,
        "        page_bitmap_clear(rb->written,",
        "        page_bitmap_count(rb->written,",
    ),
    Mutant(
        "cleared: what is found of a chunk is left to the sync",
        DIRTY,
        "    return harvest(rb, first, end - first);\n",
        "    return 0;\n",
    ),
    Mutant(
        "cleared: it is taken where clears find nothing",
        DIRTY,
        "    if (!dirty_tracking_clear_publishes()) {\n",
        "    if (false) {\n",
    ),
)

# What a test that asks the functions for all it knows cannot bring about.
AGREED = (
    Mutant(
        "states: the one that there is not is empty to a searcher",
        SOURCE,
        "    return state_of(map, group) == EMPTY;\n",
        "    return !(state_of(map, group) & MIXED);\n",
        STATES,
    ),
    Mutant(
        "states: the one that there is not is not full",
        SOURCE,
        "    return state_of(map, group) > MIXED;\n",
        "    return state_of(map, group) == FULL;\n",
        STATES,
    ),
    Mutant(
        "states: a full group is counted by both its bits",
        SOURCE,
        " & ~FULL_BITS & ~(full >> 1);\n",
        " & ~FULL_BITS;\n",
        STATES,
    ),
    Mutant(
        "states: that of a neighbour changes too",
        SOURCE,
        "    *word = (*word & ~((unsigned long)FULL << shift)) | "
        "state << shift;\n",
        "    *word = state << shift;\n",
        STATES,
    ),
)

SEARCH = (
    Mutant(
        "next: a group is skipped",
        SOURCE,
        "next_not_empty(map, page_groups(end), group + 1)",
        "next_not_empty(map, page_groups(end), group + 2)",
    ),
    Mutant(
        "next zero: a group with a page has no other",
        SOURCE,
        "        group = next_not_full(map, page_groups(end), group + 1);\n",
        "        do {\n"
        "            group = next_not_full(map, page_groups(end), group + 1);\n"
        "        } while (group < page_groups(end) && !is_empty(map, group));\n",
    ),
    Mutant(
        "next zero: a full group is searched by its words",
        SOURCE,
        "        return start + part.pages;\n    }\n    return start - "
        "part.first +\n           find_next_zero",
        "        return start;\n    }\n    return start - "
        "part.first +\n           find_next_zero",
    ),
    Mutant(
        "assign: not the complement",
        SOURCE,
        "word = ~GULONG_FROM_LE",
        "word = GULONG_FROM_LE",
    ),
    Mutant(
        "assign: what was set stays so",
        SOURCE,
        "    page_bitmap_clear(map, 0, pages);\n    for",
        "    for",
    ),
    Mutant(
        "assign: pages past the end",
        SOURCE,
        "        if (pages - page < BITS_PER_LONG) {\n",
        "        if (false) {\n",
    ),
)

HOT_PAGES = (
    Mutant(
        "hot: if more than half is dirty again",
        HOT,
        "dirty * HOT_PART >= sent",
        "dirty * HOT_PART > sent",
    ),
    Mutant(
        "hot: half is rounded down",
        HOT,
        "dirty * HOT_PART >= sent",
        "dirty >= sent / HOT_PART",
    ),
    Mutant(
        "hot: if all is dirty again",
        HOT_HEADER,
        "#define HOT_PART 2\n",
        "#define HOT_PART 1\n",
    ),
    Mutant(
        "hot: whatever is dirty of what was not",
        HOT,
        "is_hot = sent && dirty",
        "is_hot = dirty",
    ),
    Mutant(
        "hot: any round before will do",
        HOT,
        "known->round == hot->round - 1 ? known->pages : 0",
        "known->pages",
    ),
    Mutant(
        "hot: the round before the last will do",
        HOT,
        "known->round == hot->round - 1 ?",
        "known->round + 2 >= hot->round ?",
    ),
    Mutant(
        "hot: rounds have 16 bits, those of groups more",
        HOT,
        "    uint64_t round;             /* how many are over */\n",
        "    uint16_t round;\n",
    ),
    Mutant(
        "hot: a group's rounds have 16 bits",
        HOT,
        "    uint64_t round:44; ",
        "    uint64_t round:16; ",
    ),
    Mutant(
        "hot: rounds have 16 bits",
        HOT,
        "known->round == hot->round - 1 ?",
        "(uint16_t)(hot->round - known->round) == 1 ?",
    ),
    Mutant(
        "hot: 512 pages are too many to count",
        HOT,
        "    uint64_t pages:10; ",
        "    uint64_t pages:9; ",
    ),
    Mutant(
        "hot: nothing is in the first round",
        HOT,
        "    if (hot->round == 1) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "hot: the second round is the first",
        HOT,
        "    if (hot->round == 1) {\n",
        "    if (hot->round == 2) {\n",
    ),
    Mutant(
        "hot: in the first round a short group sends what it does not have",
        HOT,
        "        return pages_in(hot, group);\n    }\n    return known",
        "        return PAGE_GROUP;\n    }\n    return known",
    ),
    Mutant(
        "hot: what the block does not have counts",
        HOT,
        "    hot->pages = pages;\n",
        "    hot->pages = hot->max_pages;\n",
    ),
    Mutant(
        "hot: what the block has no longer goes on waiting",
        HOT,
        "page_groups(hot->max_pages));\n}",
        "page_groups(hot->pages));\n}",
    ),
    Mutant(
        "hot: a round does not end",
        HOT,
        "    hot->round++;\n",
        "    hot->round = 1;\n",
    ),
    Mutant(
        "hot: what is sent is not remembered",
        HOT,
        "    hot->groups[group] = (Group) { .pages = dirty, "
        ".round = hot->round };\n",
        "",
    ),
    Mutant(
        "hot: only what is hot is measured again",
        HOT,
        "            send_group(hot, group, dirty);\n        }\n        page",
        "            if (!sent || is_hot) {\n"
        "                send_group(hot, group, dirty);\n"
        "            }\n        }\n        page",
    ),
    Mutant(
        "hot: what waited counts as sent",
        HOT,
        "    hot->groups[group] = (Group) { .pages = 0,",
        "    hot->groups[group] = (Group) { .pages = 10,",
    ),
    Mutant(
        "hot: a group that is hot is passed over",
        HOT,
        "hot_pages_next(hot, map, hot->pages, (group + 1) * PAGE_GROUP)",
        "hot_pages_next(hot, map, hot->pages, (group + 2) * PAGE_GROUP)",
    ),
    Mutant(
        "hot: the first group is not looked at",
        HOT,
        "hot_pages_next(hot, map, hot->pages, 0)",
        "hot_pages_next(hot, map, hot->pages, PAGE_GROUP)",
    ),
    Mutant(
        "budget: it is full before it is",
        HOT,
        "    if (pages > *left) {\n",
        "    if (pages >= *left) {\n",
    ),
    Mutant(
        "budget: there is always room",
        HOT,
        "    if (pages > *left) {\n",
        "    if (!*left) {\n",
    ),
    Mutant(
        "budget: each group has all of it",
        HOT,
        "    *left -= pages;\n",
        "",
    ),
    Mutant(
        "budget: who waits needs none",
        HOT,
        "    left = look_at_waiting(hot, map, budget, crowded);\n",
        "    look_at_waiting(hot, map, budget, crowded);\n"
        "    left = budget;\n",
    ),
    Mutant(
        "budget: those that become hot do not count",
        HOT,
        "    left = look_at_others(hot, map, left, refused);\n",
        "    look_at_others(hot, map, left, refused);\n",
    ),
    Mutant(
        "budget: who waits stays, however much there is of it",
        HOT,
        " || !take(&left, dirty)) {\n            send",
        " || (!take(&left, dirty) && false)) {\n            send",
    ),
    Mutant(
        "budget: what is hot comes before who waits",
        HOT,
        """\
    left = look_at_waiting(hot, map, budget, crowded);
    left = look_at_others(hot, map, left, refused);
""",
        """\
    left = look_at_others(hot, map, budget, refused);
    left = look_at_waiting(hot, map, left, crowded);
""",
    ),
    Mutant(
        "budget: once it is too small it is over",
        HOT,
        "            *refused |= is_hot;\n",
        "            *refused |= is_hot;\n"
        "            left = is_hot ? 0 : left;\n",
    ),
    Mutant(
        "refused: never",
        HOT,
        "            *refused |= is_hot;\n",
        "",
    ),
    Mutant(
        "refused: by the last group alone",
        HOT,
        "            *refused |= is_hot;\n",
        "            *refused = is_hot;\n",
    ),
    Mutant(
        "refused: what is not hot too",
        HOT,
        "            *refused |= is_hot;\n",
        "            *refused = true;\n",
    ),
    Mutant(
        "refused: not once more in another block",
        HOT,
        "    hot->round++;\n",
        "    hot->round++;\n    *refused = false;\n",
    ),
    Mutant(
        "crowded: nobody makes room",
        HOT,
        "(crowded && waited >= HOT_ROUNDS)",
        "false",
    ),
    Mutant(
        "crowded: all make room",
        HOT,
        "(crowded && waited >= HOT_ROUNDS)",
        "crowded",
    ),
    Mutant(
        "crowded: it always is",
        HOT,
        "(crowded && waited >= HOT_ROUNDS)",
        "(waited >= HOT_ROUNDS)",
    ),
    Mutant(
        "crowded: a round late",
        HOT,
        "waited >= HOT_ROUNDS",
        "waited > HOT_ROUNDS",
    ),
    Mutant(
        "crowded: a round early",
        HOT,
        "waited >= HOT_ROUNDS",
        "waited + 1 >= HOT_ROUNDS",
    ),
    Mutant(
        "crowded: those that waited longer stay",
        HOT,
        "waited >= HOT_ROUNDS",
        "waited == HOT_ROUNDS",
    ),
    Mutant(
        "crowded: who makes room for others goes on waiting",
        HOT,
        "    clear_bit(group, hot->waits);\n",
        "",
    ),
    Mutant(
        "wait: nobody does",
        HOT,
        "    set_bit(group, hot->waits);\n",
        "",
    ),
    Mutant(
        "wait: the group after one that waits is not looked at",
        HOT,
        "group = find_next_bit(hot->waits, end, group + 1)) {",
        "group = find_next_bit(hot->waits, end, group + 2)) {",
    ),
    Mutant(
        "wait: the last group does not",
        HOT,
        "    unsigned long end = page_groups(hot->pages);\n",
        "    unsigned long end = page_groups(hot->pages) - 1;\n",
    ),
    Mutant(
        "wait: release forgets the last group",
        HOT,
        "    bitmap_zero(hot->waits, page_groups(hot->max_pages));\n",
        "    bitmap_clear(hot->waits, 0, page_groups(hot->max_pages) - 1);\n",
    ),
    Mutant(
        "wait: release does nothing",
        HOT,
        "    bitmap_zero(hot->waits, page_groups(hot->max_pages));\n",
        "",
    ),
    Mutant(
        "waited: once for each round",
        HOT,
        "        hot->waited += dirty - known->waited;\n"
        "        known->waited = dirty;\n",
        "        hot->waited += dirty;\n",
    ),
    Mutant(
        "waited: only those that begin it",
        HOT,
        "        } else {\n"
        "            count_waiting(hot, group, dirty);\n"
        "        }\n",
        "        }\n",
    ),
    Mutant(
        "waited: 512 pages are too many to count",
        HOT,
        "    uint64_t waited:10; ",
        "    uint64_t waited:9; ",
    ),
    Mutant(
        "next: what waits is sent",
        HOT,
        "    while (page < end && test_bit(",
        "    while (false && test_bit(",
    ),
    Mutant(
        "next: what comes after one that waits may wait",
        HOT,
        "    while (page < end && test_bit(",
        "    if (page < end && test_bit(",
    ),
    Mutant(
        "next: it is dirty because it does not wait",
        HOT,
        "        page = page_bitmap_next(map, end, start);\n",
        "        page = MIN(start, end);\n",
    ),
    Mutant(
        "next: after those that wait a group is passed over",
        HOT,
        "page / PAGE_GROUP + 1) * PAGE_GROUP;\n",
        "page / PAGE_GROUP + 2) * PAGE_GROUP;\n",
    ),
)

MUTANTS = SUMMARY + GROUPS + COUNTED + AGREED + SEARCH + HOT_PAGES


class Failure(Exception):
    """What had to succeed did not."""


def glib(what: str) -> list[str]:
    return shlex.split(
        subprocess.check_output(
            ["pkg-config", what, "glib-2.0"], text=True
        )
    )


def build(cc: list[str], work: Path, program: str) -> None:
    """Compile one of the tests with the files of WORK."""
    command = [
        *cc,
        *("-O1", "-w", "-std=gnu11"),
        *(f"-I{TESTS}", "-Iinclude", "-Imigration"),
        f"{TESTS}/{program}.c",
        *((SOURCE, HOT) if program != STATES else ()),
        *((DIRTY,) if program == PROGRAMS[DIRTY] else ()),
        *glib("--cflags"),
        *glib("--libs"),
        *("-o", program),
    ]
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(done.stderr.strip())


def fails(work: Path, program: str) -> bool:
    """Whether an assertion does; words that mean nothing are not zeros."""
    try:
        done = subprocess.run(
            [f"./{program}", SEED],
            cwd=work,
            env={**os.environ, "MALLOC_PERTURB_": "165"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failure("the tests do not end") from None
    if done.returncode and not ASSERTED.search(done.stdout):
        raise Failure(
            f"the tests end with status {done.returncode}, at no assertion"
        )
    return done.returncode != 0


def copy(root: Path, work: Path) -> None:
    for name in (*PROGRAMS, HEADER):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, work / name)
    shutil.copytree(root / TESTS, work / TESTS)


def judge(
    root: Path, cc: list[str], program: str, mutant: Mutant | None
) -> str:
    """Returns: what is wrong with the test, or "" if it notices."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        work = Path(name)
        copy(root, work)
        try:
            if mutant:
                path = work / mutant.file
                text = path.read_text(encoding="utf-8")
                if text.count(mutant.old) != 1:
                    return f"its old text is not once in {mutant.file}"
                path.write_text(
                    text.replace(mutant.old, mutant.new), encoding="utf-8"
                )
            build(cc, work, program)
            if fails(work, program) != bool(mutant):
                return "survived" if mutant else "it fails already"
        except Failure as failure:
            return str(failure).replace("\n", "\n# ")
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Break the page bitmaps and the pages that wait."
    )
    parser.add_argument("--sanitize", default="none", metavar="KIND")
    parser.add_argument("--cc", default="gcc", metavar="COMMAND")
    parser.add_argument("root", type=Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.sanitize != "none":
        print("1..0 # SKIP a sanitizer finds nothing more here, only later")
        return 0
    mutants = [
        mutant
        for mutant in MUTANTS
        if not args.names or any(name in mutant.name for name in args.names)
    ]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cc = shlex.split(args.cc)
    for program in sorted({one.noticed_by() for one in mutants}):
        problem = judge(args.root, cc, program, None)
        if problem:
            print(f"Bail out! {program} without a mutant: {problem}")
            return 1
    print(f"1..{len(mutants)}", flush=True)
    good = True
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = pool.map(
            lambda one: judge(args.root, cc, one.noticed_by(), one), mutants
        )
        for number, verdict in enumerate(verdicts, 1):
            name = f"{number} - {mutants[number - 1].name}"
            print(f"not ok {name}: {verdict}" if verdict else f"ok {name}",
                  flush=True)
            good = good and not verdict
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
