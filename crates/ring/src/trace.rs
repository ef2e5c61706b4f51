//! Moments on a message's way through the library, for `crosslane bench breakdown`.
//!
//! Only a build with the feature `trace` notes them, in a file that the environment names; in every
//! other build [`mark`] is nothing at all. Marks stand where the crates above and this one do their
//! work, so that what is timed is the code that everybody runs.

/// Names the file to which a traced library writes.
pub const FILE_VARIABLE: &str = "CROSSLANE_TRACE";

/// Most moments that a process notes; the rest are left out.
pub const MOST_MOMENTS: usize = 1 << 20;

/// Low bits of a moment, which hold its point; above them stands the counter's value.
const POINT_BITS: u32 = 4;

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Point {
    /// The program has called; its descriptor is about to be looked up.
    Called = 1,
    /// The sender has its end and the direction's lock.
    Locked,
    /// The payload of a record is in the lane.
    CopiedIn,
    /// The record's header is written.
    Published,
    /// The receiver has seen that there is something, or is about to look.
    Seen,
    /// The receiver holds the lock and has checked a record's header.
    Found,
    /// The payload of a record, or as much as was asked for, is in the program's buffer.
    CopiedOut,
}

const POINTS: [Point; 7] = [
    Point::Called,
    Point::Locked,
    Point::CopiedIn,
    Point::Published,
    Point::Seen,
    Point::Found,
    Point::CopiedOut,
];

const _: () = assert!(POINTS.len() < 1 << POINT_BITS);

/// A point and when it was reached, in one word of the file. 0 stands for none.
#[must_use]
pub fn pack(point: Point, ticks: u64) -> u64 {
    ticks << POINT_BITS | u64::from(point as u8)
}

/// The reverse; the highest bits of the counter are lost.
#[must_use]
pub fn unpack(word: u64) -> Option<(Point, u64)> {
    let number = word & ((1 << POINT_BITS) - 1);
    let point = POINTS
        .into_iter()
        .find(|point| u64::from(*point as u8) == number)?;
    Some((point, word >> POINT_BITS))
}

/// Note that the calling thread has come to `point`.
#[inline(always)]
pub fn mark(point: Point) {
    #[cfg(feature = "trace")]
    file::write(point);
    #[cfg(not(feature = "trace"))]
    let _ = point;
}

#[cfg(feature = "trace")]
pub use file::begin;

#[cfg(feature = "trace")]
mod file {
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::fs::OpenOptions;
    use std::os::fd::{AsFd, IntoRawFd};
    use std::sync::OnceLock;

    use crosslane_sys::cpu;
    use crosslane_sys::memory::Mapping;

    use super::{FILE_VARIABLE, MOST_MOMENTS, Point, pack};

    const BYTES: usize = MOST_MOMENTS * size_of::<u64>();

    static FILE: OnceLock<Mapping> = OnceLock::new();
    static NEXT: AtomicUsize = AtomicUsize::new(0);

    /// Open the file. Marks before this are lost.
    pub fn begin() {
        let Some(path) = std::env::var_os(FILE_VARIABLE) else {
            return;
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).open(path);
        let Ok(file) = file else { return };
        let mapping = file.set_len(BYTES as u64).ok();
        let mapping = mapping.and_then(|()| Mapping::shared(file.as_fd(), BYTES).ok());
        if let Some(mapping) = mapping {
            // Set once only: the first stays.
            let _ = FILE.set(mapping);
        }
        // Closing is a call that the library itself answers, and this is in the middle of one.
        let _ = file.into_raw_fd();
    }

    /// Threads that send or receive at the same time write over each other; the bench has one.
    #[inline(always)]
    pub fn write(point: Point) {
        let ticks = cpu::ticks();
        let Some(mapping) = FILE.get() else { return };
        let index = NEXT.load(Ordering::Relaxed);
        if index >= MOST_MOMENTS {
            return;
        }
        NEXT.store(index + 1, Ordering::Relaxed);
        // SAFETY: the mapping has MOST_MOMENTS words.
        let word = unsafe { mapping.start().cast::<AtomicU64>().add(index) };
        // SAFETY: inside the mapping, which is never unmapped; any word is a valid atomic.
        let word = unsafe { word.as_ref() };
        word.store(pack(point, ticks), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_one_word_and_no_word_is_none() {
        for point in POINTS {
            let ticks = 0x0123_4567_89ab_cdef;
            assert_eq!(unpack(pack(point, ticks)), Some((point, ticks)));
        }
        assert_eq!(unpack(0), None);
        assert_eq!(unpack(u64::MAX), None);
    }
}
