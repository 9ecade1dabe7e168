# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutants: the engine with one thing wrong, for each invariant.

The texts are those of accel/kvm/dirty; where one of them changes, so does the
mutant here.  The invariants are in docs/design.md.

Left out, since no unit test can tell them from the engine, mostly because they
are as good:

- Acquire and release in ordering.h: x86 orders loads with loads and stores
  with stores whatever they say.  ThreadSanitizer tells (test_stress.c).
- An entry handed back before it is read: KVM takes it back only in a reset,
  and the engine's lock keeps that off.
- No reap before a slot goes, or only after it went: the one after KVM removed
  it finds all the same entries.
- A batch as long as the ring, or a ring that turns out suspect and is searched
  by the next reap only: a false alarm, or a later one, loses no page.
- ring_settle() without a look at ring_lapped(): ring_reap_batch() has the same
  look after it.
- "drained" although a reset failed: all of the ring was searched in vain.
- ring_close_gap() in a ring that is not suspect: what made the gap in that very
  batch is seen by ring_lapped().
- ring_unstick() without full_fetch: what a ring gave since was reset, and a reset
  that did anything clears full_in_vain.
- What makes the engine ask for ever, of a KVM that does nothing: a program that
  does not end has not seen what that does.  It is test_broken.c that does not.
- The end of the bitmap in map_harvest_group(): a bitmap is whole pages, and so
  whole groups, and publish_trim() clears what is behind the slot's end.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In file, old becomes new; one of the programs must then fail."""

    invariant: str
    name: str
    file: str
    tests: tuple[str, ...]  # programs, or program/test, to try in turn
    old: str
    new: str


RING = ("ring", "overflow", "random")
OVERFLOW = ("overflow", "ring", "random")
SLOT = ("slot", "overflow", "random")
PROTECT = ("protect", "random")
DIRTY_BITS = ("dirty_bits", "protect", "random")
SWITCH = ("switch", "random")
LOG = ("log", "slot", "random")
REAPER = ("reaper",)
SPLIT = ("split",)
CONFIG = ("config",)

HARVEST = (
    Mutant(
        "I2",
        "ring: re-arm before the harvest",
        "ring.c",
        RING,
        """\
    bool overflow = ring_collect(r);

    collected = kvmd_now();
    if (!ring_reset(r) || ring_lapped(r)) {
""",
        """\
    bool whole = ring_reset(r);
    bool overflow = ring_collect(r);

    collected = kvmd_now();
    if (!whole || ring_lapped(r)) {
""",
    ),
    Mutant(
        "I2",
        "ring: the CPUs keep what they buffer",
        "engine.c",
        RING,
        "        kvmd->vmm.kick(kvmd->opaque);\n",
        "",
    ),
    Mutant(
        "I2",
        "ring: one batch is all that is harvested",
        "ring.c",
        RING,
        "(r->n || (was_good && !good))",
        "was_good && !good",
    ),
    Mutant(
        "I2",
        "ring: a word goes to the slot of the next",
        "ring.c",
        RING,
        "if (word && (of != slot || page->offset - bit != first)) {",
        "if (word && page->offset - bit != first) {",
    ),
    Mutant(
        "I2",
        "log: cleared without a harvest",
        "log.c",
        LOG,
        "clear[i] = harvested[w0 + i] &\n            log_word_mask(",
        "clear[i] = log_word_mask(",
    ),
    Mutant(
        "I2",
        "log: harvested for ever",
        "log.c",
        LOG,
        "        harvested[w0 + i] &= ~clear[i];\n",
        "",
    ),
    Mutant(
        "I2",
        "log: harvested by an earlier log of the slot",
        "log.c",
        LOG,
        """\
    LogSlot *log = g_new(LogSlot, 1);

    log->harvested = g_new0(uint64_t, \
kvmd_words(kvmd_slot_pages(kvmd, slot)));
    slot->state = log;
}

static void log_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    LogSlot *log = slot->state;

    (void)kvmd;
    g_free(log->harvested);
    g_clear_pointer(&slot->state, g_free);
}
""",
        """\
    LogSlot *log = slot->state;

    if (!log) {
        log = g_new(LogSlot, 1);
        log->harvested =
            g_new0(uint64_t, kvmd_words(kvmd_slot_pages(kvmd, slot)));
        slot->state = log;
    }
}

static void log_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    (void)slot;
}
""",
    ),
    Mutant(
        "I2",
        "log: a harvest that failed is none",
        "harvest.c",
        LOG,
        "    kvmd_publish_whole(kvmd, slot);\n",
        "",
    ),
    Mutant(
        "I2",
        "log: cleared before the range",
        "log.c",
        LOG,
        "    if (base < first) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "I2",
        "log: cleared behind the range",
        "log.c",
        LOG,
        "    if (base + KVMD_WORD_PAGES > first + pages) {\n",
        "    if (false) {\n",
    ),
)

