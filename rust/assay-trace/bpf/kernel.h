// The kernel structures the recorder reads, with the few fields used, and the registers of a system call by architecture.
#pragma once
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
