//! The lane: one direction of a connection as a ring of cache lines (DESIGN 4.1).
//!
//! A record is a header of eight bytes and payload from byte 8 on; it starts on a line. The sender
//! writes the payload and clears the line after the record, then publishes the header with
//! release order; the receiver polls the line that it expects next, so that a record of up to
//! 56 bytes arrives in the very line that announces it. No index of the sender is shared.
//!
//! Because the line after the last record is always cleared before that record is published, old
//! payload can never be read as a header, whatever a client of the program has sent.
//!
//! The crate holds no state of a connection: cursors are the caller's, who keeps them where both
//! its threads and its forked children find them. (Each thread remembers how to copy fast.) It never sleeps, rings no doorbell and takes no lock. Read
//! [`header`], then [`send`] and [`receive`]; [`reserve`] and [`find`] are the same without a copy;
//! [`memory`] is what a lane needs of its window. [`posted`] is the same between hosts, over windows that
//! can be written but not read.

mod copy;
pub mod find;
pub mod header;
pub mod memory;
pub mod mirror;
pub mod moment;
pub mod parts;
pub mod posted;
pub mod receive;
pub mod reserve;
pub mod send;
pub mod short;
pub mod together;
pub mod trace;

pub use find::Found;
pub use header::{Control, Failed, MAX_RECORD_BYTES, PeerLied};
pub use memory::{LaneMemory, WindowLane};
pub use moment::Moment;
pub use parts::{Part, Parts};
pub use receive::{Next, RxCursor, Taken};
pub use reserve::{Piece, Reservation};
pub use send::{TxCursor, may_go_on, worth_waking};
