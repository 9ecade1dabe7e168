// SPDX-License-Identifier: GPL-2.0-only
#include <sys/mman.h>

#include "processor.h"
#include "test_mem.h"

bool test_mem_map(struct test_mem *mem, enum vm_mem_backing_src_type src)
{
	size_t page = get_backing_src_pagesz(src);
	size_t offset = mem->gpa % page;
	int flags = vm_mem_backing_src_alias(src)->flag;

	mem->map_size = align_up(offset + mem->npages * PAGE_SIZE, page);
	if (src == VM_MEM_SRC_ANONYMOUS_THP)
		mem->map_size += page;
	mem->fd = -1;
	if (backing_src_is_shared(src))
		mem->fd = kvm_memfd_alloc(mem->map_size,
					  src == VM_MEM_SRC_SHARED_HUGETLB);
	mem->map = mmap(NULL, mem->map_size, PROT_READ | PROT_WRITE,
			flags | MAP_NORESERVE, mem->fd, 0);
	if (mem->map == MAP_FAILED && errno == ENOMEM)
		return false;
	TEST_ASSERT(mem->map != MAP_FAILED, "mmap failed: %s", strerror(errno));
	if (is_backing_src_hugetlb(src)) {
		/* MAP_NORESERVE would end in SIGBUS. */
		munmap(mem->map, mem->map_size);
		mem->map = mmap(NULL, mem->map_size, PROT_READ | PROT_WRITE,
				flags, mem->fd, 0);
		if (mem->map == MAP_FAILED)
			return false;
	}
	mem->hva = align_ptr_up(mem->map, page) + offset;
	if ((src == VM_MEM_SRC_ANONYMOUS || src == VM_MEM_SRC_ANONYMOUS_THP) &&
	    thp_configured())
		TEST_ASSERT(!madvise(mem->map, mem->map_size,
				     src == VM_MEM_SRC_ANONYMOUS ?
				     MADV_NOHUGEPAGE : MADV_HUGEPAGE),
			    "madvise failed: %s", strerror(errno));
	return true;
}

void test_mem_unmap(struct test_mem *mem)
{
	TEST_ASSERT(!munmap(mem->map, mem->map_size), "munmap failed");
	if (mem->fd >= 0)
		close(mem->fd);
}

void test_mem_set(struct kvm_vm *vm, struct test_mem *mem, uint32_t flags)
{
	mem->flags = flags;
	vm_set_user_memory_region(vm, mem->slot, flags, mem->gpa,
				  mem->npages * PAGE_SIZE, mem->hva);
}

void test_mem_delete(struct kvm_vm *vm, struct test_mem *mem)
{
	vm_set_user_memory_region(vm, mem->slot, 0, mem->gpa, 0, mem->hva);
}
