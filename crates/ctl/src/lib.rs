//! The contract between programs, their peers and the monitor: control messages and the layout of
//! every shared segment. Sizes and offsets are asserted at compile time, because the three parties
//! may be built apart.
//!
//! This crate maps no memory, opens no socket and allocates nothing: it only says what the bytes
//! mean. Read [`message`] for the control protocol, [`lane`] for the rings' memory, [`slab`] for
//! the table in which a process keeps and shows its connections.
#![forbid(unsafe_code)]

pub mod counter;
pub mod lane;
pub mod layout;
pub mod ledger;
pub mod message;
pub mod paths;
pub mod place;
pub mod posted;
pub mod reason;
pub mod slab;

/// Version of the control protocol and of all shared layouts. Parties of different versions do
/// not talk: the newcomer stays on TCP.
pub const ABI_VERSION: u16 = 23;
