# SPDX-License-Identifier: GPL-2.0-or-later
"""Make TREE hold what BASE holds with OVERLAY laid over it.

usage: update_tree.py [--link] BASE OVERLAY TREE

The new tree is built beside the old one and renamed into place.  A file whose
content did not change is the old file itself, time stamp and all; one whose
content did change is stamped with the present, even if it went back to BASE's
older text, because ninja and make compare time stamps and not contents.

With --link the files that are BASE's are links to BASE's.  That is for trees
nobody edits: all of Linux is in place within seconds.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
import sys
from pathlib import Path


def files_below(top: Path) -> dict[str, str]:
    """Every file and symbolic link below top: its path by its relative name.

    A kernel has 80,000 of them, so that this is no place for Path.
    """
    found: dict[str, str] = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(os.path.join(top, prefix)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{prefix}{entry.name}/")
                else:
                    found[prefix + entry.name] = entry.path
    return found


def same(new: str, old: str) -> bool:
    """Whether old can stand for new: content, kind and mode."""
    a, b = os.lstat(new), os.lstat(old)
    if stat.S_ISLNK(a.st_mode) and stat.S_ISLNK(b.st_mode):
        return os.readlink(new) == os.readlink(old)
    if a.st_mode != b.st_mode or a.st_size != b.st_size:
        return False
    # Equal size and time stamp is equal content, as rsync has it.
    return a.st_mtime == b.st_mtime or filecmp.cmp(new, old, shallow=False)


def place(new: str, target: Path, now: bool) -> None:
    """Copy one file or link: BASE stays pristine if the copy is edited."""
    shutil.copy2(new, target, follow_symlinks=False)
    if now and not target.is_symlink():
        os.utime(target)


def update(base: Path, overlay: Path, tree: Path, link: bool) -> int:
    """Bring tree up to date and return how many files changed."""
    fresh = tree.with_name(f".{tree.name}.new")
    aside = tree.with_name(f".{tree.name}.old")
    if aside.exists() and not tree.exists():
        aside.rename(tree)  # an earlier run was killed between its two renames
    for leftover in (fresh, aside):
        shutil.rmtree(leftover, ignore_errors=True)

    ours = files_below(overlay)
    wanted = files_below(base) | ours
    present = files_below(tree) if tree.is_dir() else {}
    keep = {
        name
        for name, path in wanted.items()
        if name in present and same(path, present[name])
    }
    changed = len(wanted.keys() - keep) + len(present.keys() - wanted.keys())
    if not changed and present:
        return 0

    directories = {os.path.dirname(name) for name in wanted}
    for directory in sorted(directories):
        (fresh / directory).mkdir(parents=True, exist_ok=True)
    for name, path in wanted.items():
        if name in keep:
            os.link(present[name], fresh / name, follow_symlinks=False)
        elif link and name not in ours and not present:
            os.link(path, fresh / name, follow_symlinks=False)
        else:
            place(path, fresh / name, now=bool(present))
    if present:
        tree.rename(aside)
    fresh.rename(tree)
    shutil.rmtree(aside, ignore_errors=True)
    return changed


def main(argv: list[str]) -> int:
    """Returns: the exit status."""
    link = "--link" in argv[1:2]
    words = argv[2:] if link else argv[1:]
    if len(words) != 3:
        print(
            "update_tree: three directories are needed; they must be "
            "BASE OVERLAY TREE",
            file=sys.stderr,
        )
        return 1
    base, overlay, tree = (Path(word) for word in words)
    try:
        changed = update(base, overlay, tree, link)
    except OSError as error:
        print(
            f"update_tree: {error.strerror}: {error.filename}", file=sys.stderr
        )
        return 1
    if changed:
        print(f"{changed} files changed in {tree}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
