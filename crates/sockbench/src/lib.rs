//! An ordinary blocking socket program that measures what it is run over.
//!
//! It is written the way a latency-minded C program is: plain blocking sockets, `TCP_NODELAY`, one
//! `send` and one `recv` per message, one thread. It knows nothing of Crosslane; whoever wants it
//! accelerated runs it that way. What it measures is believed only because it is checked: every
//! message carries its number at both ends, one-way traffic is counted and timed by the receiver,
//! and a mismatch ends the run with an error.
//!
//! [`server`] and [`client`] are the two roles, [`request`] and [`message`] what they say to each
//! other, [`limit`] the bare cache-line ping-pong that no transport can beat, and [`outcome`] the
//! lines that are printed. Two more programs stand beside them: [`load`] sends requests at given
//! moments whether or not the last ones are answered, and [`crowd`] has many connections of which
//! one is active, at a server that serves them all by epoll ([`server::crowd`]). [`moments`] writes down
//! when each call began and ended, and [`clocks`] says whether two CPUs agree on that. [`mod@fetch`] and
//! [`store`] are clients of other people's servers: nginx, Redis, memcached.
#![forbid(unsafe_code)]

pub mod address;
pub mod arrivals;
pub mod both;
pub mod client;
pub mod clocks;
pub mod connection;
pub mod cpus;
pub mod crowd;
pub mod fetch;
pub mod limit;
pub mod load;
pub mod message;
pub mod moments;
pub mod outcome;
pub mod pipes;
pub mod receiving;
pub mod request;
pub mod server;
pub mod span;
pub mod store;
pub mod ticks;
pub mod usage;
