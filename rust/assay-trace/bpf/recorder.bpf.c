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
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;
typedef __s64 s64;
typedef __s32 s32;

char LICENSE[] SEC("license") = "GPL";

#define CORE __attribute__((preserve_access_index))
struct super_block { u32 s_dev; unsigned long s_flags; unsigned long s_magic; } CORE;
struct inode { unsigned short i_mode; struct super_block *i_sb; unsigned long i_ino; s64 i_size; u32 i_rdev; } CORE;
struct qstr { const unsigned char *name; } CORE;
struct dentry { struct dentry *d_parent; struct qstr d_name; struct inode *d_inode; } CORE;
struct vfsmount { struct dentry *mnt_root; struct super_block *mnt_sb; } CORE;
struct mount { struct mount *mnt_parent; struct dentry *mnt_mountpoint; struct vfsmount mnt; } CORE;
struct path { struct vfsmount *mnt; struct dentry *dentry; } CORE;
struct file { u32 f_mode; u32 f_flags; struct inode *f_inode; s64 f_pos; struct path f_path; } CORE;
struct fdtable { unsigned int max_fds; struct file **fd; } CORE;
struct files_struct { struct fdtable *fdt; } CORE;
struct fs_struct { struct path pwd; } CORE;
struct task_struct {
    int pid;
    int tgid;
    struct files_struct *files;
    struct fs_struct *fs;
    struct task_struct *group_leader;
    char comm[16];
} CORE;
struct linux_binprm { struct file *file; } CORE;
struct address_space { struct inode *host; } CORE;
struct kiocb { s64 ki_pos; } CORE;
struct io_rw { struct kiocb kiocb; u32 len; } CORE;
struct io_cqe { s32 res; s32 fd; } CORE;
struct io_kiocb { struct file *file; u8 opcode; struct io_cqe cqe; } CORE;
struct io_uring_cqe { u64 user_data; s32 res; } CORE;
#if defined(__TARGET_ARCH_x86)
struct pt_regs { unsigned long di, si, dx, r10, r8, r9, orig_ax, ax; } CORE;
#define ARG0(r) FIELD(r, di)
#define ARG1(r) FIELD(r, si)
#define ARG2(r) FIELD(r, dx)
#define ARG3(r) FIELD(r, r10)
#define ARG4(r) FIELD(r, r8)
#define ARG5(r) FIELD(r, r9)
#define NUMBER(r) FIELD(r, orig_ax)
#else
struct pt_regs { u64 regs[31]; s32 syscallno; u64 orig_x0; } CORE;
#define ARG0(r) FIELD(r, orig_x0)
#define ARG1(r) FIELD(r, regs[1])
#define ARG2(r) FIELD(r, regs[2])
#define ARG3(r) FIELD(r, regs[3])
#define ARG4(r) FIELD(r, regs[4])
#define ARG5(r) FIELD(r, regs[5])
#define NUMBER(r) FIELD(r, syscallno)
#endif

#ifdef RAW
#define HOOK(name) SEC("raw_tp/" name)
#define FIELD(p, f) BPF_CORE_READ(p, f)
#define CURRENT() ((struct task_struct *)bpf_get_current_task())
#else
#define HOOK(name) SEC("tp_btf/" name)
#define FIELD(p, f) ((p)->f)
#define CURRENT() ((struct task_struct *)bpf_get_current_task_btf())
#endif

// What a system call is to the recorder; user space fills the table by number, so that one object serves all
// architectures.
enum kind {
    K_NONE, K_RW, K_RWV, K_PRW, K_PRWV, K_SEEK, K_FD, K_RANGE, K_TRUNC, K_FALLOC, K_CLOSE, K_MMAP,
    K_OPEN,      // open(path, flags), openat(dir, path, flags), openat2(dir, path, how *)
    K_PATH,      // (path)
    K_PATHAT,    // (dir, path, flags)
    K_PATHS,     // (path, path)
    K_PATHSAT,   // (dir, path, dir, path, flags)
    K_SYMLINK,   // (target, path), the target is text
    K_SYMLINKAT, // (target, dir, path)
    K_COPY, K_SENDFILE, K_SPLICE, K_CLONE, K_WAIT, K_FCNTL, K_AIO_SUBMIT, K_AIO_EVENTS, K_SYNC, K_PATHTRUNC, K_OPENOLD,
    K_OPENAT2, K_WAITID,
};
struct call { u8 kind, op; };
const volatile struct call calls[512] = {};
const volatile u32 slots_per_cpu = 1 << 18; // a power of two
const volatile u32 adopt = 0;               // 1: threads of the process ids in `adopted` are taken in at their next call
const volatile u32 cpu_count = 1;
const volatile u32 own_tgid = 0;

