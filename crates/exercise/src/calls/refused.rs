//! Calls with arguments that the kernel finds out about before it moves anything, and what calls leave untouched.

use std::os::fd::RawFd;
use std::time::Duration;

use super::{answer, answer_int, answer_long};
use crate::{Answer, Errno};

/// readv(2) into `buffer` and then into a part of this address and length.
pub fn readv_and_then(fd: RawFd, buffer: &mut [u8], address: usize, length: usize) -> Answer {
    let parts = [
        libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        },
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address),
            iov_len: length,
        },
    ];
    // SAFETY: the first part is writable; the kernel refuses the second.
    answer(unsafe { libc::readv(fd, parts.as_ptr(), 2) })
}

/// A control message of a descriptor, with its padding.
#[repr(C)]
struct Claim {
    header: libc::cmsghdr,
    passed: [RawFd; 2],
}

/// sendmsg(2) of a byte with SCM_RIGHTS of `passed`, whose header claims to have this length.
pub fn sendmsg_claiming(over: RawFd, passed: RawFd, length: usize) -> Answer {
    let mut control = Claim {
        header: libc::cmsghdr {
            cmsg_len: length,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        passed: [passed, -1],
    };
    let mut byte = [b'x'];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: a message is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all parts of the message are alive.
    answer(unsafe { libc::sendmsg(over, &raw const message, libc::MSG_NOSIGNAL) })
}

/// recvfrom(2) with room for a name, but none for its length.
pub fn recvfrom_without_length(fd: RawFd, buffer: &mut [u8]) -> Answer {
    let mut name = [0u64; 16];
    let (start, most) = (buffer.as_mut_ptr().cast(), buffer.len());
    let null = std::ptr::null_mut();
    // SAFETY: the buffer is writable; the kernel refuses the null.
    answer(unsafe { libc::recvfrom(fd, start, most, 0, name.as_mut_ptr().cast(), null) })
}

/// recvfrom(2) with room for `room` bytes of a name: what came, the length told, and whether what is behind the room is
/// untouched.
pub fn recvfrom_with_room(
    fd: RawFd,
    buffer: &mut [u8],
    room: u32,
) -> Result<(usize, u32, bool), Errno> {
    recvfrom_into(fd, buffer, 0, room)
}

/// The same with flags.
pub fn recvfrom_into(
    fd: RawFd,
    buffer: &mut [u8],
    flags: i32,
    room: u32,
) -> Result<(usize, u32, bool), Errno> {
    let mut name = [0xee_u8; 128];
    let mut length = room;
    let (start, most) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the buffer is writable, and the name has more room than is said.
    let came = answer(unsafe {
        libc::recvfrom(
            fd,
            start,
            most,
            flags,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    let behind = &name[usize::try_from(room).expect("it is small")..];
    Ok((came, length, behind.iter().all(|byte| *byte == 0xee)))
}

/// recvmsg(2) without a name, but with a length for one: what came, and the length afterwards.
pub fn recvmsg_with_name_length(
    fd: RawFd,
    buffer: &mut [u8],
    length: u32,
) -> Result<(usize, u32), Errno> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a message is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_namelen = length;
    // SAFETY: all parts of the message are alive.
    let came = answer(unsafe { libc::recvmsg(fd, &raw mut message, 0) })?;
    Ok((came, message.msg_namelen))
}

/// recvmmsg(2) of one message with this much time: how many came, and how much time is left.
pub fn recvmmsg_for(
    fd: RawFd,
    buffer: &mut [u8],
    seconds: i64,
) -> Result<(usize, libc::timespec), Errno> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a message is plain integers and pointers, for which zero is a value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    let mut time = libc::timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    // SAFETY: the message and the time are alive and writable.
    let came = answer_int(unsafe { libc::recvmmsg(fd, &raw mut message, 1, 0, &raw mut time) })?;
    Ok((came, time))
}

/// ppoll(2) of what can be read, for a time that may be none.
pub fn ppoll_for(fd: RawFd, seconds: i64, nanoseconds: i64) -> Answer {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    // SAFETY: there is one entry, and the time is readable.
    answer_int(unsafe { libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) })
}

/// connect(2) to nobody (AF_UNSPEC), by an address of this length.
pub fn connect_to_nobody(fd: RawFd, length: u32) -> Answer {
    let name = [0_u64; 64];
    assert!(length as usize <= size_of_val(&name), "there is so much");
    // SAFETY: the address is readable.
    answer_int(unsafe { libc::connect(fd, name.as_ptr().cast(), length) })
}

/// A name with room behind all that the kernel looks at.
const NAME: [u64; 64] = [0; 64];

fn message_of(part: &mut libc::iovec, name: &mut [u64; 64], length: u32) -> libc::msghdr {
    // SAFETY: a message is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = length;
    message
}

/// sendmsg(2) to a name of this length.
pub fn sendmsg_to_name(fd: RawFd, bytes: &[u8], length: u32) -> Answer {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut name = NAME;
    let message = message_of(&mut part, &mut name, length);
    // SAFETY: all parts of the message are alive.
    answer(unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) })
}

