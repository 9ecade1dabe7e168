# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own migration-test, judged by what stock QEMU makes of it."""
