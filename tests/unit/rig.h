/*
 * An engine on a fake KVM, and the oracle that finds a lost page.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The oracle is a migration: each block of guest memory has a shadow, into
 * which a page is copied when it is published or, where it has to be re-armed
 * first, after kvmd_slot_clear().  The copy is taken at the
 * earliest moment the engine allows, so that a page published too early is
 * copied too early.  When the vCPUs stand still and a last sync is done, shadow
 * and memory must be equal.
 */

#ifndef RIG_H
#define RIG_H

#include "fake_kvm.h"
#include "kvmdirty.h"

/*
 * Under ThreadSanitizer, which looks for races and takes ten times as long,
 * loops of one thread run so many times less often.
 */
#ifdef __SANITIZE_THREAD__
#define RIG_LESS_OFTEN 11       /* some cases alternate, by 2 or by 3 */
#else
#define RIG_LESS_OFTEN 1
#endif

typedef struct RigBlock {
    uint64_t tag;
    uint64_t pages;
    uint64_t *memory;           /* by page: the last stamp the guest wrote */
    uint64_t *shadow;           /* by page: the last stamp copied */
    uint64_t *logged;           /* by page: how often KVM logged it */
    uint64_t *published;        /* by page: how often it was published */
    bool *pending;              /* published, and not yet re-armed */
    uint32_t slot_id;
    bool attached;              /* the block is in a slot */
    bool tracked;               /* it is logged: shadow has to follow memory */
} RigBlock;

typedef struct Rig Rig;

struct Rig {
    FakeKvm *fake;
    KvmDirty *kvmd;
    bool clears;                /* kvmd_clears() */
    GPtrArray *blocks;          /* RigBlock *; the tag is the index + 1 */
    RigBlock *at[FAKE_SPACES][FAKE_SLOTS];
    GPtrArray *warnings;        /* char * */
    uint64_t stamp;
    uint64_t collected;         /* pages told to collected() */
    uint64_t overflowed;        /* calls of overflowed() */
    unsigned kicks;
    uint64_t chunk;             /* pages per kvmd_slot_clear(); 0: a block */
    unsigned gpa_shift;         /* slots are at multiples of 1 << it */
    uint64_t gpa_offset;        /* of each slot, from there */

    /*
     * What publish() has to obey.  Neither holds where the ring may overflow:
     * there all pages are published.
     */
    bool strict;                /* each page that is copied is armed (I3) */
    bool exact;                 /* and was logged, as often as published */
    bool removing;              /* a slot: what it left un-armed is published */
    /* Copy a page even if it could not be re-armed, as QEMU does. */
    bool heedless;
    bool held;                  /* reaper_held() */
    bool ahead;                 /* a sync may leave what is new */
    void (*watch)(Rig *r);      /* called by publish(), if set */
    void (*returned)(Rig *r);   /* called when an ioctl has returned, if set */
    GThread *reaper;
    GMutex copy_lock;
};

/* An engine on @fake, which goes with it; NULL if the engine refuses. */
Rig *rig_new_on(FakeKvm *fake, const KvmDirtyConfig *config, GError **error);
/* The same, but the test fails if the engine refuses. */
Rig *rig_new(const FakeConfig *fake, const KvmDirtyConfig *config);
Rig *rig_new_ring(uint32_t size);
Rig *rig_new_log(int manual_caps);
/* On a patched KVM, which offers all mechanisms. */
Rig *rig_new_patched(KvmDirtyMechanism mechanism);
void rig_free(Rig *r);

/* A block of memory that is in no slot. */
RigBlock *rig_block(Rig *r, uint64_t pages);
/* A block of memory in slot @slot_id, logged if @log. */
RigBlock *rig_add(Rig *r, uint32_t slot_id, uint64_t pages, bool log);
/*
 * These may fail, which changes nothing; they return what kvmd_slot_set()
 * does.  A slot that goes leaves its last contents in the shadow.
 */