PUBLISH = (
    Mutant(
        "I3",
        "ring: published before the re-arm",
        "ring.c",
        RING,
        """\
    if (!ring_reset(r) || ring_lapped(r)) {
        overflow = true;
        ring_suspect(r);
    }
    armed = kvmd_now();
    overflow = !ring_publish(kvmd, r) || overflow;
""",
        """\
    overflow = !ring_publish(kvmd, r) || overflow;
    if (!ring_reset(r) || ring_lapped(r)) {
        overflow = true;
        ring_suspect(r);
    }
    armed = kvmd_now();
""",
    ),
    Mutant(
        "I3",
        "ring: a vCPU that comes to stop is published unarmed",
        "ring.c",
        RING,
        "    ring_reap(vcpu->kvmd, &r, 1);\n",
        "    ring_collect(r);\n    ring_publish(vcpu->kvmd, r);\n",
    ),
    Mutant(
        "I3",
        "overflow: published before the re-arm",
        "overflow.c",
        OVERFLOW,
        "    ret = overflow_rearm(kvmd);\n",
        "    kvmd_slots_foreach_logged(kvmd, kvmd_publish_whole);\n"
        "    ret = overflow_rearm(kvmd);\n"
        "    return;\n",
    ),
    Mutant(
        "I3",
        "log: a copy does not wait for the re-arm",
        "log.c",
        LOG,
        "    return vm->manual_protect;\n",
        "    return vm->manual_protect && false;\n",
    ),
    Mutant(
        "I3",
        "log: a re-arm that failed is taken for one",
        "log.c",
        LOG,
        """\
    kvmd->stats.rearm_ns += kvmd_now() - start;
    if (ret < 0) {
        return ret;
    }
""",
        "    kvmd->stats.rearm_ns += kvmd_now() - start;\n",
    ),
)

SLOTS = (
    Mutant(
        "I7",
        "log: no harvest before the slot goes",
        "slot-set.c",
        SLOT,
        "        kvmd->ops->sync_slot(kvmd, slot);\n",
        "",
    ),
    Mutant(
        "I7",
        "ring: no reap after KVM removed the slot",
        "slot-set.c",
        SLOT,
        "        slot->gone = true;\n        slot_sync(kvmd, slot);\n",
        "        slot->gone = true;\n",
    ),
    Mutant(
        "I7",
        "ring: the slot is forgotten before the last reap",
        "slot-set.c",
        SLOT,
        "        slot->gone = true;\n",
        "        slot->gone = true;\n"
        "        kvmd_slot_put(kvmd, region->slot, NULL);\n",
    ),
    Mutant(
        "I7",
        "overflow: a slot that is gone comes back",
        "overflow.c",
        ("random/ring", *SLOT),
        "    if (slot->gone) {\n        return 0;\n    }\n",
        "",
    ),
    Mutant(
        "I7",
        "slot: forgotten although KVM kept it",
        "slot-set.c",
        SLOT,
        """\
    ret = kvmd_slot_region_set(kvmd, region);
    if (ret < 0) {
        return ret;
    }
    if (kvmd->ops->outlives_slot) {
""",
        """\
    ret = kvmd_slot_region_set(kvmd, region);
    if (kvmd->ops->outlives_slot) {
""",
    ),
    Mutant(
        "I7",
        "slot: published at its last tag",
        "slot-set.c",
        SLOT,
        "    slot->tag = tag;\n",
        "    slot->tag = tag ? tag - 1 : 0;\n",
    ),
)

SEEN = (
    Mutant(
        "I8",
        "no overflow is seen",
        "ring.c",
        OVERFLOW,
        """\
    return r->fetch - r->batch_reset == size ||
           ring_is_dirty(r, r->batch_reset + size - 1);
""",
        "    return false;\n",
    ),
    Mutant(
        "I8",
        "a filled last entry is not seen",
        "ring.c",
        OVERFLOW,
        " ||\n           ring_is_dirty(r, r->batch_reset + size - 1);\n",
        ";\n",
    ),
    Mutant(
        "I8",
        "a collected last entry is not seen",
        "ring.c",
        ("overflow/drained-and-filled-to-the-end", *OVERFLOW),
        "    return r->fetch - r->batch_reset == size ||\n           ring_is_dirty",
        "    return ring_is_dirty",
    ),
    Mutant(
        "I8",
        "the last look is at the last entry but one",
        "ring.c",
        OVERFLOW,
        "ring_is_dirty(r, r->batch_reset + size - 1)",
        "ring_is_dirty(r, r->batch_reset + size - 2)",
    ),
    Mutant(
        "I8",
        "the last look is at the entry of this batch",
        "ring.c",
        OVERFLOW,
        "ring_is_dirty(r, r->batch_reset + size - 1)",
        "ring_is_dirty(r, r->reset + size - 1)",
    ),
    Mutant(
        "I8",
        "the last look comes before the reset",
        "ring.c",
        ("overflow/overtaken-in-reset-flags", *OVERFLOW),
        """\
    collected = kvmd_now();
    if (!ring_reset(r) || ring_lapped(r)) {
""",
        """\
    bool lap = ring_lapped(r);

    collected = kvmd_now();
    if (!ring_reset(r) || lap) {
""",
    ),
    Mutant(
        "I8",
        "a short reset is none",
        "ring.c",
        RING,
        "        }\n    }\n    return whole;\n",
        "        }\n    }\n    return true;\n",
    ),
    Mutant(
        "I8",
        "a failed reset is none",
        "ring.c",
        RING,
        "            ring_warn_of_reset(r->kvmd, -ret);\n"
        "            return false;\n",
        "            ring_warn_of_reset(r->kvmd, -ret);\n"
        "            return true;\n",
    ),
    Mutant(
        "I8",
        "an entry names a page past the end of its slot",
        "ring.c",
        ("random/overflow", *OVERFLOW),
        "if (!of || page->offset >= kvmd_slot_pages(kvmd, of)) {",
        "if (!of) {",
    ),
)

