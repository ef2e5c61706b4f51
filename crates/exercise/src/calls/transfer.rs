//! Calls that move bytes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use super::{answer, answer_int};
use crate::Answer;

/// read(2).
pub fn read(fd: RawFd, buffer: &mut [u8]) -> Answer {
    // SAFETY: the buffer is writable for its whole length.
    answer(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// write(2).
pub fn write(fd: RawFd, bytes: &[u8]) -> Answer {
    // SAFETY: the bytes are readable for their whole length.
    answer(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// recv(2).
pub fn recv(fd: RawFd, buffer: &mut [u8], flags: i32) -> Answer {
    // SAFETY: the buffer is writable for its whole length.
    answer(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
}

/// send(2).
pub fn send(fd: RawFd, bytes: &[u8], flags: i32) -> Answer {
    // SAFETY: the bytes are readable for their whole length.
    answer(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// readv(2).
pub fn readv(fd: RawFd, buffers: &mut [IoSliceMut<'_>]) -> Answer {
    let count = i32::try_from(buffers.len()).expect("a test has few buffers");
    // SAFETY: an IoSliceMut is laid out as an iovec, and each is writable.
    answer(unsafe { libc::readv(fd, buffers.as_mut_ptr().cast(), count) })
}

/// writev(2).
pub fn writev(fd: RawFd, slices: &[IoSlice<'_>]) -> Answer {
    let count = i32::try_from(slices.len()).expect("a test has few slices");
    // SAFETY: an IoSlice is laid out as an iovec, and each is readable.
    answer(unsafe { libc::writev(fd, slices.as_ptr().cast(), count) })
}

/// preadv2(2) at the given offset, -1 for the current one.
pub fn preadv2(fd: RawFd, buffers: &mut [IoSliceMut<'_>], offset: i64, flags: i32) -> Answer {
    let count = i32::try_from(buffers.len()).expect("a test has few buffers");
    // SAFETY: an IoSliceMut is laid out as an iovec, and each is writable.
    answer(unsafe { libc::preadv2(fd, buffers.as_mut_ptr().cast(), count, offset, flags) })
}

/// pwritev2(2) at the given offset, -1 for the current one.
pub fn pwritev2(fd: RawFd, slices: &[IoSlice<'_>], offset: i64, flags: i32) -> Answer {
    let count = i32::try_from(slices.len()).expect("a test has few slices");
    // SAFETY: an IoSlice is laid out as an iovec, and each is readable.
    answer(unsafe { libc::pwritev2(fd, slices.as_ptr().cast(), count, offset, flags) })
}

/// pread(2).
pub fn pread(fd: RawFd, buffer: &mut [u8], offset: i64) -> Answer {
    // SAFETY: the buffer is writable for its whole length.
    answer(unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset) })
}

/// pwrite(2).
pub fn pwrite(fd: RawFd, bytes: &[u8], offset: i64) -> Answer {
    // SAFETY: the bytes are readable for their length.
    answer(unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset) })
}

/// preadv(2).
pub fn preadv(fd: RawFd, buffers: &mut [IoSliceMut<'_>], offset: i64) -> Answer {
    let count = i32::try_from(buffers.len()).expect("a test has few buffers");
    // SAFETY: an IoSliceMut is laid out as an iovec, and each is writable.
    answer(unsafe { libc::preadv(fd, buffers.as_mut_ptr().cast(), count, offset) })
}

/// pwritev(2).
pub fn pwritev(fd: RawFd, slices: &[IoSlice<'_>], offset: i64) -> Answer {
    let count = i32::try_from(slices.len()).expect("a test has few slices");
    // SAFETY: an IoSlice is laid out as an iovec, and each is readable.
    answer(unsafe { libc::pwritev(fd, slices.as_ptr().cast(), count, offset) })
}

/// dprintf(3) of bytes as a string, which ends at the first zero.
pub fn print(fd: RawFd, bytes: &[u8]) -> Answer {
    unsafe extern "C" {
        fn dprintf(fd: libc::c_int, format: *const libc::c_char, ...) -> libc::c_int;
    }
    let most = i32::try_from(bytes.len()).expect("a test prints little");
    // SAFETY: the format asks for a precision and a string, and no more of that is read.
    super::answer_int(unsafe { dprintf(fd, c"%.*s".as_ptr(), most, bytes.as_ptr()) })
}

/// read(2) through syscall(2), as programs do that distrust libc.
pub fn raw_read(fd: RawFd, buffer: &mut [u8]) -> Answer {
    let length = buffer.len();
    // SAFETY: the buffer is writable for its whole length.
    let returned = unsafe { libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), length) };
    answer(isize::try_from(returned).expect("a long is as long as a pointer"))
}

/// write(2) through syscall(2).
pub fn raw_write(fd: RawFd, bytes: &[u8]) -> Answer {
    // SAFETY: the bytes are readable for their whole length.
    let returned = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    answer(isize::try_from(returned).expect("a long is as long as a pointer"))
}

/// An address that nothing is mapped at.
const NOWHERE: *mut libc::c_void = std::ptr::without_provenance_mut(8);

/// read(2) of more than there can be.
pub fn read_beyond_all(fd: RawFd, buffer: &mut [u8]) -> Answer {
    // SAFETY: the kernel sees that no buffer is so long.
    answer(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), usize::MAX) })
}

/// write(2) of more than there can be.
pub fn write_beyond_all(fd: RawFd, bytes: &[u8]) -> Answer {
    // SAFETY: the kernel sees that no buffer is so long.
    answer(unsafe { libc::write(fd, bytes.as_ptr().cast(), usize::MAX) })
}

/// recv(2) of more than there can be, where no more comes than the buffer holds.
pub fn recv_beyond_all(fd: RawFd, buffer: &mut [u8]) -> Answer {
    // SAFETY: by the caller's promise about what comes.
    answer(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), usize::MAX, 0) })
}

/// read(2) into memory that is not there.
pub fn read_into_nowhere(fd: RawFd, length: usize) -> Answer {
    // SAFETY: the kernel checks the address and answers EFAULT.
    answer(unsafe { libc::read(fd, NOWHERE, length) })
}

/// write(2) from memory that is not there.
pub fn write_from_nowhere(fd: RawFd, length: usize) -> Answer {
    // SAFETY: the kernel checks the address and answers EFAULT.
    answer(unsafe { libc::write(fd, NOWHERE, length) })
}

/// readv(2) into `buffer` and then into memory that is not there.
pub fn readv_half_into_nowhere(fd: RawFd, buffer: &mut [u8]) -> Answer {
    let here = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let vector = [
        here,
        libc::iovec {
            iov_base: NOWHERE,
            iov_len: 100,
        },
    ];
    // SAFETY: the first part is writable; the kernel checks the second.
    answer(unsafe { libc::readv(fd, vector.as_ptr(), 2) })
}

/// readv(2) with `count` empty parts; the manual allows up to `IOV_MAX`.
pub fn readv_empty_parts(fd: RawFd, count: i32) -> Answer {
    let length = usize::try_from(count).unwrap_or(0);
    let vector = vec![
        libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0
        };
        length
    ];
    // SAFETY: the parts are empty.
    answer(unsafe { libc::readv(fd, vector.as_ptr(), count) })
}

