//! `libcrosslane.so`: the socket functions of libc, over accelerated streams.
//!
//! Each function here is a shim: it asks the table whether the descriptor names a known end; if
//! not, the next library's function is called as if we were not there. All logic about one
//! connection is in `crosslane-stream`; what is here are C's calling conventions, and what spans
//! several descriptors: poll sets, descriptor plumbing, fork and exec.
//!
//! Invariant: what is not handled exactly keeps the connection on TCP, or brings it back there,
//! with a counted reason.
//!
//! The safety argument is the same for every shim: the caller is a C program that has made the
//! promises of the function's manual; the shim passes them on unchanged.
#![allow(clippy::missing_safety_doc, clippy::multiple_unsafe_ops_per_block)]

mod alias;
mod borrow;
mod bulk;
mod c;
mod clone;
mod epoll;
mod exec;
mod execl;
mod file;
mod gate;
mod input;
mod kernel_looks;
mod kernels_sleep;
mod lifecycle;
mod memory;
mod names;
mod options;
mod output;
mod plumbing;
mod poll;
mod process;
mod progress;
mod roomless;
mod sandbox;
mod select;
mod short;
mod signals;
mod sole;
mod splice;
mod stdin;
mod stdio;
mod strays;
mod taken;
mod ways;
