/*
 * The pages of a block that wait, dirty, until the guest has stopped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pages that are written round after round are left dirty, as far as the
 * downtime limit has room for them, so that they are neither armed nor sent
 * again in vain.  Pages are armed in groups (PAGE_GROUP), so whole groups wait.
 * A group that waits keeps its bits in the PageBitmap; these pages are sent at
 * the stop.
 *
 * A group is hot if at least one in HOT_PART of its pages that were dirty at
 * the end of the last round but one, and were sent in the last, is dirty
 * again.  No group is hot after the first round that sends: that is all pages,
 * written or not, and may take minutes.
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
 * hot_pages_end_pass:
 * No more is sent in this round.  What is set in @map, and does not wait, was
 * not sent, except for the pages in @added, which were sent before they became
 * dirty, or were not dirty when the round began.  @added is NULL if there are
 * none.  To be called before @map is given what was written in the round.
 */
void hot_pages_end_pass(HotPages *hot, const PageBitmap *map,
                        const PageBitmap *added);

/*
 * hot_pages_end_round:
 * A round is over: the pages that were dirty at the last call have been sent,
 * unless they waited or hot_pages_end_pass() has found them, and @map has the
 * pages that are dirty now.  The block has @pages pages at present; bits of
 * @map beyond them are never sent, do not wait and do not count.
 *
 * Choose the groups that wait in the next round, so that no more than @budget
 * of their pages are dirty now.  Groups that wait already are considered first,
 * then hot groups; each waits if it fits into the rest of the budget, by
 * ascending address.
 *
 * @refused is set if a hot group did not fit, and otherwise left unchanged.
 * @crowded tells whether that happened to any block in the last round.  If so,
 * groups that have waited for HOT_ROUNDS or more make room: they are sent, and
 * have to prove hot again.
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
