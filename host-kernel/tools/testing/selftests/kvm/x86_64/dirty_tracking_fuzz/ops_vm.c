// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <sys/ioctl.h>

#include <asm/kvm_para.h>
#include <linux/kvm_dirty_tracking.h>

#include "test_util.h"
#include "processor.h"
#include "ops_vm.h"
#include "witness.h"

#define LOG	KVM_MEM_LOG_DIRTY_PAGES

void op_create_vm(struct op_call *call)
{
	say(call, "create");
	create_vm(call->vm);
}

void op_create_vcpu(struct op_call *call)
{
	int vcpu = rng_below(&call->rng, NR_VCPUS);

	say(call, "create vCPU %d", vcpu);
	create_vcpu(call->vm, vcpu);
}

static void enable_cap(struct op_call *call, uint32_t cap, uint32_t flags,
		       uint64_t arg0, uint64_t arg1)
{
	struct kvm_enable_cap args = {
		.cap = cap, .flags = flags, .args = { arg0, arg1 },
	};
	int ret = ioctl(vm_fd(call), KVM_ENABLE_CAP, &args);

	say(call, "enable cap 0x%x flags 0x%x args 0x%lx 0x%lx: %d", cap, flags,
	    arg0, arg1, ret);
}

/* A capability of ours, or one that changes what ours do. */
void op_enable_cap(struct op_call *call)
{
	struct rng *rng = &call->rng;
	uint64_t odd = mostly_zero(rng);

	switch (rng_below(rng, 8)) {
	case 0:
		enable_cap(call, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0, odd, 0);
		break;
	case 1:
		enable_cap(call, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0, odd, 0);
		break;
	case 2:
		enable_cap(call, KVM_CAP_DIRTY_BITMAP_FD, mostly_zero(rng), odd, 0);
		break;
	case 3:
		enable_cap(call, KVM_CAP_DIRTY_BITS, mostly_zero(rng), odd, 0);
		break;
	case 4:
	case 5:
		enable_cap(call, KVM_CAP_EAGER_PAGE_SPLIT, mostly_zero(rng),
			   rng_below(rng, 4), odd ?: rng_below(rng, 3) * 2 * MIB);
		break;
	case 6:
		enable_cap(call, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, 0,
			   odd ?: rng_below(rng, 4), 0);
		break;
	default:
		enable_cap(call, KVM_CAP_DIRTY_LOG_RING, 0,
			   odd ?: PAGE << rng_below(rng, 5), 0);
		break;
	}
}

/* What a VM that wants it enables at first, in the order that it takes. */
void op_enable_early(struct op_call *call)
{
	static const int distances[] = { 0, 1, 2, 3, 3, 4, 4 };
	static const int modes[] = { 0, 1, 1, 1, 2 };
	static const int manual[] = { 0, 1, 3, 3, 3 };
	struct rng *rng = &call->rng;
	int how_far = rng_pick(rng, distances);

	if (how_far > 0)
		enable_cap(call, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0, 0, 0);
	if (how_far > 1)
		enable_cap(call, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0, 0, 0);
	if (how_far > 2)
		enable_cap(call, KVM_CAP_DIRTY_BITMAP_FD, 0, 0, 0);
	if (how_far > 3)
		enable_cap(call, KVM_CAP_DIRTY_BITS, 0, 0, 0);
	else if (rng_once_in(rng, 4))
		enable_cap(call, KVM_CAP_DIRTY_LOG_RING, 0, 4 * PAGE, 0);
	enable_cap(call, KVM_CAP_EAGER_PAGE_SPLIT, 0, rng_pick(rng, modes),
		   rng_below(rng, 2) * 2 * MIB);
	enable_cap(call, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, 0,
		   rng_pick(rng, manual), 0);
}

static void set_slot(struct op_call *call, uint32_t id, struct slot *slot,
		     struct slot to)
{
	int ret = set_region(vm_fd(call), id, &to);

	say(call, "slot 0x%x flags %u gpa 0x%lx pages 0x%lx hva 0x%lx: %d", id,
	    to.flags, to.gpa, to.npages, to.hva, ret ? errno : 0);
	if (!ret)
		*slot = to;
}

static uint32_t any_slot_flags(struct rng *rng)
{
	static const uint32_t flags[] = {
		0, 0, 0, LOG, LOG, LOG, LOG, KVM_MEM_READONLY, LOG | KVM_MEM_READONLY,
	};

	return rng_pick(rng, flags) | (rng_once_in(rng, 60) ? 1U << 16 : 0);
}

static void set_some_slot(struct op_call *call, struct slot *slot, uint32_t id)
{
	struct slot to;

	to.flags = any_slot_flags(&call->rng);
	to.gpa = any_gpa(&call->rng);
	to.npages = any_npages(&call->rng);
	to.hva = any_hva_for(&call->rng, to.gpa);
	/* So that it can be somewhere else at once. */
	if (READ_ONCE(slot->npages) && !rng_once_in(&call->rng, 6))
		set_slot(call, id, slot, (struct slot) { .hva = MEMORY_BASE });
	set_slot(call, id, slot, to);
}

void op_set_slot(struct op_call *call)
{
	struct slot *slot;
	uint32_t id;

	slot = any_slot(call, &id);
	set_some_slot(call, slot, id);
}

/* One after the other, so that there are some to begin with. */
void op_add_slot(struct op_call *call)
{
	uint32_t id = call->index % NR_SLOTS;

	set_some_slot(call, &vm_of(call)->slots[0][id], id);
}

