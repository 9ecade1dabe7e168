/* SPDX-License-Identifier: GPL-2.0-only */
#if !defined(_TRACE_KVM_WRITE_PROTECT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_KVM_WRITE_PROTECT_H

#include <linux/tracepoint.h>

#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvm_dirty

TRACE_EVENT(kvm_write_protect_all,
	TP_PROTO(u64 shadow_gen),
	TP_ARGS(shadow_gen),

	TP_STRUCT__entry(
		__field(u64, shadow_gen)
	),

	TP_fast_assign(
		__entry->shadow_gen = shadow_gen;
	),

	TP_printk("shadow generation %llu", __entry->shadow_gen)
);

TRACE_EVENT(kvm_write_protect_range,
	TP_PROTO(gfn_t start, gfn_t end),
	TP_ARGS(start, end),

	TP_STRUCT__entry(
		__field(gfn_t, start)
		__field(gfn_t, end)
	),

	TP_fast_assign(
		__entry->start = start;
		__entry->end = end;
	),

	TP_printk("gfn %llx to %llx", __entry->start, __entry->end)
);

/* The SPTE at this level that points to the table of @gfn became writable. */
TRACE_EVENT(kvm_make_writable,
	TP_PROTO(gfn_t gfn, int level),
	TP_ARGS(gfn, level),

	TP_STRUCT__entry(
		__field(gfn_t, gfn)
		__field(int, level)
	),

	TP_fast_assign(
		__entry->gfn = gfn;
		__entry->level = level;
	),

	TP_printk("gfn %llx level %d", __entry->gfn, __entry->level)
);

/* @tables tables of leaves were searched, and @pages pages were logged. */
TRACE_EVENT(kvm_collect_dirty_bits,
	TP_PROTO(gfn_t start, gfn_t end, u64 tables, u64 pages),
	TP_ARGS(start, end, tables, pages),

	TP_STRUCT__entry(
		__field(gfn_t, start)
		__field(gfn_t, end)
		__field(u64, tables)
		__field(u64, pages)
	),

	TP_fast_assign(
		__entry->start = start;
		__entry->end = end;
		__entry->tables = tables;
		__entry->pages = pages;
	),

	TP_printk("gfn %llx to %llx, %llu tables, %llu pages", __entry->start,
		  __entry->end, __entry->tables, __entry->pages)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH mmu
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE write_protect_trace

/* This part must be outside protection */
#include <trace/define_trace.h>
