# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine is a stack: includes and calls point down only.

accel/kvm/dirty/meson.build lists the files from the bottom to the top, each
layer under a comment that names its header.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "accel/kvm/dirty"
UAPI = ROOT / "host-kernel/include/uapi"
LAYERS = ("ground.h", "mechanism.h", "engine.h")
# Any file may include these: the public side, and the memory ordering.
ANYWHERE = {"kvmdirty.h", "ordering.h"}


def layers_of(meson: str) -> dict[str, str]:
    """The files from the bottom to the top, each with its layer's header."""
    listed = re.search(r"kvmdirty_sources = files\((.*?)\)", meson, re.DOTALL)
    assert listed
    layer, found = "", {}
    for line in listed[1].split("\n"):
        header = re.fullmatch(r"\s*# (\w+\.h)", line)
        source = re.fullmatch(r"\s*'([\w-]+\.c)',", line)
        if header:
            layer = header[1]
        elif source:
            found[source[1]] = layer
    return found


def wrong_includes(sources: dict[str, str], engine: Path) -> list[str]:
    """The files that include a header of another layer than their own.

    Each header includes the one of the layer below.
    """
    wrong = []
    for name, layer in sources.items():
        text = (engine / name).read_text()
        included = set(re.findall(r'#include "(.+)"', text)) - ANYWHERE
        if included != {layer}:
            wrong.append(f"{name}, of {layer}, includes {sorted(included)}")
    return wrong


def symbols(object_file: Path, *options: str) -> set[str]:
    """The names of our functions and tables that nm lists."""
    listed = subprocess.run(
        ["nm", "--format=just-symbols", *options, object_file],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.split() if name[:5] == "kvmd_"}


def compiled(source: Path, work: Path) -> Path:
    """Compile one file as it is, without optimising a call away."""
    glib = subprocess.run(
        ["pkg-config", "--cflags", "glib-2.0"],
        capture_output=True,
        text=True,
        check=True,
    )
    target = work / f"{source.stem}.o"
    subprocess.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O0", "-isystem", UAPI]
        + [*shlex.split(glib.stdout), "-c", source, "-o", target],
        check=True,
    )
    return target


def calls_up(sources: dict[str, str], engine: Path, work: Path) -> list[str]:
    """The files that use a name of a file that is listed after them."""
    objects = [compiled(engine / name, work) for name in sources]
    defined = [symbols(each, "--defined-only", "--extern") for each in objects]
    wrong = []
    for number, (name, each) in enumerate(zip(sources, objects)):
        above = set().union(*defined[number + 1 :])
        up = symbols(each, "--undefined-only") & above
        wrong += [f"{name} names {symbol}" for symbol in sorted(up)]
    return wrong


@pytest.fixture(name="sources", scope="module")
def fixture_sources() -> dict[str, str]:
    return layers_of((ENGINE / "meson.build").read_text())


def test_all_files_are_in_a_layer(sources: dict[str, str]) -> None:
    assert set(sources) == {path.name for path in ENGINE.glob("*.c")}
    assert tuple(dict.fromkeys(sources.values())) == LAYERS
    headers = {path.name for path in ENGINE.glob("*.h")}
    assert headers == {*LAYERS, *ANYWHERE}


def test_includes_point_down(sources: dict[str, str]) -> None:
    assert not wrong_includes(sources, ENGINE)
    for lower, upper in zip(LAYERS, LAYERS[1:]):
        text = (ENGINE / upper).read_text()
        assert re.findall(r'#include "(.+)"', text) == [lower]


def test_calls_point_down(sources: dict[str, str], tmp_path: Path) -> None:
    assert not calls_up(sources, ENGINE, tmp_path)


def test_a_call_and_an_include_that_point_up_are_seen(tmp_path: Path) -> None:
    sources = layers_of(
        "kvmdirty_sources = files(\n  # ground.h\n  'low.c',\n"
        "  # engine.h\n  'high.c',\n)\n"
    )
    (tmp_path / "engine.h").write_text("void kvmd_high(void);\n")
    (tmp_path / "low.c").write_text(
        '#include "engine.h"\n'
        "void kvmd_low(void);\nvoid kvmd_low(void) { kvmd_high(); }\n"
    )
    (tmp_path / "high.c").write_text(
        '#include "engine.h"\nvoid kvmd_high(void) { }\n'
    )
    assert wrong_includes(sources, tmp_path) == [
        "low.c, of ground.h, includes ['engine.h']"
    ]
    assert calls_up(sources, tmp_path, tmp_path) == ["low.c names kvmd_high"]
