# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration by virsh, and the check that most tests end with."""

from __future__ import annotations

from .domain import Domain
from .host import Host


def migrate(
    domain: Domain, source: Host, target: Host, *options: str
) -> None:
    """Migrate a running domain; it goes on at the target."""
    source.virsh("migrate", "--live", domain.name, target.tcp, *options)


def migrate_identical(
    domain: Domain, source: Host, target: Host, *options: str
) -> None:
    """Migrate, and fail unless each page arrived as it was left.

    The domain stays paused at the target until both are compared, and the
    source's file is held open, as libvirt removes it with QEMU.
    """
    left = domain.memory(source)
    migrate(domain, source, target, "--suspend", *options)
    assert domain.state(source) == "absent"
    assert domain.state(target) == "paused"
    pages = left.differing_pages(domain.memory(target))
    assert not pages, (
        f"{len(pages)} pages differ after the migration, the first of them "
        f"{', '.join(f'{page:#x}' for page in pages[:8])}"
    )
    target.virsh("resume", domain.name)
    domain.wait_writing(target)
