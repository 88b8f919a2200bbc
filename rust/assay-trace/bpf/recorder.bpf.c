// Kernel side of the recorder: every file call of the traced tasks, one 64-byte slot per call in a per-CPU ring that
// user space maps, and one longer record with names in a ring buffer for the calls that open or change names.
//
// Compiled twice: as is (tp_btf and task storage, kernel 5.12 and newer), and with -DRAW (raw tracepoints and a hash of
// thread ids, kernel 5.8 and newer, about 2.5 times the cost). Kernel structures are declared with the few fields used;
// CO-RE finds their offsets at load time.
//
// Lessons that shaped it (measured): wake-ups of the ring buffer cost more than everything else together, so there are
// none and user space polls; "is this task traced?" is the presence of a task-storage element, 50 ns cheaper than a hash;
// arguments are still in pt_regs at sys_exit, so entry stores no more than the time.
#include "asynchronous.h"

char LICENSE[] SEC("license") = "GPL";

// --- page-ins of mapped files -------------------------------------------------------------------------------------
static __noinline int on_pagein(u64 mapping_address, u64 first, u64 last)
{
    struct address_space *mapping = (void *)mapping_address;
    struct inode *inode = BPF_CORE_READ(mapping, host);
    u32 dev = 0;
    if (!inode || !wanted_inode(inode, &dev))
        return 0;
    put(bpf_ktime_get_ns(), 0, OP_PAGEIN, 0, first << 12, (last - first + 1) << 12, BPF_CORE_READ(inode, i_ino), dev, 0,
        (u32)bpf_get_current_pid_tgid(), -1, 0);
    return 0;
}

HOOK("mm_filemap_fault") int BPF_PROG(page_fault, struct address_space *mapping, u64 index)
{
    if (!state_of(CURRENT(), 0))
        return 0;
    return on_pagein((u64)mapping, index, index);
}

HOOK("mm_filemap_map_pages") int BPF_PROG(page_map, struct address_space *mapping, u64 first, u64 last)
{
    if (!state_of(CURRENT(), 0))
        return 0;
    return on_pagein((u64)mapping, first, last);
}

// --- tasks --------------------------------------------------------------------------------------------------------
HOOK("sched_process_fork") int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
    if (!state_of(parent, 0) || !state_of(child, 1))
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_FORK, 0, now, now, 0);
    if (!s)
        return 0;
    s->record.fd = BPF_CORE_READ(child, pid);
    s->record.fd2 = BPF_CORE_READ(child, tgid);
    send(s);
    return 0;
}

HOOK("sched_process_exit") int BPF_PROG(on_exit_task, struct task_struct *task)
{
    if (!state_of(task, 0))
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_EXIT, 0, now, now, 0);
    if (s)
        send(s);
#ifdef RAW
    u32 tid = BPF_CORE_READ(task, pid);
    bpf_map_delete_elem(&traced, &tid);
#endif
    return 0;
}

HOOK("sched_process_exec") int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *program)
{
    if (!state_of(task, 0))
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct scratch *s = fresh(REC_EXEC, 0, now, now, 0);
    if (!s)
        return 0;
    bpf_get_current_comm(s->data, 16);
    s->record.length[0] = s->at = 16;
    // the program itself: nobody opens it, but its pages are read
    struct file *file = BPF_CORE_READ(program, file);
    if (file && describe(s, file, 0)) {
        walk(s, (u64)BPF_CORE_READ(file, f_path.dentry), (u64)BPF_CORE_READ(file, f_path.mnt));
        s->record.length[1] = *(volatile u32 *)&s->at - 16;
    }
    send(s);
    return 0;
}

// --- system calls -------------------------------------------------------------------------------------------------
static __always_inline struct state *traced_state(struct task_struct *t)
{
    struct state *p = state_of(t, 0);
    if (!p && adopt) {
        u32 tgid = bpf_get_current_pid_tgid() >> 32;
        if (bpf_map_lookup_elem(&adopted, &tgid)) {
            p = state_of(t, 1);
            u64 now = bpf_ktime_get_ns();
            struct scratch *s = fresh(REC_EXEC, 1, now, now, 0); // announces the thread
            if (s) {
                bpf_get_current_comm(s->data, 16);
                s->record.length[0] = s->at = 16;
                send(s);
            }
        }
    }
    return p;
}

