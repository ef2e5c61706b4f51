//! Where the lanes of an arena lie.
//!
//! A ring is long, and most connections use little of it. Where each lane lay in one piece, the few pages that a
//! connection touches would be far from those of all others, and each would need a page of page tables in each of the
//! two processes, as large as itself. So what is used first lies together.

use crate::lane::{Geometry, LANE_CONTROL_BYTES, LINE_BYTES, PAGE_BYTES, SMALL_RING_LINES};

/// Lines of a ring in the *head*: those of both lanes of a slot, with their control lines, are one page.
pub const HEAD_LINES: u32 = 28;

const HEAD_BYTES: usize = HEAD_LINES as usize * LINE_BYTES;
const SMALL_BYTES: usize = SMALL_RING_LINES as usize * LINE_BYTES;

/// Parts of a ring, each of which lies in one piece: the head, the rest of what is used while the receiver keeps up, and what
/// is beyond.
pub const PARTS: usize = 3;

/// Where each part of a ring of so many lines ends, in lines.
#[inline]
pub const fn part_ends(ring_lines: u32) -> [u32; PARTS] {
    [
        least(HEAD_LINES, ring_lines),
        least(SMALL_RING_LINES, ring_lines),
        ring_lines,
    ]
}

const fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// The part in which a line of the ring lies.
#[inline]
pub const fn part_of(line: u32) -> usize {
    if line < HEAD_LINES {
        0
    } else if line < SMALL_RING_LINES {
        1
    } else {
        2
    }
}

/// How the lanes of an arena lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One lane after the other, each in one piece.
    Whole,
    /// First what is used first: for each slot a page with the control lines and heads of both lanes, and the rest of the
    /// small rings. Behind those of all slots, what is beyond the small rings.
    Parted,
}

/// Where a lane lies in its arena, in bytes from the arena's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlace {
    /// The control lines.
    pub control: usize,
    /// For each part of the ring, where the ring's first line would lie if all of it lay in one piece with that part.
    pub ring: [usize; PARTS],
}

/// A range of an arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Layout {
    /// Bytes of the whole arena.
    pub const fn arena_bytes(self, geometry: &Geometry) -> usize {
        match self {
            Self::Whole => geometry.arena_bytes(),
            Self::Parted => {
                let slot = near_bytes(geometry) + 2 * far_bytes(geometry);
                geometry.slots as usize * slot
            }
        }
    }

    /// Where the lane of `slot` lies in which the end with role `sender_role` sends, or `None` if there is no such
    /// slot or role.
    pub const fn lane(self, geometry: &Geometry, slot: u32, sender_role: u32) -> Option<LanePlace> {
        let Some(whole) = geometry.lane_offset(slot, sender_role) else {
            return None;
        };
        Some(match self {
            Self::Whole => LanePlace {
                control: whole,
                ring: [whole + LANE_CONTROL_BYTES; PARTS],
            },
            Self::Parted => parted(geometry, slot as usize, sender_role as usize),
        })
    }

    /// What belongs to a slot, in whole pages; the second range may be empty.
    pub const fn slot(self, geometry: &Geometry, slot: u32) -> [Range; 2] {
        let slot = slot as usize;
        let near = near_bytes(geometry);
        let far = 2 * far_bytes(geometry);
        match self {
            Self::Whole => [
                Range {
                    offset: slot * geometry.slot_bytes(),
                    bytes: geometry.slot_bytes(),
                },
                Range {
                    offset: 0,
                    bytes: 0,
                },
            ],
            Self::Parted => [
                Range {
                    offset: slot * near,
                    bytes: near,
                },
                Range {
                    offset: geometry.slots as usize * near + slot * far,
                    bytes: far,
                },
            ],
        }
    }
}

/// Bytes of what is used first, of both lanes of a slot.
const fn near_bytes(geometry: &Geometry) -> usize {
    let small = part_ends(geometry.ring_lines)[1] as usize * LINE_BYTES;
    (PAGE_BYTES + 2 * (small - HEAD_BYTES)).next_multiple_of(PAGE_BYTES)
}

/// Bytes of what one lane has beyond.
const fn far_bytes(geometry: &Geometry) -> usize {
    (geometry.ring_lines as usize * LINE_BYTES).saturating_sub(SMALL_BYTES)
}

