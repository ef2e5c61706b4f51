//! The eight bytes that announce a record.
//!
//! | bits | meaning |
//! |---|---|
//! | 0-12 | payload bytes, 1 to [`MAX_RECORD_BYTES`]; 8 for a control record or a turn |
//! | 13-15 | kind: 1 data, 2 start, 3 stop, 4 closing, 5 turn; never 0, so that 0 is no record |
//! | 16 | of a data record of the greatest length: its sender is about to write the next one of the same message |
//! | 17 | in posted lanes: the sender asks for credit when this record has been read |
//! | 18-31 | lap of the ring in which the record starts |
//! | 32-63 | when it was written, or 0: [`crate::moment`] |

use crosslane_ctl::lane::{LINE_BYTES, SMALL_RING_LINES};
use crosslane_sys::program::Fault;
use thiserror::Error;

use crate::moment;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// Most payload in one record: 128 lines. A longer write becomes several records, so that the
/// receiver copies the first while the sender copies the next.
pub const MAX_RECORD_BYTES: usize = 128 * LINE_BYTES - HEADER_BYTES;

const _: () = assert!(
    MAX_RECORD_BYTES.div_ceil(LINE_BYTES) * 2 < crosslane_ctl::lane::MIN_RING_LINES as usize
);

/// What a control record says. Each carries a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Control {
    /// The stream continues in the ring once the receiver has taken this many bytes from TCP.
    Start = 2,
    /// The stream continues on TCP, after this many bytes in all have been taken from it.
    Stop = 3,
    /// The sender is closing: look at TCP for the end of the stream. The number is 0.
    Closing = 4,
}

/// Why nothing got into or out of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failed {
    /// The peer has lied.
    #[error(transparent)]
    Lied(#[from] PeerLied),
    /// The program's buffer is not there.
    #[error("the buffer is not there")]
    Fault,
}

impl From<Fault> for Failed {
    fn from(_: Fault) -> Self {
        Self::Fault
    }
}

/// The peer broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerLied {
    /// A header that no correct sender writes here.
    #[error("header {header:#018x} at line {line} is not a record of this lap")]
    Header {
        /// The header.
        header: u64,
        /// The line, never wrapped.
        line: u64,
    },
    /// A credit outside what was sent.
    #[error("credit for line {line} is outside of what was sent")]
    Credit {
        /// The line that the receiver claims to have reached.
        line: u64,
    },
    /// A request, or an answer to one, for a line at which the peer cannot stand. Where the peer is
    /// honest, the window does not keep writes in order.
    #[error("a request or its answer names line {line}, where the peer cannot be")]
    Answer {
        /// The line that the peer names.
        line: u64,
    },
}

/// A header that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Data {
        bytes: usize,
    },
    Control(Control),
    /// The next record, one of data, stands at the start of the next lap.
    Turn,
}

const BYTES: u64 = (1 << KIND_AT) - 1;
const KIND_AT: u32 = 13;
const LAP_AT: u32 = 18;
const LAPS: u64 = (1 << (32 - LAP_AT)) - 1;

const KIND_DATA: u64 = 1;
const KIND_TURN: u64 = 5;
const KIND_DATA_GOES_ON: u64 = KIND_DATA | GOES_ON >> KIND_AT;

const _: () = assert!(MAX_RECORD_BYTES as u64 <= BYTES);

/// The message goes on in the next record, which its sender is writing already. A receive that has room waits
/// for it: over TCP, too, a message of some records becomes readable at once.
pub(crate) const GOES_ON: u64 = 1 << 16;

/// In posted lanes: return credit when this record has been read.
pub(crate) const ASKS_FOR_CREDIT: u64 = 1 << 17;

/// Lines that a record with this much payload takes.
#[inline]
pub(crate) const fn lines_for(bytes: usize) -> u64 {
    (bytes.wrapping_add(HEADER_BYTES + LINE_BYTES - 1) / LINE_BYTES) as u64
}

/// The header of a data record that starts at `line` of a ring of `ring_lines`.
#[inline]
pub(crate) fn data(bytes: usize, line: u64, ring_lines: u32) -> u64 {
    debug_assert!(0 < bytes && bytes <= MAX_RECORD_BYTES);
    record(bytes as u64, KIND_DATA, line, ring_lines)
}

/// The header of a control record.
pub(crate) fn control(kind: Control, line: u64, ring_lines: u32) -> u64 {
    record(8, kind as u64, line, ring_lines)
}

/// The header that has the receiver go on at the start of the next lap.
pub(crate) fn turn(line: u64, ring_lines: u32) -> u64 {
    record(8, KIND_TURN, line, ring_lines)
}

#[inline]
fn record(bytes: u64, kind: u64, line: u64, ring_lines: u32) -> u64 {
    bytes | kind << KIND_AT | lap(line, ring_lines) << LAP_AT | moment::of_this_record()
}

/// Whether a line is one that is not used while the receiver keeps up.
#[inline]
pub(crate) fn is_spare(line: u64, ring_lines: u32) -> bool {
    line & u64::from(ring_lines - 1) >= u64::from(SMALL_RING_LINES)
}

/// The first line of the lap after that of `line`.
#[inline]
pub(crate) fn next_lap(line: u64, ring_lines: u32) -> u64 {
    (line | u64::from(ring_lines - 1)) + 1
}

/// The lap of a line, as far as the header has room for it.
#[inline]
fn lap(line: u64, ring_lines: u32) -> u64 {
    (line >> ring_lines.trailing_zeros()) & LAPS
}

