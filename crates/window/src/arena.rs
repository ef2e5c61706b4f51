//! The memory of rings between two processes: on one host a sealed memory object, between two a
//! part of a file that both map, or a part of a memory at each host, which the other one writes.

use core::sync::atomic::AtomicU32;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;

use crosslane_ctl::lane::{Geometry, Location, Pages, Posting};
use crosslane_ctl::layout::{LanePlace, Layout};
use crosslane_sys::busy::Mutex;
use crosslane_sys::fault::Watch;
use crosslane_sys::memory::{Mapping, is_sealed, reaches};
use thiserror::Error;

use crate::outbound::Outbound;
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
    /// The other host's memory has not come; the monitor's fault, or a lack of descriptors.
    #[error("of a window of two memories there is one only")]
    Half,
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
    /// Goes first, also when all is dropped, see [`Arena::retire`].
    beyond: Option<Beyond>,
    /// Whole pages, so that it may be longer than the arena.
    mapping: Mapping,
    geometry: Geometry,
    layout: Layout,
    pages: Pages,
    /// Of memory that may go away.
    watch: Mutex<Option<Watch>>,
}

/// Where a lane lies.
#[derive(Clone, Copy, Debug)]
pub struct LaneView {
    /// All of its arena.
    pub arena: View,
    /// Where in it.
    pub place: LanePlace,
}

