# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: what this project gains, and what it loses, beside stock."""