HOOK("sys_enter") int BPF_PROG(enter, struct pt_regs *regs, long number)
{
    if ((unsigned long)number >= 512)
        return 0;
    u8 kind = calls[number & 511].kind;
    if (!kind)
        return 0;
    struct task_struct *t = CURRENT();
    struct state *p = traced_state(t);
    if (!p)
        return 0;
    if (kind == K_CLOSE) { // at exit the descriptor leads nowhere
        struct found f = {};
        struct file *file = file_of(t, ARG0(regs));
        p->file = 0;
        if (file && find(p, file, &f)) {
            p->file = f.file;
            p->ino_of_close = f.ino;
            p->dev_of_close = f.dev;
        }
    }
    p->start = bpf_ktime_get_ns();
    return 0;
}

static __noinline int leave_other(u64 regs_address, struct state *p, u32 kind_op, s64 ret, u64 start)
{
    if (!p)
        return 0;
    struct pt_regs *r = (void *)regs_address;
    u32 kind = kind_op >> 8, op = kind_op & 255;
#undef FIELD
#define FIELD(p, f) BPF_CORE_READ(p, f)
    u64 a0 = ARG0(r), a1 = ARG1(r), a2 = ARG2(r), a3 = ARG3(r), a4 = ARG4(r);
    switch (kind) {
    case K_OPEN:
        return on_open(a0, (void *)a1, a2, start, ret);
    case K_OPENOLD:
        return on_open(AT_FDCWD, (void *)a0, op == OP_OPEN ? a1 : 01101 /* creat */, start, ret);
    case K_OPENAT2: {
        u64 flags = 0;
        bpf_probe_read_user(&flags, 8, (void *)a2);
        return on_open(a0, (void *)a1, flags, start, ret);
    }
    case K_PATH: // no flags: what is in the second register means nothing to unlink
        return on_path((u64)AT_FDCWD << 8 | op, (void *)a0, 0, start, ret);
    case K_PATHTRUNC:
        return on_path((u64)AT_FDCWD << 8 | op, (void *)a0, a1, start, ret);
    case K_PATHAT:
        return on_path((u64)(s64)(s32)a0 << 8 | op, (void *)a1, a2, start, ret);
    case K_PATHS: {
        struct pair c = {(void *)a0, (void *)a1, AT_FDCWD, AT_FDCWD, 0, start, ret, op, 0};
        return on_paths(&c);
    }
    case K_PATHSAT: {
        struct pair c = {(void *)a1, (void *)a3, a0, a2, a4, start, ret, op, 0};
        return on_paths(&c);
    }
    case K_SYMLINK: {
        struct pair c = {(void *)a1, (void *)a0, AT_FDCWD, 0, 0, start, ret, op, 1};
        return on_paths(&c);
    }
    case K_SYMLINKAT: {
        struct pair c = {(void *)a2, (void *)a0, a1, 0, 0, start, ret, op, 1};
        return on_paths(&c);
    }
    case K_COPY: case K_SPLICE: {
        struct two c = {a0, a2, start, a4, ret, (void *)a1, (void *)a3, op, 0};
        return on_two(&c);
    }
    case K_SENDFILE: {
        struct two c = {a1, a0, start, a3, ret, (void *)a2, 0, op, 0};
        return on_two(&c);
    }
    case K_CLONE: // ioctl(out, FICLONE, in): copy-on-write copy of a whole file
        if ((u32)a1 == 0x40049409) {
            struct two c = {a2, a0, start, 0, ret, 0, 0, op, 0};
            return on_two(&c);
        }
        return 0;
    case K_AIO_SUBMIT: {
        struct aio c = {(void *)a2, ret, start};
        return on_aio_submit(&c);
    }
    case K_AIO_EVENTS: {
        struct aio c = {(void *)a3, ret, start};
        return on_aio_events(&c);
    }
    case K_WAIT: case K_SYNC:
        put(start, bpf_ktime_get_ns() - start, op, 0, 0, 0, 0, 0, 0, (u32)bpf_get_current_pid_tgid(), -1, ret);
        return 0;
    case K_WAITID: {
        u32 info[4] = {};
        if (ret == 0 && a2)
            bpf_probe_read_user(info, 16, (void *)a2);
        put(start, bpf_ktime_get_ns() - start, op, 0, 0, 0, 0, 0, 0, (u32)bpf_get_current_pid_tgid(), -1,
            ret ? ret : info[3]);
        return 0;
    }
    }
    return 0;
}
#undef FIELD
#ifdef RAW
#define FIELD(p, f) BPF_CORE_READ(p, f)
#else
#define FIELD(p, f) ((p)->f)
#endif