ANSWERED = (
    Mutant(
        "I8",
        "nothing is re-armed",
        "overflow.c",
        OVERFLOW,
        "    ret = overflow_rearm(kvmd);\n",
        "    ret = 0;\n",
    ),
    Mutant(
        "I8",
        "nothing is published",
        "overflow.c",
        OVERFLOW,
        "    kvmd_slots_foreach_logged(kvmd, kvmd_publish_whole);\n",
        "",
    ),
    Mutant(
        "I8",
        "it is not counted",
        "overflow.c",
        OVERFLOW,
        "    kvmd->stats.overflows++;\n",
        "",
    ),
    Mutant(
        "I8",
        "what is published without evidence is not counted",
        "publish.c",
        (*LOG, *PROTECT),
        "    kvmd->guesses++;\n",
        "",
    ),
    Mutant(
        "I8",
        "only overflows count as published without evidence",
        "engine.c",
        LOG,
        "    guesses = kvmd->guesses;\n",
        "    guesses = kvmd->stats.overflows;\n",
    ),
    Mutant(
        "I8",
        "nobody is told of it",
        "overflow.c",
        OVERFLOW,
        "        kvmd->vmm.overflowed(kvmd->opaque);\n",
        "        return;\n",
    ),
    Mutant(
        "I8",
        "one that is under way is not waited for",
        "engine.c",
        ("overflow/counted-when-whole", *OVERFLOW),
        """\
    g_mutex_lock(&kvmd->lock);
    guesses = kvmd->guesses;
    g_mutex_unlock(&kvmd->lock);
""",
        "    guesses = kvmd->guesses;\n",
    ),
    Mutant(
        "I8",
        "logging does not go on",
        "overflow.c",
        OVERFLOW,
        "ret < 0 ? ret : kvmd_slot_log_flag(kvmd, slot, true);\n",
        "ret;\n",
    ),
    Mutant(
        "I8",
        "a re-arm that failed is forgotten",
        "overflow.c",
        ("overflow/protect-fails", *OVERFLOW),
        "    *unarmed = ret < 0;\n",
        "",
    ),
    Mutant(
        "I8",
        "a slot's first chunk is all that is published",
        "publish.c",
        ("overflow/large-slot", *OVERFLOW),
        "    while (first < end) {\n",
        "    if (first < end) {\n",
    ),
    Mutant(
        "I8",
        "pages past the end of a slot are published",
        "publish.c",
        OVERFLOW,
        "        if (tail) {\n",
        "        if (false) {\n",
    ),
)

SUSPECT = (
    Mutant(
        "I8",
        "no ring is suspect",
        "ring.c",
        OVERFLOW,
        "    r->suspect = true;\n",
        "    r->suspect = false;\n",
    ),
    Mutant(
        "I8",
        "what was drained once stays so",
        "ring.c",
        ("random/overflow", *OVERFLOW),
        "    r->suspect = true;\n    r->drained = false;\n",
        "    r->suspect = true;\n",
    ),
    Mutant(
        "I8",
        "a ring is above suspicion before it is drained",
        "ring.c",
        ("random/overflow", *OVERFLOW),
        "    } else if (r->drained && !ring_lapped(r)) {\n",
        "    } else if (!ring_lapped(r)) {\n",
    ),
    Mutant(
        "I8",
        "a ring is above suspicion once it is found empty",
        "ring.c",
        OVERFLOW,
        "        r->drained = r->fetch == r->reset;\n",
        "        r->suspect = false;\n",
    ),
    Mutant(
        "I8",
        "what a suspect ring has is no overflow",
        "ring.c",
        ("overflow/ahead-by-a-lap", *OVERFLOW),
        "    return strange || (found && !known);\n",
        "    return strange;\n",
    ),
    Mutant(
        "I8",
        "a gap is not closed",
        "ring.c",
        OVERFLOW,
        "        } else if (r->suspect && ring_close_gap(r)) {\n",
        "        } else if (false) {\n",
    ),
    Mutant(
        "I8",
        "a gap is closed without a second look",
        "ring.c",
        ("overflow/searched-while-filled", *OVERFLOW),
        "    ring_pass_over(r, ring_clean_run(r, r->fetch, r->fetch + n));\n",
        "    ring_pass_over(r, n);\n",
    ),
    Mutant(
        "I8",
        "a gap is closed with the names it had",
        "ring.c",
        ("overflow/gap-names-no-page", *OVERFLOW),
        "        gfn_name_no_page(gfn);\n",
        "",
    ),
)

STUCK = (
    Mutant(
        "I8",
        "a stuck vCPU stays so",
        "ring.c",
        OVERFLOW,
        "        ring_unstick(vcpu->kvmd, r);\n",
        "",
    ),
    Mutant(
        "I8",
        "reset passes dirty",
        "ring.c",
        OVERFLOW,
        "        ring_pass_over(r, ring_soft_limit_min(kvmd->ring_size));\n",
        "        ring_pass_over(r, kvmd->ring_size);\n",
    ),
    Mutant(
        "I8",
        "reset passes dirty if the CPU logs by itself",
        "ring.c",
        ("overflow/unstick-with-pml", *OVERFLOW),
        "#define RESERVE_MAX (64 + 512)\n",
        "#define RESERVE_MAX 64\n",
    ),
    Mutant(
        "I8",
        "a vCPU is stuck the first time",
        "ring.c",
        ("ring/reset-fails-when-all-collected", *OVERFLOW),
        "    if (!r->full_in_vain || r->full_fetch != r->fetch) {\n",
        "    if (r->full_fetch != r->fetch) {\n",
    ),
    Mutant(
        "I8",
        "a vCPU is stuck although KVM did reset",
        "ring.c",
        ("ring/reset-fails-when-all-collected", *OVERFLOW),
        "        r->full_in_vain = r->full_in_vain && !ret;\n",
        "",
    ),
    Mutant(
        "I8",
        "a vCPU gets unstuck in a ring that is not suspect",
        "ring.c",
        ("random/overflow", *OVERFLOW),
        "    if (!r->suspect) {\n        ring_suspect(r);\n",
        "    if (!r->suspect) {\n",
    ),
)

