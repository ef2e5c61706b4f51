//! The closed-form model: bytes on the wire, bandwidth, latency, NIC designs.
//!
//! All functions are pure. Sizes are bytes, bandwidths Gb/s (10^9 bits), times nanoseconds; names
//! end in the unit. "Up" is from the device towards the host, "down" the other way.

pub mod ack;
pub mod bandwidth;
pub mod config;
pub mod ethernet;
pub mod explain;
pub mod latency;
pub mod nic;
pub mod outstanding;
pub mod tlp;

pub use bandwidth::{DirectionBytes, Mix};
pub use config::{AddressWidth, ConfigError, Generation, LinkConfig, LinkSpec};
pub use ethernet::Ethernet;
pub use tlp::{Tlp, TlpKind};
