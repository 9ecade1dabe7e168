/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory slots of any shape, made of any kind of host memory. */
#ifndef SELFTEST_KVM_TEST_MEM_H
#define SELFTEST_KVM_TEST_MEM_H

#include "kvm_util.h"
#include "test_util.h"

/* Test memory is identity mapped, above all that the library maps. */
#define TEST_GPA		(4UL << 30)
#define TEST_SLOT		1

#define PAGES_2M		512UL
#define PAGES_1G		(512UL * 512)

/*
 * A memory slot that need not be aligned to what backs it.  The caller sets
 * @slot, @gpa and @npages, and the functions below the rest.
 */
struct test_mem {
	uint32_t slot;
	uint32_t flags;		/* those of the last test_mem_set() */
	uint64_t gpa;
	uint64_t npages;	/* of PAGE_SIZE */
	uint8_t *hva;
	void *map;
	size_t map_size;	/* in bytes */
	int fd;			/* -1 for anonymous memory */
};

/*
 * Maps memory of kind @src for @mem, and sets @mem->hva so that a guest page can
 * be as large as the host's.  The caller gives it to test_mem_unmap().
 *
 * Returns false, with nothing to unmap, if the host lacks the (huge) pages.
 */
bool test_mem_map(struct test_mem *mem, enum vm_mem_backing_src_type src);

/* Frees the memory of @mem.  No VM's slot is changed. */
void test_mem_unmap(struct test_mem *mem);

/* Creates the slot of @mem with @flags (KVM_MEM_*), or changes its flags. */
void test_mem_set(struct kvm_vm *vm, struct test_mem *mem, uint32_t flags);

/* Deletes the slot of @mem.  Its memory stays mapped. */
void test_mem_delete(struct kvm_vm *vm, struct test_mem *mem);

#endif /* SELFTEST_KVM_TEST_MEM_H */
