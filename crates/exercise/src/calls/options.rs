//! setsockopt(2), getsockopt(2), and fcntl(2) of status flags.

use std::os::fd::RawFd;

use super::{answer_int, size};
use crate::{Answer, Errno};

/// setsockopt(2) of any plain value.
pub fn setsockopt<T: Copy>(fd: RawFd, level: i32, name: i32, value: T) -> Answer {
    let start = (&raw const value).cast();
    // SAFETY: the value is readable for its size.
    answer_int(unsafe { libc::setsockopt(fd, level, name, start, size::<T>()) })
}

/// setsockopt(2) of an int, claiming that it has `length` bytes.
pub fn setsockopt_with_length(fd: RawFd, level: i32, name: i32, length: u32) -> Answer {
    let value = [1i32; 4];
    assert!(
        length <= size::<[i32; 4]>() || length.cast_signed() < 0,
        "the claim must stay inside the value, or be refused before that is read"
    );
    // SAFETY: the value is readable for the length passed.
    answer_int(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), length) })
}

/// getsockopt(2) of an int.
pub fn getsockopt(fd: RawFd, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = [0; 256];
    getsockopt_bytes(fd, level, name, &mut value[..4])?;
    Ok(i32::from_ne_bytes(
        value[..4].try_into().expect("four bytes are four bytes"),
    ))
}

/// getsockopt(2) into bytes: how many it filled.
pub fn getsockopt_bytes(fd: RawFd, level: i32, name: i32, value: &mut [u8]) -> Answer {
    let mut length = u32::try_from(value.len()).expect("options are short");
    let start = value.as_mut_ptr().cast();
    // SAFETY: the value is writable for the length passed.
    answer_int(unsafe { libc::getsockopt(fd, level, name, start, &raw mut length) })?;
    Ok(usize::try_from(length).expect("a u32 fits into a usize"))
}

/// The pending error, which this clears.
pub fn take_error(fd: RawFd) -> Result<Errno, Errno> {
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR).map(Errno)
}

/// Let reads or writes (SO_RCVTIMEO, SO_SNDTIMEO) give up after `milliseconds`.
pub fn set_timeout(fd: RawFd, name: i32, milliseconds: i64) -> Answer {
    let value = libc::timeval {
        tv_sec: milliseconds / 1000,
        tv_usec: milliseconds % 1000 * 1000,
    };
    setsockopt(fd, libc::SOL_SOCKET, name, value)
}

/// SO_LINGER: what close(2) does with bytes that the peer has not acknowledged.
pub fn set_linger(fd: RawFd, seconds: Option<i32>) -> Answer {
    let value = libc::linger {
        l_onoff: i32::from(seconds.is_some()),
        l_linger: seconds.unwrap_or(0),
    };
    setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value)
}

/// fcntl(2) with an int argument.
pub fn fcntl(fd: RawFd, command: i32, argument: i32) -> Answer {
    // SAFETY: only commands with an int or no argument are used.
    answer_int(unsafe { libc::fcntl(fd, command, argument) })
}

/// Set or clear O_NONBLOCK.
pub fn set_nonblocking(fd: RawFd, on: bool) -> Answer {
    let flags = i32::try_from(fcntl(fd, libc::F_GETFL, 0)?).expect("flags came from an int");
    let flags = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    fcntl(fd, libc::F_SETFL, flags)
}

/// Whether O_NONBLOCK is set.
pub fn is_nonblocking(fd: RawFd) -> Result<bool, Errno> {
    let flags = i32::try_from(fcntl(fd, libc::F_GETFL, 0)?).expect("flags came from an int");
    Ok(flags & libc::O_NONBLOCK != 0)
}
