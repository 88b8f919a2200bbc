//! The hands of a replay thread: its buffer and the system calls it makes.
use super::engine::Copy;
use super::plan::Step;
use super::prepare::Noise;
use crate::model::Op;
use std::sync::atomic::Ordering;

/// One thread's buffer and the system calls it makes.
pub struct Hands<'a, 'b> {
    copy: &'a Copy<'b>,
    buffer: *mut u8,
    capacity: usize,
}

const LARGEST_BUFFER: u64 = 64 << 20;
const ALIGN: usize = 4096;

impl<'a, 'b> Hands<'a, 'b> {
    pub fn new(copy: &'a Copy<'b>, lane: u32) -> Hands<'a, 'b> {
        let largest = copy.plan.lanes[lane as usize]
            .steps
            .iter()
            .map(|s| s.count.max(s.result.max(0) as u64));
        let wanted = largest
            .filter(|&n| n <= LARGEST_BUFFER)
            .max()
            .unwrap_or(0)
            .min(LARGEST_BUFFER);
        let capacity = (wanted as usize + ALIGN).next_multiple_of(ALIGN);
        let mut buffer = std::ptr::null_mut();
        // SAFETY: aligned memory, checked below, never freed: the process ends with its threads
        let failed = unsafe { libc::posix_memalign(&mut buffer, ALIGN, capacity) };
        let buffer: *mut u8 = if failed == 0 {
            buffer.cast()
        } else {
            std::ptr::null_mut()
        };
        if !buffer.is_null() {
            // SAFETY: `capacity` bytes that were just allocated
            let slice = unsafe { std::slice::from_raw_parts_mut(buffer, capacity) };
            Noise(copy.seed ^ u64::from(lane)).fill(slice);
        }
        Hands {
            copy,
            buffer,
            capacity,
        }
    }

    fn path(&self, n: u32) -> *const libc::c_char {
        self.copy.paths[n as usize].as_ptr()
    }

    fn size(&self, count: u64) -> usize {
        let n = (count as usize).min(self.capacity - ALIGN);
        if self.copy.options.o_direct {
            n.next_multiple_of(ALIGN).min(self.capacity)
        } else {
            n
        }
    }

    fn offset(&self, offset: i64) -> i64 {
        if self.copy.options.o_direct {
            offset & !(ALIGN as i64 - 1)
        } else {
            offset
        }
    }

