// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "arguments.h"

static const uint64_t page_edges[] = {
	0, 1, 63, 64, 65, 100, 300, 511, 512, 513, 576, 700, 1023, 1024, 1025,
	1500, 1536, 2047,
};

/* Where slots lie: apart only if the offsets say so. */
static uint64_t any_window(struct rng *rng)
{
	const uint64_t windows[] = {
		0, 0, 0, 0, GIB - 4 * MIB, 4 * GIB - 2 * MIB, 6 * GIB,
		MAPPED_BY_ONE - 4 * MIB, top_gpa - 8 * MIB,
		top_gpa - BACKING_SIZE,
	};

	return rng_pick(rng, windows);
}

uint64_t any_gpa(struct rng *rng)
{
	return any_window(rng) +
	       (rng_once_in(rng, 2) ? 0 : rng_pick(rng, page_edges) * PAGE);
}

uint64_t without_still(uint64_t gpa, uint64_t npages)
{
	bool hits = gpa < STILL_GPA + STILL_PAGES * PAGE &&
		    gpa + npages * PAGE > STILL_GPA;

	return hits ? 0 : gpa;
}

uint64_t any_npages(struct rng *rng)
{
	/* Larger than what backs it, so that its bitmap has a few MiB. */
	if (rng_once_in(rng, 100))
		return rng_below(rng, 1UL << 24) + 1;
	if (rng_once_in(rng, 4))
		return rng_below(rng, BACKING_PAGES) + 1;
	if (rng_once_in(rng, 3))
		return BACKING_PAGES;
	return rng_pick(rng, page_edges) + 1;
}

uint64_t any_hva(struct rng *rng)
{
	if (rng_once_in(rng, 30))
		return bitmap_base(rng_below(rng, NR_BITMAPS));
	return backing_base(rng_below(rng, NR_BACKINGS)) +
	       (rng_once_in(rng, 2) ? 0 : rng_pick(rng, page_edges) * PAGE);
}

uint64_t any_hva_for(struct rng *rng, uint64_t gpa)
{
	static const enum backing huge[] = { BACKING_THP, BACKING_HUGETLB };

	if (rng_once_in(rng, 2))
		return any_hva(rng);
	return backing_base(rng_pick(rng, huge)) + gpa % (2 * MIB);
}

struct slot *any_slot(struct op_call *call, uint32_t *id)
{
	uint32_t space = rng_once_in(&call->rng, 6);
	uint32_t number = rng_below(&call->rng, NR_SLOTS);

	*id = space << 16 | number;
	return &vm_of(call)->slots[space][number];
}

struct slot *live_slot(struct op_call *call, uint32_t *id)
{
	struct slot *slot;
	int tries = 0;

	do {
		slot = any_slot(call, id);
	} while (!READ_ONCE(slot->npages) && ++tries < 8);
	return slot;
}

uint32_t any_slot_id(struct op_call *call)
{
	static const uint32_t odd[] = {
		2 << 16, 7 << 16, 0xffff << 16, 0x8000 << 16, ~0U, 0xffff, 509,
		513, 32764, 32767,
	};
	uint32_t id;

	live_slot(call, &id);
	return rng_once_in(&call->rng, 12) ? rng_pick(&call->rng, odd) : id;
}

uint64_t mostly_zero(struct rng *rng)
{
	static const uint64_t odd[] = { 1, 2, 1U << 31, ~0ULL, 1ULL << 63 };

	return rng_once_in(rng, 30) ? rng_pick(rng, odd) : 0;
}

void *any_pointer(struct op_call *call)
{
	struct rng *rng = &call->rng;
	const uint64_t odd[] = {
		0, 8, 0xffff888000000000ULL, ~0ULL << 12,
		buffer_of(call->thread) + BUFFER_SIZE,
		buffer_of(call->thread) + BUFFER_SIZE - 64,
		any_hva(rng), bitmap_base(rng_below(rng, NR_BITMAPS)),
	};

	if (rng_once_in(rng, 8))
		return (void *)rng_pick(rng, odd);
	return (void *)buffer_of(call->thread);
}

void any_range(struct op_call *call, uint64_t *gpa, uint64_t *size)
{
	static const uint64_t sizes[] = {
		PAGE, 64 * PAGE, 2 * MIB, 4 * MIB, GIB, 512 * GIB, 0, 1,
		~0ULL << 12, 1ULL << 63, ~0ULL,
	};
	struct rng *rng = &call->rng;
	struct slot *slot;
	uint32_t id;

	switch (rng_below(rng, 4)) {
	case 0:
		*gpa = 0;
		*size = rng_once_in(rng, 2) ? ~0ULL << 12 : top_gpa;
		break;
	case 1:
		slot = live_slot(call, &id);
		*gpa = READ_ONCE(slot->gpa);
		*size = READ_ONCE(slot->npages) * PAGE;
		break;
	case 2:
		*gpa = any_gpa(rng);
		*size = any_npages(rng) * PAGE;
		break;
	default:
		*gpa = rng_once_in(rng, 4) ? rng_next(rng) & (~0ULL << 12) :
		       any_gpa(rng);
		*size = rng_pick(rng, sizes);
		break;
	}
	*gpa |= rng_once_in(rng, 50);
}
