//! NIC designs as lists of steps, and what a link carries under each.
//!
//! A design says, for sending and for receiving, which transactions happen, how many bytes they move
//! and once per how many packets. Everything else follows; `designs` has the ready ones and
//! docs/pcie.md adds one as an example.

mod designs;

use serde::Serialize;

use super::bandwidth::{DirectionBytes, read_bytes, tlp_gbps, write_bytes};
use super::config::LinkConfig;
use super::ethernet::{CRC_BYTES, Ethernet};
use super::tlp::{TlpKind, overhead_bytes};

pub use designs::{ALL, DPDK, KERNEL, NIQ, SIMPLE, WINDOW};

/// Who starts a transaction, and what kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The device reads host memory: request up, data down.
    DmaRead,
    /// The device writes host memory, or signals an interrupt.
    DmaWrite,
    /// The host writes the device: a doorbell, a pointer, a write-combined line.
    HostWrite,
    /// The host reads the device: request down, data up.
    HostRead,
}

/// How many bytes a step moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Always this many.
    Fixed(u32),
    /// The whole packet.
    Packet,
    /// What of the packet does not fit into `0` bytes carried elsewhere; nothing if it all fits
    /// into `1` bytes.
    PacketBeyond(u32, u32),
    /// The packet and a header of `0` bytes, rounded up to whole 64-byte lines, one TLP each.
    Lines(u32),
}

/// One transaction of a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is for.
    pub what: &'static str,
    /// Who does it.
    pub action: Action,
    /// Bytes moved each time.
    pub amount: Amount,
    /// Once per this many packets.
    pub every: u32,
    /// The published program overwrites the bytes that this step sends up (an assignment where an
    /// addition belongs), so that its curves lack them.
    pub lost_in_print: bool,
}

/// A NIC design.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Design {
    /// Name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Steps to send packets.
    pub tx: &'static [Step],
    /// Steps to receive packets.
    pub rx: &'static [Step],
}

/// Which of the two published readings to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Every step counts.
    #[default]
    Corrected,
    /// As the published program prints it, with the receive side's descriptor requests missing.
    AsPublished,
}

/// Payload bandwidth of a design, Gb/s; for `bidirectional` in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NicRate {
    /// Sending and receiving equally.
    pub bidirectional_gbps: f64,
    /// Sending only.
    pub tx_gbps: f64,
    /// Receiving only.
    pub rx_gbps: f64,
}

/// DMA reads per packet each way.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Reads {
    /// Transfers.
    pub transfers: f64,
    /// Requests, each with a tag: a transfer above MRRS takes several.
    pub requests: f64,
    /// Bytes that come back.
    pub bytes: f64,
}

/// A name that no design has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NIC model {name:?} is unknown: --model takes {known}")]
pub struct UnknownDesign {
    name: String,
    known: String,
}

/// The design of this name.
///
/// # Errors
/// [`UnknownDesign`], which lists the known ones.
pub fn by_name(name: &str) -> Result<&'static Design, UnknownDesign> {
    ALL.iter()
        .copied()
        .find(|d| d.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| UnknownDesign {
            name: name.to_owned(),
            known: ALL.iter().map(|d| d.name).collect::<Vec<_>>().join(", "),
        })
}

/// Wire bytes of one step, each time it happens.
#[must_use]
pub fn step_bytes(link: &LinkConfig, step: &Step, packet_bytes: u32) -> DirectionBytes {
    let line = |payload: u32| f64::from(payload + overhead_bytes(link, TlpKind::MemoryWrite));
    let bytes = match step.amount {
        Amount::Fixed(bytes) => bytes,
        Amount::Packet => packet_bytes,
        Amount::PacketBeyond(carried, fits) if packet_bytes > fits => packet_bytes - carried,
        Amount::PacketBeyond(..) => return DirectionBytes::default(),
        Amount::Lines(header) => {
            let lines = f64::from((packet_bytes + header).div_ceil(LINE_BYTES));
            let wire = lines * line(LINE_BYTES);
            return match step.action {
                Action::HostWrite => DirectionBytes {
                    up: 0.0,
                    down: wire,
                },
                _ => DirectionBytes {
                    up: wire,
                    down: 0.0,
                },
            };
        }
    };
    match step.action {
        Action::DmaRead => read_bytes(link, bytes),
        Action::DmaWrite => write_bytes(link, bytes),
        Action::HostWrite => swap(write_bytes(link, bytes)),
        Action::HostRead => swap(read_bytes(link, bytes)),
    }
}

