//! The native interface: TCP connections whose messages are built and read where they travel.
//!
//! A [`Connection`] is made like any other, by [`Connection::connect`] or [`Listener::accept`]. To
//! send without a copy, [`Sender::reserve`] room, fill it, [`commit`](Reservation::commit); to
//! receive without one, [`Receiver::peek`], read, [`consume`](Received::consume). Reading and
//! writing as with any stream costs one copy. It is a stream of bytes as TCP's is: the peer may be
//! a program on plain sockets under `crosslane run`, which gets memory too, or any TCP peer
//! anywhere, to which the kernel sends what was built in private memory.
//!
//! What a program sees of shared memory are [`Bytes`] and [`BytesMut`], bounded but never slices,
//! because the peer may change them at any moment: copy a value out, check it, then use it.
//!
//! What it deliberately is not: a message protocol (boundaries are not kept), an event loop
//! ([`wait`] and [`Connection::arm`] fit into yours), or a way to share one connection between
//! processes.
//!
//! Read [`connection`], then [`sender`] and [`receiver`]; [`ready`] for waiting on many. `c.rs` is
//! the same for C, with the header in `include/crosslane.h`. The tutorial is docs/api.md.
#![deny(unsafe_code)]

mod c;
pub mod closer;
pub mod connection;
mod listener;
mod process;
pub mod ready;
pub mod received;
pub mod receiver;
pub mod reservation;
pub mod sender;
mod socket;

pub use closer::Closer;
pub use connection::{Connection, Path};
pub use crosslane_window::bytes::{Bytes, BytesMut};
pub use listener::Listener;
pub use ready::{Interest, Rest, Watch, wait};
pub use received::Received;
pub use receiver::Receiver;
pub use reservation::Reservation;
pub use sender::Sender;

/// The longest reservation that is always whole. A longer one may turn out shorter, down to this.
pub const WHOLE_BYTES: usize = crosslane_stream::reserve::WHOLE_BYTES;
