//! Memory for rings: sealed objects, with the guard that keeps the machine from running out of
//! memory, and parts of windows to other hosts.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crosslane_ctl::lane::{Geometry, Location, Pages, Posting};
use crosslane_window::memory::{create_sealed, set_bits};
use rustix::fs::{FallocateFlags, fallocate};

use crate::arenas::{Backing, WindowId};
use crate::rack::extents::Extents;
use crate::rack::window::Window;

/// How long a look at the machine's free memory is good for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Sealed memory objects, as long as the machine has memory to spare.
#[derive(Debug)]
pub struct SealedMemory {
    floor_bytes: u64,
    meminfo: Option<File>,
    last_look: Option<(Instant, bool)>,
}

impl SealedMemory {
    /// Memory is short when less than `floor_bytes` is available.
    pub fn new(floor_bytes: u64) -> Self {
        Self {
            floor_bytes,
            meminfo: File::open("/proc/meminfo").ok(),
            last_look: None,
        }
    }

    fn is_short(&mut self) -> bool {
        if let Some((when, short)) = self.last_look
            && when.elapsed() < LOOK_INTERVAL
        {
            return short;
        }
        let short = self
            .available_bytes()
            .is_some_and(|available| available < self.floor_bytes);
        self.last_look = Some((Instant::now(), short));
        short
    }

    fn available_bytes(&self) -> Option<u64> {
        let mut text = [0; 1024];
        let bytes = self.meminfo.as_ref()?.read_at(&mut text, 0).ok()?;
        available_in(std::str::from_utf8(text.get(..bytes)?).ok()?)
    }
}

/// MemAvailable in the text of /proc/meminfo.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

impl SealedMemory {
    fn create(&self, bytes: usize) -> Option<Arc<OwnedFd>> {
        match create_sealed("crosslane-arena", bytes) {
            Ok(fd) => Some(Arc::new(fd)),
            Err(error) => {
                tracing::warn!(%error, bytes, "no memory for rings");
                None
            }
        }
    }
}

fn punch(memory: &OwnedFd, offset: usize, bytes: usize) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = fallocate(memory, flags, offset as u64, bytes as u64);
    if let Err(error) = &punched {
        tracing::warn!(%error, "a slot could not be given back and is lost");
    }
    punched.is_ok()
}

/// The memory of one arena.
#[derive(Clone, Debug)]
pub enum Memory {
    /// An object of its own.
    Sealed(Arc<OwnedFd>),
    /// A part of a window.
    Part(Arc<Part>),
}

/// A part of a window, held by its descriptor and by who maps it through that.
#[derive(Debug)]
pub struct Part {
    fd: Arc<OwnedFd>,
    window: WindowId,
    /// Which opening of it.
    opening: u64,
    part: u32,
    offset: u64,
    pages: Pages,
    /// The other host's memory, if it is not the same.
    beyond: Option<PartBeyond>,
}

/// The other host's memory of a part.
#[derive(Debug)]
struct PartBeyond {
    fd: Arc<OwnedFd>,
    offset: u64,
    posting: Posting,
}

impl Memory {
    /// What programs map it by.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        match self {
            Self::Sealed(fd) => Arc::clone(fd),
            Self::Part(part) => Arc::clone(&part.fd),
        }
    }

    /// What they map the other host's memory by, if it is not the same.
    pub fn beyond(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Sealed(_) => None,
            Self::Part(part) => Some(Arc::clone(&part.beyond.as_ref()?.fd)),
        }
    }
}

/// All memory that a monitor hands out.
pub struct Memories {
    sealed: SealedMemory,
    windows: HashMap<WindowId, OpenFile>,
    openings: u64,
}

/// A window, and what is dealt out of it if that is our business.
pub struct OpenFile {
    /// Its file.
    pub window: Window,
    /// Its parts, if this host is its owner.
    pub extents: Option<Extents>,
    /// Never used twice: a window that was lost is other memory when it is opened again.
    opening: u64,
}

impl Memories {
    /// Without windows.
    pub fn new(sealed: SealedMemory) -> Self {
        Self {
            sealed,
            windows: HashMap::new(),
            openings: 0,
        }
    }

    /// A window that has been opened before.
    pub fn open(&self, id: WindowId) -> Option<&OpenFile> {
        self.windows.get(&id)
    }

    /// The same, to be changed.
    pub fn window(&mut self, id: WindowId) -> Option<&mut OpenFile> {
        self.windows.get_mut(&id)
    }

    /// A window has been opened, perhaps in the place of one that was lost.
    pub fn add_window(&mut self, id: WindowId, window: Window, is_owner: bool) {
        let extents = is_owner.then(|| Extents::unknown(window.parts()));
        self.openings += 1;
        let open = OpenFile {
            window,
            extents,
            opening: self.openings,
        };
        self.windows.insert(id, open);
    }

    /// A window is not used any more, or is to be opened anew.
    pub fn close_window(&mut self, id: WindowId) {
        self.windows.remove(&id);
    }

