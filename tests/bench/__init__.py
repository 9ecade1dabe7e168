# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: the gains and losses of this project against stock."""
