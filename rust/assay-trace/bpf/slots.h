// One 64-byte slot per call in this CPU's ring, and the file behind a descriptor.
#pragma once
#include "maps.h"

static __always_inline struct head *my_head(u32 cpu) { return bpf_map_lookup_elem(&heads, &cpu); }

static __always_inline void put(u64 start, u64 duration, u8 op, u8 flags, s64 offset, u64 count, u64 ino, u32 dev,
                                u64 file, u32 tid, s32 fd, s32 result)
{
    u32 cpu = bpf_get_smp_processor_id();
    struct head *h = my_head(cpu);
    if (!h)
        return;
    // Some slack: kernels that let a program be preempted may overshoot by as many as there are programs in flight
    if (h->head - *(volatile u64 *)&h->tail >= slots_per_cpu - 64) {
        __sync_fetch_and_add(&h->drops, 1);
        return;
    }
#ifdef RAW // kernels before 5.12 know no fetching add, and do not preempt programs either
    u64 at = h->head;
    h->head = at + 1;
#else
    u64 at = __sync_fetch_and_add(&h->head, 1);
#endif
    u32 index = cpu * slots_per_cpu + (at & (slots_per_cpu - 1));
    struct slot *s = bpf_map_lookup_elem(&slots, &index);
    if (!s)
        return;
    s->start = start;
    s->duration_op = duration << 16 | (u64)flags << 8 | op;
    s->offset = offset;
    s->count = count;
    s->ino = ino;
    s->tid = tid;
    s->fd = fd;
    s->result = result;
    s->dev = dev;
    u64 lap = at / slots_per_cpu + 1;
    barrier();
    *(volatile u64 *)&s->file_lap = file << 16 | (lap & 0xffff);
}

static __noinline int put_pending(struct pending *p, s32 result, u32 flags)
{
    if (!p)
        return 0;
    u64 now = bpf_ktime_get_ns();
    put(p->start, now - p->start, p->op, flags, p->offset, p->count, p->ino, p->dev, p->file, p->tid, p->fd, result);
    return 0;
}

static __always_inline struct file *file_of(struct task_struct *t, u32 fd)
{
    struct file *file = 0, **fds;
    struct files_struct *files = FIELD(t, files);
    if (!files)
        return 0;
    struct fdtable *table = FIELD(files, fdt);
    if (!table || fd >= FIELD(table, max_fds))
        return 0;
    fds = FIELD(table, fd);
    bpf_probe_read_kernel(&file, sizeof(file), fds + fd);
    return file;
}

// Regular files, directories and block devices of real file systems; neither sockets, pipes and memfds nor /proc and /sys.
static __always_inline int wanted_inode(struct inode *inode, u32 *dev)
{
    u32 mode = BPF_CORE_READ(inode, i_mode) & 0170000;
    struct super_block *sb = BPF_CORE_READ(inode, i_sb);
    *dev = BPF_CORE_READ(sb, s_dev);
    if (mode == 0060000) {
        *dev = BPF_CORE_READ(inode, i_rdev);
        return 1;
    }
    if (mode != 0100000 && mode != 0040000)
        return 0;
    if (BPF_CORE_READ(sb, s_flags) & (1 << 22)) // SB_KERNMOUNT: memfd, System V memory
        return 0;
    u64 magic = BPF_CORE_READ(sb, s_magic);
    return magic != 0x9fa0 && magic != 0x62656572 && magic != 0x63677270 && magic != 0x27e0eb && magic != 0x64626720 &&
           magic != 0x74726163 && magic != 0xcafe4a11 && magic != 0x73636673 && magic != 0x1cd1;
}

struct found { u64 file; u64 ino; u32 dev; };

// The file behind a descriptor, what is known of its inode kept in the task's state: most calls go to the file of the
// call before. The inode's number is read each time, a freed inode may come back at the same address.
static __always_inline int find(struct state *p, struct file *file, struct found *out)
{
    struct inode *inode = 0;
    unsigned long ino = 0;
    bpf_core_read(&inode, sizeof(inode), &file->f_inode);
    bpf_core_read(&ino, sizeof(ino), &inode->i_ino);
    if (p->inode != (u64)inode || p->ino != ino) {
        u32 dev = 0;
        p->wanted = wanted_inode(inode, &dev);
        p->inode = (u64)inode;
        p->ino = ino;
        p->dev = dev;
    }
    out->file = (u64)file;
    out->ino = ino;
    out->dev = p->dev;
    return p->wanted;
}

static __noinline u64 sum_iovecs(const void *vector, u64 n)
{
    u64 total = 0;
    for (u32 i = 0; i < 64; i++) {
        u64 pair[2];
        if (i >= n || bpf_probe_read_user(pair, sizeof(pair), vector + i * 16))
            break;
        total += pair[1];
    }
    return total;
}
