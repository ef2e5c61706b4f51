//! What programs share that exercise TCP connections through plain libc calls.
//!
//! `crosslane-posix` makes small named checks and prints what it saw, so that two runs can be
//! compared; `crosslane-stress` moves random bytes by random calls and checks each;
//! `crosslane-differ` plays random programs of calls in two ways and compares. They stand
//! for C programs, know nothing of Crosslane, and so call libc directly: this is what the library
//! has to serve. Everything unsafe about that is in [`calls`].

pub mod calls;
pub mod content;
mod errno;
pub mod random;

pub use errno::Errno;

/// What a call returned: a number, or why it failed.
pub type Answer = Result<usize, Errno>;
