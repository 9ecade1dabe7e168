/*
 * A vCPU that writes at one point of what the engine does.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The points are those of fake_kvm.h and of ordering_hook.h, and each call of
 * publish().  A test goes through all of them: it counts up until its vCPU no
 * longer gets to write.
 */

#ifndef RACE_H
#define RACE_H

#include "rig.h"
#include "ordering_hook.h"

static struct {
    Rig *rig;
    void (*write)(Rig *r);
    unsigned left;              /* points until then; 0: never, or done */
} race;

static void race_point(void)
{
    if (race.left && !--race.left) {
        race.write(race.rig);
    }
}

static void race_in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)point, (void)v;
    race_point();
}

static void race_in_publish(Rig *r)
{
    (void)r;
    race_point();
}

/* @write is called at point @n, from 1, of the engine's next work. */
static void race_begin(Rig *r, unsigned n, void (*write)(Rig *r))
{
    race.rig = r;
    race.write = write;
    race.left = n;
    ordering_hook = race_point;
    r->fake->hook = race_in_kvm;
    r->watch = race_in_publish;
}

/* Returns: true if that point was reached. */
static bool race_end(void)
{
    bool reached = !race.left;

    race.left = 0;
    ordering_hook = NULL;
    race.rig->fake->hook = NULL;
    race.rig->watch = NULL;
    return reached;
}

#endif
