/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The shared dirty bitmap of two levels: a summary with one bit per group of
 * words of the bitmap.
 *
 * Kernel threads write pages and log them: the page's bit, a full barrier, and
 * the bit of its group in the summary unless it is set.  The user takes groups
 * from the summary, all with one exchange or one at a time, and then exchanges
 * the words of these groups, as often as it likes.  When the writers have
 * stopped, a last harvest has to leave no bit and no page behind.
 *
 * A word has one bit here, as an exchange takes all of a word at once.  Pages
 * are always logged once written, so that a page may be copied with no re-arm:
 * order.pml has that.  The barrier is as good as the locked operation that sets
 * the page's bit, so memory is sequentially consistent; the mutant that looks
 * at the summary first does what a CPU might do without a barrier.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
/* Two words are in the first group, one is in the other. */
#define WORDS       3
#define GROUP_WORDS 2

/* What a run with -DPROBE= must be able to reach. */
#define COPIED          1       /* a page was copied in a round */
#define SET_ALREADY     2       /* the summary needed no bit */
#define NOTHING_THERE   3       /* all of a group had been taken before */
#define LATE_SUMMARY    4       /* a page was taken before its summary bit */
#define LAST_COPY       5       /* something was left for the last harvest */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

bool stale[WORDS];              /* the destination lacks what is in the page */
bool leaf[WORDS];
byte summary;                   /* a bit of each group */

bool stop;
byte running = WRITERS;

#define bit_of(word)    (1 << ((word) / GROUP_WORDS))

proctype writer()
{
    byte w;

    do
    :: stop -> break
    :: atomic {
        !stop ->
        select(w : 0 .. WORDS - 1);
        stale[w] = true
       };
        leaf[w] = true;
        if
        :: atomic { !(summary & bit_of(w)) -> reach(LATE_SUMMARY, !leaf[w]) };
            atomic { summary = summary | bit_of(w); w = 0 }
        :: atomic { summary & bit_of(w) -> reach(SET_ALREADY, true); w = 0 }
        fi
    od;
    running--
}

inline take_summary()
{
    if
    :: atomic { groups = summary; summary = 0 }
    :: atomic { groups = summary & 1; summary = summary & ~1 }
    fi
}

inline take_words()
{
    w = 0;
    do
    :: w < WORDS && (groups & bit_of(w)) ->
        atomic { got = leaf[w]; leaf[w] = false };
        if
        :: atomic {
            got ->
            found = true;
            reach(COPIED, !stop);
            reach(LAST_COPY, stop);
            stale[w] = false
           }
        :: else
        fi;
        w++
    :: w < WORDS && !(groups & bit_of(w)) -> w++
    :: w == WORDS -> break
    od;
    atomic {
        reach(NOTHING_THERE, groups && !found);
        w = 0;
        groups = 0;
        got = false;
        found = false
    }
}

proctype user()
{
    byte w, groups;
    bool got, found;

    do
    :: take_summary();
        take_words()
    :: stop = true;
        break
    od;
    running == 0;
    atomic { groups = summary; summary = 0 };
    take_words();
    atomic {
        for (w : 0 .. WORDS - 1) {
            assert(!leaf[w]);
            assert(!stale[w])
        }
    }
}

init {
    atomic {
        byte n;

        for (n : 1 .. WRITERS) {
            run writer()
        }
        n = 0;
        run user()
    }
}
