//! What PCIe allows, what it costs, and how real machines answer.
//!
//! * [`model`] is arithmetic: how many bytes of a link are payload, for any generation, width and
//!   configuration; NIC designs and Ethernet beside it. Pure functions, no clock, no randomness.
//! * [`sim`] moves single transaction layer packets through links, switches, a root complex with an
//!   IOMMU and a cache, in virtual time and deterministically by seed.
//! * [`profile`] holds machines and devices fitted on published measurements; [`fit`] fits more.
//! * [`data`] reads the published files; [`judge`] says how far predictions are from them.
//!
//! It touches no hardware beyond reading sysfs ([`devices`]): measuring this machine's memory is `crosslane-membench`, and drawing
//! is the command's business. Read `model::config` first, then `model::bandwidth`.
//!
//! Sources: PCI Express Base Specification (public summaries of revisions 1.0 to 7.0); Neugebauer et
//! al., "Understanding PCIe performance for end host networking", SIGCOMM 2018, its public model and
//! its measurements; Flajslik and Rosenblum, "Network Interface Design for Low Latency
//! Request-Response Protocols", USENIX ATC 2013 (NIQ).
#![forbid(unsafe_code)]

pub mod data;
pub mod devices;
pub mod fit;
pub mod judge;
pub mod model;
pub mod profile;
pub mod sim;
