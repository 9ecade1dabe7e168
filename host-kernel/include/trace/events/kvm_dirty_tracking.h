/* SPDX-License-Identifier: GPL-2.0-only */
#if !defined(_TRACE_KVM_DIRTY_TRACKING_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_KVM_DIRTY_TRACKING_H

#include <linux/tracepoint.h>

#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvm_dirty_tracking

TRACE_EVENT(kvm_dirty_bitmap_fd,
	TP_PROTO(u32 slot, u64 size),
	TP_ARGS(slot, size),

	TP_STRUCT__entry(
		__field(u32, slot)
		__field(u64, size)
	),

	TP_fast_assign(
		__entry->slot = slot;
		__entry->size = size;
	),

	TP_printk("slot 0x%x, %llu bytes", __entry->slot, __entry->size)
);

/* The log was fetched without write-protecting; @words words had bits set. */
TRACE_EVENT(kvm_fetch_dirty_log,
	TP_PROTO(u16 as_id, short id, unsigned long words),
	TP_ARGS(as_id, id, words),

	TP_STRUCT__entry(
		__field(u16, as_id)
		__field(short, id)
		__field(unsigned long, words)
	),

	TP_fast_assign(
		__entry->as_id = as_id;
		__entry->id = id;
		__entry->words = words;
	),

	TP_printk("address space %u slot %d, %lu words dirty", __entry->as_id,
		  __entry->id, __entry->words)
);

#endif

/* This part must be outside protection */
#include <trace/define_trace.h>