    fn hold(&self, id: WindowId, part: u32) -> Option<(Memory, Geometry)> {
        let open = self.windows.get(&id)?;
        let window = &open.window;
        let index = usize::try_from(part).ok()?;
        let offset = window.offset_of(index)?;
        let held = window
            .hold(index)
            .and_then(|fd| Ok((fd, window.beyond(index)?)));
        match held {
            Ok((fd, beyond)) => {
                let beyond = beyond.map(|(fd, offset, posting)| PartBeyond {
                    fd: Arc::new(fd),
                    offset,
                    posting,
                });
                let part = Part {
                    fd: Arc::new(fd),
                    window: id,
                    opening: open.opening,
                    part,
                    offset,
                    pages: window.pages(),
                    beyond,
                };
                Some((Memory::Part(Arc::new(part)), window.geometry()))
            }
            Err(error) => {
                tracing::warn!(%error, "no part of a window can be opened");
                None
            }
        }
    }

    fn extents(&mut self, id: WindowId) -> Option<&mut Extents> {
        self.windows.get_mut(&id)?.extents.as_mut()
    }
}

impl Backing for Memories {
    type Memory = Memory;

    fn has_room(&mut self) -> bool {
        !self.sealed.is_short()
    }

    fn create(&mut self, bytes: usize) -> Option<Memory> {
        self.sealed.create(bytes).map(Memory::Sealed)
    }

    fn punch(&mut self, memory: &Memory, offset: usize, bytes: usize) -> bool {
        match memory {
            Memory::Sealed(fd) => punch(fd, offset, bytes),
            // What is left of a lost window is nobody's any more.
            Memory::Part(part) => self.windows.get(&part.window).is_some_and(|open| {
                if open.opening != part.opening {
                    return false;
                }
                let at = part.offset + offset as u64;
                open.window.clear(at, bytes as u64)
            }),
        }
    }

    fn create_in(&mut self, window: WindowId) -> Option<(Memory, Geometry)> {
        let part = u32::try_from(self.extents(window)?.take()?).ok()?;
        let held = self.hold(window, part);
        if held.is_none()
            && let Some(extents) = self.extents(window)
        {
            extents.spare(part as usize);
        }
        held
    }

    fn has_free_part(&self, window: WindowId) -> bool {
        let extents = self
            .windows
            .get(&window)
            .and_then(|open| open.extents.as_ref());
        extents.is_some_and(Extents::has_free)
    }

    fn set_flags(&mut self, memory: &Memory, offset: usize, flags: u32) {
        if let Memory::Sealed(fd) = memory
            && let Err(error) = set_bits(fd.as_fd(), offset, flags)
        {
            tracing::warn!(%error, "who sends to a dead program finds out later");
        }
    }

    fn gone(&mut self, memory: Memory) {
        if let Memory::Part(part) = memory
            && (self.windows.get(&part.window)).is_some_and(|open| open.opening == part.opening)
            && let Some(extents) = self.extents(part.window)
        {
            extents.put_back(part.part as usize);
        }
    }

    fn location(&self, memory: &Memory) -> Location {
        match memory {
            Memory::Sealed(_) => Location::Sealed,
            Memory::Part(part) => match &part.beyond {
                None => Location::File {
                    offset: part.offset,
                    pages: part.pages,
                },
                Some(beyond) => Location::Apart {
                    offset: part.offset,
                    beyond: beyond.offset,
                    posting: beyond.posting,
                    pages: part.pages,
                },
            },
        }
    }

    /// The other host's memory is cleared by that host, a part at a time.
    fn may_reuse(&self, memory: &Memory) -> bool {
        memory.beyond().is_none()
    }

    fn place(&self, memory: &Memory) -> Option<(WindowId, u32)> {
        match memory {
            Memory::Sealed(_) => None,
            Memory::Part(part) => Some((part.window, part.part)),
        }
    }

    fn import(&mut self, window: WindowId, part: u32) -> Option<(Memory, Geometry)> {
        self.hold(window, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_found_in_meminfo() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   1024 kB\nBuffers: 3 kB\n";
        assert_eq!(available_in(text), Some(1 << 20));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
        assert_eq!(available_in("MemAvailable: x kB\n"), None);
    }

    #[test]
    fn the_floor_decides() {
        assert!(!SealedMemory::new(0).is_short());
        assert!(SealedMemory::new(u64::MAX).is_short());
    }

    #[test]
    fn a_punched_range_reads_as_zeroes() {
        let memory = SealedMemory::new(0).create(3 * 4096).unwrap();
        rustix::io::pwrite(&*memory, &[7; 3 * 4096], 0).unwrap();
        assert!(punch(&memory, 4096, 4096));
        let mut bytes = [1; 3 * 4096];
        rustix::io::pread(&*memory, &mut bytes, 0).unwrap();
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 0));
        assert_eq!((bytes[4095], bytes[8192]), (7, 7));
    }
}
