# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on the guest's view of its migration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from .blocks import (NONE, Block, Chapter, Plot, Table, Text, cell,
                     ratio)
from .releases import PEER, SHORT
from .results import Results
from .step import COUNTED, PYTHON, Lab, Step

BESIDE = Lab(cpus=4, memory=2048)
GUEST = ("--pattern", "random", "--mib", "64", "--written-mib", "16",
         "--mib-per-second", "60", "--downtime-ms", "20",
         "--around-seconds", "0.25", "--rounds-seconds", "1")
OWN_CPU = ("--pattern", "random", "--mib", "128", "--written-mib", "32",
           "--mib-per-second", "40", "--downtime-ms", "20",
           "--around-seconds", "1.5", "--rounds-seconds", "3")
HOST = ("--pattern", "random", "--mib", "256", "--written-mib", "64",
        "--mib-per-second", "120", "--downtime-ms", "20",
        "--around-seconds", "2", "--rounds-seconds", "3")

OURS, STOCK = "#0b6fb8", "#6b6b6b"
LOST, STOPPED = "#f3d9cf", "#d3522a"
WIDTH, PANEL, MARGIN = 5.0, 1.05, 0.75  # inches
SMOOTH_MS = 30


@dataclass(frozen=True)
class Row:
    """One QEMU with one mechanism."""

    qemu: str
    mechanism: str
    quick: bool = False  # whether a quick run has it too
    kernel: str = "patched"  # of the lab
    beside: bool = False  # another guest is migrated, and this one is not

    @property
    def label(self) -> str:
        """Its name in tables and drawings."""
        if self.beside:
            return "not tracked, another is sent"
        label = f"{SHORT[self.qemu]}, {self.mechanism}"
        return f"{label}, stock kernel" if self.kernel == "stock" else label

    @property
    def command(self) -> tuple[str, ...]:
        """The program, and its arguments."""
        program = "guest_beside" if self.beside else "guest_view"
        return (*PYTHON, f"tests.bench.{program}",
                "--qemu", self.qemu, "--mechanism", self.mechanism)


IN_LAB = (Row(PEER, "log"), Row(PEER, "ring"), Row("ours", "log"),
          Row("ours", "ring"), Row("ours", "shared"),
          Row("ours", "dirty-bits"))
WITH_CPU = (Row(PEER, "log", True, "stock"), Row(PEER, "log"),
            Row("ours", "log", kernel="stock"), Row("ours", "log"),
            Row("ours", "ring"), Row("ours", "shared"),
            Row("ours", "dirty-bits", True), Row("ours", "log", beside=True))
ON_HOST = IN_LAB[:4]


@dataclass(frozen=True)
class Set:
    """The rows of one table, on one machine; some may not be drawn."""

    name: str
    rows: Sequence[Row]
    drawn: Sequence[Row]

    def step(self, row: Row) -> str:
        """The name of the step that measures a row."""
        if row.beside:
            return f"guest-view/{self.name}-beside"
        step = f"guest-view/{self.name}-{row.qemu}-{row.mechanism}"
        return f"{step}-stock-kernel" if row.kernel == "stock" else step


LAB_SET, HOST_SET = Set("lab", IN_LAB, IN_LAB), Set("host", ON_HOST, ())
CPU_SET = Set("own-cpu", WITH_CPU, (WITH_CPU[0], *WITH_CPU[4:]))


def counted(row: Row) -> Step:
    """The figures repeat, so one run is enough."""
    return Step(LAB_SET.step(row), row.command + GUEST, COUNTED, seconds=45)


def with_cpu(row: Row, quick: bool) -> Step:
    """In real time."""
    return Step(CPU_SET.step(row), row.command + OWN_CPU,
                replace(BESIDE, kernel=row.kernel), runs=1 if quick else 5,
                seconds=20)


