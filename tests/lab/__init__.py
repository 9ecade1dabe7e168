# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that run on a kernel of ours, in scripts/lab."""
