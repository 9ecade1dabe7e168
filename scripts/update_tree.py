# SPDX-License-Identifier: GPL-2.0-or-later
"""Make TREE hold what BASE holds with OVERLAY laid over it.

The new tree is built beside the old one and renamed into place.  A file whose
content did not change is the old file itself, time stamp and all; one whose
content did change is stamped with the present, even if it went back to BASE's
older text, because ninja compares time stamps and not contents.
"""

import filecmp
import os
import shutil
import sys
from pathlib import Path


def files_below(top: Path) -> dict[str, Path]:
    """Every file and symbolic link below top, by its relative name."""
    found: dict[str, Path] = {}
    for directory, subdirs, names in os.walk(top):
        here = Path(directory)
        links = [name for name in subdirs if (here / name).is_symlink()]
        for name in names + links:
            path = here / name
            found[str(path.relative_to(top))] = path
    return found


def same(new: Path, old: Path) -> bool:
    """Whether old can stand for new: content, kind and mode."""
    if new.is_symlink() or old.is_symlink():
        return (
            new.is_symlink()
            and old.is_symlink()
            and os.readlink(new) == os.readlink(old)
        )
    a, b = new.stat(), old.stat()
    if a.st_mode != b.st_mode or a.st_size != b.st_size:
        return False
    # shallow: equal size and time stamp is equal content, as rsync has it.
    return filecmp.cmp(new, old, shallow=True)


def place(new: Path, target: Path, now: bool) -> None:
    """Copy one file or link: BASE stays pristine if the copy is edited."""
    shutil.copy2(new, target, follow_symlinks=False)
    if now and not target.is_symlink():
        os.utime(target)


def update(base: Path, overlay: Path, tree: Path) -> int:
    """Bring tree up to date and return how many files changed."""
    fresh = tree.with_name(f".{tree.name}.new")
    aside = tree.with_name(f".{tree.name}.old")
    if aside.exists() and not tree.exists():
        aside.rename(tree)  # an earlier run was killed between its two renames
    for leftover in (fresh, aside):
        shutil.rmtree(leftover, ignore_errors=True)

    wanted = files_below(base) | files_below(overlay)
    present = files_below(tree) if tree.is_dir() else {}
    keep = {
        name
        for name, path in wanted.items()
        if name in present and same(path, present[name])
    }
    changed = len(wanted.keys() - keep) + len(present.keys() - wanted.keys())
    if not changed and present:
        return 0

    directories = {str(Path(name).parent) for name in wanted}
    for directory in sorted(directories):
        (fresh / directory).mkdir(parents=True, exist_ok=True)
    for name, path in wanted.items():
        if name in keep:
            os.link(present[name], fresh / name, follow_symlinks=False)
        else:
            place(path, fresh / name, now=bool(present))
    if present:
        tree.rename(aside)
    fresh.rename(tree)
    shutil.rmtree(aside, ignore_errors=True)
    return changed


def main(argv: list[str]) -> int:
    if len(argv) != 4:
        print(
            "update_tree: three directories are needed: BASE OVERLAY TREE",
            file=sys.stderr,
        )
        return 1
    base, overlay, tree = (Path(arg) for arg in argv[1:])
    try:
        changed = update(base, overlay, tree)
    except OSError as error:
        print(
            f"update_tree: {error.strerror}: {error.filename}", file=sys.stderr
        )
        return 1
    if changed:
        print(f"assemble-qemu: {changed} files changed in {tree}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
