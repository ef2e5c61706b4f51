//! A window's memory: a file that the monitors of two hosts open, a header in its first page, and
//! parts of one size behind it, each an arena. The file of a PCI device's region, and DAX memory, can only
//! be mapped. Over a bridge each host has such a memory, which the other one writes: what one host says to the other, it writes
//! there, and it reads its own.
//!
//! Whoever maps a part does so by an open file description of its own that holds a lock on it,
//! which lives exactly as long as the mapping (see [`crosslane_sys::lock`]): so a monitor that was
//! just started knows what its host's programs use without having been told.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crosslane_ctl::lane::{Geometry, Pages, Posting};
use crosslane_sys::lock::{hold_range, is_range_held};
use crosslane_window::discover::{Roots, dax};
use crosslane_window::span::Span;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::config::{WindowConfig, WindowKind};
use super::message::WindowOffer;

mod beyond;
mod error;
mod layout;
mod memory;

use beyond::Beyond;
pub use error::WindowError;
use layout::{ANSWER_AT, BEAT_BYTES, Layout, RECORD_BYTES, beat_at, record};
pub use layout::{HEADER_BYTES, MAGIC};
pub use memory::{ensure, ensure_fit};

/// An open window.
#[derive(Debug)]
pub struct Window {
    config: WindowConfig,
    file: File,
    /// Mapped, where it cannot be read and written as files are. (A file can, and what
    /// is cleared of it is given back to the kernel.)
    span: Option<Span>,
    /// The first page, mapped of any window: beats go the way that programs' bytes go, and must not lengthen
    /// a file that somebody has cut short.
    header: Span,
    /// The other host's memory, if it is not the same: what is said to that host is written there.
    beyond: Option<Beyond>,
    /// As this host would cut it.
    own: Layout,
    /// As the owner does.
    layout: Layout,
}

impl Window {
    /// Open the file, made if it is not there and no device's.
    ///
    /// # Errors
    /// See [`WindowError`].
    pub fn open(config: &WindowConfig) -> Result<Self, WindowError> {
        let failed = |error| WindowError::File {
            path: config.path.clone(),
            error,
        };
        let layout = memory::layout(config)?;
        let end = config.offset.saturating_add(layout.bytes);
        let is_huge = memory::is_huge(&config.path)?;
        let file = match config.kind {
            WindowKind::File => open_shared(config, end)?,
            WindowKind::Posted => {
                if let Ok(found) = std::fs::metadata(&config.path) {
                    // What is no window's is not made anew.
                    is_fit(config.kind, &config.path, &found)?;
                }
                beyond::open_file(&config.path, end)?
            }
            WindowKind::Bar | WindowKind::Dax => {
                open_options(false).open(&config.path).map_err(failed)?
            }
        };
        let found = file.metadata().map_err(failed)?;
        let bytes = match is_fit(config.kind, &config.path, &found)? {
            true => dax::device_bytes(&config.path, &Roots::system().dax).map_err(failed)?,
            false => found.len(),
        };
        if bytes < end {
            return Err(WindowError::Short {
                path: config.path.clone(),
                bytes,
                end,
            });
        }
        let span = match config.kind {
            WindowKind::File if !is_huge => None,
            // What a bridge writes to must keep its pages, and the others cannot be written to.
            _ => Some(map(config, &file, layout.bytes).map_err(failed)?),
        };
        let header = map(config, &file, layout.header_bytes()).map_err(failed)?;
        Ok(Self {
            config: config.clone(),
            file,
            span,
            header,
            beyond: Beyond::open(config, &layout)?,
            own: layout,
            layout,
        })
    }

