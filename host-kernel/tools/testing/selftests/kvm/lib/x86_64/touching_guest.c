// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "processor.h"
#include "selftest_release.h"
#include "touching_guest.h"

struct guest_command guest_commands[GUEST_MAX_VCPUS];

void guest_map(struct kvm_vm *vm, uint64_t gpa, uint64_t size)
{
	uint64_t page = PG_SIZE_2M;
	int level = PG_LEVEL_2M;

	if (size >= PG_SIZE_1G && kvm_cpu_has(X86_FEATURE_GBPAGES)) {
		page = PG_SIZE_1G;
		level = PG_LEVEL_1G;
	}
	size = align_up(gpa + size, page) - align_down(gpa, page);
	gpa = align_down(gpa, page);
	virt_map_level(vm, gpa, gpa, size, level);
}

void guest_touch(enum guest_op op, uint64_t gva, uint64_t value)
{
	uint64_t found;

	if (op == GUEST_WRITE) {
		WRITE_ONCE(*(uint64_t *)gva, value);
		return;
	}
	found = READ_ONCE(*(uint64_t *)gva);
	GUEST_ASSERT_VALUES(op == GUEST_READ || found == value, found, value);
}

void guest_toucher(uint64_t id)
{
	struct guest_command *c = &guest_commands[id];
	uint64_t i;

	for (;;) {
		for (i = 0; i < READ_ONCE(c->listed); i++)
			guest_touch(c->op, c->gva + c->list[i] * PAGE_SIZE,
				    c->value);
		for (i = 0; i < READ_ONCE(c->count); i++)
			guest_touch(c->op, c->gva + i * c->stride, c->value);
		GUEST_SYNC(0);
	}
}

struct guest_command *guest_command(struct kvm_vcpu *vcpu)
{
	TEST_ASSERT(vcpu->id < GUEST_MAX_VCPUS, "too many vCPUs");
	return addr_gva2hva(vcpu->vm, (vm_vaddr_t)&guest_commands[vcpu->id]);
}

void guest_finish(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	switch (get_ucall(vcpu, &uc)) {
	case UCALL_SYNC:
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT_VALUES(uc);
	default:
		TEST_FAIL("unexpected exit: %s",
			  exit_reason_str(vcpu->run->exit_reason));
	}
}

void guest_stride(struct kvm_vcpu *vcpu, enum guest_op op, uint64_t gva,
		  uint64_t stride, uint64_t count, uint64_t value)
{
	struct guest_command *c = guest_command(vcpu);

	c->op = op;
	c->gva = gva;
	c->stride = stride;
	c->count = count;
	c->value = value;
	c->listed = 0;
	guest_finish(vcpu);
}

void guest_list(struct kvm_vcpu *vcpu, enum guest_op op, uint64_t gva,
		const uint32_t *pages, uint32_t count, uint64_t value)
{
	struct guest_command *c = guest_command(vcpu);

	TEST_ASSERT(count <= GUEST_LIST_MAX, "too many pages");
	c->op = op;
	c->gva = gva;
	c->value = value;
	c->count = 0;
	c->listed = count;
	memcpy(c->list, pages, count * sizeof(*pages));
	guest_finish(vcpu);
}

void guest_write(struct kvm_vcpu *vcpu, uint64_t gva, uint64_t value)
{
	guest_stride(vcpu, GUEST_WRITE, gva, 0, 1, value);
}

void add_touchers(struct kvm_vm *vm, int nr_vcpus, struct kvm_vcpu **vcpus)
{
	int i;

	for (i = 0; i < nr_vcpus; i++) {
		vcpus[i] = vm_vcpu_add(vm, i, guest_toucher);
		vcpu_args_set(vcpus[i], 1, i);
	}
}

void add_touchers_with(struct kvm_vm *vm, const uint32_t *caps, int nr_caps,
		       int nr_vcpus, struct kvm_vcpu **vcpus)
{
	int i;

	for (i = 0; i < nr_caps; i++)
		vm_enable_cap(vm, caps[i], 0);
	add_touchers(vm, nr_vcpus, vcpus);
}

struct kvm_vm *toucher_vm(const uint32_t *caps, int nr_caps, int nr_vcpus,
			  struct kvm_vcpu **vcpus)
{
	struct kvm_vm *vm = __vm_create(VM_SHAPE_DEFAULT, nr_vcpus, 0);

	add_touchers_with(vm, caps, nr_caps, nr_vcpus, vcpus);
	return vm;
}
