//! Memory that is addressed like memory but may be another host's, too: a DAX device (`/dev/dax0.0`, which
//! is how Linux shows CXL and persistent memory that it does not use itself), or a file on a file system
//! mounted with DAX.
//!
//! Whether hosts' caches are kept coherent cannot be asked of the kernel. So lines are flushed unless
//! whoever opens the window says that they need not be.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

use crosslane_sys::memory::Mapping;

use super::{Memory, Window, WindowError, checked_bytes};
use crate::cache::Flush;
use crate::discover::dax::device_bytes;
use crate::policy::Traits;

/// A window that is DAX memory.
#[derive(Debug)]
pub struct DaxWindow {
    mapping: Mapping,
    coherent: bool,
    kind: &'static str,
}

impl DaxWindow {
    /// A DAX device, of the size that sysfs shows below `sysfs`.
    ///
    /// # Errors
    /// If it cannot be opened, asked or mapped.
    pub fn device(path: &Path, sysfs: &Path, coherent: bool) -> Result<Self, WindowError> {
        let file = open(path)?;
        let bytes = device_bytes(path, sysfs).map_err(|cause| WindowError::open(path, cause))?;
        Self::of(path, &file, bytes, coherent, "DAX device")
    }

    /// A file whose pages are the device's memory.
    ///
    /// # Errors
    /// As [`DaxWindow::device`].
    pub fn file(path: &Path, coherent: bool) -> Result<Self, WindowError> {
        let file = open(path)?;
        let bytes = file
            .metadata()
            .map_err(|cause| WindowError::open(path, cause))?
            .len();
        Self::of(path, &file, bytes, coherent, "file on DAX")
    }

    fn of(
        path: &Path,
        file: &File,
        bytes: u64,
        coherent: bool,
        kind: &'static str,
    ) -> Result<Self, WindowError> {
        if !coherent && Flush::here() == Flush::None {
            return Err(WindowError::Other {
                path: path.to_owned(),
                why: "needs an instruction that flushes cache lines, and this processor has none",
            });
        }
        let bytes = checked_bytes(path, bytes)?;
        let mapping = Mapping::shared(file.as_fd(), bytes);
        let mapping = mapping.map_err(|cause| WindowError::map(path, bytes, cause))?;
        Ok(Self {
            mapping,
            coherent,
            kind,
        })
    }
}

fn open(path: &Path) -> Result<File, WindowError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|cause| WindowError::open(path, cause))
}

impl Window for DaxWindow {
    fn traits(&self) -> Traits {
        match self.coherent {
            true => Traits::MEMORY,
            false => Traits::FLUSHED,
        }
    }

    fn description(&self) -> String {
        match self.coherent {
            true => format!("{}, taken for coherent", self.kind),
            false => format!("{}, flushed by {}", self.kind, Flush::here().name()),
        }
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn memory(&self) -> Memory<'_> {
        Memory::Shared(&self.mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::super::halves;
    use super::*;
    use crate::cache::{FLUSHED_LINES, GOES_AROUND, STORE_FENCES, WORDS_AROUND};
    use crate::inbound::Inbound;
    use crate::outbound::Outbound;

    /// Lines flushed, words stored around the caches, and fences, since the last look.
    fn counts() -> [usize; 3] {
        [&FLUSHED_LINES, &WORDS_AROUND, &STORE_FENCES].map(|counter| counter.take())
    }

    /// Both sides of a file that stands in for such memory, in turn.
    fn each_side(coherent: bool, test: impl Fn(&Inbound, &Outbound)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 16).unwrap();
        let window = DaxWindow::file(file.path(), coherent).unwrap();
        for side in [0, 1] {
            // SAFETY: the window lives as long as this function.
            let (local, remote) = unsafe { halves(&window, side) };
            counts();
            test(&local, &remote);
        }
    }

    /// So many words have left, which lie in so many lines: around the caches, or flushed before and behind.
    fn assert_left(words: usize, lines: usize) {
        let [flushed, around, fences] = counts();
        assert_eq!((around, fences), (words, 0));
        assert_eq!(flushed, if GOES_AROUND { 0 } else { 2 * lines });
    }

    #[test]
    fn nothing_that_is_written_without_coherence_stays_in_a_cache() {
        each_side(false, |local, remote| {
            remote.put(56, &[7; 12]);
            assert_left(12, 3);
            remote.put_bytes(64, &[7; 64]);
            assert_left(8, 1);
            remote.store(8, 7);
            assert_left(1, 1);
            local.clear(16);
            assert_left(1, 1);
            remote.fence();
            assert_eq!(counts(), [0, 0, 1]);
        });
    }

    /// Lanes refresh before each look: see the schedules in `ring/tests/posted`.
    #[test]
    fn a_look_without_coherence_forgets_each_line_first() {
        each_side(false, |local, _| {
            for (at, bytes, lines) in [(0, 8, 1), (56, 96, 3), (64, 64, 1), (4088, 16, 2)] {
                local.refresh(at, bytes);
                assert_eq!(counts(), [lines, 0, 0], "{bytes} bytes at {at}");
            }
        });
    }

    #[test]
    fn memory_that_is_said_to_be_coherent_is_written_and_read_as_any() {
        each_side(true, |local, remote| {
            remote.put(56, &[7; 12]);
            remote.store(8, 7);
            remote.fence();
            local.clear(16);
            local.refresh(0, 4096);
            assert_eq!(counts(), [0; 3]);
        });
    }
}
