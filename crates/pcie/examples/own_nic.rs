//! A NIC design of one's own beside a ready one: the worked example of docs/pcie.md.
//!
//! `cargo run -p crosslane-pcie --example own_nic`
#![forbid(unsafe_code)]

use crosslane_pcie::model::nic::{Action, Amount, DPDK, Design, Reading, Step};
use crosslane_pcie::model::{Ethernet, LinkConfig};

const fn step(what: &'static str, action: Action, amount: Amount, every: u32) -> Step {
    Step {
        what,
        action,
        amount,
        every,
        lost_in_print: false,
    }
}

/// Like DPDK on an 82599, but receive descriptors are fetched 16 at a time and written back 16 at a
/// time, 8 bytes each.
const COMPACT: Design = Design {
    name: "compact",
    about: "batched, short receive completions",
    tx: DPDK.tx,
    rx: &[
        step(
            "write free-list tail",
            Action::HostWrite,
            Amount::Fixed(4),
            32,
        ),
        step(
            "fetch 16 descriptors",
            Action::DmaRead,
            Amount::Fixed(16 * 16),
            16,
        ),
        step("write packet", Action::DmaWrite, Amount::Packet, 1),
        step(
            "write back 16 completions",
            Action::DmaWrite,
            Amount::Fixed(16 * 8),
            16,
        ),
    ],
};

fn main() {
    let link = LinkConfig::default();
    let port = Ethernet { line_gbps: 40.0 };
    for design in [&DPDK, &COMPACT] {
        let rate = design.rate(&link, 64, Reading::Corrected);
        let from = design.keeps_up_from(&link, port, 1518, Reading::Corrected);
        println!(
            "{:<8} 64 B: {:.2} Gb/s both ways, {:.2} received; keeps up with 40G from {} B",
            design.name,
            rate.bidirectional_gbps,
            rate.rx_gbps,
            from.map_or_else(|| "no".to_owned(), |bytes| bytes.to_string())
        );
    }
}
