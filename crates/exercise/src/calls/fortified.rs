//! The names that a compiler calls instead of the plain ones where it knows how long a buffer is (_FORTIFY_SOURCE).

use std::os::fd::RawFd;

use libc::{c_int, c_long, c_void, off_t, size_t, ssize_t};

use super::{answer, answer_int};
use crate::{Answer, Errno};

unsafe extern "C" {
    fn __read_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    fn __pread_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t;
    fn __recv_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
        flags: c_int,
    ) -> ssize_t;
    fn __recvfrom_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
        flags: c_int,
        name: *mut libc::sockaddr,
        length: *mut libc::socklen_t,
    ) -> ssize_t;
    fn __poll_chk(
        entries: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: c_int,
        room: size_t,
    ) -> c_int;
    fn __ppoll_chk(
        entries: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        room: size_t,
    ) -> c_int;
    fn __fdelt_chk(fd: c_long) -> c_long;
}

/// read(2) of `bytes` into a buffer that is known to have its length.
pub fn read_checked(fd: RawFd, buffer: &mut [u8], bytes: usize) -> Answer {
    // SAFETY: the function compares the two lengths before it writes.
    answer(unsafe { __read_chk(fd, buffer.as_mut_ptr().cast(), bytes, buffer.len()) })
}

/// pread(2) of a buffer's length.
pub fn pread_checked(fd: RawFd, buffer: &mut [u8], offset: i64) -> Answer {
    let room = buffer.len();
    // SAFETY: the buffer is writable for its whole length.
    answer(unsafe { __pread_chk(fd, buffer.as_mut_ptr().cast(), room, offset, room) })
}

/// recv(2) of `bytes` into a buffer that is known to have its length.
pub fn recv_checked(fd: RawFd, buffer: &mut [u8], bytes: usize, flags: i32) -> Answer {
    // SAFETY: the function compares the two lengths before it writes.
    answer(unsafe { __recv_chk(fd, buffer.as_mut_ptr().cast(), bytes, buffer.len(), flags) })
}

/// recvfrom(2) of `bytes` into a buffer that is known to have its length, without asking who it is.
pub fn recvfrom_checked(fd: RawFd, buffer: &mut [u8], bytes: usize, flags: i32) -> Answer {
    let (start, null) = (buffer.as_mut_ptr().cast(), std::ptr::null_mut());
    // SAFETY: the function compares the two lengths before it writes; null pointers ask for nothing.
    answer(unsafe { __recvfrom_chk(fd, start, bytes, buffer.len(), flags, null, null.cast()) })
}

/// poll(2) of `count` entries of these, which are known to be as many as they are.
pub fn poll_checked(entries: &mut [libc::pollfd], count: usize, timeout_ms: i32) -> Answer {
    let (start, room) = (entries.as_mut_ptr(), size_of_val(entries));
    let count = libc::nfds_t::try_from(count).expect("a test polls few descriptors");
    // SAFETY: the function compares count and room before it writes.
    answer_int(unsafe { __poll_chk(start, count, timeout_ms, room) })
}

/// The same by ppoll(2), without a limit and a mask.
pub fn ppoll_checked(entries: &mut [libc::pollfd], count: usize) -> Answer {
    let (start, room) = (entries.as_mut_ptr(), size_of_val(entries));
    let count = libc::nfds_t::try_from(count).expect("a test polls few descriptors");
    // SAFETY: the function compares count and room before it writes; null pointers ask for nothing.
    answer_int(unsafe { __ppoll_chk(start, count, std::ptr::null(), std::ptr::null(), room) })
}

/// select(2) of one descriptor for reading, in a set that FD_SET has made with its check.
pub fn select_checked(fd: RawFd) -> Result<bool, Errno> {
    // SAFETY: takes a number only.
    let word = unsafe { __fdelt_chk(fd.into()) };
    let mut set = [0_u64; libc::FD_SETSIZE / 64];
    let bit = 1 << (fd % 64);
    let word = usize::try_from(word).expect("the word of a descriptor");
    set[word] = bit;
    let null = std::ptr::null_mut();
    // SAFETY: the set has the size of libc's.
    answer_int(unsafe {
        libc::select(
            fd + 1,
            set.as_mut_ptr().cast(),
            null,
            null,
            std::ptr::null_mut(),
        )
    })?;
    Ok(set[word] & bit != 0)
}
