# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration of a guest that writes to memory at full speed."""