/// A cache line, and a write-combining buffer.
pub const LINE_BYTES: u32 = 64;

fn swap(bytes: DirectionBytes) -> DirectionBytes {
    DirectionBytes {
        up: bytes.down,
        down: bytes.up,
    }
}

fn per_packet(
    link: &LinkConfig,
    steps: &[Step],
    packet_bytes: u32,
    reading: Reading,
) -> DirectionBytes {
    let mut total = DirectionBytes::default();
    for step in steps {
        let mut bytes = step_bytes(link, step, packet_bytes);
        if reading == Reading::AsPublished && step.lost_in_print {
            bytes.up = 0.0;
        }
        total += bytes * (1.0 / f64::from(step.every));
    }
    total
}

/// What crosses the link of a frame of this size.
#[must_use]
pub fn without_crc(frame_bytes: u32) -> u32 {
    frame_bytes.saturating_sub(CRC_BYTES).max(1)
}

impl Design {
    /// Whether the published program has it.
    #[must_use]
    pub fn is_published(&self) -> bool {
        [SIMPLE.name, KERNEL.name, DPDK.name].contains(&self.name)
    }

    /// Wire bytes per packet sent.
    #[must_use]
    pub fn tx_bytes(
        &self,
        link: &LinkConfig,
        packet_bytes: u32,
        reading: Reading,
    ) -> DirectionBytes {
        per_packet(link, self.tx, packet_bytes, reading)
    }

    /// Wire bytes per packet received.
    #[must_use]
    pub fn rx_bytes(
        &self,
        link: &LinkConfig,
        packet_bytes: u32,
        reading: Reading,
    ) -> DirectionBytes {
        per_packet(link, self.rx, packet_bytes, reading)
    }

    /// DMA reads of a packet sent and one received, descriptors and payload, on average.
    #[must_use]
    pub fn reads(&self, link: &LinkConfig, packet_bytes: u32) -> Reads {
        let mut reads = Reads::default();
        for step in self.tx.iter().chain(self.rx) {
            let bytes = match (step.action, step.amount) {
                (Action::DmaRead, Amount::Fixed(bytes)) => bytes,
                (Action::DmaRead, Amount::Packet) => packet_bytes,
                (Action::DmaRead, Amount::PacketBeyond(carried, fits)) if packet_bytes > fits => {
                    packet_bytes - carried
                }
                (Action::DmaRead, Amount::Lines(header)) => {
                    (packet_bytes + header).next_multiple_of(LINE_BYTES)
                }
                _ => continue,
            };
            let share = 1.0 / f64::from(step.every);
            reads.transfers += share;
            reads.requests += share * f64::from(bytes.div_ceil(link.spec().mrrs_bytes));
            reads.bytes += share * f64::from(bytes);
        }
        reads
    }

    /// The most that the link lets this design move, in frames of this size. As in the published
    /// evaluation the frame's CRC is counted in its size but stays on the NIC: neither the link nor the
    /// result has it.
    #[must_use]
    pub fn rate(&self, link: &LinkConfig, frame_bytes: u32, reading: Reading) -> NicRate {
        let packet_bytes = without_crc(frame_bytes);
        let tx = self.tx_bytes(link, packet_bytes, reading);
        let rx = self.rx_bytes(link, packet_bytes, reading);
        let gbps = |wire: DirectionBytes| tlp_gbps(link) * f64::from(packet_bytes) / wire.tighter();
        NicRate {
            bidirectional_gbps: gbps(tx + rx),
            tx_gbps: gbps(tx),
            rx_gbps: gbps(rx),
        }
    }

    /// The smallest frame, up to `largest_bytes`, from which this design keeps up with the port in
    /// both directions at once, and stays with it for every larger one.
    #[must_use]
    pub fn keeps_up_from(
        &self,
        link: &LinkConfig,
        port: Ethernet,
        largest_bytes: u32,
        reading: Reading,
    ) -> Option<u32> {
        let first = super::ethernet::MIN_FRAME_BYTES;
        let enough = |bytes: &u32| {
            self.rate(link, *bytes, reading).bidirectional_gbps >= port.gbps(without_crc(*bytes))
        };
        (first..=largest_bytes).rev().take_while(enough).last()
    }
}