HOOK("sys_exit") int BPF_PROG(leave, struct pt_regs *regs, long ret)
{
    unsigned long number = NUMBER(regs);
    if (number >= 512)
        return 0;
    u8 kind = calls[number & 511].kind, op = calls[number & 511].op;
    if (!kind)
        return 0;
    struct task_struct *t = CURRENT();
    struct state *p = state_of(t, 0);
    if (!p)
        return 0;
    u64 start = p->start;
    if (!start)
        return 0;
    p->start = 0;
    if (kind >= K_OPEN && kind != K_FCNTL)
        return leave_other((u64)regs, p, (u32)kind << 8 | op, ret, start);

    struct found f = {};
    s32 fd = ARG0(regs);
    s64 offset = 0;
    u64 count = 0;
    s32 result = ret;
    if (kind == K_CLOSE) {
        f.file = p->file;
        f.ino = p->ino_of_close;
        f.dev = p->dev_of_close;
        if (!f.file)
            return 0;
    } else {
        if (kind == K_MMAP)
            fd = ARG4(regs);
        if (kind == K_FCNTL && ARG1(regs) != 0 && ARG1(regs) != 1030) // F_DUPFD, F_DUPFD_CLOEXEC
            return 0;
        struct file *file = file_of(t, fd);
        if (!file || !find(p, file, &f))
            return 0;
        switch (kind) {
        case K_FD:
            if (op == OP_READDIR)
                count = ARG2(regs);
            break;
        case K_RW:
            count = ARG2(regs);
            bpf_core_read(&offset, sizeof(offset), &file->f_pos);
            if (ret > 0)
                offset -= ret;
            break;
        case K_PRW:
            count = ARG2(regs);
            offset = ARG3(regs);
            break;
        case K_RWV:
            count = sum_iovecs((void *)ARG1(regs), ARG2(regs));
            bpf_core_read(&offset, sizeof(offset), &file->f_pos);
            if (ret > 0)
                offset -= ret;
            break;
        case K_PRWV:
            count = sum_iovecs((void *)ARG1(regs), ARG2(regs));
            offset = ARG3(regs);
            if (offset == -1) { // preadv2, pwritev2: the file's position
                bpf_core_read(&offset, sizeof(offset), &file->f_pos);
                if (ret > 0)
                    offset -= ret;
            }
            break;
        case K_SEEK:
            offset = ret < 0 ? (s64)ARG1(regs) : ret;
            count = ARG2(regs);
            result = ret < 0 ? ret : 0;
            break;
        case K_TRUNC:
            offset = ARG1(regs);
            break;
        case K_RANGE:
            offset = ARG1(regs);
            count = ARG2(regs);
            break;
        case K_FALLOC: // the mode goes where the descriptor's new number would
            offset = ARG2(regs);
            count = ARG3(regs);
            if (!ret)
                result = ARG1(regs);
            break;
        case K_MMAP:
            offset = ARG5(regs);
            count = ARG1(regs);
            result = ret < 0 && ret > -4096 ? ret : 0;
            break;
        }
    }
    u64 now = bpf_ktime_get_ns();
    put(start, now - start, op, 0, offset, count, f.ino, f.dev, f.file, (u32)bpf_get_current_pid_tgid(), fd, result);
    return 0;
}
