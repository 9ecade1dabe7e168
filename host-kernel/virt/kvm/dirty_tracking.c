// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fetching the dirty log without write-protecting, the dirty bitmap as a file
 * descriptor, and their capabilities.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/kvm_dirty_release.h>
#include <linux/kvm_dirty_tracking.h>
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#define CREATE_TRACE_POINTS
#include <trace/events/kvm_dirty_tracking.h>

DEFINE_STATIC_KEY_FALSE(kvm_dirty_bitmap_used);

static unsigned long summary_bits(const struct kvm_memory_slot *slot)
{
	return DIV_ROUND_UP(slot->npages, KVM_DIRTY_SUMMARY_PAGES);
}

/* The bitmap's life */

int kvm_dirty_bitmap_alloc(struct kvm *kvm, struct kvm_memory_slot *slot)
{
	size_t bytes = kvm_dirty_bitmap_bytes(slot);
	struct kvm_dirty_bitmap *bitmap;
	void *memory;

	bitmap = kzalloc(sizeof(*bitmap), GFP_KERNEL_ACCOUNT);
	if (!bitmap)
		return -ENOMEM;

	kref_init(&bitmap->ref);
	bitmap->bitmap_size = PAGE_ALIGN(bytes);
	bitmap->summary_size =
		PAGE_ALIGN(BITS_TO_LONGS(summary_bits(slot)) * sizeof(long));

	memory = __vmalloc(bitmap->bitmap_size + bitmap->summary_size + bytes,
			   GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!memory) {
		kfree(bitmap);
		return -ENOMEM;
	}

	bitmap->bitmap = memory;
	bitmap->summary = memory + bitmap->bitmap_size;
	bitmap->second = memory + bitmap->bitmap_size + bitmap->summary_size;
	if (kvm_dirty_log_manual_protect_and_init_set(kvm))
		bitmap_set(bitmap->summary, 0, summary_bits(slot));

	slot->shared_bitmap = bitmap;
	slot->dirty_bitmap = bitmap->bitmap;
	return 0;
}

void kvm_dirty_bitmap_log(struct kvm_dirty_bitmap *bitmap, unsigned long word,
			  unsigned long bits)
{
	atomic_long_or(bits, (atomic_long_t *)&bitmap->bitmap[word]);
	kvm_dirty_bitmap_summarize(bitmap, word * BITS_PER_LONG);
}

static void bitmap_release(struct kref *ref)
{
	struct kvm_dirty_bitmap *bitmap =
		container_of(ref, struct kvm_dirty_bitmap, ref);

	vfree(bitmap->bitmap);
	kfree(bitmap);
}

static void bitmap_put(struct kvm_dirty_bitmap *bitmap)
{
	kref_put(&bitmap->ref, bitmap_release);
}

void kvm_dirty_bitmap_drop(struct kvm_memory_slot *slot)
{
	kvm_arch_dirty_bitmap_drop(slot);
	bitmap_put(slot->shared_bitmap);
	slot->shared_bitmap = NULL;
}

/* The file */

static vm_fault_t bitmap_fault(struct vm_fault *vmf)
{
	struct kvm_dirty_bitmap *bitmap = vmf->vma->vm_file->private_data;
	unsigned long offset = vmf->pgoff << PAGE_SHIFT;

	if (offset >= bitmap->bitmap_size + bitmap->summary_size)
		return VM_FAULT_SIGBUS;

	vmf->page = vmalloc_to_page((void *)bitmap->bitmap + offset);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct bitmap_vm_ops = {
	.fault = bitmap_fault,
};

static int bitmap_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct kvm_dirty_bitmap *bitmap = file->private_data;
	unsigned long pages =
		(bitmap->bitmap_size + bitmap->summary_size) >> PAGE_SHIFT;

	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;

	if (vma->vm_pgoff > pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;

	vm_flags_clear(vma, VM_MAYEXEC);
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &bitmap_vm_ops;
	return 0;
}

static int bitmap_file_release(struct inode *inode, struct file *file)
{
	bitmap_put(file->private_data);
	return 0;
}

static const struct file_operations bitmap_fops = {
	.owner = THIS_MODULE,
	.release = bitmap_file_release,
	.mmap = bitmap_mmap,
	.llseek = noop_llseek,
};

/* Finds the slot that an ioctl names.  Under slots_lock. */
static int find_slot(struct kvm *kvm, u32 number, struct kvm_memory_slot **slot)
{
	int as_id = number >> 16, id = (u16)number;

	if (as_id >= kvm_arch_nr_memslot_as_ids(kvm) || id >= KVM_USER_MEM_SLOTS)
		return -EINVAL;

	*slot = id_to_memslot(__kvm_memslots(kvm, as_id), id);
	return *slot ? 0 : -ENOENT;
}

/* On success, *@bitmap has one reference more, which is the caller's. */
static int find_bitmap(struct kvm *kvm, u32 number,
		       struct kvm_dirty_bitmap **bitmap)
{
	struct kvm_memory_slot *slot;
	int r;

	mutex_lock(&kvm->slots_lock);
	r = find_slot(kvm, number, &slot);
	if (!r && !slot->shared_bitmap)
		r = -ENOENT;
	if (!r) {
		*bitmap = slot->shared_bitmap;
		kref_get(&(*bitmap)->ref);
	}
	mutex_unlock(&kvm->slots_lock);
	return r;
}

static int get_bitmap_fd(struct kvm *kvm, struct kvm_dirty_bitmap_fd __user *argp)
{
	struct kvm_dirty_bitmap_fd args;
	struct kvm_dirty_bitmap *bitmap;
	struct file *file;
	int fd, r;

	if (!kvm->dirty_tracking.bitmap_fd || kvm->dirty_ring_size)
		return -ENXIO;
	if (copy_from_user(&args, argp, sizeof(args)))
		return -EFAULT;
	if (args.flags)
		return -EINVAL;

	r = find_bitmap(kvm, args.slot, &bitmap);
	if (r)
		return r;

	args.bitmap_offset = 0;
	args.bitmap_size = bitmap->bitmap_size;
	args.summary_offset = bitmap->bitmap_size;
	args.summary_size = bitmap->summary_size;
	if (copy_to_user(argp, &args, sizeof(args))) {
		r = -EFAULT;
		goto put;
	}

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		r = fd;
		goto put;
	}

	/* The file takes over the reference. */
	file = anon_inode_getfile("kvm-dirty-bitmap", &bitmap_fops, bitmap,
				  O_RDWR);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		r = PTR_ERR(file);
		goto put;
	}

	fd_install(fd, file);
	trace_kvm_dirty_bitmap_fd(args.slot, args.bitmap_size);
	return fd;
