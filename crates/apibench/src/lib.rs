//! The same traffic in three ways: by sockets, by the native interface with a copy, and built and
//! read in place: NTSocks' modes `origin`, `shm` and `direct`.
//!
//! Every message is built from nothing and every word of it is checked where it arrives, in each
//! way, because that is what a program does that builds in place. What the ways differ in is
//! whether the bytes are copied between there and the lane, and by which calls.
//!
//! [`stream`] is the content, [`way`] the ways, [`client`] and [`server`] the two roles. Sizes,
//! requests, clocks and figures are those of `crosslane-sockbench`.
#![forbid(unsafe_code)]

pub mod client;
pub mod server;
pub mod stream;
pub mod way;