SHORT_RESETS = (
    Mutant(
        "I8",
        "what a short reset left stops the next harvest",
        "ring.c",
        ("random/overflow-failures", *RING),
        """\
            strange = strange || !r->suspect;
            r->fetch++;
""",
        "            break;\n",
    ),
    Mutant(
        "I8",
        "an entry filled before its time is not collected",
        "ring.c",
        ("overflow/overtaken-in-collect", *OVERFLOW),
        "        if (!ret && ring_is_dirty(r, r->reset)) {\n",
        "        if (false) {\n",
    ),
    Mutant(
        "I8",
        "a signal stops a reset",
        "ring.c",
        RING,
        "    pthread_sigmask(SIG_BLOCK, &all, &old);\n",
        "    pthread_sigmask(SIG_BLOCK, NULL, &old);\n",
    ),
)

PROTECT_ORDER = (
    Mutant(
        "I2",
        "protect: a harvest is published but for its last word",
        "publish.c",
        PROTECT,
        "    kvmd_publish(kvmd, slot, first, words, n);\n",
        "    kvmd_publish(kvmd, slot, first, words, n - 1);\n",
    ),
    Mutant(
        "I3",
        "protect: nobody remembers what a harvest left un-armed",
        "region.c",
        PROTECT,
        "        if (words[i]) {\n",
        "        if (0) {\n",
    ),
    Mutant(
        "I3",
        "protect: a word is in one region",
        "region.c",
        ("protect/shared/unaligned", *PROTECT),
        "    uint64_t last = region_of(kvmd, slot, first + pages - 1);\n",
        "    uint64_t last = region_of(kvmd, slot, first);\n"
        "    (void)pages;\n",
    ),
    Mutant(
        "I3",
        "protect: regions are counted from where the slot begins",
        "region.c",
        ("protect/shared/unaligned", *PROTECT),
        "    return (gpa + page * kvmd->page_size) / REGION_SIZE - "
        "gpa / REGION_SIZE;\n",
        "    return page * kvmd->page_size / REGION_SIZE;\n",
    ),
    Mutant(
        "I3",
        "protect: the last region of a range is not re-armed",
        "region.c",
        PROTECT,
        "        region_of(kvmd, slot, first + pages - 1) + 1);\n",
        "        region_of(kvmd, slot, first + pages - 1));\n",
    ),
    Mutant(
        "I3",
        "protect: the regions behind an armed one are not re-armed",
        "region.c",
        PROTECT,
        "    while (ret >= 0 &&\n"
        "           (region = region_find(slot, region, end, true)) < end) {\n",
        "    if ((region = region_find(slot, region, end, true)) < end) {\n",
    ),
    Mutant(
        "I3",
        "protect: a region is taken for its neighbour",
        "region.c",
        PROTECT,
        "        .gpa = (base + region) * REGION_SIZE,\n",
        "        .gpa = (base + region + 1) * REGION_SIZE,\n",
    ),
    Mutant(
        "I3",
        "protect: of regions that follow each other one is re-armed",
        "region.c",
        PROTECT,
        "        .size = (end - region) * REGION_SIZE,\n",
        "        .size = REGION_SIZE,\n",
    ),
    Mutant(
        "I3",
        "overflow: with one ioctl for it, nothing is re-armed",
        "overflow.c",
        ("overflow/protect-all", "random"),
        "        kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_ALL_MEM, NULL) :",
        "        0 :",
    ),
)

PROTECT_FAILS = (
    Mutant(
        "I3",
        "protect: a re-arm that failed is taken for one",
        "region.c",
        ("protect/shared/rearm-fails", *PROTECT),
        "    for (; ret >= 0 && region < end; region++) {\n",
        "    for (; region < end; region++) {\n",
    ),
    Mutant(
        "I3",
        "protect: nobody hears of a re-arm that failed",
        "region.c",
        ("protect/shared/rearm-fails", *PROTECT),
        "        kvmd_publish_range(kvmd, slot, first, pages);\n"
        "    }\n"
        "    return ret;\n",
        "    }\n"
        "    return ret;\n",
    ),
    Mutant(
        "I3",
        "protect: the next re-arm that succeeds makes good for one that failed",
        "region.c",
        ("protect/shared/rearm-fails", *PROTECT),
        "    while (ret >= 0 &&\n           (region",
        "    while ((region",
    ),
    Mutant(
        "I2",
        "protect: a harvest that failed found nothing",
        "harvest.c",
        ("protect/wrprot/harvest-fails", *PROTECT),
        "        harvest_failed(kvmd, slot, ret);\n",
        "",
    ),
    Mutant(
        "I3",
        "protect: what a harvest that failed may have found is armed",
        "region.c",
        ("protect/wrprot/harvest-fails", *PROTECT),
        "        regions_leave(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot));\n",
        "        (void)0;\n",
    ),
)

