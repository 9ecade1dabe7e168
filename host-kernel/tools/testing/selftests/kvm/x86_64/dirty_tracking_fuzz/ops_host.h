/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Operations on what is around KVM: the memory that slots are made of, processes
 * and module parameters.
 */
#ifndef SELFTEST_KVM_FUZZ_OPS_HOST_H
#define SELFTEST_KVM_FUZZ_OPS_HOST_H

#include "world.h"

void op_advise(struct op_call *call);
void op_mprotect(struct op_call *call);
void op_remap(struct op_call *call);
void op_write_memory(struct op_call *call);
void op_disturb_witness(struct op_call *call);
void op_fork(struct op_call *call);
void op_set_parameter(struct op_call *call);
void op_check_extension(struct op_call *call);

/* Has the host merge and collapse pages, and refuse them, all the time. */
void set_up_host(void);

#endif /* SELFTEST_KVM_FUZZ_OPS_HOST_H */
