# SPDX-License-Identifier: GPL-2.0-or-later
"""What a kernel's log says of the kernel being broken."""

from __future__ import annotations

import re

REPORT_LINES = 60

# How a kernel says that it is broken.  Each stands at the start of a line of
# the log, after the time; programs that crash in the lab say so elsewhere.
COMPLAINTS = re.compile(
    r"""^\[\ *\d+\.\d+\]\ (?:watchdog:\ |rcu:\ )?(?:
        WARNING:
      | BUG[:\ ]
      | (?:NMI\ watchdog:\ )?Watchdog\ detected
      | INFO:\ (?:task|rcu|lockdep|trying\ to\ register|possible)
      | Oops
      | Kernel\ panic
      | kernel\ BUG\ at
      | .*\ \[\#\d+\]
      | UBSAN:
      | KASAN:
      | Out\ of\ memory:
      | refcount_t:
      | list_(?:add|del)\ corruption
      | unchecked\ MSR\ access
      | mce:\ \[Hardware\ Error\]
      | \S+\ detected\ (?:expedited\ )?stalls
    )""",
    re.VERBOSE,
)
REPORT_ENDS = re.compile(r"---\[ end ")
RULE = re.compile(r"-+\[ cut here \]-+|={20,}")


def first_report(log: str) -> list[str]:
    """The lines of the first report in the log, or nothing."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if not COMPLAINTS.match(line):
            continue
        first = number
        if number and RULE.search(lines[number - 1]):
            first = number - 1
        last = first + REPORT_LINES
        for place in range(number, min(last, len(lines))):
            if REPORT_ENDS.search(lines[place]):
                last = place + 1
                break
        return lines[first:last]
    return []