put:
	bitmap_put(bitmap);
	return r;
}

/* Fetching the log */

unsigned long kvm_dirty_word_mask(const struct kvm_memory_slot *slot,
				  unsigned long i)
{
	if (i < slot->npages / BITS_PER_LONG)
		return ~0UL;
	return BITMAP_LAST_WORD_MASK(slot->npages);
}

bool kvm_dirty_log_has_flags(struct kvm *kvm, const struct kvm_dirty_log *log)
{
	return kvm->dirty_tracking.log_without_write_protect && log->padding1;
}

static void give_back(struct kvm_memory_slot *slot, const unsigned long *words,
		      unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count; i++) {
		kvm_dirty_bitmap_resched(i);
		if (!words[i])
			continue;
		if (slot->shared_bitmap)
			kvm_dirty_bitmap_log(slot->shared_bitmap, i, words[i]);
		else
			atomic_long_or(words[i], (atomic_long_t *)
				       &slot->dirty_bitmap[i]);
	}
}

int kvm_fetch_dirty_log(struct kvm *kvm, struct kvm_memory_slot *slot,
			const struct kvm_dirty_log *log)
{
	unsigned long *words = kvm_second_dirty_bitmap(slot);
	unsigned long bytes = kvm_dirty_bitmap_bytes(slot);
	unsigned long i, count = bytes / sizeof(long), dirty = 0;

	if (log->padding1 != KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT)
		return -EINVAL;

	kvm_arch_sync_dirty_log(kvm, slot);

	for (i = 0; i < count; i++) {
		kvm_dirty_bitmap_resched(i);
		words[i] = 0;
		if (!READ_ONCE(slot->dirty_bitmap[i]))
			continue;
		words[i] = xchg(&slot->dirty_bitmap[i], 0);
		dirty++;
	}

	trace_kvm_fetch_dirty_log(slot->as_id, slot->id, dirty);
	if (!copy_to_user(log->dirty_bitmap, words, bytes))
		return 0;

	give_back(slot, words, count);
	return -EFAULT;
}

/* Capabilities and ioctls */

int kvm_dirty_tracking_check_extension(long ext)
{
	switch (ext) {
	case KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT:
	case KVM_CAP_DIRTY_BITMAP_FD:
		return 1;
	default:
		return 0;
	}
}

bool kvm_dirty_tracking_takes(const struct kvm_enable_cap *cap, unsigned int used)
{
	const size_t unused = sizeof(cap->args) - used * sizeof(cap->args[0]);

	return !cap->flags && !memchr_inv(&cap->args[used], 0, unused);
}

int kvm_dirty_tracking_enable_cap(struct kvm *kvm,
				  const struct kvm_enable_cap *cap)
{
	bool *what;

	switch (cap->cap) {
	case KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT:
		what = &kvm->dirty_tracking.log_without_write_protect;
		break;
	case KVM_CAP_DIRTY_BITMAP_FD:
		what = &kvm->dirty_tracking.bitmap_fd;
		break;
	default:
		return -EINVAL;
	}

	if (!kvm_dirty_tracking_takes(cap, 0))
		return -EINVAL;

	/* Not under slots_lock: it takes locks that come before it. */
	if (what == &kvm->dirty_tracking.bitmap_fd)
		static_branch_enable(&kvm_dirty_bitmap_used);

	mutex_lock(&kvm->slots_lock);
	*what = true;
	mutex_unlock(&kvm->slots_lock);
	return 0;
}

long kvm_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				 unsigned long arg)
{
	if (ioctl == KVM_GET_DIRTY_BITMAP_FD)
		return get_bitmap_fd(kvm, (void __user *)arg);
	return -ENOTTY;
}
