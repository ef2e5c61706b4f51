//! How transfers become packets.

/// No request crosses a 4 KiB boundary (PCIe Base Specification 2.2.7).
const REQUEST_BOUNDARY: u64 = 4096;

/// Cuts a transfer into requests of at most `most` bytes.
pub(crate) fn pieces(address: u64, bytes: u32, most: u32) -> impl Iterator<Item = (u64, u32)> {
    let end = address + u64::from(bytes);
    cut(address, end, move |at| {
        (at + u64::from(most)).min((at / REQUEST_BOUNDARY + 1) * REQUEST_BOUNDARY)
    })
}

/// Cuts a request into completions of at most `most` bytes; all but the last end at the read
/// completion boundary (PCIe Base Specification 2.3.1.1).
pub(crate) fn completions(
    address: u64,
    end: u64,
    most: u32,
    boundary: u32,
) -> impl Iterator<Item = (u64, u32)> {
    let boundary = u64::from(boundary);
    cut(address, end, move |at| {
        (at + u64::from(most)) / boundary * boundary
    })
}

fn cut(mut at: u64, end: u64, next: impl Fn(u64) -> u64) -> impl Iterator<Item = (u64, u32)> {
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let from = at;
        at = next(at).min(end);
        Some((
            from,
            u32::try_from(at - from).expect("a packet is at most 4 KiB"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_cover_the_transfer_and_stay_within_their_limits(
            address in 0_u64..100_000,
            bytes in 1_u32..20_000,
            shift in 0_u32..6,
        ) {
            let most = 128_u32 << shift;
            let mut at = address;
            for (from, piece) in pieces(address, bytes, most) {
                prop_assert_eq!(from, at);
                prop_assert!(piece >= 1 && piece <= most);
                let last = from + u64::from(piece) - 1;
                prop_assert_eq!(from / REQUEST_BOUNDARY, last / REQUEST_BOUNDARY);
                at = last + 1;
            }
            prop_assert_eq!(at, address + u64::from(bytes));
        }

        #[test]
        fn completions_end_at_the_boundary_but_for_the_last(
            address in 0_u64..10_000,
            bytes in 1_u64..4096,
            shift in 0_u32..4,
        ) {
            let (most, boundary) = (512, 64_u32 << shift);
            let end = address + bytes;
            let mut at = address;
            for (from, piece) in completions(address, end, most, boundary) {
                prop_assert_eq!(from, at);
                at = from + u64::from(piece);
                prop_assert!(piece <= most && (at == end || at % u64::from(boundary) == 0));
            }
            prop_assert_eq!(at, end);
        }
    }
}
