# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration as libvirt does it, between two real libvirtd."""