/// writev(2) with `count` empty parts.
pub fn writev_empty_parts(fd: RawFd, count: i32) -> Answer {
    let length = usize::try_from(count).unwrap_or(0);
    let vector = vec![
        libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0
        };
        length
    ];
    // SAFETY: the parts are empty.
    answer(unsafe { libc::writev(fd, vector.as_ptr(), count) })
}

/// sendfile(2); the offset is used and moved on when there is one, else the file's own.
pub fn sendfile(to: RawFd, from: RawFd, offset: Option<&mut i64>, count: usize) -> Answer {
    let offset = offset.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the offset is null or writable.
    answer(unsafe { libc::sendfile(to, from, offset, count) })
}

/// splice(2) without offsets.
pub fn splice(from: RawFd, to: RawFd, count: usize, flags: u32) -> Answer {
    let null = std::ptr::null_mut();
    // SAFETY: no memory is passed.
    answer(unsafe { libc::splice(from, null, to, null, count, flags) })
}

/// tee(2).
pub fn tee(from: RawFd, to: RawFd, count: usize, flags: u32) -> Answer {
    // SAFETY: no memory is passed.
    answer(unsafe { libc::tee(from, to, count, flags) })
}

/// vmsplice(2) of bytes that are not changed as long as anybody may read the pipe.
pub fn vmsplice(pipe: RawFd, bytes: &'static [u8], flags: u32) -> Answer {
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the one part is readable for its length.
    answer(unsafe { libc::vmsplice(pipe, &raw const part, 1, flags) })
}

/// copy_file_range(2) without offsets.
pub fn copy_file_range(from: RawFd, to: RawFd, count: usize) -> Answer {
    let null = std::ptr::null_mut();
    // SAFETY: no memory is passed.
    answer(unsafe { libc::copy_file_range(from, null, to, null, count, 0) })
}

/// sockatmark(3).
pub fn sockatmark(fd: RawFd) -> Answer {
    unsafe extern "C" {
        fn sockatmark(fd: libc::c_int) -> libc::c_int;
    }
    // SAFETY: no memory is passed.
    answer_int(unsafe { sockatmark(fd) })
}

/// ioctl(2) that fills in an int, such as FIONREAD, SIOCOUTQ and SIOCATMARK.
pub fn ioctl_read(fd: RawFd, request: libc::Ioctl) -> Answer {
    let mut value: i32 = -1;
    // SAFETY: these requests write one int.
    answer_int(unsafe { libc::ioctl(fd, request, &raw mut value) })?;
    answer_int(value)
}

/// ioctl(2) that takes an int, such as FIONBIO and FIOASYNC.
pub fn ioctl_set(fd: RawFd, request: libc::Ioctl, value: i32) -> Answer {
    let mut value = value;
    // SAFETY: these requests read one int.
    answer_int(unsafe { libc::ioctl(fd, request, &raw mut value) })
}

/// ioctl(2) FIONBIO.
pub fn ioctl_nonblocking(fd: RawFd, on: bool) -> Answer {
    ioctl_set(fd, libc::FIONBIO, i32::from(on))
}
