//! Memory objects and mappings.

use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::Errno;
use crate::raw::syscall;

/// Flag of open(2): a name that is a link is refused.
pub const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// Of memory that has no name, which only children of a process can come to have.
const COMMON: i32 = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// A mapping of shared memory, unmapped when dropped. The memory may change at any time by other
/// processes' hands, so it is handed out as a raw pointer only.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range of the process; what is done with the memory is the
// business of those who dereference the pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `bytes` of a memory object for reading and writing.
    pub fn shared(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        Self::shared_at(fd, 0, bytes)
    }

    /// Map `bytes` of a device or file, from `offset` on, for reading and writing.
    pub fn shared_at(fd: BorrowedFd<'_>, offset: usize, bytes: usize) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        Self::map_at(bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    /// Map `bytes` of a memory object for reading.
    pub fn shared_read_only(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        Self::map(bytes, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd())
    }

    /// Reserve `bytes` of zeroed memory of this process; pages are taken when they are touched, and
    /// [kept small](Self::with_small_pages).
    pub fn private(bytes: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapping = Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        Ok(mapping.with_small_pages())
    }

    /// Reserve `bytes` of zeroed memory that the process and the children it forks from now on have in common.
    pub fn common(bytes: usize) -> Result<Self, Errno> {
        let mapping = Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, COMMON, -1)?;
        Ok(mapping.with_small_pages())
    }

    /// Put such memory, zeroed, in the place of what is mapped, at the same address.
    pub fn replace_common(&self) -> Result<(), Errno> {
        self.remap(self.bytes, COMMON, -1, 0)?;
        self.keep_pages_small();
        Ok(())
    }

    /// Put another memory object of the same size in the place of this one, at the same address.
    pub fn replace_shared(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.replace_shared_at(fd, 0)
    }

    /// The same from `offset` of that object on, a multiple of a page.
    pub fn replace_shared_at(&self, fd: BorrowedFd<'_>, offset: usize) -> Result<(), Errno> {
        self.remap(self.bytes, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    /// The same for the first `bytes` only; the rest stays what it is.
    pub fn replace_first_shared_at(
        &self,
        bytes: usize,
        fd: BorrowedFd<'_>,
        offset: usize,
    ) -> Result<(), Errno> {
        if bytes > self.bytes {
            return Err(Errno::INVAL);
        }
        self.remap(bytes, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    /// Put zeroed private memory in the place of what is mapped, at the same address.
    pub fn replace_private(&self) -> Result<(), Errno> {
        self.remap(
            self.bytes,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    }

    /// `bytes` must not be more than are mapped.
    fn remap(&self, bytes: usize, flags: i32, fd: i32, offset: usize) -> Result<(), Errno> {
        let fd = isize::try_from(fd).map_err(|_| Errno::INVAL)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_FIXED;
        let start = self.start.as_ptr().expose_provenance();
        let args = [
            start,
            bytes,
            protection as usize,
            flags as usize,
            fd.cast_unsigned(),
            offset,
        ];
        // SAFETY: the range is this mapping's own; nobody holds references into it, only raw
        // pointers, which stay valid.
        unsafe { syscall(libc::SYS_mmap, args) }.map(|_| ())
    }

    /// Have it in pages of the usual size, even where the machine makes memory of huge ones: who
    /// touches little of it shall have no more. Where the kernel has no huge pages, that is so anyway.
    pub fn keep_pages_small(&self) {
        let start = self.start.as_ptr().expose_provenance();
        let advice = libc::MADV_NOHUGEPAGE.cast_unsigned() as usize;
        // SAFETY: the range is this mapping's own, and no byte in it changes.
        let _ = unsafe { syscall(libc::SYS_madvise, [start, self.bytes, advice, 0, 0, 0]) };
    }

    /// The mapping, after [`Mapping::keep_pages_small`].
    #[must_use]
    pub fn with_small_pages(self) -> Self {
        self.keep_pages_small();
        self
    }

    fn map(bytes: usize, protection: i32, flags: i32, fd: i32) -> Result<Self, Errno> {
        Self::map_at(bytes, protection, flags, fd, 0)
    }

    fn map_at(
        bytes: usize,
        protection: i32,
        flags: i32,
        fd: i32,
        offset: usize,
    ) -> Result<Self, Errno> {
        // Negative descriptors travel sign-extended, as the C ABI does it.
        let fd = isize::try_from(fd).map_err(|_| Errno::INVAL)?;
        let args = [
            0,
            bytes,
            protection as usize,
            flags as usize,
            fd.cast_unsigned(),
            offset,
        ];
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { syscall(libc::SYS_mmap, args) }?;
        let start = core::ptr::with_exposed_provenance_mut(start);
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let args = [
            self.start.as_ptr().expose_provenance(),
            self.bytes,
            0,
            0,
            0,
            0,
        ];
        // SAFETY: the range was mapped by `map` and nobody may use it after the owner is dropped.
        let _ = unsafe { syscall(libc::SYS_munmap, args) };
    }
}

/// Give shared memory back to the kernel: whoever maps it reads zeroes from now on.
///
/// # Safety
/// It must be mapped, and nobody may count on what stands there.
pub unsafe fn give_back(start: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    let remove = libc::MADV_REMOVE.cast_unsigned() as usize;
    let args = [start.as_ptr().expose_provenance(), bytes, remove, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, args) }.map(|_| ())
}

const SIZE_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Make a memory object of this size that nobody can resize. `name` is shown in `/proc` only.
pub fn create_sealed(name: &core::ffi::CStr, bytes: usize) -> Result<OwnedFd, Errno> {
    if bytes > largest_file() {
        // The kernel would raise SIGXFSZ, which ends most programs.
        return Err(Errno(libc::EFBIG));
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let args = [name.as_ptr().addr(), flags as usize, 0, 0, 0, 0];
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { syscall(libc::SYS_memfd_create, args) }?;
    let raw = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    let owned = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_ftruncate, [fd, bytes, 0, 0, 0, 0]) }?;
    let args = [fd, libc::F_ADD_SEALS as usize, SIZE_SEALS as usize, 0, 0, 0];
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_fcntl, args) }?;
    Ok(owned)
}