SHARED = (
    Mutant(
        "I2",
        "shared: the summary is cleared after its words are taken",
        "map.c",
        ("protect/shared/written-meanwhile", *PROTECT),
        """\
        uint64_t bits = GUINT64_FROM_LE(bitmap_take(&map->summary[i]));

        for (; bits; bits &= bits - 1) {
            map_harvest_group(kvmd, slot, map,
                              i * KVMD_WORD_PAGES + __builtin_ctzll(bits),
                              found);
        }
""",
        """\
        uint64_t bits = GUINT64_FROM_LE(map->summary[i]);

        for (; bits; bits &= bits - 1) {
            map_harvest_group(kvmd, slot, map,
                              i * KVMD_WORD_PAGES + __builtin_ctzll(bits),
                              found);
        }
        bitmap_take(&map->summary[i]);
""",
    ),
    Mutant(
        "I2",
        "shared: a word is read and then cleared",
        "map.c",
        ("protect/shared/written-meanwhile", *PROTECT),
        "bitmap_take(&map->bitmap[first + i]);\n",
        "map->bitmap[first + i];\n"
        "        bitmap_take(&map->bitmap[first + i]);\n",
    ),
    Mutant(
        "I2",
        "shared: the first word of a group is all that is taken",
        "map.c",
        PROTECT,
        "    found(kvmd, slot, first * KVMD_WORD_PAGES, words, n);\n",
        "    found(kvmd, slot, first * KVMD_WORD_PAGES, words, 1);\n",
    ),
    Mutant(
        "I2",
        "shared: the last word of the summary is not looked at",
        "map.c",
        ("protect/shared/sizes", *PROTECT),
        "    for (; i <= last / KVMD_WORD_PAGES; i++) {\n",
        "    for (; i < last / KVMD_WORD_PAGES; i++) {\n",
    ),
    Mutant(
        "I2",
        "shared: what cannot be mapped is not harvested",
        "map.c",
        ("protect/shared/no-mapping", *PROTECT),
        "        return slot->gone ? 0 : kvmd_fetch(kvmd, slot, found);\n",
        "        return 0;\n",
    ),
    Mutant(
        "I7",
        "shared: a slot that is gone is copied",
        "map.c",
        ("protect/shared/no-mapping", *PROTECT),
        "        return slot->gone ? 0 : kvmd_fetch(kvmd, slot, found);\n",
        "        return kvmd_fetch(kvmd, slot, found);\n",
    ),
    Mutant(
        "I7",
        "shared: no harvest after KVM removed the slot",
        "shared.c",
        ("protect/shared/written-while-removed", *PROTECT),
        "    .outlives_slot = true,\n",
        "",
    ),
)

COLLECTED = (
    Mutant(
        "I2",
        "dirty-bits: a slot is harvested before the collect",
        "dirty-bits.c",
        DIRTY_BITS,
        """\
    int ret = dirty_bits_collect(kvmd, slot->region.guest_phys_addr +
                                 first * kvmd->page_size,
                                 pages * kvmd->page_size);

    return ret < 0 ? ret : dirty_bits_take(kvmd, slot, first, pages);
""",
        """\
    int ret = dirty_bits_take(kvmd, slot, first, pages);

    return ret < 0 ? ret : dirty_bits_collect(kvmd, slot->region.guest_phys_addr +
                      first * kvmd->page_size, pages * kvmd->page_size);
""",
    ),
    Mutant(
        "I2",
        "dirty-bits: all is harvested before the collect",
        "dirty-bits.c",
        DIRTY_BITS,
        """\
    int ret = dirty_bits_collect(kvmd, 0, ALL_MEMORY);

    kvmd->stats.harvest_ns += kvmd_now() - start;
    return kvmd_slots_foreach_logged(kvmd, ret < 0 ? dirty_bits_sync_slot :
                                     dirty_bits_sync_collected);
""",
        """\
    int ret = kvmd_slots_foreach_logged(kvmd, dirty_bits_sync_collected);

    (void)start;
    dirty_bits_collect(kvmd, 0, ALL_MEMORY);
    return ret;
""",
    ),
    Mutant(
        "I2",
        "dirty-bits: a sync collects nothing",
        "dirty-bits.c",
        DIRTY_BITS,
        "    int ret = dirty_bits_collect(kvmd, 0, ALL_MEMORY);\n",
        "    int ret = 0;\n",
    ),
    Mutant(
        "I2",
        "dirty-bits: a sync collects what is below 4 GiB",
        "dirty-bits.c",
        DIRTY_BITS,
        "#define ALL_MEMORY (UINT64_C(1) << 52)\n",
        "#define ALL_MEMORY (UINT64_C(1) << 32)\n",
    ),
    Mutant(
        "I2",
        "dirty-bits: a range begins where its slot does",
        "dirty-bits.c",
        DIRTY_BITS,
        "                                 first * kvmd->page_size,\n",
        "                                 0,\n",
    ),
    Mutant(
        "I2",
        "dirty-bits: a sync that could not collect goes on",
        "dirty-bits.c",
        DIRTY_BITS,
        "ret < 0 ? dirty_bits_sync_slot :\n"
        "                                     dirty_bits_sync_collected);\n",
        "dirty_bits_sync_collected);\n    (void)ret;\n",
    ),
    Mutant(
        "I2",
        "dirty-bits: a slot that could not be collected is harvested",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return ret < 0 ? ret : dirty_bits_take(",
        "    return dirty_bits_take(",
    ),
    Mutant(
        "I3",
        "dirty-bits: a clear that failed publishes what nobody wrote",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);\n",
        """\
    int ret = kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);

    if (ret < 0) {
        kvmd_publish_range(kvmd, slot, first, pages);
    }
    return ret;
""",
    ),
    Mutant(
        "I2",
        "dirty-bits: who waits for faults may have such a guest",
        "choice.c",
        SWITCH,
        "    if (kvmd_cap_enabled(kvmd, KVMD_CAP_DIRTY_BITS) && "
        "!ops->sees_dirty_bits) {\n",
        "    if (0) {\n",
    ),
    Mutant(
        "I7",
        "dirty-bits: no harvest after KVM removed the slot",
        "dirty-bits.c",
        ("protect/dirty-bits/written-while-removed", *PROTECT),
        "    .outlives_slot = true,\n",
        "",
    ),
)

