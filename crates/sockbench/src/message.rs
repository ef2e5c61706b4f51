//! Messages that cannot be mistaken for each other.
//!
//! The first word of a message is its number, with the top bit set in the last one; the last word
//! of a message of two words or more is the complement of the first. A byte lost, doubled or
//! moved shifts one of them, and a message delivered twice or skipped has the wrong number.

const WORD: usize = size_of::<u64>();
/// The largest message, a limit against typing errors and nonsense from a peer.
const MAX_BYTES: usize = 1 << 26;
const LAST: u64 = 1 << 63;

/// A message that is not the one that was due.
#[derive(Debug, thiserror::Error)]
#[error("message {due} arrived broken: first word {first:#x}, last word {last:#x}")]
pub struct Broken {
    due: u64,
    first: u64,
    last: u64,
}

/// A message size that has no room for the words or no sense.
#[derive(Debug, thiserror::Error)]
#[error("a message of {0} bytes is not possible; take 8, or 16 to {MAX_BYTES}")]
pub struct BadSize(u64);

/// The size as a length in memory, when messages of that size are possible.
///
/// # Errors
/// [`BadSize`].
pub fn checked_size(bytes: u64) -> Result<usize, BadSize> {
    let size = usize::try_from(bytes).map_err(|_| BadSize(bytes))?;
    match size {
        WORD => Ok(size),
        _ if (2 * WORD..=MAX_BYTES).contains(&size) => Ok(size),
        _ => Err(BadSize(bytes)),
    }
}

/// Makes `message` number `number`.
#[inline]
pub fn stamp(message: &mut [u8], number: u64, last: bool) {
    let word = number | if last { LAST } else { 0 };
    if let Some(end) = message.len().checked_sub(WORD) {
        message[end..].copy_from_slice(&(!word).to_le_bytes());
        message[..WORD].copy_from_slice(&word.to_le_bytes());
    }
}

/// Checks that `message` is number `due`, and tells whether it is the last.
///
/// # Errors
/// [`Broken`] when it is anything else.
#[inline]
pub fn check(message: &[u8], due: u64) -> Result<bool, Broken> {
    let first = message
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word));
    let last = message
        .last_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word));
    let complement = if message.len() < 2 * WORD {
        !last
    } else {
        last
    };
    if first & !LAST == due && complement == !first {
        return Ok(first & LAST != 0);
    }
    Err(Broken { due, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_message_passes_and_tells_whether_it_is_the_last() {
        for bytes in [8, 16, 17, 56, 64, 4096] {
            let mut message = vec![0; bytes];
            stamp(&mut message, 7, false);
            assert!(!check(&message, 7).expect("intact"), "{bytes}");
        }
        let mut message = [0; 64];
        stamp(&mut message, 9, true);
        assert!(check(&message, 9).expect("intact"));
    }

    #[test]
    fn sizes_that_cannot_hold_the_words_are_refused() {
        for bytes in [0, 7, 9, 15, 1 << 27, u64::MAX] {
            assert!(checked_size(bytes).is_err(), "{bytes}");
        }
        assert_eq!(checked_size(64).expect("possible"), 64);
    }

    #[test]
    fn a_shifted_skipped_or_torn_message_is_refused() {
        let mut message = [0; 64];
        stamp(&mut message, 7, false);
        assert!(check(&message, 8).is_err(), "skipped");
        message.rotate_left(1);
        assert!(check(&message, 7).is_err(), "shifted");
        let mut torn = [0; 64];
        stamp(&mut torn, 7, false);
        torn[63] = 0;
        assert!(check(&torn, 7).is_err(), "torn");
    }
}
