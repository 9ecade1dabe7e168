/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Operations on what was written: harvest, re-arm, collect, split, and what
 * userspace can do to the bitmaps and rings that it has mapped.
 */
#ifndef SELFTEST_KVM_FUZZ_OPS_DIRTY_H
#define SELFTEST_KVM_FUZZ_OPS_DIRTY_H

#include "world.h"

void op_get_log(struct op_call *call);
void op_clear_log(struct op_call *call);
void op_protect_all(struct op_call *call);
void op_range(struct op_call *call);
void op_get_bitmap(struct op_call *call);
void op_map_bitmap(struct op_call *call);
void op_drop_bitmap(struct op_call *call);
void op_abuse_bitmap(struct op_call *call);
void op_pass_bitmap(struct op_call *call);
void op_scribble(struct op_call *call);
void op_write_ring(struct op_call *call);
void op_reset_rings(struct op_call *call);

#endif /* SELFTEST_KVM_FUZZ_OPS_DIRTY_H */
