# SPDX-License-Identifier: GPL-2.0-or-later
"""A qcow2 image over the guest's disk, which can hold snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .guest import Writer
from .vm import VM, Config, Qemu, VMError

JOB_TIMEOUT = 30.0


def make_overlay(qemu: Qemu, where: Path, writer: Writer) -> Path:
    """Make the image with QEMU itself, so that no qemu-img is needed."""
    work = Path(tempfile.mkdtemp(dir=where))
    raw, overlay = work / "disk.img", work / "disk.qcow2"
    raw.write_bytes(writer.image())
    size = raw.stat().st_size
    overlay.touch()
    config = Config(qemu, "tcg", machine="none", boot=False)
    with VM("image", config) as vm:
        vm.qmp("blockdev-add", driver="file", filename=str(overlay),
               node_name="new")
        vm.qmp("blockdev-create", job_id="make", options={
            "driver": "qcow2", "file": "new", "size": size,
            "backing-file": str(raw), "backing-fmt": "raw"})
        _conclude(vm, "make")
    return overlay


def _conclude(vm: VM, name: str) -> None:
    def job() -> dict[str, Any]:
        return next(job for job in vm.qmp("query-jobs") if job["id"] == name)

    vm.wait(lambda: job()["status"] == "concluded",
            JOB_TIMEOUT, "the image was not made")
    if "error" in job():
        raise VMError(f"The image was not made: {job()['error']}")
    vm.qmp("job-dismiss", id=name)
