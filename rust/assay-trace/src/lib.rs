//! Traces of file I/O: recording (eBPF), the file format, imports and exports, characterisation, and faithful replay.
//!
//! The method is that of paper 003 (sections III, IV and VI): record what an application does to its files, characterise
//! it, and replay it on any file system with the recorded think times, threads and processes.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod anonymise;
pub mod codec;
pub mod container;
pub mod export;
pub mod import;
pub mod info;
pub mod model;
pub mod record;
pub mod replay;

/// What went wrong, in one line for people.
#[derive(Debug)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// An error with a message made by `format!`.
#[macro_export]
macro_rules! fail {
    ($($arg:tt)*) => { return Err($crate::Error(format!($($arg)*))) };
}

/// Adds what was being done to an error of any kind.
pub trait Context<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error(format!("{}: {e}", doing())))
    }
}
