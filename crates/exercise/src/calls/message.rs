//! sendmsg(2), recvmsg(2) and their relatives.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use super::{answer, answer_fd, answer_int, size};
use crate::{Answer, Errno};

/// What recvmsg(2) or recvfrom(2) said beyond the number of bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of bytes.
    pub bytes: usize,
    /// The length of the sender's address; 0 on TCP.
    pub name_length: usize,
    /// The flags of the message.
    pub flags: i32,
}

fn empty() -> libc::msghdr {
    // SAFETY: a msghdr of zeros is an empty one.
    unsafe { std::mem::zeroed() }
}

/// sendmsg(2).
pub fn sendmsg(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Answer {
    let mut message = empty();
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: an IoSlice is laid out as an iovec, and sendmsg only reads through it.
    answer(unsafe { libc::sendmsg(fd, &raw const message, flags) })
}

/// sendmsg(2) without a name, of which a length is told all the same.
pub fn sendmsg_with_name_length(
    fd: RawFd,
    slices: &[IoSlice<'_>],
    length: u32,
    flags: i32,
) -> Answer {
    let mut message = empty();
    message.msg_namelen = length;
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: as in `sendmsg`; the name is null.
    answer(unsafe { libc::sendmsg(fd, &raw const message, flags) })
}

/// recvmsg(2), asking for the sender's address too.
pub fn recvmsg(fd: RawFd, buffers: &mut [IoSliceMut<'_>], flags: i32) -> Result<Received, Errno> {
    // SAFETY: an address of zeros is one of no family.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut message = empty();
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size::<libc::sockaddr_storage>();
    message.msg_iov = buffers.as_mut_ptr().cast();
    message.msg_iovlen = buffers.len();
    // SAFETY: an IoSliceMut is laid out as an iovec, and each is writable, as is the name.
    let bytes = answer(unsafe { libc::recvmsg(fd, &raw mut message, flags) })?;
    let name_length = usize::try_from(message.msg_namelen).expect("an address is short");
    Ok(Received {
        bytes,
        name_length,
        flags: message.msg_flags,
    })
}

/// recvfrom(2).
pub fn recvfrom(fd: RawFd, buffer: &mut [u8], flags: i32) -> Result<Received, Errno> {
    // SAFETY: an address of zeros is one of no family.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size::<libc::sockaddr_storage>();
    let start = buffer.as_mut_ptr().cast();
    let name = (&raw mut name).cast();
    // SAFETY: the buffer is writable for its length, and the name for the one passed.
    let returned = unsafe { libc::recvfrom(fd, start, buffer.len(), flags, name, &raw mut length) };
    let name_length = usize::try_from(length).expect("an address is short");
    Ok(Received {
        bytes: answer(returned)?,
        name_length,
        flags: 0,
    })
}

/// sendmmsg(2), one slice a message: how many messages were sent.
pub fn sendmmsg(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Answer {
    sendmmsg_lengths(fd, slices, flags).map(|lengths| lengths.len())
}

/// sendmmsg(2), one slice a message: the number of bytes that were sent of each message.
pub fn sendmmsg_lengths(fd: RawFd, slices: &[IoSlice<'_>], flags: i32) -> Result<Vec<u32>, Errno> {
    let mut messages: Vec<libc::mmsghdr> = slices
        .iter()
        .map(|slice| {
            let mut header = empty();
            header.msg_iov = std::ptr::from_ref(slice).cast_mut().cast();
            header.msg_iovlen = 1;
            libc::mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            }
        })
        .collect();
    let count = u32::try_from(messages.len()).expect("a test sends few messages");
    // SAFETY: each header points to one slice, laid out as an iovec.
    let returned = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, flags) };
    let sent = answer_int(returned)?;
    Ok(messages[..sent]
        .iter()
        .map(|message| message.msg_len)
        .collect())
}

/// recvmmsg(2), one buffer a message: the number of bytes of each that was filled.
pub fn recvmmsg(fd: RawFd, buffers: &mut [IoSliceMut<'_>], flags: i32) -> Result<Vec<u32>, Errno> {
    let mut messages: Vec<libc::mmsghdr> = buffers
        .iter_mut()
        .map(|buffer| {
            let mut header = empty();
            header.msg_iov = std::ptr::from_mut(buffer).cast();
            header.msg_iovlen = 1;
            libc::mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            }
        })
        .collect();
    let count = u32::try_from(messages.len()).expect("a test receives few messages");
    let null = std::ptr::null_mut();
    // SAFETY: each header points to one writable buffer, laid out as an iovec.
    let returned = unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), count, flags, null) };
    let filled = answer_int(returned)?;
    Ok(messages[..filled]
        .iter()
        .map(|message| message.msg_len)
        .collect())
}

