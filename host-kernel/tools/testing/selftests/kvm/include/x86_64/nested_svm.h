/* SPDX-License-Identifier: GPL-2.0-only */
/* How nested_guest.h runs an L2 by SVM. */
#ifndef SELFTEST_KVM_NESTED_SVM_H
#define SELFTEST_KVM_NESTED_SVM_H

#include "svm_util.h"

/*
 * In L2: exits to L1, and returns when L1 runs L2 again.  It keeps the registers
 * that a function has to keep.
 */
void nested_svm_leave(void);

/*
 * In L1: has the next nested_svm_run() use the nested page tables at @root, and
 * flush all TLBs.
 */
void nested_svm_use_root(struct svm_test_data *svm, vm_paddr_t root);

/*
 * In L1: has the next nested_svm_run() begin an L2 at @rip, with the stack
 * pointer @rsp and the nested page tables at @root, or none if @root is 0.
 */
void nested_svm_start(struct svm_test_data *svm, void *rip, void *rsp,
		      vm_paddr_t root);

/* In L1: runs L2 until nested_svm_leave().  Any other exit fails the test. */
void nested_svm_run(struct svm_test_data *svm);

#endif /* SELFTEST_KVM_NESTED_SVM_H */