SWITCHED = (
    Mutant(
        "I2",
        "switch: what was written while nobody logged is not published",
        "slot-set.c",
        SWITCH,
        "    return kvmd_publish_whole(kvmd, slot);\n",
        "    return 0;\n",
    ),
    Mutant(
        "I3",
        "switch: published before the slot is logged",
        "slot-set.c",
        SWITCH,
        """\
    slot_start(kvmd, slot);
    kvmd_slot_log_flag(kvmd, slot, true);
    slot_started(kvmd, slot);
    return kvmd_publish_whole(kvmd, slot);
""",
        """\
    kvmd_publish_whole(kvmd, slot);
    slot_start(kvmd, slot);
    kvmd_slot_log_flag(kvmd, slot, true);
    slot_started(kvmd, slot);
    return 0;
""",
    ),
    Mutant(
        "I3",
        "switch: what a harvest left stays un-armed",
        "slot-set.c",
        ("switch/log-flag-stays", *SWITCH),
        "    return kvmd_leaves_unarmed(kvmd) ?\n",
        "    return false ?\n",
    ),
    Mutant(
        "I3",
        "switch: it goes on although a slot cannot be re-armed",
        "engine.c",
        ("switch/cannot-rearm",),
        "    ret = kvmd_slots_rearm(kvmd);\n    if (ret < 0) {\n",
        "    ret = kvmd_slots_rearm(kvmd);\n    if (false) {\n",
    ),
    Mutant(
        "I3",
        "switch: the old mechanism does not end",
        "engine.c",
        SWITCH,
        """\
        engine_leave(kvmd);
        engine_use(kvmd, mechanism);
""",
        "        engine_use(kvmd, mechanism);\n",
    ),
    Mutant(
        "switch",
        "switch: what it was chosen for stays",
        "choice.c",
        SWITCH,
        "        kvmd->choice = by_name;\n",
        "",
    ),
    Mutant(
        "switch",
        "switch: KVM refuses what it would have given at the start",
        "capability.c",
        SWITCH,
        "ret == -EBUSY ? KVMD_ERROR_STARTED : KVMD_ERROR_REFUSED,\n",
        "KVMD_ERROR_REFUSED,\n",
    ),
    Mutant(
        "switch",
        "switch: the host lacks what this guest cannot have",
        "choice.c",
        SWITCH,
        """\
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_STARTED,
                    "dirty-tracking""",
        """\
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking""",
    ),
)

# Nothing is lost, but what is paid for is not had.
COST = (
    Mutant(
        "cost",
        "ring: nothing is done ahead of a sync",
        "engine.c",
        RING,
        "        kvmd->ops->sync_ahead(kvmd);\n",
        "",
    ),
    Mutant(
        "cost",
        "ring: what is done ahead of a sync has the vCPUs leave",
        "engine.c",
        RING,
        "    g_mutex_lock(&kvmd->lock);\n    if (kvmd->ops->sync_ahead)",
        "    engine_lock_for_harvest(kvmd);\n    if (kvmd->ops->sync_ahead)",
    ),
    Mutant(
        "cost",
        "protect: a region is re-armed each time",
        "region.c",
        PROTECT,
        "        *region_word(slot, region) &= ~region_bit(region);\n",
        "        (void)region_word(slot, region);\n",
    ),
    Mutant(
        "cost",
        "protect: what is armed is re-armed too",
        "region.c",
        PROTECT,
        "(region = region_find(slot, region, end, true)) < end",
        "region < end",
    ),
    Mutant(
        "cost",
        "protect: each region is re-armed by itself",
        "region.c",
        PROTECT,
        "        uint64_t armed = region_find(slot, region, end, false);\n",
        "        uint64_t armed = region + 1;\n",
    ),
    Mutant(
        "cost",
        "protect: a harvest leaves all of a slot un-armed",
        "region.c",
        PROTECT,
        "            regions_leave(kvmd, slot, page,\n"
        "                          MIN(KVMD_WORD_PAGES,\n"
        "                              kvmd_slot_pages(kvmd, slot) - page));\n",
        "            regions_leave(kvmd, slot, page * 0,\n"
        "                          kvmd_slot_pages(kvmd, slot));\n",
    ),
    Mutant(
        "cost",
        "wrprot: KVM re-arms what it copies",
        "fetch.c",
        PROTECT,
        "        .padding1 = KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,\n",
        "",
    ),
    Mutant(
        "cost",
        "shared: the summary is not cleared",
        "map.c",
        ("protect/shared/looks", *PROTECT),
        "bitmap_take(&map->summary[i])",
        "map->summary[i]",
    ),
    Mutant(
        "cost",
        "shared: a bitmap stays mapped",
        "map.c",
        ("protect/shared/nothing-left-open", *PROTECT),
        "        munmap(map->base, map->size);\n",
        "",
    ),
    Mutant(
        "cost",
        "shared: the file of a bitmap stays open",
        "map.c",
        ("protect/shared/nothing-left-open", *PROTECT),
        "    close(fd);\n",
        "",
    ),
)

