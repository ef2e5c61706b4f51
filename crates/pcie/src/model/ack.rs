//! Acknowledgement and flow-control traffic: the recommended limits between two DLLPs.
//!
//! PCIe Base Specification 5.0, tables 3-7 to 3-9 (AckNak latency limits) and 2-46 to 2-48 (flow
//! control updates). Both families of tables come from one formula, and so do ours:
//! `floor((MPS + overhead) * factor / lanes + internal delay)`, in symbol times, of which one lane
//! moves one byte each; per link byte the limit is the same number.

use super::config::{Generation, PAYLOAD_SIZES, WIDTHS};

/// Overhead per TLP that the formula adds to the payload.
const TLP_OVERHEAD_SYMBOLS: u32 = 28;
/// Bytes of one DLLP with its framing.
pub const DLLP_BYTES: u32 = 8;

/// Ack factor times ten, by width and payload size: how many TLPs one acknowledgement may cover.
const ACK_FACTOR_TENTHS: [[u32; 6]; 6] = [
    [14, 14, 10, 10, 10, 10],
    [14, 14, 10, 10, 10, 10],
    [14, 14, 10, 10, 10, 10],
    [25, 25, 10, 10, 10, 10],
    [30, 30, 20, 20, 20, 20],
    [30, 30, 20, 20, 20, 20],
];

/// Bytes between two acknowledgements (and between two flow-control updates).
///
/// Sizes and widths outside the tables fall to the nearest smaller entry; a checked
/// [`LinkConfig`](super::LinkConfig) never holds one.
#[must_use]
pub fn limit_bytes(generation: Generation, lanes: u32, mps_bytes: u32) -> u32 {
    let row = WIDTHS.iter().rposition(|&w| w <= lanes).unwrap_or(0);
    let column = PAYLOAD_SIZES
        .iter()
        .rposition(|&s| s <= mps_bytes)
        .unwrap_or(0);
    let internal_delay = match generation {
        Generation::Gen1 => 19,
        Generation::Gen2 => 70,
        _ => 115,
    };
    let covered = (PAYLOAD_SIZES[column] + TLP_OVERHEAD_SYMBOLS) * ACK_FACTOR_TENTHS[row][column];
    (covered + internal_delay * 10 * WIDTHS[row]) / (10 * WIDTHS[row])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_gives_the_specification_tables() {
        let gen3 = [
            [333, 512, 655, 1167, 2191, 4239],
            [224, 313, 385, 641, 1153, 2177],
            [169, 214, 250, 378, 634, 1146],
            [163, 203, 182, 246, 374, 630],
            [144, 168, 182, 246, 374, 630],
            [129, 141, 148, 180, 244, 372],
        ];
        for (row, lanes) in WIDTHS.into_iter().enumerate() {
            for (column, mps) in PAYLOAD_SIZES.into_iter().enumerate() {
                let expected = gen3[row][column];
                assert_eq!(
                    limit_bytes(Generation::Gen3, lanes, mps),
                    expected,
                    "gen3 x{lanes} {mps}"
                );
                assert_eq!(
                    limit_bytes(Generation::Gen1, lanes, mps),
                    expected - 96,
                    "gen1 x{lanes} {mps}"
                );
                assert_eq!(
                    limit_bytes(Generation::Gen2, lanes, mps),
                    expected - 45,
                    "gen2 x{lanes} {mps}"
                );
            }
        }
    }
}
