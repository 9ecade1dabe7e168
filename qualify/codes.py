# SPDX-License-Identifier: GPL-2.0-or-later
"""A result as QR codes on the screen, for a host that has nothing else.

usage: python -m qualify.codes TEXT...

Prints the result that the texts of the codes, as a telephone reads them, have in
them.  Each is "FDT1/NUMBER/OF:DATA"; DATA of all in order is the result's JSON,
deflated with a dictionary (RFC 1950), in base 32 (RFC 4648) without "=", as QR
codes hold capitals and digits best.
"""

from __future__ import annotations

import base64
import io
import json
import re
import sys
import zlib
from dataclasses import replace

import segno

from .result import SAID_LINES, Invalid, Result, parse

TEXT = re.compile(r"FDT1/(\d+)/(\d+):([A-Z2-7]*)")
# What results have in common.  It belongs to the format: it does not change.
DICTIONARY = (
    b'"parameters":{"kvm.halt_poll_ns":"200000","kvm.tdp_mmu":"Y","kvm_intel.'
    b'eptad":"Y","kvm_intel.pml":"Y","kvm_amd.npt":"Y","nested":"1"},"figures":'
    b'[{"name":"harvest, re-arm: log; dirty bits","unit":"ns","stock":1,"ours":'
    b'"report":["name":"x86_64/dirty_log_test -M dirty-ring -i 8","name":"engine '
    b'test_","name":"migration dirty-bits --multifd","name":"write_protect_race_'
    b'test -m shared -v 63 -t 20","outcome":"skip","outcome":"died","outcome":"'
    b'fail","seconds":0.1,"said":"","seconds":20.1,"said":""},{"name":"dirty_'
    b'tracking_fuzz_test -s 1 -t 60","outcome":"pass","seconds":1.'
)
# QR codes' versions by the sides of their squares, and the letters that fit
# with the least correction (ISO/IEC 18004, table 7).
ROOM = {45: 224, 57: 395, 85: 758, 97: 1046}
LONGEST = max(ROOM)  # rows of a screen that has room for the largest
BORDER = 2  # a telephone wants some white around
HEADER = len("FDT1/100/100:")


def shortened(result: Result) -> Result:
    """Without what a page has no room for, either.

    A page counts all parts that were left out.
    """
    tests = [test if test.left_out else
             replace(test, said="\n".join(test.said.splitlines()[-SAID_LINES:]))
             for test in result.tests]
    return replace(result, tests=tests, boot=result.boot[:SAID_LINES],
                   report=result.report[:SAID_LINES])


def packed(result: Result) -> str:
    """The shortened result, as short as it gets."""
    value = json.loads(shortened(result).as_json())
    text = json.dumps(value, separators=(",", ":")).encode()
    squeeze = zlib.compressobj(9, zdict=DICTIONARY)
    data = squeeze.compress(text) + squeeze.flush()
    return base64.b32encode(data).decode().rstrip("=")


def texts(result: Result, rows: int) -> list[str]:
    """Those of its codes, each to fit a screen of ROWS lines."""
    modules = 2 * rows - 2 * BORDER
    fitting = [room for side, room in ROOM.items() if side <= modules]
    size = max(fitting, default=min(ROOM.values())) - HEADER
    data = packed(result)
    parts = [data[at:at + size] for at in range(0, len(data), size)]
    return [f"FDT1/{number}/{len(parts)}:{part}"
            for number, part in enumerate(parts, 1)]


def unpacked(given: list[str]) -> Result:
    """The result that the codes' texts have in them.

    Raises: Invalid, if one is missing or is none.
    """
    parts: dict[int, str] = {}
    for text in given:
        match = TEXT.fullmatch(text.strip())
        if not match:
            raise Invalid(f"'{text[:20]}' is no code of ours; each is FDT1/N/M:...")
        number, count = int(match[1]), int(match[2])
        parts[number] = match[3]
    missing = next((n for n in range(1, count + 1) if n not in parts), None)
    if missing:
        raise Invalid(f"of {count} codes, number {missing} is missing")
    data = "".join(parts[n] for n in range(1, count + 1))
    squeezed = zlib.decompressobj(zdict=DICTIONARY)
    try:
        raw = base64.b32decode(data + "=" * (-len(data) % 8))
        text = squeezed.decompress(raw).decode()
    except (ValueError, zlib.error):
        text = ""
    if not text or not squeezed.eof:
        raise Invalid("the codes are not of one result, or not whole")
    return parse(text)


def show(text: str) -> None:
    """Draw a code on the screen, two squares to a letter.

    The last line is not ended, as that would scroll the first one away.
    """
    code = segno.make(text, error="l", boost_error=False, micro=False)
    drawn = io.StringIO()
    code.terminal(drawn, border=BORDER, compact=True)
    print(drawn.getvalue().rstrip("\n"), end="", flush=True)


def main(given: list[str]) -> int:
    """Returns: the exit status."""
    if not given:
        print("there is no text of a code; give all of a result", file=sys.stderr)
        return 1
    try:
        print(unpacked(given).as_json(), end="")
    except Invalid as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
