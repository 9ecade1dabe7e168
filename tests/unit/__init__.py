# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine on a KVM made of ordinary memory; most of its tests are in C."""
