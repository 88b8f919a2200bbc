// Records with names, for the calls that open or change names or move data between two files.
#pragma once
#include "slots.h"

static __noinline int walk(struct scratch *s, u64 dentry_address, u64 mount_address)
{
    if (!s)
        return 0;
    struct dentry *dentry = (void *)dentry_address;
    struct vfsmount *vfs = (void *)mount_address;
    struct mount *mount = (void *)vfs - bpf_core_field_offset(struct mount, mnt);
    struct dentry *root = BPF_CORE_READ(vfs, mnt_root);
    for (u32 i = 0; i < 48; i++) {
        if (dentry == root) {
            struct mount *parent = BPF_CORE_READ(mount, mnt_parent);
            if (parent == mount)
                break;
            dentry = BPF_CORE_READ(mount, mnt_mountpoint);
            mount = parent;
            root = BPF_CORE_READ(mount, mnt.mnt_root);
            continue;
        }
        struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
        if (parent == dentry)
            break;
        const unsigned char *name = BPF_CORE_READ(dentry, d_name.name);
        u32 at = *(volatile u32 *)&s->at;
        if (at >= DATA_MAX)
            break;
        int got = bpf_probe_read_kernel_str(&s->data[at], 256, name);
        if (got < 0)
            break;
        s->at = at + got;
        dentry = parent;
    }
    return 0;
}

static __noinline int read_name(struct scratch *s, const void *user)
{
    if (!s)
        return 0;
    u32 at = *(volatile u32 *)&s->at;
    if (at >= DATA_MAX)
        return 0;
    int got = bpf_probe_read_user_str(&s->data[at], 4096, user);
    if (got > 0)
        s->at = at + got;
    return 0;
}

#define AT_FDCWD -100

// Base directory (unless the name is absolute) and name; which = 0 or 2.
static __noinline int path_argument(struct scratch *s, s32 dir, const void *user, u32 which)
{
    if (!s)
        return 0;
    char first = 0;
    bpf_probe_read_user(&first, 1, user);
    u32 begin = *(volatile u32 *)&s->at;
    if (first != '/') {
        struct task_struct *t = (void *)bpf_get_current_task();
        struct dentry *dentry = 0;
        struct vfsmount *mnt = 0;
        if (dir == AT_FDCWD) {
            dentry = BPF_CORE_READ(t, fs, pwd.dentry);
            mnt = BPF_CORE_READ(t, fs, pwd.mnt);
        } else {
            struct file *file = 0, **fds = BPF_CORE_READ(t, files, fdt, fd);
            if ((u32)dir < BPF_CORE_READ(t, files, fdt, max_fds))
                bpf_probe_read_kernel(&file, sizeof(file), fds + (u32)dir);
            if (file) {
                dentry = BPF_CORE_READ(file, f_path.dentry);
                mnt = BPF_CORE_READ(file, f_path.mnt);
            }
        }
        if (dentry)
            walk(s, (u64)dentry, (u64)mnt);
    }
    u32 middle = *(volatile u32 *)&s->at;
    read_name(s, user);
    u32 end = *(volatile u32 *)&s->at;
    if (which == 0) {
        s->record.length[0] = middle - begin;
        s->record.length[1] = end - middle;
    } else {
        s->record.length[2] = middle - begin;
        s->record.length[3] = end - middle;
    }
    return 0;
}

static __noinline int send(struct scratch *s)
{
    if (!s)
        return 0;
    u64 length = sizeof(struct record) + *(volatile u32 *)&s->at;
    if (length > sizeof(struct record) + sizeof(s->data))
        return 0;
    if (bpf_ringbuf_output(&rare, s, length, BPF_RB_NO_WAKEUP)) {
        struct head *h = my_head(bpf_get_smp_processor_id());
        if (h)
            __sync_fetch_and_add(&h->rare_drops, 1);
    }
    return 0;
}

static __always_inline struct scratch *fresh(u8 type, u8 op, u64 start, u64 now, s64 result)
{
    u32 zero = 0;
    struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);
    if (!s)
        return 0;
    __builtin_memset(&s->record, 0, sizeof(s->record));
    u64 id = bpf_get_current_pid_tgid();
    s->at = 0;
    s->record.type = type;
    s->record.op = op;
    s->record.tid = id;
    s->record.tgid = id >> 32;
    s->record.start = start;
    s->record.duration = now - start;
    s->record.result = result;
    s->record.fd = -1;
    s->record.fd2 = -1;
    return s;
}

