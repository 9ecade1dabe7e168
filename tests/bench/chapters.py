# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapters of the report, in its order."""

from . import chapter_kernel, chapter_nested, chapter_sizes

CHAPTERS = (
    chapter_kernel.CHAPTER,
    chapter_sizes.CHAPTER,
    chapter_nested.CHAPTER,
)