/// The other host's memory, where it is not the same.
#[derive(Debug)]
struct Beyond {
    mapping: Mapping,
    posting: Posting,
    outbound: Outbound,
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
        Self::open_with(fd, None, geometry, location)
    }

    /// The same, of which another host's memory lies behind a second descriptor.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn open_with(
        fd: BorrowedFd<'_>,
        beyond: Option<BorrowedFd<'_>>,
        geometry: Geometry,
        location: Location,
    ) -> Result<Self, ArenaError> {
        if !geometry.is_valid() {
            return Err(ArenaError::Geometry(geometry));
        }
        let (layout, pages) = (location.layout(), location.pages());
        let bytes = pages.mapped_bytes(layout.arena_bytes(&geometry));
        let offset = check(fd, bytes, location)?;
        let arena = Self {
            mapping: map(fd, offset, bytes)?,
            geometry,
            layout,
            pages,
            watch: Mutex::new(None),
            beyond: Beyond::open(beyond, bytes, location)?,
        };
        arena.watch(location)?;
        arena.keep_pages_small(location);
        Ok(arena)
    }

    /// A connection touches some pages of its many MiB, which huge ones would fill (docs/decisions/huge-pages.md);
    /// the pages of a file are the business of who has made it.
    fn keep_pages_small(&self, location: Location) {
        if location == Location::Sealed {
            self.mapping.keep_pages_small();
        }
    }

    /// Watch what others can take away.
    fn watch(&self, location: Location) -> Result<(), ArenaError> {
        if location == Location::Sealed {
            return put(&self.watch, None);
        }
        put(&self.watch, Some(&self.mapping))?;
        match &self.beyond {
            Some(beyond) => put(&beyond.watch, Some(&beyond.mapping)),
            None => Ok(()),
        }
    }

    /// A word that is not 0 once the memory has been found missing; `None` where nobody can take it
    /// away. Means something until the arena is retired.
    pub fn lost(&self) -> Option<&'static AtomicU32> {
        word(&self.watch)
    }

    /// The same of the other host's memory, where it is not the same.
    pub fn lost_beyond(&self) -> Option<&'static AtomicU32> {
        word(&self.beyond.as_ref()?.watch)
    }

    /// The other host's memory, where it is not the same.
    pub fn beyond(&self) -> Option<&Outbound> {
        self.beyond.as_ref().map(|beyond| &beyond.outbound)
    }

    /// Whether this retired arena can be used again for such a one.
    pub fn is_like(&self, geometry: Geometry, location: Location) -> bool {
        let posting = match location {
            Location::Sealed | Location::File { .. } => None,
            Location::Apart { posting, .. } => Some(posting),
        };
        let is_written_so = self.beyond.as_ref().map(|beyond| beyond.posting) == posting;
        // Large pages are mapped at multiples of them only, and one of two memories may have had small ones.
        let begins_on_page = self
            .pages
            .begin_at(self.mapping.start().as_ptr().addr() as u64);
        let is_cut_so = self.geometry == geometry && self.layout == location.layout();
        is_cut_so && self.pages == location.pages() && is_written_so && begins_on_page
    }

    /// Let go of the memory but keep the addresses, so that a stale pointer into the arena reads
    /// zeroes instead of faulting.
    ///
    /// # Errors
    /// The kernel's; the memory then stays mapped.
    pub fn retire(&self) -> Result<(), crosslane_sys::Errno> {
        // First: our own holds the lock that keeps the part from being given to others, which would be written to.
        if let Some(beyond) = &self.beyond {
            beyond.mapping.replace_private()?;
        }
        self.mapping.replace_private()?;
        self.watch_no_more();
        Ok(())
    }

    fn watch_no_more(&self) {
        let beyond = self.beyond.as_ref().map(|beyond| &beyond.watch);
        for watch in beyond.into_iter().chain([&self.watch]) {
            *watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Map another arena [like](Arena::is_like) this retired one at its addresses.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn reuse(
        &self,
        fd: BorrowedFd<'_>,
        beyond: Option<BorrowedFd<'_>>,
        location: Location,
    ) -> Result<(), ArenaError> {
        let bytes = self.mapping.bytes();
        let offset = check(fd, bytes, location)?;
        let failed = |error| ArenaError::Map { bytes, error };
        // First: somebody may still look there, by a stale pointer.
        self.watch(location).inspect_err(|_| self.watch_no_more())?;
        let replace = || {
            self.mapping.replace_shared_at(fd, offset).map_err(failed)?;
            let Some(old) = &self.beyond else {
                return Ok(());
            };
            let (beyond, offset) = check_beyond(beyond, bytes, location)?;
            let replaced = old.mapping.replace_shared_at(beyond, offset);
            replaced.map_err(failed)
        };
        let replaced = replace().inspect_err(|_| _ = self.retire());
        self.keep_pages_small(location);
        replaced
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

    /// How far behind the arena's start this address lies; `None` if not in the arena.
    pub fn offset_of(&self, address: usize) -> Option<usize> {
        let start = self.mapping.start().as_ptr().addr();
        self.contains(address).then(|| address - start)
    }

    /// Where the lane of `slot` lies in which role `sender_role` sends, or `None` if there is none.
    ///
    /// # Safety
    /// The arena must outlive every use of the view.
    pub unsafe fn lane(&self, slot: u32, sender_role: u32) -> Option<LaneView> {
        let place = self.layout.lane(&self.geometry, slot, sender_role)?;
        // SAFETY: the caller's promise.
        let arena = unsafe { View::of(&self.mapping) };
        Some(LaneView { arena, place })
    }
}

impl Beyond {
    fn open(
        fd: Option<BorrowedFd<'_>>,
        bytes: usize,
        location: Location,
    ) -> Result<Option<Self>, ArenaError> {
        let Location::Apart { posting, .. } = location else {
            return Ok(None);
        };
        let (fd, offset) = check_beyond(fd, bytes, location)?;
        let mapping = map(fd, offset, bytes)?;
        // SAFETY: whoever writes there keeps the arena, as with lanes.
        let outbound = Outbound::new(unsafe { View::of(&mapping) }, posting.into());
        Ok(outbound.map(|outbound| Self {
            mapping,
            posting,
            outbound,
            watch: Mutex::new(None),
        }))
    }
}

fn map(fd: BorrowedFd<'_>, offset: usize, bytes: usize) -> Result<Mapping, ArenaError> {
    Mapping::shared_at(fd, offset, bytes).map_err(|error| ArenaError::Map { bytes, error })
}

/// Watch a mapping that others can take away.
fn put(place: &Mutex<Option<Watch>>, mapping: Option<&Mapping>) -> Result<(), ArenaError> {
    let watch = |mapping: &Mapping| {
        let bytes = mapping.bytes();
        let watch = Watch::new(mapping.start().addr().get(), bytes);
        watch.map_err(|error| ArenaError::Map { bytes, error })
    };
    let watch = mapping.map(watch).transpose()?;
    *place.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    Ok(())
}

fn word(place: &Mutex<Option<Watch>>) -> Option<&'static AtomicU32> {
    let watch = place.lock().unwrap_or_else(PoisonError::into_inner);
    watch.as_ref().map(Watch::word)
}

/// See that the memory is there; returns where it begins.
fn check(fd: BorrowedFd<'_>, bytes: usize, location: Location) -> Result<usize, ArenaError> {
    match location {
        Location::Sealed if is_sealed(fd, bytes) => Ok(0),
        Location::Sealed => Err(ArenaError::Unsealed { bytes }),
        Location::File { offset, .. } | Location::Apart { offset, .. } => reach(fd, offset, bytes),
    }
}

/// The same of the other host's memory.
fn check_beyond(
    fd: Option<BorrowedFd<'_>>,
    bytes: usize,
    location: Location,
) -> Result<(BorrowedFd<'_>, usize), ArenaError> {
    let Location::Apart { beyond, .. } = location else {
        return Err(ArenaError::Half);
    };
    let fd = fd.ok_or(ArenaError::Half)?;
    Ok((fd, reach(fd, beyond, bytes)?))
}

fn reach(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<usize, ArenaError> {
    let end = offset.saturating_add(bytes as u64);
    let start = usize::try_from(offset).ok().filter(|_| reaches(fd, end));
    start.ok_or(ArenaError::Short { end })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;
    use std::os::fd::AsFd;

    use core::ptr::NonNull;

    use crosslane_ctl::lane::LANE_CONTROL_BYTES;

    use super::*;
    use crate::memory::create_sealed;

    const SMALL: Geometry = Geometry {
        ring_lines: 512,
        slots: 2,
    };

    fn sealed_bytes() -> usize {
        Location::Sealed.layout().arena_bytes(&SMALL)
    }

    fn control_line(lane: &LaneView) -> NonNull<u8> {
        let lane = lane.arena.part(lane.place.control, LANE_CONTROL_BYTES);
        lane.unwrap().start()
    }

    /// In a file with pages of the usual size.
    fn in_file(offset: u64) -> Location {
        Location::File {
            offset,
            pages: Pages::SMALL,
        }
    }

    #[test]
    fn a_sealed_object_of_the_right_size_opens() {
        let fd = create_sealed("test-arena", sealed_bytes()).unwrap();
        let arena = Arena::open(fd.as_fd(), SMALL, Location::Sealed).unwrap();
        // SAFETY: the arena outlives the views.
        let last = unsafe { arena.lane(1, 1) }.unwrap();
        assert_eq!(last.arena.bytes(), sealed_bytes());
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
        let small = create_sealed("test-arena", sealed_bytes() - 1).unwrap();
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
        let fd = create_sealed("test-arena", sealed_bytes()).unwrap();
        let arena = Arena::open(fd.as_fd(), SMALL, Location::Sealed).unwrap();
        let start = arena.mapping.start().addr().get();
        assert!(flags_at(start).contains(" nh"), "when opened");
        arena.retire().unwrap();
        assert!(!flags_at(start).contains(" nh"), "replaced");
        arena.reuse(fd.as_fd(), None, Location::Sealed).unwrap();
        assert!(flags_at(start).contains(" nh"), "when used again");
    }

    #[test]
    fn a_part_of_a_file_opens_where_the_file_has_it() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        let offset = 4096;
        file.set_len(offset + SMALL.arena_bytes() as u64).unwrap();
        let place = in_file(offset);
        let arena = Arena::open(file.as_fd(), SMALL, place).unwrap();
        let at = offset + SMALL.lane_bytes() as u64;
        file.write_all_at(&[7; 8], at).unwrap();
        // SAFETY: the arena outlives the views.
        let lane = unsafe { arena.lane(0, 1) }.unwrap();
        // SAFETY: a lane is longer than eight bytes, and nobody changes them now.
        let seen = unsafe { control_line(&lane).cast::<[u8; 8]>().read_volatile() };
        assert_eq!(seen, [7; 8]);
        let beyond = in_file(8192);
        assert!(matches!(
            Arena::open(file.as_fd(), SMALL, beyond),
            Err(ArenaError::Short { .. })
        ));
        assert!(matches!(
            Arena::open(file.as_fd(), SMALL, Location::Sealed),
            Err(ArenaError::Unsealed { .. })
        ));
        assert!(!arena.is_like(SMALL, Location::Sealed));
    }

    #[test]
    fn what_is_cut_off_is_lost_and_what_is_mapped_after_it_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SMALL.arena_bytes() as u64).unwrap();
        let place = in_file(0);
        let arena = Arena::open(file.as_fd(), SMALL, place).unwrap();
        let look = || {
            // SAFETY: the arena outlives the views.
            let lane = unsafe { arena.lane(1, 1) }.unwrap();
            // SAFETY: inside the arena.
            unsafe { control_line(&lane).read_volatile() };
            arena.lost().map(|lost| lost.load(Ordering::SeqCst))
        };
        assert_eq!(look(), Some(0));
        file.set_len(0).unwrap();
        assert_eq!(look(), Some(1));
        arena.retire().unwrap();
        assert_eq!(look(), None);
        file.set_len(SMALL.arena_bytes() as u64).unwrap();
        arena.reuse(file.as_fd(), None, place).unwrap();
        assert_eq!(look(), Some(0));
    }

    /// A file stands in for one of large pages; what matters is how much is mapped, and where.
    #[test]
    fn an_arena_of_large_pages_is_mapped_in_whole_ones() {
        const HUGE: u64 = 2 << 20;
        let huge = |offset| Location::File {
            offset,
            pages: Pages::of(HUGE).unwrap(),
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * HUGE).unwrap();
        let arena = Arena::open(file.as_fd(), SMALL, huge(HUGE)).unwrap();
        assert_eq!(arena.mapping.bytes() as u64, HUGE);
        assert!(arena.is_like(SMALL, huge(0)) && !arena.is_like(SMALL, in_file(0)));
        // There is room for the arena, and none for its page.
        file.set_len(2 * HUGE - 4096).unwrap();
        assert!(SMALL.arena_bytes() as u64 <= HUGE - 4096);
        let short = Arena::open(file.as_fd(), SMALL, huge(HUGE));
        assert!(matches!(short, Err(ArenaError::Short { end }) if end == 2 * HUGE));
        arena.retire().unwrap();
        let short = arena.reuse(file.as_fd(), None, huge(HUGE));
        assert!(matches!(short, Err(ArenaError::Short { .. })));
        arena.reuse(file.as_fd(), None, huge(0)).unwrap();
    }

    #[test]
    fn of_two_memories_one_is_read_and_the_other_written() {
        let [own, beyond] = [0, 1].map(|_| tempfile::tempfile().unwrap());
        for file in [&own, &beyond] {
            file.set_len(4096 + SMALL.arena_bytes() as u64).unwrap();
        }
        let place = |offset, beyond| Location::Apart {
            offset,
            beyond,
            posting: Posting::Combined,
            pages: Pages::SMALL,
        };
        let open = |own: &std::fs::File, beyond: &std::fs::File, place| {
            Arena::open_with(own.as_fd(), Some(beyond.as_fd()), SMALL, place).unwrap()
        };
        let (alpha, beta) = (
            open(&own, &beyond, place(0, 4096)),
            open(&beyond, &own, place(4096, 0)),
        );
        let at = SMALL.lane_offset(1, 0).unwrap();
        alpha.beyond().unwrap().store(at, 7);
        alpha.beyond().unwrap().fence();
        let first = |arena: &Arena| {
            // SAFETY: the arena outlives the view.
            let lane = unsafe { arena.lane(1, 0) }.unwrap();
            // SAFETY: inside the arena.
            unsafe { control_line(&lane).cast::<u64>().read_volatile() }
        };
        assert_eq!([first(&alpha), first(&beta)], [0, 7]);
        beyond.set_len(0).unwrap();
        alpha.beyond().unwrap().store(at, 8);
        let lost = [alpha.lost(), alpha.lost_beyond()];
        assert_eq!(
            lost.map(|lost| lost.unwrap().load(Ordering::SeqCst)),
            [0, 1]
        );
        alpha.retire().unwrap();
        assert!(alpha.is_like(SMALL, place(0, 0)));
        assert!(!alpha.is_like(SMALL, in_file(0)));
        assert!(matches!(
            Arena::open(own.as_fd(), SMALL, place(0, 0)),
            Err(ArenaError::Half)
        ));
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
