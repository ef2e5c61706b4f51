//! Other hosts: who they are, the windows to them, and which ends have their other end there.
//!
//! Two hosts that know each other's keys keep one TLS session between their monitors. The host
//! whose name sorts first is the *owner* of the windows between the two: it connects, finds pairs,
//! and deals out arenas; the other one, its *guest*, tells it which ends seek a partner.
//!
//! - [`config`]: `rack.toml`, and who may use windows;
//! - [`identity`]: this host's key, and fingerprints of others;
//! - [`message`]: what monitors say to each other;
//! - [`session`]: TLS over one connection, without waiting;
//! - [`links`]: sessions with all hosts;
//! - [`window`]: the file, its header, who maps what;
//! - [`extents`]: which parts of a window are free, in use, or in quarantine;
//! - [`lost`]: what ends tell each other when a window is lost; no socket and no clock in it;
//! - [`matching`]: pairs of ends across hosts; no socket and no clock in it.

pub mod config;
pub mod extents;
pub mod identity;
pub mod links;
pub mod lost;
pub mod matching;
pub mod message;
pub mod session;
pub mod window;