/// The process's limit on the size of files, which holds for memory objects, too.
fn largest_file() -> usize {
    // SAFETY: rlimit64 is plain integers, for which zero is a value.
    let mut limit: libc::rlimit64 = unsafe { core::mem::zeroed() };
    let limit_at = core::ptr::from_mut(&mut limit).addr();
    let args = [0, libc::RLIMIT_FSIZE as usize, 0, limit_at, 0, 0];
    // SAFETY: the limit outlives the call; nothing is set.
    match unsafe { syscall(libc::SYS_prlimit64, args) } {
        Ok(_) => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        Err(_) => usize::MAX,
    }
}

/// Whether the object behind `fd` is memory of at least `bytes` that can never shrink, so that
/// touching a mapping of it cannot raise SIGBUS.
pub fn is_sealed(fd: BorrowedFd<'_>, bytes: usize) -> bool {
    let raw = fd.as_raw_fd().cast_unsigned() as usize;
    // SAFETY: numbers only.
    let seals = unsafe {
        syscall(
            libc::SYS_fcntl,
            [raw, libc::F_GET_SEALS as usize, 0, 0, 0, 0],
        )
    };
    let shrink = libc::F_SEAL_SHRINK as usize;
    seals.is_ok_and(|seals| seals & shrink == shrink) && reaches(fd, bytes as u64)
}

/// Whether the object behind `fd` has at least `bytes` now; one that is not sealed may shrink.
pub fn reaches(fd: BorrowedFd<'_>, bytes: u64) -> bool {
    let raw = fd.as_raw_fd().cast_unsigned() as usize;
    // SAFETY: stat is plain integers, for which zero is a value.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let found_at = core::ptr::from_mut(&mut found).addr();
    // Not by seeking to the end: older kernels, 6.1 among them, then take a PCI region's file for empty.
    // SAFETY: the structure outlives the call and is valid for writes.
    let asked = unsafe { syscall(libc::SYS_fstat, [raw, found_at, 0, 0, 0, 0]) };
    // DAX devices have no size; the monitor has asked sysfs before it passes a part of one.
    let is_device = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
    let is_long = u64::try_from(found.st_size).is_ok_and(|size| size >= bytes);
    asked.is_ok() && (is_device || is_long)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn tables_are_never_of_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: this kernel has no transparent huge pages"
            );
            return;
        }
        let mapping = Mapping::private(8 << 20).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.start().addr());
        let lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.skip(1).find(|line| line.starts_with("VmFlags:"));
        assert!(flags.unwrap().contains(" nh"), "{flags:?}");
    }
}
