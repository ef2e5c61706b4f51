//! The only wrapper over libc and raw system calls.
//!
//! Two ways lead to the kernel from a preloaded library. [`kernel`] issues system calls itself, so
//! that the library never meets its own interposed functions; [`real`] finds the functions of the
//! next library in the search order, for calls in which a program may sleep, because those are
//! cancellation points and may be interposed by others as well.
//!
//! It is not a general binding: only what Crosslane calls is here.

pub mod busy;
pub mod cancel;
pub mod cpu;
pub mod device;
pub mod errno;
pub mod event;
pub mod fault;
pub mod futex;
mod held;
pub mod inherit;
pub mod interrupted;
pub mod kernel;
pub mod lock;
pub mod memory;
mod order;
pub mod process;
pub mod program;
pub mod raw;
pub mod real;
pub mod signals;
pub mod socket;
pub mod store_wait;

pub use errno::Errno;
