//! One transfer, packet by packet.

use serde::Serialize;

use super::bandwidth::Mix;
use super::config::LinkConfig;
use super::tlp::{Tlp, TlpKind, overhead_bytes};

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the device to the host.
    Up,
    /// From the host to the device.
    Down,
}

/// One packet of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Leg {
    /// Which way it goes.
    pub direction: Direction,
    /// The packet.
    pub kind: TlpKind,
    /// Offset of its data in the transfer.
    pub offset_bytes: u32,
    /// Bytes that it carries, or asks for.
    pub data_bytes: u32,
    /// Header and framing.
    pub overhead_bytes: u32,
    /// All bytes on the wire.
    pub wire_bytes: u32,
}

/// The packets of one transfer, in order; a read's completions follow its requests.
#[must_use]
pub fn legs(link: &LinkConfig, mix: Mix, bytes: u32) -> Vec<Leg> {
    let spec = link.spec();
    let mut legs = Vec::new();
    if mix != Mix::Read {
        push(
            &mut legs,
            link,
            Direction::Up,
            TlpKind::MemoryWrite,
            (bytes, spec.mps_bytes),
        );
    }
    if mix != Mix::Write {
        push(
            &mut legs,
            link,
            Direction::Up,
            TlpKind::MemoryRead,
            (bytes, spec.mrrs_bytes),
        );
        push(
            &mut legs,
            link,
            Direction::Down,
            TlpKind::Completion,
            (bytes, link.completion_bytes()),
        );
    }
    legs
}

fn push(
    legs: &mut Vec<Leg>,
    link: &LinkConfig,
    direction: Direction,
    kind: TlpKind,
    (bytes, most): (u32, u32),
) {
    let mut offset_bytes = 0;
    while offset_bytes < bytes {
        let data_bytes = most.min(bytes - offset_bytes);
        let payload_bytes = if kind == TlpKind::MemoryRead {
            0
        } else {
            data_bytes
        };
        legs.push(Leg {
            direction,
            kind,
            offset_bytes,
            data_bytes,
            overhead_bytes: overhead_bytes(link, kind),
            wire_bytes: Tlp {
                kind,
                payload_bytes,
            }
            .wire_bytes(link),
        });
        offset_bytes += data_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::bandwidth::transfer_bytes;
    use super::*;

    #[test]
    fn legs_sum_to_the_bandwidth_model() {
        let link = LinkConfig::default();
        for mix in [Mix::Write, Mix::Read, Mix::ReadWrite] {
            for bytes in [1, 64, 255, 256, 257, 512, 513, 1500, 4096] {
                let (mut up, mut down) = (0, 0);
                for leg in legs(&link, mix, bytes) {
                    match leg.direction {
                        Direction::Up => up += leg.wire_bytes,
                        Direction::Down => down += leg.wire_bytes,
                    }
                }
                let expected = transfer_bytes(&link, mix, bytes);
                assert!(
                    (f64::from(up) - expected.up).abs() < 1e-9,
                    "{mix:?} {bytes}"
                );
                assert!(
                    (f64::from(down) - expected.down).abs() < 1e-9,
                    "{mix:?} {bytes}"
                );
            }
        }
    }
}