    pub fn issue(&mut self, s: &Step) -> i64 {
        if self.buffer.is_null() {
            return -i64::from(libc::ENOMEM);
        }
        let got = self.call(s);
        if got < 0 {
            return -i64::from(
                std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO),
            );
        }
        got
    }

    fn call(&mut self, s: &Step) -> i64 {
        let fd = self.copy.fd(s.file).load(Ordering::Relaxed);
        // SAFETY: every call gets valid C strings, or a buffer of at least the size it is told
        unsafe {
            match s.op {
                Op::Read
                | Op::Pread
                | Op::Readv
                | Op::Preadv
                | Op::AioRead
                | Op::UringRead
                | Op::PageIn => libc::pread(
                    fd,
                    self.buffer.cast(),
                    self.size(s.count),
                    self.offset(s.offset),
                ) as i64,
                Op::Write
                | Op::Pwrite
                | Op::Writev
                | Op::Pwritev
                | Op::AioWrite
                | Op::UringWrite => libc::pwrite(
                    fd,
                    self.buffer.cast(),
                    self.size(s.count),
                    self.offset(s.offset),
                ) as i64,
                Op::Sendfile | Op::Splice | Op::CopyFileRange => self.between(s, fd),
                Op::CloneRange => {
                    const FICLONE: libc::c_ulong = 0x4004_9409;
                    i64::from(libc::ioctl(
                        self.copy.fd(s.file2).load(Ordering::Relaxed),
                        FICLONE,
                        fd,
                    ))
                }
                Op::Lseek if s.count == libc::SEEK_END as u64 => {
                    libc::lseek(fd, 0, libc::SEEK_END).min(0)
                }
                Op::Lseek => libc::lseek(fd, s.offset, libc::SEEK_SET).min(0),
                Op::Fsync | Op::AioFsync | Op::UringFsync => i64::from(libc::fsync(fd)),
                Op::Fdatasync => i64::from(libc::fdatasync(fd)),
                Op::SyncFileRange => {
                    i64::from(libc::sync_file_range(fd, s.offset, s.count as i64, 7))
                }
                Op::Ftruncate => i64::from(libc::ftruncate(fd, s.offset)),
                Op::Fallocate => i64::from(libc::fallocate(
                    fd,
                    s.flags as libc::c_int,
                    s.offset,
                    s.count as i64,
                )),
                Op::Close => self.close(s, fd),
                Op::Dup => {
                    let copy = libc::dup(fd);
                    if copy >= 0 {
                        libc::close(copy);
                    }
                    i64::from(copy.min(0))
                }
                Op::Fstat => {
                    let mut status: libc::stat = std::mem::zeroed();
                    i64::from(libc::fstat(fd, &mut status))
                }
                Op::Readdir => libc::syscall(
                    libc::SYS_getdents64,
                    fd,
                    self.buffer,
                    self.size(if s.count == 0 { 32_768 } else { s.count })
                        .max(ALIGN / 2)
                        .min(self.capacity),
                ),
                Op::Sync => {
                    let fd = libc::open(self.copy.root.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
                    let got = libc::syscall(libc::SYS_syncfs, fd);
                    libc::close(fd);
                    got
                }
                Op::Open => self.open(s),
                Op::Truncate => i64::from(libc::truncate(self.path(s.path), s.offset)),
                Op::Rename => libc::syscall(
                    libc::SYS_renameat2,
                    libc::AT_FDCWD,
                    self.path(s.path),
                    libc::AT_FDCWD,
                    self.path(s.path2),
                    s.flags,
                ),
                Op::Unlink => i64::from(libc::unlink(self.path(s.path))),
                Op::Rmdir => i64::from(libc::rmdir(self.path(s.path))),
                Op::Mkdir => i64::from(libc::mkdir(self.path(s.path), 0o755)),
                Op::Link => i64::from(libc::link(self.path(s.path), self.path(s.path2))),
                Op::Symlink => {
                    let text = self.copy.links[&(s.path, s.path2)].as_ptr();
                    i64::from(libc::symlink(text, self.path(s.path)))
                }
                Op::Stat => {
                    let mut status: libc::stat = std::mem::zeroed();
                    i64::from(libc::lstat(self.path(s.path), &mut status))
                }
                Op::Access => i64::from(libc::access(self.path(s.path), libc::F_OK)),
                Op::Readlink => libc::readlink(
                    self.path(s.path),
                    self.buffer.cast(),
                    self.capacity.min(4096),
                ) as i64,
                Op::Wait | Op::Mmap | Op::UringOther => 0,
            }
        }
    }

    /// Calls that move data between two descriptors, one of which may have been a pipe or socket.
    unsafe fn between(&mut self, s: &Step, fd: libc::c_int) -> i64 {
        let moved = s.result.max(0) as u64;
        let fd2 = self.copy.fd(s.file2).load(Ordering::Relaxed);
        // SAFETY: as in `call`
        unsafe {
            if s.file2 == 0 {
                return libc::pread(
                    fd,
                    self.buffer.cast(),
                    self.size(moved),
                    self.offset(s.offset),
                ) as i64;
            }
            if s.file == 0 {
                return libc::pwrite(
                    fd2,
                    self.buffer.cast(),
                    self.size(moved),
                    self.offset(s.offset2),
                ) as i64;
            }
            let (mut from, mut to) = (s.offset, s.offset2);
            libc::syscall(
                libc::SYS_copy_file_range,
                fd,
                &raw mut from,
                fd2,
                &raw mut to,
                s.count,
                0,
            )
        }
    }

    unsafe fn close(&mut self, s: &Step, fd: libc::c_int) -> i64 {
        // SAFETY: the descriptor is the replay's own
        unsafe {
            if s.last_close {
                self.copy.fd(s.file).store(-1, Ordering::Relaxed);
                return i64::from(libc::close(fd));
            }
            // Others go on using it: a duplicate's close does what a close does (flush), and leaves it open
            let copy = libc::dup(fd);
            if copy < 0 {
                return -1;
            }
            i64::from(libc::close(copy))
        }
    }

    unsafe fn open(&mut self, s: &Step) -> i64 {
        let mut flags = s.flags as libc::c_int | libc::O_CLOEXEC;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if flags & libc::O_DIRECTORY == 0 && s.result >= 0 {
            flags |= self.copy.override_flags(writes);
        }
        // SAFETY: a valid C string
        let mut fd = unsafe { libc::open(self.path(s.path), flags, 0o644 as libc::c_uint) };
        if fd < 0 && self.copy.options.o_direct && flags & libc::O_DIRECT != 0 {
            // SAFETY: a valid C string; directories and some file systems refuse O_DIRECT
            fd = unsafe {
                libc::open(
                    self.path(s.path),
                    flags & !libc::O_DIRECT,
                    0o644 as libc::c_uint,
                )
            };
        }
        if fd >= 0 {
            if s.file != 0 {
                self.copy.fd(s.file).store(fd, Ordering::Relaxed);
            } else {
                // SAFETY: an open that failed in the trace: nobody uses it
                unsafe { libc::close(fd) };
            }
        }
        i64::from(fd.min(0))
    }
}
