// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* for mremap */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/kvm_dirty_tracking.h>

#include "test_util.h"
#include "arguments.h"
#include "ops_dirty.h"

void op_get_log(struct op_call *call)
{
	struct kvm_dirty_log log = {
		.slot = any_slot_id(call),
		.padding1 = rng_once_in(&call->rng, 4) ? 1 :
			    mostly_zero(&call->rng),
		.dirty_bitmap = any_pointer(call),
	};
	int ret = ioctl(vm_fd(call), KVM_GET_DIRTY_LOG, &log);

	say(call, "get log of 0x%x flags 0x%x to %p: %d", log.slot,
	    log.padding1, log.dirty_bitmap, ret ? errno : 0);
}

/* All pages, the first alone, or any of the first word. */
static void fill_mask(struct op_call *call)
{
	const uint64_t words[] = { ~0ULL, 1, 1, rng_next(&call->rng) };
	uint64_t *mask = (void *)buffer_of(call->thread);
	int which = rng_below(&call->rng, ARRAY_SIZE(words));

	touch(memset(mask, which ? 0 : ~0, BUFFER_SIZE / 64));
	touch(*mask = words[which]);
}

void op_clear_log(struct op_call *call)
{
	static const uint64_t firsts[] = {
		0, 0, 0, 64, 128, 512, 1, 63, ~63ULL, ~0ULL, 1ULL << 32,
	};
	static const uint64_t counts[] = { 0, 1, 64, 512, ~0ULL, ~63ULL, 1U << 31 };
	struct kvm_clear_dirty_log log = { .dirty_bitmap = any_pointer(call) };
	struct rng *rng = &call->rng;
	struct slot *slot;
	uint32_t id;
	int ret;

	slot = live_slot(call, &id);
	log.slot = rng_once_in(rng, 20) ? any_slot_id(call) : id;
	if (rng_once_in(rng, 3))
		log.first_page = rng_pick(rng, firsts);
	log.num_pages = rng_once_in(rng, 4) ? rng_pick(rng, counts) :
			READ_ONCE(slot->npages) - log.first_page;
	fill_mask(call);
	ret = ioctl(vm_fd(call), KVM_CLEAR_DIRTY_LOG, &log);
	say(call, "clear log of 0x%x from 0x%llx 0x%x pages at %p: %d", log.slot,
	    log.first_page, log.num_pages, log.dirty_bitmap, ret ? errno : 0);
}