/// The kind of a header, with its flags.
#[inline]
fn kind(header: u64) -> u64 {
    header >> KIND_AT & ((1 << (LAP_AT - KIND_AT)) - 1)
}

/// Whether a header, not yet checked, is one of data, or leads to one.
#[inline]
pub(crate) fn claims_data(header: u64) -> bool {
    matches!(kind(header), KIND_DATA | KIND_DATA_GOES_ON | KIND_TURN)
}

/// Whether a header, not yet checked, says that its message goes on in the next record.
#[inline]
pub(crate) fn goes_on(header: u64) -> bool {
    header & GOES_ON != 0
}

/// Bytes of the record of data with this header, found at `line`, whose message ends with it. `None` for every other, and for
/// what is no record.
#[inline]
pub(crate) fn last_data(header: u64, line: u64, ring_lines: u32) -> Option<usize> {
    // All that a header says besides bytes and moment.
    let rest = header << 32 >> (32 + KIND_AT);
    let bytes = header & BYTES;
    let is_data = rest == KIND_DATA | lap(line, ring_lines) << (LAP_AT - KIND_AT)
        && bytes.wrapping_sub(1) < MAX_RECORD_BYTES as u64;
    usize::try_from(bytes).ok().filter(|_| is_data)
}

/// Check a header, not 0, that was found at `line`.
#[inline]
pub(crate) fn check(header: u64, line: u64, ring_lines: u32) -> Result<Record, PeerLied> {
    let lie = PeerLied::Header { header, line };
    if header >> LAP_AT & LAPS != lap(line, ring_lines) {
        return Err(lie);
    }
    let bytes = usize::try_from(header & BYTES).map_err(|_| lie)?;
    match kind(header) {
        KIND_DATA if 0 < bytes && bytes <= MAX_RECORD_BYTES => Ok(Record::Data { bytes }),
        // A receiver waits for what follows: not for many short records, each of which says so.
        KIND_DATA_GOES_ON if bytes == MAX_RECORD_BYTES => Ok(Record::Data { bytes }),
        2 if bytes == 8 => Ok(Record::Control(Control::Start)),
        3 if bytes == 8 => Ok(Record::Control(Control::Stop)),
        4 if bytes == 8 => Ok(Record::Control(Control::Closing)),
        KIND_TURN if bytes == 8 && is_spare(line, ring_lines) => Ok(Record::Turn),
        _ => Err(lie),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINES: u32 = 2 * SMALL_RING_LINES;

    /// All headers that a correct sender can write at a line, whenever.
    fn is_correct(header: u64, line: u64) -> bool {
        let header = header & 0xffff_ffff;
        let controls = [Control::Start, Control::Stop, Control::Closing];
        let bytes = usize::try_from(header & BYTES).unwrap();
        let is_record = 0 < bytes && bytes <= MAX_RECORD_BYTES;
        let goes_on = if bytes == MAX_RECORD_BYTES {
            GOES_ON
        } else {
            0
        };
        is_record && header & !goes_on == data(bytes, line, LINES)
            || controls
                .map(|kind| control(kind, line, LINES))
                .contains(&header)
            || is_spare(line, LINES) && header == turn(line, LINES)
    }

    fn nearly_correct() -> impl Strategy<Value = (u64, u64)> {
        let bytes = prop_oneof![
            0..10_u64,
            Just(MAX_RECORD_BYTES as u64),
            Just(MAX_RECORD_BYTES as u64 + 1),
            0..=BYTES
        ];
        let line = prop_oneof![0..20_000_u64, any::<u64>().prop_map(|line| line >> 16)];
        let kind_and_flags = 0..32_u64;
        let nearly = (bytes, kind_and_flags, line, 0..3_u64, any::<u32>());
        nearly.prop_map(|(bytes, kind, line, laps_off, moment)| {
            let lap = lap(line + laps_off * u64::from(LINES), LINES);
            let header = bytes | kind << KIND_AT | lap << LAP_AT;
            (header | u64::from(moment) << 32, line)
        })
    }

    proptest! {
        #[test]
        fn what_no_correct_sender_writes_is_a_lie((header, line) in nearly_correct()) {
            prop_assert_eq!(check(header, line, LINES).is_ok(), is_correct(header, line));
        }

        #[test]
        fn the_last_record_of_a_message_is_known_at_once((header, line) in nearly_correct()) {
            let flags = GOES_ON | ASKS_FOR_CREDIT;
            let expected = match check(header, line, LINES) {
                Ok(Record::Data { bytes }) if header & flags == 0 => Some(bytes),
                _ => None,
            };
            prop_assert_eq!(last_data(header, line, LINES), expected);
        }

        #[test]
        fn garbage_is_a_lie(header: u64, line in 0..1_u64 << 48) {
            prop_assert_eq!(check(header, line, LINES).is_ok(), is_correct(header, line));
        }
    }

    #[test]
    fn a_header_carries_length_kind_and_the_low_bits_of_the_lap() {
        let line = 0x9_8765_4321 * u64::from(LINES) + 7;
        assert_eq!(data(0x1234, line, LINES), 0x321 << 18 | 1 << 13 | 0x1234);
        assert_eq!(
            control(Control::Closing, line, LINES),
            0x321 << 18 | 4 << 13 | 8
        );
    }

    #[test]
    fn a_line_holds_its_first_56_bytes() {
        assert_eq!([1, 56, 57, 120, 121].map(lines_for), [1, 1, 2, 2, 3]);
        assert_eq!(lines_for(MAX_RECORD_BYTES), 128);
    }
}
