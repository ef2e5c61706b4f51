//! Why a window cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a window cannot be used.
#[derive(Debug, Error)]
pub enum WindowError {
    /// The kernel refuses.
    #[error("cannot use the window {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A device's region is as long as it is.
    #[error(
        "the window {path} has {bytes} bytes, but {end} are asked of it: write fewer into rack.toml"
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Where the window should end.
        end: u64,
    },
    /// A region that answers nobody, and may harm who writes there.
    #[error(
        "the device of {path} is not enabled: open its bridge by `crosslane window hold ntb:ADDRESS --memory FILE`, \
         or have its driver do so, or write 1 to `enable` beside it"
    )]
    Disabled {
        /// The region.
        path: PathBuf,
    },
    /// Pages of a size that nobody has.
    #[error(
        "the memory of the window {path} has pages of {bytes} bytes, which windows cannot have"
    )]
    Pages {
        /// The file.
        path: PathBuf,
        /// Bytes of each.
        bytes: u64,
    },
    /// What is mapped of it begins on a page.
    #[error(
        "the window {path} begins at byte {offset}, and its memory has pages of {page} bytes: write a multiple of that \
         into rack.toml"
    )]
    OffPage {
        /// The file.
        path: PathBuf,
        /// Where the window begins.
        offset: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// No room for a header and a part, which are whole pages.
    #[error(
        "the window {path} has {bytes} bytes, and its memory has pages of {page}: for its slots and rings {least} are \
         the least (a page, and a part in whole ones)"
    )]
    Few {
        /// The file.
        path: PathBuf,
        /// As rack.toml has it.
        bytes: u64,
        /// Bytes of a page.
        page: u64,
        /// What would do.
        least: u64,
    },
    /// Pages of a hugetlbfs are there before they are used, or not at all.
    #[error(
        "the window {path} takes {count} pages of {page} bytes, and there are not as many: have the kernel keep more, \
         as root (echo NUMBER > /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages), mount its file system with a \
         larger `size=`, or write fewer bytes into rack.toml ({error})", page >> 10
    )]
    NoPages {
        /// The file.
        path: PathBuf,
        /// How many are wanted.
        count: u64,
        /// Bytes of each.
        page: u64,
        /// The kernel's answer.
        error: io::Error,
    },
    /// It would be written to a disk, or to another machine.
    #[error(
        "the window {path} is on a file system that is not in memory: name a file in tmpfs, such as /dev/shm/lanes, \
         that both hosts see"
    )]
    Disk {
        /// The file.
        path: PathBuf,
    },
    /// Memory whose parts cannot be mapped or given back.
    #[error(
        "the window {path} is on {filesystem}, {lack}: name a file in tmpfs, such as /dev/shm/lanes, that both hosts see"
    )]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Where it lies.
        filesystem: &'static str,
        /// Why that does not do.
        lack: &'static str,
    },
    /// Others could cut it short or read what is in it.
    #[error(
        "the window {path} belongs to user {owner} with mode {mode:o}: it must be a file of the \
         monitor's user or root that nobody else can read or write"
    )]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The other host sees other memory.
    #[error(
        "the window {path} does not show what the other host has written: both must name the same \
         memory, with the same offset"
    )]
    OtherMemory {
        /// The file.
        path: PathBuf,
    },
    /// The other host cuts it in a way that does not fit.
    #[error(
        "the other host cuts the window {path} into {ring_lines} lines, {slots} slots, {bytes} bytes, on pages of \
         {page}; here it has {own_bytes} bytes, on pages of {own_page}"
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// Lines of each ring.
        ring_lines: u32,
        /// Slots of each arena.
        slots: u32,
        /// Bytes.
        bytes: u64,
        /// Bytes of a page.
        page: u32,
        /// Bytes here.
        own_bytes: u64,
        /// Bytes of a page here.
        own_page: u64,
    },
}
