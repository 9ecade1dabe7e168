# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMUs that a run compares: ours and Debian's, of each release.

"ours" is that of RELEASE.  Its peer, which chapters call "stock", is Debian's
of the same release, or the machine's own where that one does not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.migration.vm import STOCKS
from tests.releases import CHOSEN, OWN


def peer_of(version: str, here: Mapping[str, str]) -> str | None:
    """The name of Debian's QEMU of that version, if it is among those HERE."""
    return next((name for name in here if here[name] == version), None)


# The versions of Debian's that run here, and of ours of the other releases.
VERSIONS = STOCKS[OWN]
OTHERS = {f"ours-{release}": here["stock"]
          for release, here in STOCKS.items() if release != CHOSEN}
PEER = peer_of(STOCKS[CHOSEN]["stock"], VERSIONS) or "stock"

OUR_TITLES = {"ours": "ours", **{name: f"ours of {version}"
                                 for name, version in OTHERS.items()}}
TITLES = {**{name: f"Debian's {version}"
             for name, version in VERSIONS.items()}, **OUR_TITLES}
# In a chapter without other releases.
SHORT = {PEER: "stock", "ours": "ours"}