const fn parted(geometry: &Geometry, slot: usize, role: usize) -> LanePlace {
    let page = slot * near_bytes(geometry);
    let small = part_ends(geometry.ring_lines)[1] as usize * LINE_BYTES;
    let head = page + 2 * LANE_CONTROL_BYTES + role * HEAD_BYTES;
    let near = page + PAGE_BYTES + role * (small - HEAD_BYTES);
    let beyond = geometry.slots as usize * near_bytes(geometry);
    let far = beyond + (2 * slot + role) * far_bytes(geometry);
    LanePlace {
        control: page + role * LANE_CONTROL_BYTES,
        ring: [head, near - HEAD_BYTES, far - SMALL_BYTES],
    }
}

const _: () = assert!(2 * (LANE_CONTROL_BYTES + HEAD_BYTES) == PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{MAX_RING_LINES, MIN_RING_LINES};

    /// Every range of a lane: its control lines, and each part of its ring.
    fn ranges(layout: Layout, geometry: &Geometry, slot: u32, role: u32) -> Vec<Range> {
        let place = layout.lane(geometry, slot, role).unwrap();
        let mut first = 0;
        let parts = part_ends(geometry.ring_lines)
            .into_iter()
            .zip(place.ring)
            .map(|(end, base)| {
                let range = Range {
                    offset: base + first as usize * LINE_BYTES,
                    bytes: (end - first) as usize * LINE_BYTES,
                };
                first = end;
                range
            });
        let control = Range {
            offset: place.control,
            bytes: LANE_CONTROL_BYTES,
        };
        std::iter::once(control).chain(parts).collect()
    }

    #[test]
    fn lanes_lie_inside_of_their_slots_and_apart() {
        for layout in [Layout::Whole, Layout::Parted] {
            for ring_lines in [MIN_RING_LINES, 1 << 10, 1 << 11, 1 << 16, MAX_RING_LINES] {
                let geometry = Geometry {
                    ring_lines,
                    slots: 3,
                };
                let mut all = Vec::new();
                for slot in 0..geometry.slots {
                    let own = layout.slot(&geometry, slot);
                    let is_inside = |range: &Range| {
                        own.iter().any(|slot| {
                            range.offset >= slot.offset
                                && range.offset + range.bytes <= slot.offset + slot.bytes
                        })
                    };
                    let lanes = [0, 1].map(|role| ranges(layout, &geometry, slot, role));
                    let used = lanes.iter().flatten().filter(|range| range.bytes > 0);
                    assert!(used.clone().all(is_inside), "{layout:?} {ring_lines}");
                    all.extend(used.copied());
                    let is_of_pages = |range: &Range| {
                        range.offset.is_multiple_of(PAGE_BYTES)
                            && range.bytes.is_multiple_of(PAGE_BYTES)
                    };
                    assert!(own.iter().all(is_of_pages), "{layout:?} {ring_lines}");
                }
                all.sort_by_key(|range| range.offset);
                let overlap = all
                    .windows(2)
                    .any(|pair| pair[0].offset + pair[0].bytes > pair[1].offset);
                assert!(!overlap, "{layout:?} {ring_lines}: {all:?}");
                let end = all.last().map(|range| range.offset + range.bytes).unwrap();
                assert!(end <= layout.arena_bytes(&geometry));
                assert_eq!(layout.lane(&geometry, 3, 0), None);
                assert_eq!(layout.lane(&geometry, 0, 2), None);
            }
        }
    }

    #[test]
    fn what_is_used_first_is_one_page_of_a_slot() {
        let geometry = Geometry::default();
        for slot in 0..geometry.slots {
            let near = Layout::Parted.slot(&geometry, slot)[0];
            for role in [0, 1] {
                let [control, head, ..] = ranges(Layout::Parted, &geometry, slot, role)[..] else {
                    unreachable!("a lane has control lines and a head");
                };
                for range in [control, head] {
                    assert!(range.offset >= near.offset);
                    assert!(range.offset + range.bytes <= near.offset + PAGE_BYTES);
                }
            }
        }
    }

    #[test]
    fn every_line_lies_in_the_part_that_has_it() {
        for ring_lines in [MIN_RING_LINES, 1 << 10, 1 << 12] {
            let ends = part_ends(ring_lines);
            for line in 0..ring_lines {
                let part = part_of(line);
                assert!(line < ends[part], "{line}");
                assert!(part == 0 || line >= ends[part - 1], "{line}");
            }
        }
    }
}
