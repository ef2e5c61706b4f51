//! A bounded, typed view of memory that a peer can change.
//!
//! Nothing here makes a Rust reference into peer-writable bytes: control words are reached as
//! atomics, payload is copied. What has been read from a window is an allegation that the caller
//! must check before use.
//!
//! Read [`view`] first, and [`bytes`] for what programs see of it; [`arena`] is the memory of rings, [`slab`] the table of a process.

pub mod arena;
pub mod bytes;
pub mod memory;
pub mod slab;
pub mod view;