/// Room for one control message that carries a descriptor, aligned as a header must be.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Pass `passed` over the AF_UNIX socket `over`.
pub fn send_fd(over: RawFd, passed: RawFd) -> Answer {
    let mut control = Control([0; 24]);
    let slice = IoSlice::new(b"!");
    let mut message = empty();
    message.msg_iov = (&raw const slice).cast_mut().cast();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = 24;
    // SAFETY: the control buffer has room for a header and an int.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: a length is computed, nothing is touched.
    let length = unsafe { libc::CMSG_LEN(4) };
    let filled = libc::cmsghdr {
        cmsg_len: usize::try_from(length).expect("it is 20"),
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: the header lies in the control buffer, which is aligned for it.
    unsafe { header.write(filled) };
    // SAFETY: the data begins inside the control buffer.
    let data: *mut RawFd = unsafe { libc::CMSG_DATA(header) }.cast();
    // SAFETY: there is room for one int; it may be unaligned for all we know.
    unsafe { data.write_unaligned(passed) };
    // SAFETY: all parts of the message are alive.
    answer(unsafe { libc::sendmsg(over, &raw const message, 0) })
}

/// sendmsg(2) of `bytes` with `passed` beside them, at most so many as [`Controls`] has room for.
pub fn sendmsg_beside(over: RawFd, bytes: &[u8], passed: &[RawFd], flags: i32) -> Answer {
    let mut controls = Controls([0; 128]);
    let slice = IoSlice::new(bytes);
    let mut message = empty();
    message.msg_iov = (&raw const slice).cast_mut().cast();
    message.msg_iovlen = 1;
    let payload = u32::try_from(size_of_val(passed)).expect("a test passes few descriptors");
    // SAFETY: a length is computed, nothing is touched.
    let length = unsafe { libc::CMSG_LEN(payload) };
    // SAFETY: as above.
    let space = unsafe { libc::CMSG_SPACE(payload) };
    let [length, space] = [length, space].map(|bytes| usize::try_from(bytes).expect("it is short"));
    assert!(
        space <= size_of::<Controls>(),
        "a test passes few descriptors"
    );
    message.msg_control = (&raw mut controls).cast();
    message.msg_controllen = space;
    // SAFETY: the control buffer has room for a header and its data.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let filled = libc::cmsghdr {
        cmsg_len: length,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: the header lies in the control buffer, which is aligned for it.
    unsafe { header.write(filled) };
    // SAFETY: the data begins inside the control buffer.
    let data: *mut RawFd = unsafe { libc::CMSG_DATA(header) }.cast();
    // SAFETY: there is room for all of them, as asserted, and the two do not overlap.
    unsafe { data.copy_from_nonoverlapping(passed.as_ptr(), passed.len()) };
    // SAFETY: all parts of the message are alive.
    answer(unsafe { libc::sendmsg(over, &raw const message, flags) })
}

/// Take the descriptor that [`send_fd`] passed.
pub fn receive_fd(over: RawFd) -> Result<RawFd, Errno> {
    let mut control = Control([0; 24]);
    let mut byte = [0];
    let mut buffer = IoSliceMut::new(&mut byte);
    let mut message = empty();
    message.msg_iov = (&raw mut buffer).cast();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = 24;
    // SAFETY: all parts of the message are alive and writable.
    answer(unsafe { libc::recvmsg(over, &raw mut message, 0) })?;
    let fd = control.0[16..20]
        .try_into()
        .expect("four bytes are four bytes");
    answer_fd(RawFd::from_ne_bytes(fd))
}

/// What [`recvmsg_beside`] has received.
#[derive(Debug)]
pub struct Beside {
    /// The number of bytes.
    pub bytes: usize,
    /// Descriptors (SCM_RIGHTS).
    pub descriptors: Vec<RawFd>,
    /// Whether credentials came (SCM_CREDENTIALS).
    pub credentials: bool,
    /// The flags of the message.
    pub flags: i32,
}

/// Room for control messages of a few descriptors and credentials.
#[repr(C, align(8))]
struct Controls([u8; 128]);

/// recvmsg(2) with `room` bytes for control messages, 128 at most.
pub fn recvmsg_beside(
    fd: RawFd,
    buffer: &mut [u8],
    room: usize,
    flags: i32,
) -> Result<Beside, Errno> {
    let mut controls = Controls([0; 128]);
    let mut slice = IoSliceMut::new(buffer);
    let mut message = empty();
    message.msg_iov = (&raw mut slice).cast();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut controls).cast();
    message.msg_controllen = room.min(128);
    // SAFETY: all parts of the message are alive and writable.
    let bytes = answer(unsafe { libc::recvmsg(fd, &raw mut message, flags) })?;
    let mut found = Beside {
        bytes,
        descriptors: Vec::new(),
        credentials: false,
        flags: message.msg_flags,
    };
    // SAFETY: the kernel has filled in the message.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: null, or a header inside the control buffer.
    while let Some(control) = unsafe { header.as_ref() } {
        match (control.cmsg_level, control.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => found.credentials = true,
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                // SAFETY: the data follows the header.
                let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
                let count = (control.cmsg_len - size_of::<libc::cmsghdr>()) / size_of::<RawFd>();
                // SAFETY: inside the data of this control message, which is aligned for it.
                let passed = unsafe { std::slice::from_raw_parts(data, count) };
                found.descriptors.extend_from_slice(passed);
            }
            _ => {}
        }
        // SAFETY: the kernel has filled in the message.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(found)
}
