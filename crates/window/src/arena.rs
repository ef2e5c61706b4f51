//! The memory of rings between two processes: on one host a sealed memory object, between two a
//! part of a file that both map.

use core::sync::atomic::AtomicU32;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use crosslane_ctl::lane::{Geometry, Location};
use crosslane_sys::fault::Watch;
use crosslane_sys::memory::{Mapping, is_sealed, reaches};
use thiserror::Error;

use crate::view::View;

/// Why an arena could not be opened.
#[derive(Debug, Error)]
pub enum ArenaError {
    /// The geometry is out of range; the monitor's fault.
    #[error("arena geometry {0:?} is out of range")]
    Geometry(Geometry),
    /// The object could be cut short under us, or is too small; the monitor's fault.
    #[error("arena object is not sealed memory of {bytes} bytes")]
    Unsealed {
        /// Bytes that the geometry demands.
        bytes: usize,
    },
    /// The file is shorter than the monitor says; its fault, or that of who has cut it short.
    #[error("the window's file does not reach to byte {end}")]
    Short {
        /// Where the arena should end.
        end: u64,
    },
    /// No address space or memory; a local lack.
    #[error("cannot map {bytes} bytes of rings: {error:?}")]
    Map {
        /// Bytes wanted.
        bytes: usize,
        /// The kernel's answer.
        error: crosslane_sys::Errno,
    },
}

/// A mapped arena.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    geometry: Geometry,
    /// Of memory that may go away.
    watch: Mutex<Option<Watch>>,
}

impl Arena {
    /// Check and map an arena that the monitor has passed.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn open(
        fd: BorrowedFd<'_>,
        geometry: Geometry,
        location: Location,
    ) -> Result<Self, ArenaError> {
        if !geometry.is_valid() {
            return Err(ArenaError::Geometry(geometry));
        }
        let bytes = geometry.arena_bytes();
        let offset = check(fd, bytes, location)?;
        let mapping = Mapping::shared_at(fd, offset, bytes)
            .map_err(|error| ArenaError::Map { bytes, error })?;
        let arena = Self {
            mapping,
            geometry,
            watch: Mutex::new(None),
        };
        arena.settle(location)?;
        Ok(arena)
    }

    /// What a mapping needs besides being there. A connection touches some pages of its many MiB, which huge
    /// ones would fill (docs/decisions/huge-pages.md); the pages of a file are the business of who has made it.
    fn settle(&self, location: Location) -> Result<(), ArenaError> {
        if location == Location::Sealed {
            self.mapping.keep_pages_small();
        }
        self.watch(location)
    }

    /// Watch memory that others can take away.
    fn watch(&self, location: Location) -> Result<(), ArenaError> {
        let (start, bytes) = (self.mapping.start().addr().get(), self.mapping.bytes());
        let watch = match location {
            Location::Sealed => None,
            Location::File { .. } => {
                let watch = Watch::new(start, bytes);
                Some(watch.map_err(|error| ArenaError::Map { bytes, error })?)
            }
        };
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
        Ok(())
    }

    /// A word that is not 0 once the memory has been found missing; `None` where nobody can take it
    /// away. Means something until the arena is retired.
    pub fn lost(&self) -> Option<&'static AtomicU32> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.as_ref().map(Watch::word)
    }

    /// Let go of the memory but keep the addresses, so that a stale pointer into the arena reads
    /// zeroes instead of faulting.
    ///
    /// # Errors
    /// The kernel's; the memory then stays mapped.
    pub fn retire(&self) -> Result<(), crosslane_sys::Errno> {
        self.mapping.replace_private()?;
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Map another arena of the same geometry at the addresses of this retired one.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn reuse(&self, fd: BorrowedFd<'_>, location: Location) -> Result<(), ArenaError> {
        let bytes = self.geometry.arena_bytes();
        let offset = check(fd, bytes, location)?;
        self.mapping
            .replace_shared_at(fd, offset)
            .map_err(|error| ArenaError::Map { bytes, error })?;
        self.settle(location)
    }

    /// How the arena is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether this address lies in the arena.
    pub fn contains(&self, address: usize) -> bool {
        let start = self.mapping.start().as_ptr().addr();
        (start..start + self.mapping.bytes()).contains(&address)
    }

    /// The lane of `slot` in which role `sender_role` sends, or `None` if there is none.
    ///
    /// # Safety
    /// The arena must outlive every use of the view.
    pub unsafe fn lane(&self, slot: u32, sender_role: u32) -> Option<View> {
        let offset = self.geometry.lane_offset(slot, sender_role)?;
        // SAFETY: the caller's promise.
        let whole = unsafe { View::of(&self.mapping) };
        whole.part(offset, self.geometry.lane_bytes())
    }
}