def on_host(row: Row, quick: bool) -> Step:
    """On this host's own KVM."""
    return Step(HOST_SET.step(row), row.command + HOST, kvm=True,
                runs=1 if quick else 3, seconds=12)


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has only the subject of the plot."""
    return [*(counted(row) for row in IN_LAB if not quick),
            *(with_cpu(row, quick) for row in WITH_CPU
              if row.quick or not quick),
            *(on_host(row, quick) for row in ON_HOST)]


def smooth(values: Sequence[float], count: int) -> list[float]:
    """The means of COUNT values around each."""
    half = count // 2
    parts = (values[max(i - half, 0):i + half + 1] for i in range(len(values)))
    return [sum(part) / len(part) for part in parts]


@dataclass(frozen=True)
class Line:
    """The guest's speed in percent of that before, in seconds."""

    times: Sequence[float]
    percent: Sequence[float]
    stop: float
    resume: float
    end: float
    kept: float


def line(results: Results, step: str) -> Line | None:
    """The value of a step's first run; None if there is none."""
    found = results.samples(step)[:1]
    if not found:
        return None
    first, apart, before, stop, resume, end, kept = (
        found[0][name].values[0] for name in (
            "first", "step", "before", "stop", "resume", "end", "kept-live"))
    rates = results.series(step, "rate")
    percent = smooth([rate / before * 100 for rate in rates],
                     round(SMOOTH_MS / apart))
    times = [first + (i + 0.5) * apart / 1000 for i in range(len(percent))]
    return Line(times, percent, stop, resume, end, kept)


def panel(axes: Axes, row: Row, shown: Line) -> None:
    """Draw one of the small multiples."""
    colour = OURS if row.qemu == "ours" else STOCK
    axes.fill_between(shown.times, shown.percent, 100, color=LOST, linewidth=0,
                      where=[0 <= t <= shown.end for t in shown.times])
    axes.axvspan(shown.stop, shown.resume, color=STOPPED, alpha=0.35,
                 linewidth=0)
    axes.plot(shown.times, shown.percent, color=colour, linewidth=1.5)
    for when in (0, shown.end):
        axes.axvline(when, color="#333333", linewidth=0.8,
                     linestyle=(0, (3, 2)))
    axes.set_ylim(0, 119)
    axes.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=10, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(row.label, loc="left", fontsize=11.5, color=colour,
                   fontweight="bold", pad=3)
    axes.set_title(f"kept {shown.kept:.0f} % until the stop", loc="right",
                   fontsize=10.5, color="#333333", pad=3)


