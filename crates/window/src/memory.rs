//! Sealed memory objects: the backend of windows inside one machine.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

/// Make a memory object of `bytes` that nobody can resize. It has no name in any file system and
/// goes away with its last descriptor and mapping; `name` is shown in `/proc` only.
///
/// # Errors
/// The kernel's, when descriptors or memory are exhausted, or a NUL in `name`.
pub fn create_sealed(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    Ok(crosslane_sys::memory::create_sealed(&name, bytes)?)
}