void op_protect_all(struct op_call *call)
{
	say(call, "write-protect all");
	ioctl(vm_fd(call), KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

void op_range(struct op_call *call)
{
	static const struct {
		unsigned long cmd;
		const char *name;
	} cmds[] = {
		{ KVM_WRITE_PROTECT_RANGE, "write-protect" },
		{ KVM_COLLECT_DIRTY_BITS, "collect" },
		{ KVM_SPLIT_HUGE_PAGES, "split" },
	};
	struct kvm_write_protect_range *range = any_pointer(call), given;
	int which = rng_below(&call->rng, ARRAY_SIZE(cmds)), ret;
	uint64_t gpa, size;

	any_range(call, &gpa, &size);
	given = (struct kvm_write_protect_range) {
		.gpa = gpa, .size = size, .flags = mostly_zero(&call->rng),
	};
	if (cmds[which].cmd == KVM_COLLECT_DIRTY_BITS &&
	    rng_once_in(&call->rng, 3))
		given.flags ^= KVM_COLLECT_DIRTY_BITS_WRPROT;
	touch(*range = given);
	ret = ioctl(vm_fd(call), cmds[which].cmd, range);
	say(call, "%s 0x%lx + 0x%lx flags 0x%llx at %p: %d", cmds[which].name,
	    gpa, size, given.flags, range, ret ? errno : 0);
}

void op_get_bitmap(struct op_call *call)
{
	int number = rng_below(&call->rng, NR_BITMAPS), fd;
	struct bitmap *bitmap = &bitmaps[number];
	struct kvm_dirty_bitmap_fd *desc = any_pointer(call), got = {
		.slot = any_slot_id(call), .flags = mostly_zero(&call->rng),
	};
	size_t size;

	touch(*desc = got);
	fd = ioctl(vm_fd(call), KVM_GET_DIRTY_BITMAP_FD, desc);
	say(call, "bitmap %d of slot 0x%x flags 0x%x by %p: %d", number,
	    got.slot, got.flags, desc, fd < 0 ? errno : 0);
	if (fd < 0)
		return;
	touch(got = *desc);
	size = got.bitmap_size + got.summary_size;
	if (size <= BITMAP_ROOM && !rng_once_in(&call->rng, 4))
		map_at(bitmap_base(number), size, PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);
	fd = __atomic_exchange_n(&bitmap->fd, fd, __ATOMIC_SEQ_CST);
	if (fd >= 0)
		close(fd);
}

static void read_pages(const volatile char *start, uint64_t pages)
{
	uint64_t i;

	for (i = 0; i < pages; i++)
		start[i * PAGE];
}

void op_map_bitmap(struct op_call *call)
{
	static const int prots[] = {
		PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE,
		PROT_READ | PROT_EXEC,
	};
	static const int flags[] = { MAP_SHARED, MAP_SHARED, MAP_PRIVATE };
	int number = rng_below(&call->rng, NR_BITMAPS);
	struct rng *rng = &call->rng;
	uint64_t pages = 1 + rng_below(rng, rng_once_in(rng, 3) ? 1024 : 4);
	uint64_t offset = rng_once_in(rng, 20) ? rng_next(rng) & (~0ULL << 12) :
			  rng_below(rng, 8) * PAGE;
	void *got = map_at(bitmap_base(number), pages * PAGE,
			   rng_pick(rng, prots), rng_pick(rng, flags),
			   READ_ONCE(bitmaps[number].fd), offset);

	say(call, "map bitmap %d 0x%lx pages at 0x%lx: %p", number, pages,
	    offset, got);
	if (got != MAP_FAILED)
		touch(read_pages(got, pages));
}

void op_drop_bitmap(struct op_call *call)
{
	int number = rng_below(&call->rng, NR_BITMAPS);
	uint64_t base = bitmap_base(number);

	switch (rng_below(&call->rng, 5)) {
	case 0:
		say(call, "unmap bitmap %d", number);
		unmap_at(base, BITMAP_ROOM);
		break;
	case 1:
		say(call, "unmap the first page of bitmap %d", number);
		unmap_at(base, PAGE);
		break;
	case 2:
		say(call, "grow and move the mapping of bitmap %d", number);
		mremap((void *)base, PAGE, 4 * PAGE,
		       MREMAP_MAYMOVE | MREMAP_FIXED,
		       (void *)bitmap_base(rng_below(&call->rng, NR_BITMAPS)));
		break;
	default:
		say(call, "close bitmap %d", number);
		close_shared(&bitmaps[number].fd);
		break;
	}
}

/* What its file, or mapping, is not made for. */
void op_abuse_bitmap(struct op_call *call)
{
	int number = rng_below(&call->rng, NR_BITMAPS);
	int what = rng_below(&call->rng, 8);
	int fd = READ_ONCE(bitmaps[number].fd);
	void *base = (void *)bitmap_base(number);
	char byte = 0;

	say(call, "abuse %d of bitmap %d", what, number);
	switch (what) {
	case 0:
		close(dup(fd));
		break;
	case 1:
		if (read(fd, &byte, 1) > 0 || write(fd, &byte, 1) > 0)
			say(call, "it can be read or written");
		break;
	case 2:
		if (!ftruncate(fd, 0))
			say(call, "it can be truncated");
		break;
	case 3:
		ioctl(fd, KVM_GET_DIRTY_BITMAP_FD, buffer_of(call->thread));
		break;
	case 4:
		madvise(base, BITMAP_ROOM, MADV_DONTNEED);
		break;
	case 5:
		mprotect(base, BITMAP_ROOM, PROT_READ | PROT_WRITE | PROT_EXEC);
		break;
	case 6:
		mlock(base, 4 * PAGE);
		munlock(base, 4 * PAGE);
		break;
	default:
		madvise(base, BITMAP_ROOM, MADV_MERGEABLE);
		break;
	}
}

/* Through a socket, where it lives for a while with no number. */
void op_pass_bitmap(struct op_call *call)
{
	int number = rng_below(&call->rng, NR_BITMAPS), pair[2];
	char control[CMSG_SPACE(sizeof(int))] = { }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	say(call, "pass bitmap %d", number);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return;
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &bitmaps[number].fd, sizeof(int));
	if (sendmsg(pair[0], &msg, 0) == 1 && rng_once_in(&call->rng, 2)) {
		close_shared(&bitmaps[number].fd);
		if (recvmsg(pair[1], &msg, MSG_CMSG_CLOEXEC) == 1 &&
		    msg.msg_controllen)
			close(*(int *)CMSG_DATA(cmsg));
	}
	close(pair[0]);
	close(pair[1]);
}

void op_scribble(struct op_call *call)
{
	uint64_t base = bitmap_base(rng_below(&call->rng, NR_BITMAPS));
	int what = rng_below(&call->rng, 4);
	uint64_t *word = (void *)base + rng_below(&call->rng, 4) * PAGE;

	say(call, "scribble %d at 0x%lx", what, base);
	switch (what) {
	case 0:
		touch(memset(word, ~0, PAGE));
		break;
	case 1:
		touch(memset((void *)base, rng_next(&call->rng), 2 * PAGE));
		break;
	case 2:
		touch(__atomic_exchange_n(word, rng_next(&call->rng),
					  __ATOMIC_SEQ_CST));
		break;
	default:
		touch(word[rng_below(&call->rng, 512)] = ~0ULL);
		break;
	}
}

/* What a VMM does with its ring, or a hostile one. */
void op_write_ring(struct op_call *call)
{
	static const uint64_t offsets[] = {
		~0ULL, ~63ULL, 1ULL << 63, 1ULL << 52, 0, 1, 511,
	};
	struct rng *rng = &call->rng;
	int vcpu = rng_below(rng, NR_VCPUS), i;
	struct kvm_dirty_gfn *ring =
		(void *)run_of(call->vm, vcpu) + RING_OFFSET;
	bool lie = rng_once_in(rng, 2);

	/* A lie about what was pushed is believed: any part of the ring may be that. */
	ring += rng_below(rng, 4) * 256;
	say(call, "%s in the ring of vCPU %d", lie ? "lie" : "harvest", vcpu);
	for (i = 0; i < 256; i++) {
		struct kvm_dirty_gfn gfn = {
			.flags = KVM_DIRTY_GFN_F_RESET,
			.slot = any_slot_id(call),
			.offset = rng_pick(rng, offsets),
		};

		if (lie)
			touch(ring[i] = gfn);
		else
			touch(ring[i].flags |= (ring[i].flags & 1) << 1);
	}
}

void op_reset_rings(struct op_call *call)
{
	int ret = ioctl(vm_fd(call), KVM_RESET_DIRTY_RINGS);

	say(call, "reset rings: %d", ret);
}
