//! The per-host control plane: programs introduce themselves here and pass their TCP sockets;
//! the monitor finds the two ends of each connection and gives both the memory of their rings.
//!
//! It believes only what the kernel says about a passed descriptor, waits for nobody, and is on
//! no data path: connections live on without it. It has one thread, besides those that close what
//! may be slow to close, and no clock but the linger of a private monitor.
//!
//! Read [`registry`] first, the whole state without a descriptor in it; then [`server`], which
//! moves messages between it and the clients.
#![forbid(unsafe_code)]

pub mod arenas;
mod backing;
pub mod client;
mod closer;
pub mod config;
mod connection;
pub mod directory;
pub mod endpoint;
pub mod matcher;
pub mod rack;
pub mod registry;
mod report;
pub mod secret;
pub mod server;
mod unix_peer;
mod wire;
