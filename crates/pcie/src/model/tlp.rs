//! Transaction layer packets: what each carries besides payload, itemised.

use serde::Serialize;

use super::config::{AddressWidth, LinkConfig};

/// Payload of a message-signalled interrupt.
pub const MSI_BYTES: u32 = 4;

/// Kinds of packet that data movement uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum TlpKind {
    /// Memory write, posted: nobody answers.
    #[serde(rename = "MWr")]
    MemoryWrite,
    /// Memory read request, answered by completions.
    #[serde(rename = "MRd")]
    MemoryRead,
    /// Completion with data.
    #[serde(rename = "CplD")]
    Completion,
}

impl TlpKind {
    /// The specification's short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryWrite => "MWr",
            Self::MemoryRead => "MRd",
            Self::Completion => "CplD",
        }
    }
}

/// One thing that a TLP carries, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Bytes on the wire.
    pub bytes: u32,
}

const fn part(name: &'static str, bytes: u32) -> Part {
    Part { name, bytes }
}

/// A packet: its kind and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tlp {
    /// Kind.
    pub kind: TlpKind,
    /// Payload bytes; zero for a read request.
    pub payload_bytes: u32,
}

impl Tlp {
    /// Bytes on the wire, payload included.
    #[must_use]
    pub fn wire_bytes(self, link: &LinkConfig) -> u32 {
        overhead_bytes(link, self.kind) + self.payload_bytes
    }
}

/// Everything a TLP of this kind carries besides its payload.
///
/// Without flits, sequence number, framing and LCRC make 8 bytes in every generation. In flit mode
/// (revision 6.0 and later) sequence numbers and CRC belong to the flit, so that a TLP is its header;
/// [`flit_parts`] has the flit's own share.
#[must_use]
pub fn overhead_parts(link: &LinkConfig, kind: TlpKind) -> Vec<Part> {
    let spec = link.spec();
    let mut parts = Vec::with_capacity(8);
    if !spec.generation.is_flit() {
        if spec.generation.number() <= 2 {
            parts.extend([
                part("start symbol", 1),
                part("sequence number", 2),
                part("end symbol", 1),
            ]);
        } else {
            parts.push(part("start token with sequence number", 4));
        }
        parts.push(part("LCRC", 4));
    }
    parts.push(part("type, class, attributes, length", 4));
    match kind {
        TlpKind::MemoryWrite | TlpKind::MemoryRead => {
            parts.push(part("requester, tag, byte enables", 4));
            let address = if spec.address == AddressWidth::Bits64 {
                8
            } else {
                4
            };
            parts.push(part("address", address));
        }
        TlpKind::Completion => {
            parts.push(part("completer, status, byte count", 4));
            parts.push(part("requester, tag, lower address", 4));
        }
    }
    if spec.ecrc {
        parts.push(part("ECRC", 4));
    }
    parts
}

/// The parts of a 256-byte flit (revision 6.0): only the first is for TLPs.
#[must_use]
pub fn flit_parts() -> [Part; 4] {
    [
        part("TLP bytes", FLIT_TLP_BYTES),
        part("data link payload (acks, credits)", 6),
        part("CRC", 8),
        part("forward error correction", 6),
    ]
}

/// Bytes of a flit that carry TLPs.
pub const FLIT_TLP_BYTES: u32 = 236;
/// Bytes of a flit.
pub const FLIT_BYTES: u32 = 256;

/// Bytes of a TLP of this kind besides its payload.
#[must_use]
pub fn overhead_bytes(link: &LinkConfig, kind: TlpKind) -> u32 {
    let spec = link.spec();
    let framing = if spec.generation.is_flit() { 0 } else { 8 };
    let request = if spec.address == AddressWidth::Bits64 {
        16
    } else {
        12
    };
    let header = if kind == TlpKind::Completion {
        12
    } else {
        request
    };
    framing + header + if spec.ecrc { 4 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Generation, LinkSpec, PAYLOAD_SIZES};
    use super::*;

    fn link(change: impl FnOnce(&mut LinkSpec)) -> LinkConfig {
        let mut spec = LinkSpec::default();
        change(&mut spec);
        LinkConfig::new(spec).unwrap()
    }

    #[test]
    fn published_header_sizes() {
        let sizes = |l: &LinkConfig| {
            [
                TlpKind::MemoryWrite,
                TlpKind::MemoryRead,
                TlpKind::Completion,
            ]
            .map(|k| overhead_bytes(l, k))
        };
        assert_eq!(sizes(&link(|_| ())), [24, 24, 20]);
        assert_eq!(
            sizes(&link(|s| s.address = AddressWidth::Bits32)),
            [20, 20, 20]
        );
        assert_eq!(sizes(&link(|s| s.ecrc = true)), [28, 28, 24]);
        assert_eq!(
            sizes(&link(|s| s.generation = Generation::Gen6)),
            [16, 16, 12]
        );
    }

    #[test]
    fn parts_add_up_in_every_configuration() {
        for generation in Generation::ALL {
            for address in [AddressWidth::Bits32, AddressWidth::Bits64] {
                for ecrc in [false, true] {
                    let link =
                        link(|s| (s.generation, s.address, s.ecrc) = (generation, address, ecrc));
                    for kind in [
                        TlpKind::MemoryWrite,
                        TlpKind::MemoryRead,
                        TlpKind::Completion,
                    ] {
                        let parts: u32 = overhead_parts(&link, kind).iter().map(|p| p.bytes).sum();
                        assert_eq!(parts, overhead_bytes(&link, kind));
                    }
                }
            }
        }
        assert_eq!(
            flit_parts().iter().map(|p| p.bytes).sum::<u32>(),
            FLIT_BYTES
        );
        assert!(PAYLOAD_SIZES.is_sorted());
    }
}
