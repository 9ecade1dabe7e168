/*
 * Which pages of a block wait, dirty, until the guest stops.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the downtime limit has room for need not be sent before: pages that
 * are written round after round are left dirty, so that they are neither
 * armed nor sent again in vain.  Arming is for a group of pages, and so is
 * waiting.  A group that waits keeps its bits in the PageBitmap; they are what
 * has to be sent of it at the stop.
 *
 * A group is hot if, of the pages that were sent of it in the last round, as
 * many as one in HOT_PART are dirty again.
 *
 * The caller serialises all calls, with each other and with those for the
 * PageBitmap, which has the @max_pages that the HotPages was made with.
 */

#ifndef MIGRATION_HOT_PAGES_H
#define MIGRATION_HOT_PAGES_H

#include "exec/page-bitmap.h"

#define HOT_PART 2
#define HOT_ROUNDS 4

typedef struct HotPages HotPages;

/*
 * hot_pages_new:
 * Returns: what is to be given to hot_pages_free(), for a PageBitmap of
 * @max_pages pages.  No group waits.
 */
HotPages *hot_pages_new(unsigned long max_pages);

/* hot_pages_free: Free @hot, which may be NULL. */
void hot_pages_free(HotPages *hot);

/*
 * hot_pages_end_round:
 * A round is over: what was dirty at the last call has been sent, unless it
 * waited, and @map has what is dirty now.  In the round before the first call
 * all pages were sent.  The block has @pages at present: what @map has beyond
 * them is never sent, and neither waits nor counts.
 *
 * Choose the groups that wait in the next round, so that no more than @budget
 * of their pages are dirty now.  Those that wait already come first, then those
 * that are hot; each waits if it fits into what is left, by ascending address.
 *
 * @refused is set if a hot group did not fit, and otherwise left alone.
 * @crowded is whether that happened in the last round, to any block: then those
 * that have waited for HOT_ROUNDS or more make room, to be sent and looked at
 * anew.
 *
 * Returns: how many pages that wait are dirty now.
 */
unsigned long hot_pages_end_round(HotPages *hot, const PageBitmap *map,
                                  unsigned long pages, unsigned long budget,
                                  bool crowded, bool *refused);

/*
 * hot_pages_next:
 * Returns: the first page from @start on, below @end, that is set in @map and
 * does not wait; @end if there is none.
 */
unsigned long hot_pages_next(const HotPages *hot, const PageBitmap *map,
                             unsigned long end, unsigned long start);

/*
 * hot_pages_waited:
 * Returns: how many pages have waited so far.  A page counts once, in however
 * many rounds it waits, and again if it waits again.
 */
uint64_t hot_pages_waited(const HotPages *hot);

/* hot_pages_release: No group waits any longer. */
void hot_pages_release(HotPages *hot);

#endif
