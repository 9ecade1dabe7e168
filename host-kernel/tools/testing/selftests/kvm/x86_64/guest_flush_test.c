// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does a guest see its own page tables as they are, once it has flushed?
 *
 * It turns an entry of its tables, of a page or of a table, to another page.  It
 * then flushes, or not, and reads.  What it reads after a flush has to be the new
 * page.  Without one a CPU may keep the old, and how often it did so is printed.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"

#define ROUNDS		400
#define REGION		(1UL << 21)
#define FIRST_GVA	(64UL * REGION)
#define OTHER_GVA	(65UL * REGION)
#define TABLES_GVA	(66UL * REGION)
#define FIRST_GPA	0x10000000UL
#define OTHER_GPA	0x10001000UL
#define SLOT		10

enum flush { FLUSH_NONE, FLUSH_INVLPG, FLUSH_CR3, FLUSH_CR4, NR_FLUSHES };

static const char * const flushes[] = { "none", "invlpg", "cr3", "cr4" };

/* What the guest is to do; where its entries are, by its own addresses. */
static enum flush flush_by;
static uint64_t *page_entries[2];
static uint64_t *entry;
static uint64_t value;

static void flush(void)
{
	switch (READ_ONCE(flush_by)) {
	case FLUSH_INVLPG:
		asm volatile("invlpg (%0)" : : "r" (FIRST_GVA) : "memory");
		break;
	case FLUSH_CR3:
		asm volatile("mov %0, %%cr3" : : "r" (get_cr3()) : "memory");
		break;
	case FLUSH_CR4:
		set_cr4(get_cr4() ^ X86_CR4_PGE);
		set_cr4(get_cr4() ^ X86_CR4_PGE);
		break;
	default:
		break;
	}
}

static void guest_code(void)
{
	set_cr4(get_cr4() | X86_CR4_PGE);
	for (;;) {
		*page_entries[0] &= ~PTE_DIRTY_MASK;
		*page_entries[1] &= ~PTE_DIRTY_MASK;
		WRITE_ONCE(*entry, value);
		flush();
		GUEST_SYNC(READ_ONCE(*(uint64_t *)FIRST_GVA));
		/* So that the entry gets its dirty bit. */
		WRITE_ONCE(*(uint64_t *)(FIRST_GVA + 8), 0);
	}
}

/* Has the guest set the entry, flush and read. */
static uint64_t guest_turns(struct kvm_vcpu *vcpu, uint64_t to, enum flush by)
{
	struct ucall uc;

	value = to;
	flush_by = by;
	sync_global_to_guest(vcpu->vm, value);
	sync_global_to_guest(vcpu->vm, flush_by);
	vcpu_run(vcpu);
	TEST_ASSERT(get_ucall(vcpu, &uc) == UCALL_SYNC, "unexpected exit: %s",
		    exit_reason_str(vcpu->run->exit_reason));
	return uc.args[1];
}

/* Where the guest's entry of the level is, 1 being that of a page. */
static uint64_t entry_gpa(struct kvm_vcpu *vcpu, uint64_t gva, int level)
{
	struct kvm_sregs sregs;
	uint64_t table, gpa;
	int i;

	vcpu_sregs_get(vcpu, &sregs);
	table = sregs.cr3;
	for (i = 4;; i--) {
		gpa = (table & PHYSICAL_PAGE_MASK) +
		      8 * (gva >> (PAGE_SHIFT + 9 * (i - 1)) & 511);
		if (i == level)
			return gpa;
		table = *(uint64_t *)addr_gpa2hva(vcpu->vm, gpa);
	}
}

/* The guest's own address of it. */
static uint64_t *entry_gva(struct kvm_vcpu *vcpu, uint64_t gva, int level)
{
	static uint64_t page = TABLES_GVA;
	uint64_t gpa = entry_gpa(vcpu, gva, level);

	page += PAGE_SIZE;
	virt_map(vcpu->vm, page, gpa & PHYSICAL_PAGE_MASK, 1);
	return (uint64_t *)(page + gpa % PAGE_SIZE);
}

static uint64_t read_entry(struct kvm_vcpu *vcpu, uint64_t gva, int level)
{
	return *(uint64_t *)addr_gpa2hva(vcpu->vm, entry_gpa(vcpu, gva, level)) &
	       ~(PTE_DIRTY_MASK | PTE_GLOBAL_MASK);
}

/* Returns how often the guest saw what was there before. */
static uint64_t turn(struct kvm_vcpu *vcpu, int level, bool global, enum flush by)
{
	uint64_t mask = global ? PTE_GLOBAL_MASK : 0, to[2], want, got, kept = 0;
	bool may_keep = by == FLUSH_NONE || (by == FLUSH_CR3 && global);
	uint64_t round;

	entry = entry_gva(vcpu, FIRST_GVA, level);
	sync_global_to_guest(vcpu->vm, entry);
	to[0] = read_entry(vcpu, OTHER_GVA, level);
	to[1] = read_entry(vcpu, FIRST_GVA, level);
	for (round = 0; round < ROUNDS; round++) {
		want = round & 1 ? 1 : 2;
		got = guest_turns(vcpu, to[round & 1] | mask, by);
		TEST_ASSERT(got == want || (may_keep && got == 3 - want),
			    "round %lu, level %d, %s: page %lu instead of %lu",
			    round, level, flushes[by], got, want);
		kept += got != want;
	}
	guest_turns(vcpu, to[1], FLUSH_CR4);
	return kept;
}

int main(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = vm_create_with_one_vcpu(&vcpu, guest_code);
	enum flush by;

	setbuf(stdout, NULL);
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, FIRST_GPA, SLOT, 2, 0);
	virt_map(vm, FIRST_GVA, FIRST_GPA, 1);
	virt_map(vm, OTHER_GVA, OTHER_GPA, 1);
	*(uint64_t *)addr_gpa2hva(vm, FIRST_GPA) = 1;
	*(uint64_t *)addr_gpa2hva(vm, OTHER_GPA) = 2;
	page_entries[0] = entry_gva(vcpu, FIRST_GVA, 1);
	page_entries[1] = entry_gva(vcpu, OTHER_GVA, 1);
	sync_global_to_guest(vm, page_entries);

	for (by = 0; by < NR_FLUSHES; by++)
		pr_info("%s: of %d, %lu pages were kept, %lu that are global, %lu tables\n",
			flushes[by], ROUNDS, turn(vcpu, 1, false, by),
			turn(vcpu, 1, true, by), turn(vcpu, 2, false, by));
	kvm_vm_free(vm);
	return 0;
}
