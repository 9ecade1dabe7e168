// SPDX-License-Identifier: GPL-2.0-only
#include <sys/mman.h>

#include "test_util.h"
#include "dirty_bitmap.h"

uint64_t count_bits(const unsigned long *bitmap, uint64_t npages)
{
	uint64_t i, n = 0;

	for (i = 0; i < BITS_TO_LONGS(npages); i++)
		n += __builtin_popcountl(bitmap[i]);
	return n;
}

void expect_stride(const unsigned long *bitmap, uint64_t npages, uint64_t first,
		   uint64_t n, uint64_t stride, const char *what)
{
	bool want;
	uint64_t p;

	for (p = 0; p < npages; p++) {
		want = p >= first && p < first + n && (p - first) % stride == 0;
		TEST_ASSERT(test_bit(p, bitmap) == want, "%s: page %lu is %s",
			    what, p, want ? "lost" : "dirty for nothing");
	}
}

void shared_bitmap_map(struct kvm_vm *vm, uint32_t slot, uint64_t npages,
		       struct shared_bitmap *s)
{
	s->npages = npages;
	s->fd = __vm_get_dirty_bitmap_fd(vm, slot, 0, &s->desc);
	TEST_ASSERT(s->fd >= 0, KVM_IOCTL_ERROR(KVM_GET_DIRTY_BITMAP_FD, s->fd));

	s->bitmap = mmap(NULL, s->desc.bitmap_size, PROT_READ | PROT_WRITE,
			 MAP_SHARED, s->fd, s->desc.bitmap_offset);
	TEST_ASSERT(s->bitmap != MAP_FAILED, "mmap of the bitmap failed: %s",
		    strerror(errno));
	s->summary = mmap(NULL, s->desc.summary_size, PROT_READ | PROT_WRITE,
			  MAP_SHARED, s->fd, s->desc.summary_offset);
	TEST_ASSERT(s->summary != MAP_FAILED, "mmap of the summary failed: %s",
		    strerror(errno));
}

void shared_bitmap_unmap(struct shared_bitmap *s)
{
	TEST_ASSERT(!munmap(s->bitmap, s->desc.bitmap_size), "munmap failed");
	TEST_ASSERT(!munmap(s->summary, s->desc.summary_size), "munmap failed");
	TEST_ASSERT(!close(s->fd), "close failed");
}

/* Moves the dirty pages of one summary bit to bitmap. */
static uint64_t shared_bitmap_harvest_group(struct shared_bitmap *s,
					    uint64_t group,
					    unsigned long *bitmap)
{
	const uint64_t words = KVM_DIRTY_SUMMARY_PAGES / BITS_PER_LONG;
	uint64_t i = group * words, count = 0;
	uint64_t end = min(i + words, BITS_TO_LONGS(s->npages));
	unsigned long got;

	for (; i < end; i++) {
		if (!READ_ONCE(s->bitmap[i]))
			continue;
		got = __atomic_exchange_n(&s->bitmap[i], 0, __ATOMIC_SEQ_CST);
		bitmap[i] |= got;
		count += __builtin_popcountl(got);
	}
	return count;
}

/* Moves the dirty pages of these bits of one word of the summary to bitmap. */
static uint64_t shared_bitmap_harvest_bits(struct shared_bitmap *s,
					   uint64_t word, unsigned long bits,
					   unsigned long *bitmap)
{
	uint64_t count = 0;

	for (; bits; bits &= bits - 1)
		count += shared_bitmap_harvest_group(s,
			word * BITS_PER_LONG + __builtin_ctzl(bits), bitmap);
	return count;
}

static uint64_t shared_bitmap_harvest_some(struct shared_bitmap *s,
					   uint64_t word, unsigned long mask,
					   unsigned long *bitmap)
{
	unsigned long bits = __atomic_fetch_and(&s->summary[word], ~mask,
						__ATOMIC_SEQ_CST) & mask;

	return shared_bitmap_harvest_bits(s, word, bits, bitmap);
}

/* All of a word of the summary, which sum points to. */
static uint64_t shared_bitmap_harvest_word(struct shared_bitmap *s,
					   unsigned long *sum,
					   unsigned long *bitmap)
{
	return shared_bitmap_harvest_bits(s, sum - s->summary,
		__atomic_exchange_n(sum, 0, __ATOMIC_SEQ_CST), bitmap);
}

/* Whole words of the summary.  In a large slot most of them are 0. */
static uint64_t shared_bitmap_harvest_words(struct shared_bitmap *s,
					    unsigned long *sum,
					    unsigned long *end,
					    unsigned long *bitmap)
{
	unsigned long *fours = sum + (end - sum) / 4 * 4;
	unsigned long a, b, c, d;
	uint64_t count = 0;

	for (; sum != fours; sum += 4) {
		a = READ_ONCE(sum[0]);
		b = READ_ONCE(sum[1]);
		c = READ_ONCE(sum[2]);
		d = READ_ONCE(sum[3]);
		if (!(a | b | c | d))
			continue;
		if (a)
			count += shared_bitmap_harvest_word(s, sum, bitmap);
		if (b)
			count += shared_bitmap_harvest_word(s, sum + 1, bitmap);
		if (c)
			count += shared_bitmap_harvest_word(s, sum + 2, bitmap);
		if (d)
			count += shared_bitmap_harvest_word(s, sum + 3, bitmap);
	}
	for (; sum != end; sum++)
		if (READ_ONCE(*sum))
			count += shared_bitmap_harvest_word(s, sum, bitmap);
	return count;
}

/*
 * This clears a summary bit before it reads the words under it, as KVM sets them
 * in the other order.
 */
uint64_t shared_bitmap_harvest(struct shared_bitmap *s, uint64_t first,
			       uint64_t n, unsigned long *bitmap)
{
	uint64_t from = first / KVM_DIRTY_SUMMARY_PAGES;
	uint64_t to = DIV_ROUND_UP(min(first + n, s->npages),
				   KVM_DIRTY_SUMMARY_PAGES);
	uint64_t word = from / BITS_PER_LONG, end = to / BITS_PER_LONG;
	unsigned long head = ~0UL << (from % BITS_PER_LONG);
	unsigned long tail = ~(~0UL << (to % BITS_PER_LONG));
	uint64_t count = 0;

	if (word == end)
		return shared_bitmap_harvest_some(s, word, head & tail, bitmap);

	count += shared_bitmap_harvest_some(s, word++, head, bitmap);
	count += shared_bitmap_harvest_words(s, &s->summary[word],
					     &s->summary[end], bitmap);
	if (tail)
		count += shared_bitmap_harvest_some(s, end, tail, bitmap);
	return count;
}
