//! The C names of `api`.
//!
//! `no_mangle` counts as unsafe because two symbols of one name would be merged; these four carry a
//! prefix that nothing else in the module has.

use super::api;

/// See [`api::link_gbps`].
#[unsafe(no_mangle)]
pub extern "C" fn crosslane_link_gbps(
    generation: u32,
    lanes: u32,
    mps: u32,
    mrrs: u32,
    rest: u32,
    what: u32,
) -> f64 {
    api::link_gbps(generation, lanes, mps, mrrs, rest, what)
}

/// See [`api::transfer_gbps`].
#[unsafe(no_mangle)]
pub extern "C" fn crosslane_transfer_gbps(
    generation: u32,
    lanes: u32,
    mps: u32,
    mrrs: u32,
    rest: u32,
    mix: u32,
    bytes: u32,
) -> f64 {
    api::transfer_gbps(generation, lanes, mps, mrrs, rest, mix, bytes)
}

/// See [`api::nic_gbps`].
#[unsafe(no_mangle)]
pub extern "C" fn crosslane_nic_gbps(
    generation: u32,
    lanes: u32,
    mps: u32,
    mrrs: u32,
    rest: u32,
    design: u32,
    bytes: u32,
) -> f64 {
    api::nic_gbps(generation, lanes, mps, mrrs, rest, design, bytes)
}

/// See [`api::ethernet_gbps`].
#[unsafe(no_mangle)]
pub extern "C" fn crosslane_ethernet_gbps(line_gbps: f64, bytes: u32) -> f64 {
    api::ethernet_gbps(line_gbps, bytes)
}
