//! Distribution functions: which targets each piece of a file goes to, as each file system decides it, and how the
//! accesses of a trace spread over targets.

pub mod crush;
pub mod gluster;
pub mod pattern;

pub use xxhash_rust::xxh3::xxh3_64;
