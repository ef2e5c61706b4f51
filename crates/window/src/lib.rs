//! A bounded, typed view of memory that a peer can change.
//!
//! Nothing here makes a Rust reference into peer-writable bytes: control words are reached as
//! atomics, payload is copied. What has been read from a window is an allegation that the caller
//! must check before use.
//!
//! Read [`view`] first, and [`bytes`] for what programs see of it; [`arena`] is the memory of rings, [`slab`] the table of a process.
//! Between hosts there are two types for the two memories: [`inbound`] is read, [`outbound`] only written;
//! [`policy`] says in which ways windows differ, [`backend`] opens them, [`discover`] finds them, [`ntb`] drives bridges.

pub mod arena;
pub mod backend;
pub mod bytes;
pub mod cache;
pub mod discover;
pub mod inbound;
pub mod memory;
pub mod ntb;
pub mod outbound;
pub mod policy;
pub mod slab;
pub mod span;
pub mod view;