enum { OP_PAGEIN = 41, OP_AIO_READ = 33, OP_AIO_WRITE = 34, OP_AIO_FSYNC = 35, OP_URING_READ = 36, OP_URING_WRITE = 37,
       OP_URING_FSYNC = 38, OP_URING_OTHER = 39, OP_OPEN = 19, OP_READDIR = 18 };
enum { REC_CALL = 1, REC_FORK = 2, REC_EXIT = 3, REC_EXEC = 4 };
enum { FLAG_ASYNC = 1, FLAG_NO_END = 2 };

struct slot {
    u64 start;
    u64 duration_op; // duration << 16 | flags << 8 | op
    s64 offset;
    u64 count;
    u64 ino;
    u64 file_lap; // file pointer << 16 | lap, written last
    u32 tid;
    s32 fd;
    s32 result;
    u32 dev;
};
struct head { u64 head; u64 pad[7]; u64 tail; u64 pad2[7]; u64 drops; u64 rare_drops; u64 pad3[6]; };
struct state { u64 start; u64 file; u64 inode; u64 ino; u32 dev; u32 wanted; u64 ino_of_close; u32 dev_of_close; u32 pad; };
struct record {
    u8 type, op;
    u16 flags;
    u32 tid, tgid;
    s32 fd;
    u64 start, duration;
    u64 file, ino;
    u32 dev, mode;
    s64 size, offset, offset2, result;
    u64 count, flags2; // open flags, rename flags
    u64 file2, ino2;
    u32 dev2;
    s32 fd2;
    u32 length[4]; // base, name, base 2, name 2
};
#define DATA_MAX 16384
// The cursor is kept in memory, where the verifier forgets its range: as a variable, every length of every name would be
// a state of its own.
struct scratch { struct record record; char data[DATA_MAX + 4352]; u32 at; };

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_MMAPABLE); __type(key, u32); __type(value, struct slot);
         __uint(max_entries, 1); } slots SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_MMAPABLE); __type(key, u32); __type(value, struct head);
         __uint(max_entries, 1); } heads SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 25); } rare SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __type(key, u32); __type(value, struct scratch);
         __uint(max_entries, 1); } scratches SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, u32); __type(value, u8); __uint(max_entries, 4096); } adopted SEC(".maps");
struct pending { u64 start; u64 file; u64 ino; s64 offset; u64 count; u32 dev; u32 tid; s32 fd; u32 op; };
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, u64); __type(value, struct pending); __uint(max_entries, 65536); } pendings SEC(".maps");
#ifdef RAW
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, u32); __type(value, struct state); __uint(max_entries, 65536); } traced SEC(".maps");
static __always_inline struct state *state_of(struct task_struct *t, int make)
{
    u32 tid = BPF_CORE_READ(t, pid);
    if (make) {
        struct state fresh = {};
        bpf_map_update_elem(&traced, &tid, &fresh, BPF_NOEXIST);
    }
    return bpf_map_lookup_elem(&traced, &tid);
}
#else
struct { __uint(type, BPF_MAP_TYPE_TASK_STORAGE); __uint(map_flags, BPF_F_NO_PREALLOC); __type(key, int);
         __type(value, struct state); } traced SEC(".maps");
#define state_of(t, make) \
    ((struct state *)bpf_task_storage_get(&traced, t, 0, (make) ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0))
#endif

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

// --- records with names -------------------------------------------------------------------------------------------
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

// --- asynchronous calls -------------------------------------------------------------------------------------------
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
