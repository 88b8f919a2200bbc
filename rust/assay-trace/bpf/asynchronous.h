// libaio and io_uring: what was submitted waits in a map for its end.
#pragma once
#include "names.h"

struct aio { const void *list; s64 n; u64 start; };
static __noinline int on_aio_submit(struct aio *a)
{
    if (!a)
        return 0;
    struct task_struct *t = (void *)bpf_get_current_task();
    for (u32 i = 0; i < 128; i++) {
        u64 address = 0;
        struct { u64 data; u32 key, rw_flags; u16 opcode, prio; u32 fd; u64 buf, nbytes; s64 offset; } cb = {};
        if (i >= a->n || bpf_probe_read_user(&address, 8, a->list + i * 8) ||
            bpf_probe_read_user(&cb, sizeof(cb), (void *)address))
            break;
        u32 op = cb.opcode == 0 || cb.opcode == 7 ? OP_AIO_READ : cb.opcode == 1 || cb.opcode == 8 ? OP_AIO_WRITE
                 : cb.opcode == 2 || cb.opcode == 3 ? OP_AIO_FSYNC : 0;
        if (!op)
            continue;
        struct file *file = 0, **fds = BPF_CORE_READ(t, files, fdt, fd);
        if (cb.fd < BPF_CORE_READ(t, files, fdt, max_fds))
            bpf_probe_read_kernel(&file, sizeof(file), fds + cb.fd);
        if (!file)
            continue;
        struct pending *old = bpf_map_lookup_elem(&pendings, &address);
        if (old) // reaped from the completion ring in user memory: its end was not seen
            put_pending(old, old->count, FLAG_ASYNC | FLAG_NO_END);
        struct pending p = {.start = a->start, .file = (u64)file, .offset = cb.offset, .count = cb.nbytes, .op = op,
                            .tid = (u32)bpf_get_current_pid_tgid(), .fd = cb.fd};
        struct inode *inode = BPF_CORE_READ(file, f_inode);
        if (!wanted_inode(inode, &p.dev))
            continue;
        p.ino = BPF_CORE_READ(inode, i_ino);
        bpf_map_update_elem(&pendings, &address, &p, BPF_ANY);
    }
    return 0;
}

static __noinline int on_aio_events(struct aio *a)
{
    if (!a)
        return 0;
    for (u32 i = 0; i < 128; i++) {
        struct { u64 data, obj; s64 res, res2; } e = {};
        if (i >= a->n || bpf_probe_read_user(&e, sizeof(e), a->list + i * 32))
            break;
        struct pending *p = bpf_map_lookup_elem(&pendings, &e.obj);
        if (p) {
            put_pending(p, e.res, FLAG_ASYNC);
            bpf_map_delete_elem(&pendings, &e.obj);
        }
    }
    return 0;
}

HOOK("io_uring_submit_req") int BPF_PROG(uring_submit, struct io_kiocb *req)
{
    struct task_struct *t = CURRENT();
    struct state *p = state_of(t, 0);
#ifndef RAW
    if (!p) { // the kernel's polling thread (SQPOLL) belongs to the program's thread group
        struct task_struct *leader = t->group_leader;
        if (leader)
            p = state_of(leader, 0);
    }
#endif
    if (!p)
        return 0;
    u8 opcode = BPF_CORE_READ(req, opcode);
    u32 op = opcode == 1 || opcode == 4 || opcode == 22   ? OP_URING_READ
             : opcode == 2 || opcode == 5 || opcode == 23 ? OP_URING_WRITE
             : opcode == 3                                ? OP_URING_FSYNC
             : opcode == 17 || opcode == 18 || opcode == 19 || opcode == 28 || opcode == 30 || opcode == 35 ||
                       opcode == 36 || opcode == 37 || opcode == 38 || opcode == 39 ? OP_URING_OTHER : 0;
    if (!op)
        return 0;
    u64 key = (u64)req;
    struct pending fresh = {.start = bpf_ktime_get_ns(), .op = op, .tid = (u32)bpf_get_current_pid_tgid()};
    fresh.fd = BPF_CORE_READ(req, cqe.fd);
    if (op == OP_URING_READ || op == OP_URING_WRITE) {
        struct io_rw *rw = (void *)req;
        fresh.offset = BPF_CORE_READ(rw, kiocb.ki_pos);
        fresh.count = BPF_CORE_READ(rw, len);
    } else {
        fresh.offset = opcode;
    }
    bpf_map_update_elem(&pendings, &key, &fresh, BPF_ANY);
    return 0;
}

HOOK("io_uring_complete") int BPF_PROG(uring_complete, void *ring, void *request, struct io_uring_cqe *cqe)
{
    u64 key = (u64)request;
    struct pending *p = bpf_map_lookup_elem(&pendings, &key);
    if (!p)
        return 0;
    struct io_kiocb *req = request;
    s32 result = BPF_CORE_READ(cqe, res);
    struct pending done = *p;
    bpf_map_delete_elem(&pendings, &key);
    struct file *file = BPF_CORE_READ(req, file);
    if (done.op == OP_URING_OTHER) {
        if (done.offset == 18 || done.offset == 28) { // openat, openat2
            if (result >= 0)
                on_open(0, 0, 0, done.start, result);
            return 0;
        }
        put_pending(&done, result, FLAG_ASYNC);
        return 0;
    }
    if (!file)
        return 0;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    if (!wanted_inode(inode, &done.dev))
        return 0;
    done.file = (u64)file;
    done.ino = BPF_CORE_READ(inode, i_ino);
    if (done.op != OP_URING_FSYNC) {
        struct io_rw *rw = request;
        if (done.offset < 0) // at the file's position, which is known by now
            done.offset = BPF_CORE_READ(rw, kiocb.ki_pos) - (result > 0 ? result : 0);
        if (done.count < 1024 && result > (s64)done.count) // a vector's length, not bytes
            done.count = result;
    }
    put_pending(&done, result, FLAG_ASYNC);
    return 0;
}
