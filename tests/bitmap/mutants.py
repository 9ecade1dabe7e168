#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Break the page bitmaps on purpose, and see their tests fail.

usage: mutants.py [--sanitize KIND] [--cc COMMAND] ROOT [NAME...]

As tests/mutants does it with the engine.  ROOT is the checkout; names, or
parts of them, choose among the mutants.

Left out, since no test of what is in a bitmap can tell them:

- close_group() that never closes, and bits past the last page: a group then
  stays behind that has no page, which costs a look.
- add_word() that does not know full groups: it writes their words in vain.
- page_bitmap_next() that stops before the last group: it does not end.
- page_block_mark() that comes before the bit of the page: it is the caller
  who sets that.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HEADER = "include/exec/page-bitmap.h"
SOURCE = "migration/page-bitmap.c"
TESTS = "tests/bitmap"
PROGRAM = "test_page_bitmap.c"

SEED = "--seed=R02S" + 32 * "1"
LIMIT = 120  # seconds


@dataclass(frozen=True)
class Mutant:
    """In file, old becomes new; the tests must then fail."""

    name: str
    file: str
    old: str
    new: str


SUMMARY = (
    Mutant(
        "mark: no bit is set",
        HEADER,
        "        qatomic_or(word, BIT_MASK(bit));\n",
        "",
    ),
    Mutant(
        "mark: any bit that is set will do",
        HEADER,
        "__ATOMIC_SEQ_CST) & BIT_MASK(bit))) {\n",
        "__ATOMIC_SEQ_CST))) {\n",
    ),
    Mutant(
        "mark: the last group of a range is left",
        HEADER,
        "group <= last; group++",
        "group < last; group++",
    ),
    Mutant(
        "mark: the block is not",
        HEADER,
        "    page_block_set_unless_set(page_block_any(block, size), 0);\n",
        "",
    ),
    Mutant(
        "mark: the block is first",
        HEADER,
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
        HEADER,
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
        "    unsigned long end = groups_of(harvest->end);\n",
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
        "harvest: a range goes to its own place",
        SOURCE,
        "page - harvest->first + harvest->dest_first",
        "page - harvest->first",
    ),
    Mutant(
        "harvest: pages count that were known",
        SOURCE,
        "ctpopl(bits & ~old)",
        "ctpopl(bits | (old & 0))",
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
        "        clear_bit(group, map->full);\n    }\n    return words;\n",
        "    }\n    return words;\n",
    ),
    Mutant(
        "full: it is forgotten by set_all",
        SOURCE,
        "    bitmap_set(map->full, 0, groups_of(map->pages));\n",
        "",
    ),
    Mutant(
        "full: a group that is cleared stays so",
        SOURCE,
        "        *full &= ~mask;\n",
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
        "        count += ctpopl(*full & mask) * PAGE_GROUP;\n",
        "",
    ),
    Mutant(
        "clear: the others of a word go too",
        SOURCE,
        "        unsigned long mask = group_mask(group, group, end);\n",
        "        unsigned long mask = group_mask(group, base, end);\n",
    ),
    Mutant(
        "clear: one word of groups is all",
        SOURCE,
        "        group = base + BITS_PER_LONG;\n",
        "        break;\n",
    ),
    Mutant(
        "empty: old words come back",
        SOURCE,
        "        bitmap_zero(words, PAGE_GROUP);\n"
        "        set_bit(group, map->some);\n",
        "        set_bit(group, map->some);\n",
    ),
    Mutant(
        "empty: a group stays so",
        SOURCE,
        "        set_bit(group, map->some);\n",
        "",
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
        "        *some &= ~mask;\n",
        "",
    ),
)

SEARCH = (
    Mutant(
        "next: a group is skipped",
        SOURCE,
        "find_next_bit(map->some, groups_of(end), group + 1)",
        "find_next_bit(map->some, groups_of(end), group + 2)",
    ),
    Mutant(
        "next zero: a group with a page has no other",
        SOURCE,
        "find_next_zero_bit(map->full, ",
        "find_next_zero_bit(map->some, ",
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

MUTANTS = SUMMARY + GROUPS + SEARCH


class Failure(Exception):
    """What had to succeed did not."""


def glib(what: str) -> list[str]:
    return shlex.split(
        subprocess.check_output(
            ["pkg-config", what, "glib-2.0"], text=True
        )
    )


def build(cc: list[str], work: Path) -> None:
    """Compile the tests with the files of WORK."""
    command = [
        *cc,
        *("-O1", "-w", "-std=gnu11", f"-I{TESTS}", "-Iinclude"),
        *(f"{TESTS}/{PROGRAM}", SOURCE),
        *glib("--cflags"),
        *glib("--libs"),
        *("-o", "program"),
    ]
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(done.stderr.strip())


def fails(work: Path) -> bool:
    """Whether the tests do; words that mean nothing are not zeros."""
    try:
        done = subprocess.run(
            ["./program", SEED],
            cwd=work,
            env={**os.environ, "MALLOC_PERTURB_": "165"},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failure("the tests do not end") from None
    return done.returncode != 0


def copy(root: Path, work: Path) -> None:
    for name in (HEADER, SOURCE):
        (work / name).parent.mkdir(parents=True)
        shutil.copy(root / name, work / name)
    shutil.copytree(root / TESTS, work / TESTS)


def judge(root: Path, cc: list[str], mutant: Mutant | None) -> str:
    """Returns: what is wrong with the tests, or "" if they notice."""
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
            build(cc, work)
            if fails(work) != bool(mutant):
                return "survived" if mutant else "the tests fail already"
        except Failure as failure:
            return str(failure).replace("\n", "\n# ")
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Break the page bitmaps on purpose."
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
    problem = judge(args.root, cc, None)
    if problem:
        print(f"Bail out! without a mutant: {problem}")
        return 1
    print(f"1..{len(mutants)}", flush=True)
    good = True
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = pool.map(lambda one: judge(args.root, cc, one), mutants)
        for number, verdict in enumerate(verdicts, 1):
            name = f"{number} - {mutants[number - 1].name}"
            print(f"not ok {name}: {verdict}" if verdict else f"ok {name}",
                  flush=True)
            good = good and not verdict
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
