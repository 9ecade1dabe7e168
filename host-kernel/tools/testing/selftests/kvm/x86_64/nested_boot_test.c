// SPDX-License-Identifier: GPL-2.0-only
/*
 * What it takes to run nested guests that come and go, and what is left of them:
 * L1 boots some at a time, each in page tables that it builds out of a pool of
 * pages, and ends them all by clearing the one entry that leads to the tables.
 *
 * Prints lines of a name, numbers and a unit.
 */
#define _GNU_SOURCE /* for program_invocation_name */
#include <time.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_tracking.h"
#include "mmu_stats.h"
#include "nested_guest.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "touching_guest.h"

#define POOL_GPA	(TEST_GPA - PG_SIZE_1G)
#define POOL_SLOT	2
#define ENTRIES		512UL

/* The iterations whose guests' tables are in different pages. */
#define POOL_PARTS	3

/* Of one guest: the root, its first PDPT, a page directory, page tables. */
enum { ROOT, PDPT, PD, PT };

static struct {
	uint64_t guests;
	uint64_t iterations;
	uint64_t tables;	/* page tables, each for 2 MiB of a guest */
	uint64_t code;		/* the entry of a PDPT that maps what all need */
	uint64_t page;		/* the bits of an entry for a page */
	uint64_t next;		/* whose turn it is, from 0 */
} control = { .guests = 10, .iterations = 20, .tables = 4 };

static struct nested_vcpu nested;

static uint64_t pool_page(uint64_t guest, uint64_t page)
{
	guest %= POOL_PARTS * control.guests;
	return POOL_GPA + (guest * (PT + control.tables) + page) * PAGE_SIZE;
}

/* In L1, where the pool is identity mapped. */
static uint64_t *pool_table(uint64_t guest, uint64_t page)
{
	return (uint64_t *)pool_page(guest, page);
}

static void boot_build(uint64_t guest)
{
	uint64_t i;

	pool_table(guest, PDPT)[0] = control.code;
	pool_table(guest, PDPT)[TEST_GPA / PG_SIZE_1G] =
		pool_page(guest, PD) | NESTED_TABLE;
	for (i = 0; i < control.tables; i++)
		pool_table(guest, PD)[i] = pool_page(guest, PT + i) | NESTED_TABLE;
	for (i = 0; i < control.tables * ENTRIES; i++)
		pool_table(guest, PT)[i] = (TEST_GPA + i * PAGE_SIZE) | control.page;
	WRITE_ONCE(pool_table(guest, ROOT)[0],
		   pool_page(guest, PDPT) | NESTED_TABLE);
}

/* A boot: all of the guest's memory is written once. */
static void boot_l2(uint64_t arg)
{
	uint64_t i;

	for (;;) {
		for (i = 0; i < control.tables * ENTRIES; i++)
			guest_touch(GUEST_WRITE, TEST_GPA + i * PAGE_SIZE, i);
		nested_leave(&nested);
	}
}

static void boot_l1(void)
{
	uint64_t i, first;

	nested.root = pool_page(0, ROOT);
	nested_start(&nested, boot_l2, 0);
	for (;;) {
		first = READ_ONCE(control.next);
		for (i = first; i < first + control.guests; i++) {
			boot_build(i);
			nested_use_root(&nested, pool_page(i, ROOT));
			nested_run(&nested);
		}
		for (i = first; i < first + control.guests; i++)
			WRITE_ONCE(pool_table(i, ROOT)[0], 0);
		WRITE_ONCE(control.next, first + control.guests);
		GUEST_SYNC(0);
	}
}

/* The tables for what L2 needs of L1's memory, of which all guests share one. */
static uint64_t code_entry(struct kvm_vm *vm)
{
	vm_paddr_t root = nested_root_alloc(vm);
	uint64_t *entry = addr_gpa2hva(vm, root);

	return *(uint64_t *)addr_gpa2hva(vm, *entry & PHYSICAL_PAGE_MASK);
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void run_boots(struct kvm_vm *vm, struct kvm_vcpu *vcpu)
{
	uint64_t tables = page_table_kib(), *spent, start, i;
	uint64_t zapped = vm_get_stat(vm, "mmu_shadow_zapped");

	spent = calloc(control.iterations, sizeof(*spent));
	TEST_ASSERT(spent, "no memory");
	for (i = 0; i < control.iterations; i++) {
		start = now();
		guest_finish(vcpu);
		spent[i] = (now() - start) / control.guests;
	}
	printf("boots");
	for (i = 0; i < control.iterations; i++)
		printf(" %lu", spent[i]);
	printf(" ns\nboot.first %lu ns\nboot.last %lu ns\n", spent[0],
	       spent[control.iterations - 1]);
	printf("left.page-tables %lu KiB\n", page_table_kib() - tables);
	printf("zapped %lu pages\n",
	       vm_get_stat(vm, "mmu_shadow_zapped") - zapped);
	free(spent);
}

static void test_boots(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA,
		.npages = control.tables * PAGES_2M,
	};
	struct test_mem pool = {
		.slot = POOL_SLOT, .gpa = POOL_GPA,
		.npages = POOL_PARTS * control.guests * (PT + control.tables),
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = __vm_create(VM_SHAPE_DEFAULT, 1, 0);
	uint64_t start;

	/* As a VMM does that means to migrate. */
	if (kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM))
		vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	vcpu = vm_vcpu_add(vm, 0, boot_l1);
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	TEST_ASSERT(test_mem_map(&pool, VM_MEM_SRC_ANONYMOUS), "no memory");
	memset(mem.hva, 1, mem.npages * PAGE_SIZE);
	test_mem_set(vm, &mem, 0);
	test_mem_set(vm, &pool, 0);
	guest_map(vm, TEST_GPA, mem.npages * PAGE_SIZE);
	guest_map(vm, POOL_GPA, pool.npages * PAGE_SIZE);
	nested_vcpu_alloc(vm, 0, &nested);
	control.code = code_entry(vm);
	control.page = nested_page();
	sync_global_to_guest(vm, nested);
	sync_global_to_guest(vm, control);

	run_boots(vm, vcpu);
	start = now();
	test_mem_delete(vm, &mem);
	printf("delete-slot %lu ns\n", now() - start);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	test_mem_unmap(&pool);
}

int main(int argc, char *argv[])
{
	int opt;

	setbuf(stdout, NULL);
	while ((opt = getopt(argc, argv, "hg:i:m:")) != -1) {
		switch (opt) {
		case 'g':
			control.guests = strtoul(optarg, NULL, 0);
			break;
		case 'i':
			control.iterations = strtoul(optarg, NULL, 0);
			break;
		case 'm':
			control.tables = strtoul(optarg, NULL, 0) / 2;
			break;
		default:
			printf("usage: %s [-h] [-g guests] [-i iterations] [-m MiB]\n"
			       " -g: at a time (default 10)\n"
			       " -m: of each guest, 2 to 1024 (default 8)\n",
			       argv[0]);
			return 0;
		}
	}
	TEST_ASSERT(control.guests && control.iterations && control.tables &&
		    control.tables <= ENTRIES, "see -h for what is allowed");
	TEST_REQUIRE(nested_guests_supported());
	test_boots();
	return 0;
}