static __always_inline int describe(struct scratch *s, struct file *file, u32 second)
{
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    u32 dev = 0;
    int wanted = wanted_inode(inode, &dev);
    if (second) {
        s->record.file2 = (u64)file;
        s->record.ino2 = BPF_CORE_READ(inode, i_ino);
        s->record.dev2 = dev;
        return wanted;
    }
    s->record.file = (u64)file;
    s->record.ino = BPF_CORE_READ(inode, i_ino);
    s->record.dev = dev;
    s->record.mode = BPF_CORE_READ(inode, i_mode);
    s->record.size = BPF_CORE_READ(inode, i_size);
    s->record.flags = BPF_CORE_READ(file, f_mode) & 0x100000 ? 1 : 0; // FMODE_CREATED
    return wanted;
}

static __noinline int on_open(s32 dir, const void *user, u64 flags, u64 start, s64 ret)
{
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_CALL, OP_OPEN, start, now, ret);
    if (!s)
        return 0;
    s->record.flags2 = flags;
    if (ret >= 0) {
        struct task_struct *t = (void *)bpf_get_current_task();
        struct file *file = 0, **fds = BPF_CORE_READ(t, files, fdt, fd);
        if ((u32)ret < BPF_CORE_READ(t, files, fdt, max_fds))
            bpf_probe_read_kernel(&file, sizeof(file), fds + (u32)ret);
        if (!file || !describe(s, file, 0))
            return 0;
        s->record.fd = ret;
        walk(s, (u64)BPF_CORE_READ(file, f_path.dentry), (u64)BPF_CORE_READ(file, f_path.mnt));
        s->record.length[0] = *(volatile u32 *)&s->at;
    } else {
        path_argument(s, dir, user, 0);
    }
    send(s);
    return 0;
}

// Five arguments are all a function of the kernel's may have: operation and directory share one.
static __noinline int on_path(u64 op_dir, const void *user, u64 flags, u64 start, s64 ret)
{
    u32 op = op_dir & 255;
    s32 dir = (s64)op_dir >> 8;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_CALL, op, start, now, ret);
    if (!s)
        return 0;
    s->record.flags2 = flags;
    path_argument(s, dir, user, 0);
    send(s);
    return 0;
}

struct pair { const void *first, *second; s32 dir1, dir2; u64 flags, start; s64 ret; u32 op, text; };
static __noinline int on_paths(struct pair *p)
{
    if (!p)
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_CALL, p->op, p->start, now, p->ret);
    if (!s)
        return 0;
    s->record.flags2 = p->flags;
    path_argument(s, p->dir1, p->first, 0);
    if (p->text) {
        u32 at = *(volatile u32 *)&s->at;
        read_name(s, p->second);
        s->record.length[3] = *(volatile u32 *)&s->at - at;
    } else {
        path_argument(s, p->dir2, p->second, 2);
    }
    send(s);
    return 0;
}

struct two { s32 in, out; u64 start, count; s64 ret; const void *off_in, *off_out; u32 op, flags; };
static __noinline int on_two(struct two *c)
{
    if (!c)
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_CALL, c->op, c->start, now, c->ret);
    if (!s)
        return 0;
    struct task_struct *t = (void *)bpf_get_current_task();
    struct file *in = 0, *out = 0, **fds = BPF_CORE_READ(t, files, fdt, fd);
    u32 most = BPF_CORE_READ(t, files, fdt, max_fds);
    if ((u32)c->in < most)
        bpf_probe_read_kernel(&in, sizeof(in), fds + (u32)c->in);
    if ((u32)c->out < most)
        bpf_probe_read_kernel(&out, sizeof(out), fds + (u32)c->out);
    if (!in || !out)
        return 0;
    s64 moved = c->ret > 0 ? c->ret : 0;
    s64 position = 0;
    int first = describe(s, in, 0), second = describe(s, out, 1);
    if (!first && !second) // neither end is a file
        return 0;
    if (!first)
        s->record.file = 0;
    if (!second)
        s->record.file2 = 0;
    // where it ended is where it began plus what was moved, for a given offset as for the file's own position
    if (c->off_in)
        bpf_probe_read_user(&position, 8, c->off_in);
    else
        position = BPF_CORE_READ(in, f_pos);
    s->record.offset = position - moved;
    if (c->off_out)
        bpf_probe_read_user(&position, 8, c->off_out);
    else
        position = BPF_CORE_READ(out, f_pos);
    s->record.offset2 = position - moved;
    s->record.fd = c->in;
    s->record.fd2 = c->out;
    s->record.count = c->count;
    s->record.flags2 = c->flags;
    send(s);
    return 0;
}