/// recvmsg(2) with room for a name of this length.
pub fn recvmsg_with_name(fd: RawFd, buffer: &mut [u8], length: u32) -> Answer {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut name = NAME;
    let mut message = message_of(&mut part, &mut name, length);
    // SAFETY: all parts of the message are alive.
    answer(unsafe { libc::recvmsg(fd, &raw mut message, 0) })
}

/// recvfrom(2) with room for a name of this length.
pub fn recvfrom_with_name(fd: RawFd, buffer: &mut [u8], mut length: u32) -> Answer {
    let (start, most, mut name) = (buffer.as_mut_ptr().cast(), buffer.len(), NAME);
    let name_at = name.as_mut_ptr().cast();
    // SAFETY: buffer and name are writable.
    answer(unsafe { libc::recvfrom(fd, start, most, 0, name_at, &raw mut length) })
}

/// sendto(2) to a name of this length.
pub fn sendto_name(fd: RawFd, bytes: &[u8], length: u32) -> Answer {
    let (start, count, name) = (bytes.as_ptr().cast(), bytes.len(), NAME);
    // SAFETY: bytes and name are readable.
    answer(unsafe { libc::sendto(fd, start, count, 0, name.as_ptr().cast(), length) })
}

/// eventfd(2), with something to read.
pub fn eventfd() -> Result<RawFd, Errno> {
    // SAFETY: numbers only.
    super::answer_fd(unsafe { libc::eventfd(1, 0) })
}

/// A call that waits for what can be read, by its number, with a mask of so many bytes. What it has answered, and the
/// milliseconds that are left of its time.
fn by_number(
    time: Duration,
    call: impl FnOnce(*mut libc::timespec) -> libc::c_long,
) -> (Answer, i64) {
    let mut left = libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).expect("a test waits for seconds"),
        tv_nsec: time.subsec_nanos().into(),
    };
    let answer = answer_long(call(&raw mut left));
    (answer, left.tv_sec * 1000 + left.tv_nsec / 1_000_000)
}

/// ppoll(2) of what can be read, by its number and with a mask of so many bytes: what it has answered, and the milliseconds
/// that are left of its time.
pub fn ppoll_by_number(fd: RawFd, time: Duration, mask_bytes: usize) -> (Answer, i64) {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let (entry, mask) = (&raw mut entry, 0_u64);
    // SAFETY: there is one entry; the time is writable, and the mask readable.
    by_number(time, |time| unsafe {
        libc::syscall(libc::SYS_ppoll, entry, 1, time, &raw const mask, mask_bytes)
    })
}

/// As [`ppoll_by_number`], by pselect6(2).
pub fn pselect_by_number(fd: RawFd, time: Duration, mask_bytes: usize) -> (Answer, i64) {
    // SAFETY: a set of zeros is an empty one.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: a test's descriptors are small numbers.
    unsafe { libc::FD_SET(fd, &raw mut set) };
    let (set, mask, none) = (&raw mut set, 0_u64, std::ptr::null_mut::<libc::fd_set>());
    let packed = [(&raw const mask).addr(), mask_bytes];
    let packed = packed.as_ptr();
    // SAFETY: set and time are writable, the mask and what tells of it readable.
    by_number(time, |time| unsafe {
        libc::syscall(libc::SYS_pselect6, fd + 1, set, none, none, time, packed)
    })
}
