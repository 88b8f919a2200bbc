//! Which system calls are recorded, and as what. The numbers come from libc, so the table fits the architecture.
use crate::model::Op;

/// `enum kind` of bpf/recorder.bpf.c.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Kind {
    Rw = 1,
    Rwv,
    Prw,
    Prwv,
    Seek,
    Fd,
    Range,
    Trunc,
    Falloc,
    Close,
    Mmap,
    Open,
    Path,
    PathAt,
    Paths,
    PathsAt,
    SymlinkPath,
    SymlinkAt,
    Copy,
    Sendfile,
    Splice,
    Clone,
    Wait,
    Fcntl,
    AioSubmit,
    AioEvents,
    Sync,
    PathTrunc,
    OpenOld,
    OpenAt2,
    WaitId,
}

type Row = (libc::c_long, Kind, u8);

fn common() -> Vec<Row> {
    use Kind::*;
    vec![
        (libc::SYS_read, Rw, Op::Read as u8),
        (libc::SYS_write, Rw, Op::Write as u8),
        (libc::SYS_pread64, Prw, Op::Pread as u8),
        (libc::SYS_pwrite64, Prw, Op::Pwrite as u8),
        (libc::SYS_readv, Rwv, Op::Readv as u8),
        (libc::SYS_writev, Rwv, Op::Writev as u8),
        (libc::SYS_preadv, Prwv, Op::Preadv as u8),
        (libc::SYS_pwritev, Prwv, Op::Pwritev as u8),
        (libc::SYS_preadv2, Prwv, Op::Preadv as u8),
        (libc::SYS_pwritev2, Prwv, Op::Pwritev as u8),
        (libc::SYS_lseek, Seek, Op::Lseek as u8),
        (libc::SYS_fsync, Fd, Op::Fsync as u8),
        (libc::SYS_fdatasync, Fd, Op::Fdatasync as u8),
        (libc::SYS_syncfs, Fd, Op::Sync as u8),
        (libc::SYS_sync, Sync, Op::Sync as u8),
        (libc::SYS_sync_file_range, Range, Op::SyncFileRange as u8),
        (libc::SYS_ftruncate, Trunc, Op::Ftruncate as u8),
        (libc::SYS_fallocate, Falloc, Op::Fallocate as u8),
        (libc::SYS_close, Close, Op::Close as u8),
        (libc::SYS_dup, Fd, Op::Dup as u8),
        (libc::SYS_dup3, Fd, Op::Dup as u8),
        (libc::SYS_fcntl, Fcntl, Op::Dup as u8),
        (libc::SYS_getdents64, Fd, Op::Readdir as u8),
        (libc::SYS_openat, Open, Op::Open as u8),
        (libc::SYS_openat2, OpenAt2, Op::Open as u8),
        (libc::SYS_truncate, PathTrunc, Op::Truncate as u8),
        (libc::SYS_renameat, PathsAt, Op::Rename as u8),
        (libc::SYS_renameat2, PathsAt, Op::Rename as u8),
        (libc::SYS_unlinkat, PathAt, Op::Unlink as u8),
        (libc::SYS_mkdirat, PathAt, Op::Mkdir as u8),
        (libc::SYS_linkat, PathsAt, Op::Link as u8),
        (libc::SYS_symlinkat, SymlinkAt, Op::Symlink as u8),
        (libc::SYS_copy_file_range, Copy, Op::CopyFileRange as u8),
        (libc::SYS_sendfile, Sendfile, Op::Sendfile as u8),
        (libc::SYS_splice, Splice, Op::Splice as u8),
        (libc::SYS_ioctl, Clone, Op::CloneRange as u8),
        (libc::SYS_wait4, Wait, Op::Wait as u8),
        (libc::SYS_waitid, WaitId, Op::Wait as u8),
        (libc::SYS_io_submit, AioSubmit, Op::AioRead as u8),
        (libc::SYS_io_getevents, AioEvents, Op::AioRead as u8),
        (333, AioEvents, Op::AioRead as u8), // io_pgetevents on x86-64
        (libc::SYS_mmap, Mmap, Op::Mmap as u8),
    ]
}

#[cfg(target_arch = "x86_64")]
fn old() -> Vec<Row> {
    use Kind::*;
    vec![
        (libc::SYS_open, OpenOld, Op::Open as u8),
        (libc::SYS_creat, OpenOld, 0),
        (libc::SYS_dup2, Fd, Op::Dup as u8),
        (libc::SYS_rename, Paths, Op::Rename as u8),
        (libc::SYS_unlink, Path, Op::Unlink as u8),
        (libc::SYS_mkdir, Path, Op::Mkdir as u8),
        (libc::SYS_rmdir, Path, Op::Rmdir as u8),
        (libc::SYS_link, Paths, Op::Link as u8),
        (libc::SYS_symlink, SymlinkPath, Op::Symlink as u8),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn old() -> Vec<Row> {
    Vec::new()
}

fn stats() -> Vec<Row> {
    use Kind::*;
    let mut rows = vec![
        (libc::SYS_newfstatat, PathAt, Op::Stat as u8),
        (libc::SYS_statx, PathAt, Op::Stat as u8),
        (libc::SYS_fstat, Fd, Op::Fstat as u8),
        (libc::SYS_faccessat, PathAt, Op::Access as u8),
        (439, PathAt, Op::Access as u8), // faccessat2
        (libc::SYS_readlinkat, PathAt, Op::Readlink as u8),
    ];
    #[cfg(target_arch = "x86_64")]
    rows.extend([
        (libc::SYS_stat, Path, Op::Stat as u8),
        (libc::SYS_lstat, Path, Op::Stat as u8),
        (libc::SYS_access, Path, Op::Access as u8),
        (libc::SYS_readlink, Path, Op::Readlink as u8),
    ]);
    rows
}

/// The kernel side's table: kind and operation of each system call number.
pub fn table(with_stat: bool) -> Vec<u8> {
    let mut bytes = vec![0u8; 1024];
    let mut rows = common();
    rows.extend(old());
    if with_stat {
        rows.extend(stats());
    }
    for (number, kind, op) in rows {
        if let Ok(n @ 0..512) = usize::try_from(number) {
            bytes[2 * n] = kind as u8;
            bytes[2 * n + 1] = op;
        }
    }
    bytes
}