def drawing(results: Results, chosen: Set) -> Drawing | None:
    """Rows one above the other, with the same time; None without any."""
    lines = [(row, found) for row in chosen.drawn
             if (found := line(results, chosen.step(row)))]
    if not lines:
        return None
    height = PANEL * 1.25 * len(lines) + MARGIN
    drawn = Drawing(figsize=(WIDTH, height), layout="constrained")
    all_axes = drawn.subplots(len(lines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (row, shown) in zip(all_axes, lines):
        panel(axes, row, shown)
    last = all_axes[-1]
    last.set_xlim(min(shown.times[0] for _, shown in lines),
                  max(shown.times[-1] for _, shown in lines))
    last.set_xlabel("seconds since the migration began", fontsize=11)
    return drawn


COLUMNS = (("kept-live", "writes kept, live, %"), ("kept", "writes kept, %"),
           ("lost", "writes lost, ms"), ("worst", "worst 10 ms, %"),
           ("zero-live", "at zero, live, ms"), ("zero", "at zero, longest, ms"),
           ("downtime", "downtime, ms"), ("total", "total, ms"),
           ("pages", "pages sent"),
           ("sample-gap", "sampling gap, ms"))


def table(results: Results, chosen: Set, caption: str) -> Table:
    """The figures of all rows; the first one is the base."""
    base = results.stat(chosen.step(chosen.rows[0]), "lost")
    rows = []
    for row in chosen.rows:
        step = chosen.step(row)
        rows.append([row.label,
                     *(cell(results.stat(step, name)) for name, _ in COLUMNS),
                     ratio(base, results.stat(step, "lost"))])
    return Table(["QEMU, mechanism", *(name for _, name in COLUMNS),
                  "stock log's lost to it"], rows, caption)


def words(results: Results, chosen: Set) -> str:
    """The drawing in words, for readers who cannot see it."""
    parts = []
    for row in chosen.drawn:
        stat = results.stat(chosen.step(row), "kept-live")
        kept = NONE if stat is None else f"{stat.median:.0f} %"
        parts.append(f"{row.label}: {kept}")
    return ("The speed of the guest over time, in percent of that before the "
            "migration, with one panel for each QEMU and mechanism; what it "
            f"kept until the stop: {'; '.join(parts)}.")


EXPLAINED = Text(
    "A guest writes to memory without a pause, and its write counters are "
    "read every 10 ms, on the side that it runs on. Dashed lines are the "
    "begin and the end of the migration, the red band is where the guest is "
    "stopped, and the pale area is what it lost: writes lost is that area, "
    "in ms of the guest's own time, with the stop in it. What says live "
    "leaves the stop out, and so does worst 10 ms. The guest never lets the migration "
    "converge at the limit of its downtime, so that the limit is lifted "
    "after some rounds, for all alike.")
CPU_TEXT = Text(
    "In the lab with a CPU for the guest and others for the QEMUs, in real "
    "time, on our host kernel unless a row says otherwise. An emulated CPU takes some 30 µs for a fault of "
    "the guest, ten or twenty times what hardware does, so that what "
    "tracking costs a guest stands out: this is what it looks like where "
    "exits are dear. The last row is the limit: as much is sent, of another "
    "guest that stands still, so that what the guest loses is the CPU time "
    "of the QEMUs that send and receive; all of it is new to the one that "
    "receives, so that the limit may lie a little higher. The spread of the "
    "runs has whatever else this host did.")
LAB_TEXT = Text(
    "In the lab there is one CPU here, whose clock counts instructions: "
    "whatever else the machine does makes no difference. The guest shares "
    "that CPU with both QEMUs, the one that sends and the one that receives, and with"
    " the program that watches. That is most of what it loses, and no "
    "mechanism can give it back: the rows differ by what tracking costs on "
    "top. All rows have our host kernel; stock QEMU asks it for nothing. A "
    "ratio below 1 is a loss for the row. The only published figure of the "
    "kind is that of an operator: 103 to 367 ms of guest stall in one "
    "precopy, which no metric told.")
HOST_TEXT = Text(
    "The same guest on this host, with its KVM and in real time. The spread "
    "of the runs has whatever else the host did, and a sample can be late; "
    "nothing is drawn of it, as the guest's speed swings even without a "
    "migration. A QEMU that gives up has no figures. Where KVM overfills "
    "rings, stock QEMU loses pages and takes the migration to be done: fewer"
    " pages sent and a shorter total are of a guest with wrong memory then.")


def section(results: Results, chosen: Set, text: Text,
            caption: str) -> list[Block]:
    """The drawing of a set, and its table."""
    drawn = drawing(results, chosen)
    return [text, *([Plot(drawn, words(results, chosen))] if drawn else []),
            table(results, chosen, caption)]


def blocks(results: Results) -> Sequence[Block]:
    """The drawing for the README comes first."""
    return [
        EXPLAINED,
        *section(results, CPU_SET, CPU_TEXT,
                 "In the lab, with a CPU of its own: 32 MiB written at "
                 "random, 40 MiB/s"),
        *section(results, LAB_SET, LAB_TEXT,
                 "In the lab, on one counted CPU: 16 MiB written at random, "
                 "60 MiB/s"),
        HOST_TEXT,
        table(results, HOST_SET,
              "On this host: 64 MiB written at random, 120 MiB/s")]


CHAPTER = Chapter("guest-view", "What the guest sees of its migration", steps,
                  blocks)
