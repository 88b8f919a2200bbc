//! Pure computation for Assay's hot paths: no Python, no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod archive; // does I/O, see there
pub mod histogram;
pub mod metadata; // does I/O, see there
pub mod place;
