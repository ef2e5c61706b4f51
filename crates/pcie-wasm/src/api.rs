//! The functions behind the exports. What is illegal is NaN, which a page shows as a gap.

use crosslane_pcie::model::bandwidth::{rate, raw_gbps, tlp_gbps};
use crosslane_pcie::model::config::check_transfer;
use crosslane_pcie::model::nic::{self, Reading};
use crosslane_pcie::model::{AddressWidth, Ethernet, Generation, LinkConfig, LinkSpec, Mix};

/// Bits of `rest`, above the 16 of the read completion boundary.
const ADDRESS_32: u32 = 1 << 16;
const ECRC: u32 = 1 << 17;
const SPLIT_AT_RCB: u32 = 1 << 18;

/// What of a link no slider sets, as one number: the read completion boundary and the three switches.
#[must_use]
pub fn rest_of(spec: &LinkSpec) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    spec.rcb_bytes
        | bit(spec.address == AddressWidth::Bits32, ADDRESS_32)
        | bit(spec.ecrc, ECRC)
        | bit(spec.split_at_rcb, SPLIT_AT_RCB)
}

fn link(
    generation: u32,
    lanes: u32,
    mps_bytes: u32,
    mrrs_bytes: u32,
    rest: u32,
) -> Option<LinkConfig> {
    let generation = Generation::from_number(generation).ok()?;
    let address = if rest & ADDRESS_32 == 0 {
        AddressWidth::Bits64
    } else {
        AddressWidth::Bits32
    };
    let spec = LinkSpec {
        generation,
        lanes,
        mps_bytes,
        mrrs_bytes,
        rcb_bytes: rest & 0xffff,
        address,
        ecrc: rest & ECRC != 0,
        split_at_rcb: rest & SPLIT_AT_RCB != 0,
    };
    LinkConfig::new(spec).ok()
}

/// Gb/s of the link: `what` 0 raw, 1 for TLPs; `rest` is of [`rest_of`].
#[must_use]
pub fn link_gbps(
    generation: u32,
    lanes: u32,
    mps_bytes: u32,
    mrrs_bytes: u32,
    rest: u32,
    what: u32,
) -> f64 {
    let value = link(generation, lanes, mps_bytes, mrrs_bytes, rest);
    value.map_or(f64::NAN, |link| {
        if what == 0 {
            raw_gbps(&link)
        } else {
            tlp_gbps(&link)
        }
    })
}

/// Payload Gb/s of transfers: `mix` 0 writes, 1 reads, 2 both.
#[must_use]
pub fn transfer_gbps(
    generation: u32,
    lanes: u32,
    mps_bytes: u32,
    mrrs_bytes: u32,
    rest: u32,
    mix: u32,
    bytes: u32,
) -> f64 {
    let mix = [Mix::Write, Mix::Read, Mix::ReadWrite]
        .get(mix as usize)
        .copied();
    let link = link(generation, lanes, mps_bytes, mrrs_bytes, rest);
    match (link, mix, check_transfer(bytes)) {
        (Some(link), Some(mix), Ok(bytes)) => rate(&link, mix, bytes).gbps,
        _ => f64::NAN,
    }
}

/// Gb/s of a NIC design, both directions at once: `design` counts through `nic::ALL`.
#[must_use]
pub fn nic_gbps(
    generation: u32,
    lanes: u32,
    mps_bytes: u32,
    mrrs_bytes: u32,
    rest: u32,
    design: u32,
    bytes: u32,
) -> f64 {
    let design = nic::ALL.get(design as usize);
    let link = link(generation, lanes, mps_bytes, mrrs_bytes, rest);
    match (link, design, check_transfer(bytes)) {
        (Some(link), Some(design), Ok(bytes)) => {
            design
                .rate(&link, bytes, Reading::Corrected)
                .bidirectional_gbps
        }
        _ => f64::NAN,
    }
}

/// Gb/s of Ethernet frames of this size at a line rate.
#[must_use]
pub fn ethernet_gbps(line_gbps: f64, bytes: u32) -> f64 {
    check_transfer(bytes).map_or(f64::NAN, |bytes| Ethernet { line_gbps }.gbps(bytes))
}
