// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "mmu_stats.h"

bool vm_has_stat(struct kvm_vm *vm, const char *name)
{
	uint64_t data = ~0ULL;

	__vm_get_stat(vm, name, &data, 1);
	return data != ~0ULL;
}

uint64_t vcpu_stat(struct kvm_vcpu *vcpu, const char *name)
{
	struct kvm_stats_desc *descs, *desc;
	int fd = vcpu_get_stats_fd(vcpu), i;
	struct kvm_stats_header header;
	uint64_t value = ~0ULL;

	read_stats_header(fd, &header);
	descs = read_stats_descriptors(fd, &header);
	for (i = 0; i < header.num_desc; i++) {
		desc = get_stats_descriptor(descs, i, &header);
		if (!strcmp(desc->name, name))
			read_stat_data(fd, &header, desc, &value, 1);
	}
	free(descs);
	close(fd);
	TEST_ASSERT(value != ~0ULL, "KVM does not count %s", name);
	return value;
}

uint64_t vcpu_page_faults(struct kvm_vcpu *vcpu)
{
	return vcpu_stat(vcpu, "pf_taken");
}

uint64_t meminfo_kib(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long value, kib = ~0UL;
	char line[128], found[64];

	TEST_ASSERT(f, "no /proc/meminfo");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63[^:]: %lu", found, &value) == 2 &&
		    !strcmp(found, name))
			kib = value;
	fclose(f);
	return kib;
}

uint64_t page_table_kib(void)
{
	return meminfo_kib("SecPageTables");
}
