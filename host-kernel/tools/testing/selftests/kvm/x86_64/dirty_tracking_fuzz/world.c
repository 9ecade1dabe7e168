// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "test_util.h"
#include "processor.h"
#include "world.h"

int kvm_fd;
struct vm vms[NR_VMS];
struct bitmap bitmaps[NR_BITMAPS];
bool verbose;

static struct kvm_cpuid2 *supported;

void close_shared(int *fd)
{
	int had = __atomic_exchange_n(fd, -1, __ATOMIC_SEQ_CST);

	if (had >= 0)
		close(had);
}

int set_region(int fd, uint32_t slot, const struct slot *what)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.flags = what->flags,
		.guest_phys_addr = what->gpa,
		.memory_size = what->npages * PAGE,
		.userspace_addr = what->hva,
	};

	return ioctl(fd, KVM_SET_USER_MEMORY_REGION, &region);
}

void create_vm(int number)
{
	struct slot code = {
		.gpa = CODE_GPA, .npages = CODE_SIZE / PAGE, .hva = CODE_BASE,
	};
	int fd, tries;

	/* Signals are on their way, and faults. */
	for (tries = 0, fd = -1; fd < 0 && tries < 4; tries++)
		fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	if (fd < 0)
		return;
	set_region(fd, CODE_SLOT, &code);
	set_region(fd, CODE_SLOT | 1 << 16, &code);
	fd = __atomic_exchange_n(&vms[number].fd, fd, __ATOMIC_SEQ_CST);
	if (fd >= 0)
		close(fd);
}

void create_vcpu(int vm, int number)
{
	uint64_t run = run_of(vm, number);
	int fd = ioctl(READ_ONCE(vms[vm].fd), KVM_CREATE_VCPU, number);

	if (fd < 0)
		return;
	fail_alarm_ends_run(fd);
	ioctl(fd, KVM_SET_CPUID2, supported);
	map_at(run, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map_at(run + RING_OFFSET, RUN_ROOM - RING_OFFSET,
	       PROT_READ | PROT_WRITE, MAP_SHARED, fd,
	       KVM_DIRTY_LOG_PAGE_OFFSET * PAGE);
	if (has_svm)
		set_msr(fd, MSR_VM_HSAVE_PA, code_gpa(PAGE_HSAVE));
	fd = __atomic_exchange_n(&vms[vm].vcpus[number], fd, __ATOMIC_SEQ_CST);
	if (fd >= 0)
		close(fd);
}

static void read_cpu(void)
{
	const int max = 256;
	int i;

	supported = calloc(1, sizeof(*supported) + max * sizeof(supported->entries[0]));
	supported->nent = max;
	TEST_ASSERT(!ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, supported),
		    "KVM_GET_SUPPORTED_CPUID failed: %s", strerror(errno));
	top_gpa = 1ULL << 36;
	for (i = 0; i < supported->nent; i++) {
		if (supported->entries[i].function == 0x80000008)
			top_gpa = 1ULL << (supported->entries[i].eax & 0xff);
		if (supported->entries[i].function == 0x80000001)
			has_svm = supported->entries[i].ecx & 4;
	}
	/* What is below is all in the first of the guest's page tables. */
	if (top_gpa < 2 * MAPPED_BY_ONE)
		top_gpa = 2 * MAPPED_BY_ONE;
}

void make_world(void)
{
	int i, j;

	kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	TEST_ASSERT(kvm_fd >= 0, "no /dev/kvm: %s", strerror(errno));
	read_cpu();
	make_guest();
	map_backings();
	unmap_at(MOVED_BASE, MEMORY_SIZE);
	unmap_at(BITMAPS_BASE, NR_BITMAPS * BITMAP_ROOM);
	map_memory(RUNS_BASE, NR_VMS * NR_VCPUS * RUN_ROOM,
		   PROT_READ | PROT_WRITE);
	for (i = 0; i < NR_BITMAPS; i++)
		bitmaps[i].fd = -1;
	for (i = 0; i < NR_VMS; i++) {
		vms[i].fd = -1;
		for (j = 0; j < NR_VCPUS; j++)
			vms[i].vcpus[j] = -1;
	}
}
