# SPDX-License-Identifier: GPL-2.0-or-later
"""What spin is to verify; its mutants are in tests/mutants/model."""

from __future__ import annotations

from tests.model.spin import Model

MODELS = (
    Model("order", ("VCPUS=2", "PAGES=1")),
    Model("order", ("VCPUS=1", "PAGES=2")),
    Model("propagate", ("VCPUS=2",)),
    Model("propagate", ("VCPUS=2", "LAST_WRITE")),
    Model("link", ("VCPUS=2", "TABLES=2")),
    Model("summary", ("WRITERS=2",)),
    Model("bits", ("VCPUS=1",)),
    Model("bits", ("VCPUS=1", "NOTIFIER")),
    Model("bits", ("VCPUS=1", "BESIDE")),
    Model("bits", ("VCPUS=1", "BRAKE", "CLOSER")),
    Model("ring", ("SIZE=2", "MOST=2")),
    Model("ring", ("SIZE=3", "MOST=1")),
)

# Searched in make soak only.
SOAKED = (
    Model("propagate", ("VCPUS=3",)),
    Model("bits", ("VCPUS=2",)),
    Model("bits", ("VCPUS=2", "BRAKE")),
)