    /// Whether the file of that name is still this one, and has what a window has.
    pub fn is_there(&self) -> bool {
        let is_same = || {
            let (found, ours) = (self.config.path.metadata()?, self.file.metadata()?);
            io::Result::Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino()))
        };
        let mut magic = [0; MAGIC.len()];
        is_same().unwrap_or(false)
            && self.read(0, &mut magic).is_ok()
            && magic == MAGIC
            && self.beyond.as_ref().is_none_or(Beyond::is_there)
    }

    /// Whether this is what it has been opened by.
    pub fn is_of(&self, config: &WindowConfig) -> bool {
        self.config == *config
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The host at its other side.
    pub fn host(&self) -> &str {
        &self.config.host
    }

    /// How arenas are cut.
    pub fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    /// Of which pages what is mapped of a part consists.
    pub fn pages(&self) -> Pages {
        self.layout.pages
    }

    /// Parts that fit.
    pub fn parts(&self) -> usize {
        self.layout.parts()
    }

    /// Owner: write the header. The other host is to find this in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn offer(&self, epoch: u64) -> Result<WindowOffer, WindowError> {
        let offer = self.layout.offer(&self.config.name, epoch);
        self.write(0, &record(&offer))?;
        self.post(0, &record(&offer))?;
        Ok(offer)
    }

    /// Guest: see that the header says what the owner has said, cut the window accordingly, and
    /// answer in it.
    ///
    /// # Errors
    /// When this is other memory, or the offer does not fit it.
    pub fn accept(&mut self, offer: &WindowOffer) -> Result<(), WindowError> {
        let layout = Layout::offered(offer);
        let layout = layout.filter(|layout| layout.fits(&self.own, &self.config));
        let layout = layout.ok_or_else(|| WindowError::Shape {
            path: self.config.path.clone(),
            ring_lines: offer.ring_lines,
            slots: offer.slots,
            bytes: offer.bytes,
            page: offer.page_bytes,
            own_bytes: self.own.bytes,
            own_page: self.own.pages.bytes(),
        })?;
        let mut found = [0; RECORD_BYTES];
        self.read(0, &mut found)?;
        if found != record(offer) {
            return Err(self.is_other_memory());
        }
        self.layout = layout;
        self.post(ANSWER_AT, &(!offer.epoch).to_le_bytes())
    }

    /// Owner: see that the guest's answer is in the header.
    ///
    /// # Errors
    /// When it is not.
    pub fn confirm(&self, epoch: u64) -> Result<(), WindowError> {
        let mut answer = [0; 8];
        self.read(ANSWER_AT, &mut answer)?;
        match u64::from_le_bytes(answer) == !epoch {
            true => Ok(()),
            false => Err(self.is_other_memory()),
        }
    }

    /// Write a beat, which the other host has to find.
    ///
    /// # Errors
    /// The kernel's.
    pub fn beat(&self, is_owner: bool, epoch: u64, beat: u64) -> Result<(), WindowError> {
        let mut bytes = [0; BEAT_BYTES];
        bytes[..8].copy_from_slice(&epoch.to_le_bytes());
        bytes[8..].copy_from_slice(&beat.to_le_bytes());
        let is_written = match &self.beyond {
            Some(beyond) => beyond.post(beat_at(is_owner), &bytes),
            None => self.header.write(beat_at(is_owner), &bytes),
        };
        inside(is_written).map_err(|error| self.failed(error))
    }

    /// Whether a beat of the owner, or of the guest, is there, or a later one.
    pub fn shows_beat(&self, of_owner: bool, epoch: u64, beat: u64) -> bool {
        let mut bytes = [0; BEAT_BYTES];
        let is_read = self.header.read(beat_at(of_owner), &mut bytes);
        let word = |at: usize| {
            let bytes = bytes[at..at + 8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        is_read && word(0) == epoch && word(8) >= beat
    }

    fn is_other_memory(&self) -> WindowError {
        WindowError::OtherMemory {
            path: self.config.path.clone(),
        }
    }

    /// Where a part begins in the file; `None` if there is no such part.
    pub fn offset_of(&self, part: usize) -> Option<u64> {
        let at = self.layout.offset_of(part)?;
        Some(self.config.offset + at)
    }

    /// A descriptor by which programs map a part, and hold it for as long as they do.
    ///
    /// # Errors
    /// The kernel's, or that there is no such part.
    pub fn hold(&self, part: usize) -> Result<OwnedFd, WindowError> {
        let failed = |error| WindowError::File {
            path: self.config.path.clone(),
            error,
        };
        let at = self
            .offset_of(part)
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        // The same file whatever its name stands for by now, by a description of its own.
        let again = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).open(again);
        let file = file.map_err(failed)?;
        let bytes = self.layout.part_bytes();
        hold_range(file.as_fd(), at, bytes).map_err(|error| failed(error.into()))?;
        Ok(file.into())
    }

    /// The other host's memory of a part, by which programs write it: a descriptor, where the part begins behind it, and
    /// how; `None` where both hosts have the same.
    ///
    /// # Errors
    /// The kernel's, or that there is no such part.
    pub fn beyond(&self, part: usize) -> Result<Option<(OwnedFd, u64, Posting)>, WindowError> {
        let Some(beyond) = &self.beyond else {
            return Ok(None);
        };
        let at = self.layout.offset_of(part);
        let lent = at
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .and_then(|at| {
                let (fd, start, posting) = beyond.lend()?;
                Ok((fd, start + at, posting))
            });
        lent.map(Some).map_err(|error| self.failed(error))
    }

    /// Whether each host has a memory of its own, which it clears itself.
    pub fn is_apart(&self) -> bool {
        self.beyond.is_some()
    }

    /// Guest, whose memory is its own: clear those of the `parts` that nobody on this host uses. Returns the parts
    /// that somebody may be using, as [`Window::parts_held`] does.
    pub fn clear_parts(&self, parts: &[u8]) -> Vec<u8> {
        let mut held = self.parts_held();
        for part in 0..self.parts() {
            let (byte, bit) = (part / 8, 1 << (part % 8));
            let is_meant = parts.get(byte).is_some_and(|byte| byte & bit != 0);
            if is_meant && held[byte] & bit == 0 && !self.clear_part(part) {
                held[byte] |= bit;
            }
        }
        held
    }

    /// Whether somebody on this host may be using a part.
    pub fn is_held(&self, part: usize) -> bool {
        let bytes = self.layout.part_bytes();
        self.offset_of(part)
            .is_none_or(|at| is_range_held(self.file.as_fd(), at, bytes).unwrap_or(true))
    }

    /// One bit for each part that somebody on this host may be using.
    pub fn parts_held(&self) -> Vec<u8> {
        let mut bits = vec![0; self.parts().div_ceil(8)];
        for part in 0..self.parts() {
            if self.is_held(part) {
                bits[part / 8] |= 1 << (part % 8);
            }
        }
        bits
    }

    /// Make `bytes` at `offset` of the file read as zeroes.
    pub fn clear(&self, offset: u64, bytes: u64) -> bool {
        if let Some(span) = &self.span {
            let at = offset.checked_sub(self.config.offset);
            return at.is_some_and(|at| span.clear(at, bytes));
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let cleared = fallocate(&self.file, flags, offset, bytes);
        if let Err(error) = &cleared {
            tracing::warn!(%error, window = self.name(), "a part cannot be cleared and is lost");
        }
        cleared.is_ok()
    }

    /// Clear a whole part.
    pub fn clear_part(&self, part: usize) -> bool {
        let bytes = self.layout.part_bytes();
        self.offset_of(part).is_some_and(|at| self.clear(at, bytes))
    }

    /// Where the header is read and written as programs do it: what another host posts is seen there.
    fn mapped(&self) -> Option<&Span> {
        let apart = self.beyond.as_ref().map(|_| &self.header);
        self.span.as_ref().or(apart)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        let written = match self.mapped() {
            Some(span) => inside(span.write(at, bytes)),
            None => self.file.write_all_at(bytes, self.config.offset + at),
        };
        written.map_err(|error| self.failed(error))
    }

    /// Say something to the other host, in its memory.
    fn post(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        match &self.beyond {
            Some(beyond) => inside(beyond.post(at, bytes)).map_err(|error| self.failed(error)),
            None => self.write(at, bytes),
        }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        let read = match self.mapped() {
            Some(span) => inside(span.read(at, bytes)),
            None => self.file.read_exact_at(bytes, self.config.offset + at),
        };
        read.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> WindowError {
        WindowError::File {
            path: self.config.path.clone(),
            error,
        }
    }
}

/// Whether a file is a device, if nobody else can cut it short or read it.
fn is_fit(kind: WindowKind, path: &Path, found: &Metadata) -> Result<bool, WindowError> {
    let own = rustix::process::geteuid().as_raw();
    let is_ours = found.uid() == own || found.uid() == 0;
    let is_device = kind == WindowKind::Dax && found.file_type().is_char_device();
    if !(found.is_file() || is_device) || !is_ours || found.mode() & 0o077 != 0 {
        return Err(WindowError::Unsafe {
            path: path.to_owned(),
            owner: found.uid(),
            mode: found.mode() & 0o7777,
        });
    }
    Ok(is_device)
}

fn open_options(creates: bool) -> OpenOptions {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(creates)
        .truncate(false);
    options.mode(0o600).custom_flags(no_follow);
    options
}

/// Open a file that both hosts map, made and lengthened if need be.
fn open_shared(config: &WindowConfig, end: u64) -> Result<File, WindowError> {
    let failed = |error| WindowError::File {
        path: config.path.clone(),
        error,
    };
    let mut options = open_options(true);
    let mut file = options.open(&config.path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    is_fit(config.kind, &config.path, &found)?;
    let mut before = found.len();
    if before < end {
        // Who still maps what was cut off must not see it come back empty.
        if is_range_held(file.as_fd(), config.offset, config.bytes).unwrap_or(true) {
            std::fs::remove_file(&config.path).map_err(failed)?;
            file = options
                .create_new(true)
                .open(&config.path)
                .map_err(failed)?;
            before = 0;
        }
        file.set_len(end).map_err(failed)?;
    }
    memory::have_pages(&config.path, &file, before, end)?;
    Ok(file)
}

fn map(config: &WindowConfig, file: &File, bytes: u64) -> io::Result<Span> {
    map_at(file, config.offset, bytes)
}

fn map_at(file: &File, offset: u64, bytes: u64) -> io::Result<Span> {
    let number = |bytes: u64| usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory.into());
    let (offset, bytes): (io::Result<usize>, io::Result<usize>) = (number(offset), number(bytes));
    Span::open(file.as_fd(), offset?, bytes?)
}

fn inside(is_inside: bool) -> io::Result<()> {
    match is_inside {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests;