/// See that the memory is there; returns where it begins.
fn check(fd: BorrowedFd<'_>, bytes: usize, location: Location) -> Result<usize, ArenaError> {
    match location {
        Location::Sealed if is_sealed(fd, bytes) => Ok(0),
        Location::Sealed => Err(ArenaError::Unsealed { bytes }),
        Location::File { offset } => {
            let end = offset.saturating_add(bytes as u64);
            let start = usize::try_from(offset).ok().filter(|_| reaches(fd, end));
            start.ok_or(ArenaError::Short { end })
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::create_sealed;

    const SMALL: Geometry = Geometry {
        ring_lines: 512,
        slots: 2,
    };

    #[test]
    fn a_sealed_object_of_the_right_size_opens() {
        let fd = create_sealed("test-arena", SMALL.arena_bytes()).unwrap();
        let arena = Arena::open(fd.as_fd(), SMALL, Location::Sealed).unwrap();
        // SAFETY: the arena outlives the views.
        let last = unsafe { arena.lane(1, 1) }.unwrap();
        assert_eq!(last.bytes(), SMALL.lane_bytes());
        // SAFETY: as above.
        assert!(unsafe { arena.lane(2, 0) }.is_none());
    }

    #[test]
    fn an_object_that_could_be_cut_short_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(
            Arena::open(file.as_fd(), SMALL, Location::Sealed),
            Err(ArenaError::Unsealed { .. })
        ));
        let small = create_sealed("test-arena", SMALL.arena_bytes() - 1).unwrap();
        assert!(matches!(
            Arena::open(small.as_fd(), SMALL, Location::Sealed),
            Err(ArenaError::Unsealed { .. })
        ));
    }

    /// The flags of the mapping around an address, as proc(5) names them. Anonymous memory that
    /// another test maps beside it may have become part of it.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let holds_it = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            let [start, end] = [start, end].map(|end| usize::from_str_radix(end, 16).ok());
            Some((start?..end?).contains(&address))
        };
        let lines = maps.lines().skip_while(|line| holds_it(line) != Some(true));
        let flags = lines.skip(1).find(|line| line.starts_with("VmFlags:"));
        flags.expect("every mapping has flags").to_owned()
    }

    #[test]
    fn arenas_of_one_host_are_never_of_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("SKIPPED: this kernel has no transparent huge pages");
            return;
        }
        let fd = create_sealed("test-arena", SMALL.arena_bytes()).unwrap();
        let arena = Arena::open(fd.as_fd(), SMALL, Location::Sealed).unwrap();
        let start = arena.mapping.start().addr().get();
        assert!(flags_at(start).contains(" nh"), "when opened");
        arena.retire().unwrap();
        assert!(!flags_at(start).contains(" nh"), "replaced");
        arena.reuse(fd.as_fd(), Location::Sealed).unwrap();
        assert!(flags_at(start).contains(" nh"), "when used again");
    }

    #[test]
    fn a_part_of_a_file_opens_where_the_file_has_it() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        let offset = 4096;
        file.set_len(offset + SMALL.arena_bytes() as u64).unwrap();
        let place = Location::File { offset };
        let arena = Arena::open(file.as_fd(), SMALL, place).unwrap();
        let at = offset + SMALL.lane_bytes() as u64;
        file.write_all_at(&[7; 8], at).unwrap();
        // SAFETY: the arena outlives the views.
        let lane = unsafe { arena.lane(0, 1) }.unwrap();
        // SAFETY: a lane is longer than eight bytes, and nobody changes them now.
        let seen = unsafe { lane.start().cast::<[u8; 8]>().read_volatile() };
        assert_eq!(seen, [7; 8]);
        let beyond = Location::File { offset: 8192 };
        assert!(matches!(
            Arena::open(file.as_fd(), SMALL, beyond),
            Err(ArenaError::Short { .. })
        ));
        assert!(matches!(
            Arena::open(file.as_fd(), SMALL, Location::Sealed),
            Err(ArenaError::Unsealed { .. })
        ));
    }

    #[test]
    fn what_is_cut_off_is_lost_and_what_is_mapped_after_it_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SMALL.arena_bytes() as u64).unwrap();
        let place = Location::File { offset: 0 };
        let arena = Arena::open(file.as_fd(), SMALL, place).unwrap();
        let look = || {
            // SAFETY: the arena outlives the views.
            let lane = unsafe { arena.lane(1, 1) }.unwrap();
            // SAFETY: inside the arena.
            unsafe { lane.start().read_volatile() };
            arena.lost().map(|lost| lost.load(Ordering::SeqCst))
        };
        assert_eq!(look(), Some(0));
        file.set_len(0).unwrap();
        assert_eq!(look(), Some(1));
        arena.retire().unwrap();
        assert_eq!(look(), None);
        file.set_len(SMALL.arena_bytes() as u64).unwrap();
        arena.reuse(file.as_fd(), place).unwrap();
        assert_eq!(look(), Some(0));
    }

    #[test]
    fn a_lying_geometry_is_refused() {
        let fd = create_sealed("test-arena", 4096).unwrap();
        let lie = Geometry {
            ring_lines: 3,
            slots: 1,
        };
        assert!(matches!(
            Arena::open(fd.as_fd(), lie, Location::Sealed),
            Err(ArenaError::Geometry(_))
        ));
    }
}
