/* SPDX-License-Identifier: GPL-2.0-only */
/* Operations that make VMs, vCPUs and slots, run guests, and end them. */
#ifndef SELFTEST_KVM_FUZZ_OPS_VM_H
#define SELFTEST_KVM_FUZZ_OPS_VM_H

#include "world.h"

void op_create_vm(struct op_call *call);
void op_create_vcpu(struct op_call *call);
void op_enable_cap(struct op_call *call);
void op_enable_early(struct op_call *call);
void op_set_slot(struct op_call *call);
void op_add_slot(struct op_call *call);
void op_change_slot(struct op_call *call);
void op_end_vm(struct op_call *call);
void op_run(struct op_call *call);
void op_set_clock(struct op_call *call);
void op_start_witness(struct op_call *call);
void op_copy_witness(struct op_call *call);
void op_check_witness(struct op_call *call);

#endif /* SELFTEST_KVM_FUZZ_OPS_VM_H */