JUST_IN_TIME = (
    Mutant(
        "cost",
        "dirty-bits: what was written since the sync waits for the next",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);\n",
        "    return 0;\n",
    ),
    Mutant(
        "cost",
        "dirty-bits: a clear does not collect",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);\n",
        "    return kvmd_harvest_range(kvmd, slot, first, pages,\n"
        "                              dirty_bits_take);\n",
    ),
    Mutant(
        "cost",
        "dirty-bits: a clear does not harvest",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);\n",
        "    return dirty_bits_collect(kvmd, slot->region.guest_phys_addr +\n"
        "                   first * kvmd->page_size, pages * kvmd->page_size);\n",
    ),
    Mutant(
        "cost",
        "dirty-bits: a clear collects all of the slot",
        "dirty-bits.c",
        DIRTY_BITS,
        "    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);\n",
        "    return kvmd_harvest_range(kvmd, slot, 0,\n"
        "                              kvmd_slot_pages(kvmd, slot), dirty_bits_harvest);\n",
    ),
    Mutant(
        "cost",
        "dirty-bits: nobody knows that a clear publishes",
        "dirty-bits.c",
        DIRTY_BITS,
        "    .clear_publishes = true,\n",
        "",
    ),
    Mutant(
        "cost",
        "dirty-bits: a sync collects each slot by itself",
        "dirty-bits.c",
        DIRTY_BITS,
        "ret < 0 ? dirty_bits_sync_slot :\n"
        "                                     dirty_bits_sync_collected);\n",
        "dirty_bits_sync_slot);\n    (void)ret;\n",
    ),
    Mutant(
        "cost",
        "dirty-bits: memory is collected for each address space",
        "dirty-bits.c",
        DIRTY_BITS,
        "kvmd_slot_space(slot) != 0 || ",
        "",
    ),
    Mutant(
        "cost",
        "dirty-bits: a bitmap is copied for each chunk",
        "dirty-bits.c",
        DIRTY_BITS,
        " || !map->base",
        "",
    ),
)

PACE = (
    Mutant(
        "reaper",
        "it does not keep off",
        "reaper.c",
        REAPER,
        "    return kvmd->vmm.reaper_held &&"
        " kvmd->vmm.reaper_held(kvmd->opaque);\n",
        "    return false;\n",
    ),
    Mutant(
        "reaper",
        "it reaps whenever it looks",
        "reaper.c",
        REAPER,
        "    double least = next < INTERVAL_MIN ? 0 : REAP_FILL;\n",
        "    double least = 0;\n",
    ),
    Mutant(
        "reaper",
        "it reaps the others' rings with a full one",
        "ring.c",
        REAPER,
        "r->waiting >= least * ring_soft_limit_min(kvmd->ring_size)",
        "r->waiting >= least * 0",
    ),
    Mutant(
        "reaper",
        "a ring that is too fast is not reaped early",
        "reaper.c",
        REAPER,
        "next < INTERVAL_MIN ? 0 : REAP_FILL",
        "REAP_FILL",
    ),
    Mutant(
        "reaper",
        "what a sync took does not count",
        "ring.c",
        REAPER,
        "(int32_t)(dirty - r->seen)",
        "(int32_t)r->waiting",
    ),
    Mutant(
        "reaper",
        "what is free does not count",
        "reaper.c",
        REAPER,
        "elapsed * LOOK_FILL * (1 - most) / grown",
        "elapsed * LOOK_FILL / grown",
    ),
    Mutant(
        "reaper",
        "what was there before logging began counts",
        "reaper.c",
        REAPER,
        "    kvmd->ops->look(kvmd);\n    reaper_set_interval",
        "    reaper_set_interval",
    ),
    Mutant(
        "reaper",
        "it waits for a ring that overflowed to fill",
        "ring.c",
        REAPER,
        "    if (r->suspect || vm->unarmed) {\n        return",
        "    if (vm->unarmed) {\n        return",
    ),
    Mutant(
        "reaper",
        "memory that is not re-armed waits for the next sync",
        "ring.c",
        REAPER,
        "    if (r->suspect || vm->unarmed) {\n        return",
        "    if (r->suspect) {\n        return",
    ),
)

AHEAD = (
    Mutant(
        "split",
        "auto does not look whether the guest splits",
        "split.c",
        SPLIT,
        "        if (after < before) {\n",
        "        if (after <= before) {\n",
    ),
    Mutant(
        "split",
        "auto goes on for ever once the guest has split a page",
        "split.c",
        SPLIT,
        "            left -= MIN(left, kvmd->stats.split_done - done);\n",
        "            (void)done;\n",
    ),
    Mutant(
        "split",
        "auto watches a guest that has nothing huge",
        "split.c",
        SPLIT,
        "        if (!after) {\n",
        "        if (false) {\n",
    ),
    Mutant(
        "split",
        "it goes on after it was stopped",
        "split.c",
        SPLIT,
        "        while (range->size && kvmd->stats.split_active) {\n",
        "        while (range->size) {\n",
    ),
    Mutant(
        "split",
        "KVM goes on splitting by itself",
        "split.c",
        SPLIT,
        "        .args = { KVM_EAGER_PAGE_SPLIT_OFF, size },\n",
        "        .args = { KVM_EAGER_PAGE_SPLIT_DEFAULT, size },\n",
    ),
    Mutant(
        "split",
        "a failure is tried again for ever",
        "split.c",
        SPLIT,
        "        kvmd->stats.split_active = false;\n        return;\n",
        "        return;\n",
    ),
)

