// What kernel and user space share: the table of calls, slots, records, and the maps they lie in.
#pragma once
#include "kernel.h"

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
