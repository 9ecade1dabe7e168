# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMU of each release, and Debian's of the same release."""

from __future__ import annotations

import pytest

from tests.migration.guest import BUILD
from tests.migration.vm import OURS, STOCKS, path_of
from tests.releases import CHOSEN, OWN, from_scripts

from .releases import OUR_TITLES, TITLES, peer_of


def test_table() -> None:
    """The releases are those that scripts build."""
    assert from_scripts("{!releases[@]}").split() == list(STOCKS)
    for release, here in STOCKS.items():
        assert from_scripts("qemu_hooks_fit", release) == here["stock"]


@pytest.mark.parametrize("release", STOCKS)
def test_where(release: str) -> None:
    """What is not the machine's own has a directory of its own."""
    build = BUILD if release == OWN else BUILD / f"debian-{release}"
    where = build.resolve() / "qemu" / OURS.name
    assert path_of(f"ours-{release}") == where
    assert release != CHOSEN or OURS.resolve() == where.resolve()


@pytest.mark.parametrize("version,own,name", [
    ("7.2", "12", "stock"), ("10.0", "12", "backports"),
    ("10.0", "13", "stock"), ("7.2", "13", None)])
def test_peer(version: str, own: str, name: str | None) -> None:
    """The machine's own, or that of the backports; there may be none."""
    assert peer_of(version, STOCKS[own]) == name


def test_titles() -> None:
    """A version is named once for Debian's and once for ours."""
    assert len(set(TITLES.values())) == len(TITLES)
    assert len(OUR_TITLES) == len(STOCKS)
    assert not any(STOCKS[CHOSEN]["stock"] in title
                   for title in OUR_TITLES.values())