/* A slot that is there: logged or not any more, moved, or deleted. */
void op_change_slot(struct op_call *call)
{
	struct slot to, *slot;
	uint32_t id;

	slot = live_slot(call, &id);
	to = *slot;
	switch (rng_below(&call->rng, 8)) {
	case 0:
		to.gpa = any_gpa(&call->rng);
		break;
	case 1:
		to.gpa ^= PAGE;
		break;
	case 2:
		to.npages = 0;
		break;
	case 3:
	case 4:
		to.flags ^= LOG;
		break;
	default:
		to.flags |= LOG;
		break;
	}
	set_slot(call, id, slot, to);
}

/* Not the first VM: it has the witness, and ends with the episode. */
void op_end_vm(struct op_call *call)
{
	struct vm *vm = &vms[NR_VMS - 1];
	int i;

	call->vm = NR_VMS - 1;
	say(call, "end");
	close_shared(&vm->fd);
	for (i = 0; i < NR_VCPUS; i++) {
		close_shared(&vm->vcpus[i]);
		if (rng_once_in(&call->rng, 2))
			map_memory(run_of(call->vm, i), RUN_ROOM,
				   PROT_READ | PROT_WRITE);
	}
	create_vm(call->vm);
	op_enable_early(call);
	op_set_slot(call);
	op_set_slot(call);
	create_vcpu(call->vm, 0);
}

static void run(struct op_call *call, int fd, int vcpu)
{
	struct kvm_run *run = (void *)run_of(call->vm, vcpu);
	struct slot *slot;
	uint64_t gpa = WITNESS_GPA, npages = 512, count;
	enum guest_mode mode = GUEST_PLAIN;
	uint32_t id;
	int ret;

	slot = live_slot(call, &id);
	if (call->vm || rng_once_in(&call->rng, 3)) {
		gpa = READ_ONCE(slot->gpa);
		npages = clamp(READ_ONCE(slot->npages), 1UL, BACKING_PAGES);
		npages = 1UL << (63 - __builtin_clzl(npages));
		if (rng_once_in(&call->rng, 4))
			gpa = any_gpa(&call->rng);
	} else {
		gpa += rng_below(&call->rng, WITNESS_PAGES - npages + 1) * PAGE;
	}
	gpa = without_still(gpa, npages);
	if (id >> 16 && gpa < WITNESS_GPA)
		mode = GUEST_IN_SMM;
	else if (has_svm && rng_once_in(&call->rng, 5))
		mode = GUEST_NESTED;
	count = 1 + rng_below(&call->rng, 200);
	set_guest(fd, mode, gpa, npages, count, rng_next(&call->rng));
	ret = ioctl(fd, KVM_RUN, NULL);
	say(call, "vCPU %d mode %d touches 0x%lx of 0x%lx pages at 0x%lx: %d exit %u",
	    vcpu, mode, count, npages, gpa, ret ? errno : 0, run->exit_reason);
}

/* The memory of the first VM stays as it is while its witness is checked. */
static void begin_to_write(struct op_call *call)
{
	if (!call->vm)
		pthread_rwlock_rdlock(&witness.running);
}

static void end_to_write(struct op_call *call)
{
	if (!call->vm)
		pthread_rwlock_unlock(&witness.running);
}

void op_run(struct op_call *call)
{
	int vcpu = rng_below(&call->rng, NR_VCPUS);
	int fd = READ_ONCE(vm_of(call)->vcpus[vcpu]);

	if (fd < 0)
		return;
	begin_to_write(call);
	run(call, fd, vcpu);
	end_to_write(call);
}

/* Memory that KVM writes to by itself, in the end in a slot that is logged. */
void op_set_clock(struct op_call *call)
{
	static const uint32_t msrs[] = {
		MSR_KVM_SYSTEM_TIME_NEW, MSR_KVM_STEAL_TIME, MSR_KVM_ASYNC_PF_EN,
		MSR_KVM_WALL_CLOCK_NEW,
	};
	int vcpu = rng_below(&call->rng, NR_VCPUS);
	uint32_t msr = rng_pick(&call->rng, msrs);
	uint64_t gpa = without_still(any_gpa(&call->rng), 1) | 1;

	say(call, "vCPU %d msr 0x%x 0x%lx", vcpu, msr, gpa);
	/* KVM writes the wall clock at once. */
	begin_to_write(call);
	set_msr(READ_ONCE(vm_of(call)->vcpus[vcpu]), msr, gpa);
	end_to_write(call);
}

void op_start_witness(struct op_call *call)
{
	if (call->vm)
		return;
	say(call, "start the witness");
	pthread_mutex_lock(&witness.lock);
	if (!witness.on)
		witness_start();
	pthread_mutex_unlock(&witness.lock);
}

void op_copy_witness(struct op_call *call)
{
	if (pthread_mutex_trylock(&witness.lock))
		return;
	if (witness.on) {
		say(call, "copy the witness");
		take_and_copy(&call->rng);
	}
	pthread_mutex_unlock(&witness.lock);
}

void op_check_witness(struct op_call *call)
{
	if (pthread_mutex_trylock(&witness.lock))
		return;
	if (witness.on) {
		say(call, "check the witness");
		pthread_rwlock_wrlock(&witness.running);
		witness_check(&call->rng);
		pthread_rwlock_unlock(&witness.running);
	}
	pthread_mutex_unlock(&witness.lock);
}