HOST = (
    Mutant(
        "host",
        "what the VMM starts has KVM's statistics",
        "vm_stats.c",
        CONFIG,
        "    fcntl(fd, F_SETFD, FD_CLOEXEC);\n",
        "",
    ),
    Mutant(
        "host",
        "each harvest that fails is told",
        "harvest.c",
        LOG,
        "    slot->failure_told = true;\n",
        "",
    ),
    Mutant(
        "host",
        "one harvest of a slot that fails is told, and no more",
        "engine.c",
        LOG,
        "    slot->failure_told = false;\n",
        "    (void)slot;\n",
    ),
    Mutant(
        "host",
        "a ring size alone is refused where there are no rings",
        "choice.c",
        CONFIG,
        "        mechanism = choice_ring_if_any(kvmd);\n",
        "        mechanism = KVMD_RING;\n",
    ),
    Mutant(
        "host",
        "a ring that there is not has a size",
        "choice.c",
        CONFIG,
        "    kvmd->ring_size = 0;\n    return KVMD_AUTO;\n",
        "    return KVMD_AUTO;\n",
    ),
    Mutant(
        "host",
        "EAGAIN is asked again, for as long as it takes",
        "vm.c",
        LOG,
        "while (ret == -EINTR && tries++ < INTERRUPTIONS_MAX);\n",
        "while (ret == -EINTR || ret == -EAGAIN);\n",
    ),
)

BROKEN = (
    Mutant(
        "I8",
        "an entry that names no page is left out",
        "ring.c",
        ("broken/names-no-page",),
        "            known = false;\n",
        "",
    ),
    Mutant(
        "I8",
        "an entry that KVM handed back is taken for collected",
        "ring.c",
        ("broken/handed-back",),
        "            strange = strange || !r->suspect;\n",
        "",
    ),
    Mutant(
        "I8",
        "a reset of more than was collected is as good",
        "ring.c",
        ("broken/reset-miscounts",),
        "        whole = whole && (uint32_t)ret == left && ring_reset_has_come(r);\n",
        "        whole = whole && (uint32_t)ret >= left && ring_reset_has_come(r);\n",
    ),
    Mutant(
        "I8",
        "a reset that did nothing is as good",
        "ring.c",
        ("broken/reset-does-nothing",),
        " && ring_reset_has_come(r);\n",
        ";\n",
    ),
    Mutant(
        "I8",
        "fetch follows whatever KVM says that it has reset",
        "ring.c",
        ("broken/reset-miscounts",),
        "        r->reset += MIN((uint32_t)ret, left);\n",
        "        r->reset += ret;\n        r->fetch = MAX(r->fetch, r->reset);\n",
    ),
    Mutant(
        "I8",
        "what KVM has reset, and says that it has not, is waited for",
        "ring.c",
        ("broken/reset-fails-late", "broken/reset-miscounts"),
        "            ring_follow_reset(r);\n",
        "",
    ),
    Mutant(
        "I8",
        "a vCPU is unstuck while KVM has entries to reset",
        "ring.c",
        ("broken/reset-miscounts",),
        "    } else if (ring_nothing_to_reset(kvmd)) {\n",
        "    } else {\n",
    ),
    Mutant(
        "host",
        "a ring of no power of two",
        "ring.c",
        ("broken/ring-sizes",),
        "    return entries ? UINT32_C(1) << (31 - __builtin_clz(entries)) : 0;\n",
        "    return entries;\n",
    ),
    Mutant(
        "I9",
        "pages behind the slot's end are published",
        "publish.c",
        ("broken/behind-the-end",),
        "    publish_trim(kvmd, slot, first, words, n);\n",
        "",
    ),
    Mutant(
        "I9",
        "shared: groups behind the slot's end are harvested",
        "map.c",
        ("broken/behind-the-end",),
        "    if (group >= map_groups(kvmd, slot)) {\n",
        "    if (false) {\n",
    ),
    Mutant(
        "I9",
        "shared: the bitmap is where KVM says, in the file or not",
        "map.c",
        ("broken/map-too-small",),
        "        !map_fits(kvmd_slot_pages(kvmd, slot), args->bitmap_offset, size) ||\n",
        "",
    ),
    Mutant(
        "host",
        "a success that is not 0 re-arms no more",
        "region.c",
        ("broken/more-than-success",),
        "    while (ret >= 0 &&\n           (region =",
        "    while (ret == 0 &&\n           (region =",
    ),
)

MUTANTS = (
    HARVEST
    + PUBLISH
    + SLOTS
    + SEEN
    + ANSWERED
    + SUSPECT
    + STUCK
    + SHORT_RESETS
    + PROTECT_ORDER
    + PROTECT_FAILS
    + SHARED
    + COLLECTED
    + BROKEN
    + SWITCHED
    + COST
    + JUST_IN_TIME
    + PACE
    + AHEAD
    + HOST
)