int rig_try_attach(Rig *r, RigBlock *b, uint32_t slot_id, bool log);
int rig_try_remove(Rig *r, uint32_t slot_id);
int rig_try_log(Rig *r, uint32_t slot_id, bool log);
/* The same, but they must succeed; they then check the shadow. */
void rig_attach(Rig *r, RigBlock *b, uint32_t slot_id, bool log);
void rig_remove(Rig *r, uint32_t slot_id);
void rig_log(Rig *r, uint32_t slot_id, bool log);
/* KVM_SET_USER_MEMORY_REGION for @b; returns what kvmd_slot_set() does. */
int rig_set(Rig *r, const RigBlock *b, uint32_t slot_id, uint64_t size,
            uint32_t flags);

typedef struct RigVcpu {
    Rig *rig;
    FakeVcpu *fake;
    KvmDirtyVcpu *kvmd;         /* NULL while removed */
    unsigned long id;
    bool in_full;               /* its thread is in kvmd_vcpu_ring_full() */
    int stats_fd;               /* KVM_GET_STATS_FD's; 0 if it has none */
} RigVcpu;

RigVcpu *rig_vcpu(Rig *r, unsigned long id);
void rig_vcpu_add(RigVcpu *v);
void rig_vcpu_remove(RigVcpu *v);
void rig_vcpu_free(RigVcpu *v);

/*
 * Run the vCPU up to its next write: it may have to answer full rings first.
 * A vCPU that needs more than RIG_FULL_MAX of them is stuck.
 */
#define RIG_FULL_MAX 1000
void rig_enter(RigVcpu *v);

/* The vCPU writes a new stamp: after rig_enter(), or even into a full ring. */
void rig_write(RigVcpu *v, uint32_t slot_id, uint64_t page);
void rig_write_range(RigVcpu *v, uint32_t slot_id, uint64_t first,
                     uint64_t pages);
void rig_force(RigVcpu *v, uint32_t slot_id, uint64_t page);

/* kvmd_sync(), re-arm and copy; returns what kvmd_sync() returned. */
int rig_sync(Rig *r);
/* kvmd_slot_sync(), and copy; pages yet to be re-armed stay pending. */
int rig_slot_sync(Rig *r, uint32_t slot_id);
/* kvmd_sync() alone: pages yet to be re-armed stay pending. */
int rig_harvest(Rig *r);
/* kvmd_look(): pages yet to be re-armed stay pending. */
void rig_look(Rig *r);
/* kvmd_sync_ahead(): pages yet to be re-armed stay pending. */
void rig_ahead(Rig *r, KvmDirtyAhead of);
/*
 * rig_sync(), after a kvmd_sync_ahead() of the end if one of a round may have
 * it leave something.  Only one thread calls these two.
 */
int rig_last_sync(Rig *r);
/* kvmd_switch(); returns what that returned. */
bool rig_try_switch(Rig *r, KvmDirtyMechanism mechanism, GError **error);
/* The same, but it must succeed. */
void rig_switch(Rig *r, KvmDirtyMechanism mechanism);
/* Re-arm and copy the pending pages of a block, by chunks. */
void rig_clear(Rig *r, RigBlock *b);
/* Copy them only: who is to re-arm them knows no slot that has the block. */
void rig_read_elsewhere(Rig *r, RigBlock *b);

/* Shadow and memory of all tracked blocks are equal. */
void rig_check(Rig *r);
/* No page was published more often than logged, nor less since the last. */
void rig_check_exact(Rig *r);
/* Forget what was logged and published: for rig_check_exact(). */
void rig_forget(Rig *r);

/* How many warnings had @text in them. */
int rig_warned(const Rig *r, const char *text);
/* KvmDirtyStats.overflows; overflowed() was called for each of them. */
uint64_t rig_overflows(Rig *r);
uint64_t rig_published(const RigBlock *b);

void rig_reaper_start(Rig *r);
void rig_reaper_stop(Rig *r);

#endif
