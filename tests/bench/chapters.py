# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapters of the report, in its order."""

from . import (
    chapter_dirty_pages,
    chapter_eager_split,
    chapter_ends,
    chapter_engine,
    chapter_fast_wp,
    chapter_guest_view,
    chapter_kernel,
    chapter_limits,
    chapter_lockless,
    chapter_migrate_perf,
    chapter_nested,
    chapter_peers,
    chapter_ping_pong,
    chapter_sizes,
)

CHAPTERS = (
    chapter_guest_view.CHAPTER,
    chapter_peers.CHAPTER,
    chapter_ends.CHAPTER,
    chapter_limits.CHAPTER,
    chapter_kernel.CHAPTER,
    chapter_dirty_pages.CHAPTER,
    chapter_migrate_perf.CHAPTER,
    chapter_fast_wp.CHAPTER,
    chapter_ping_pong.CHAPTER,
    chapter_sizes.CHAPTER,
    chapter_eager_split.CHAPTER,
    chapter_lockless.CHAPTER,
    chapter_nested.CHAPTER,
    chapter_engine.CHAPTER,
)
