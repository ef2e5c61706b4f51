//! One datagram on the control socket, with room for a descriptor beside it.

use core::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crosslane_sys::{Errno, kernel};

/// Room for one descriptor beside a message, aligned as a control message.
#[repr(C, align(8))]
struct Rights([u8; 24]);

/// Send a control message, with a descriptor or without, and never wait.
pub(crate) fn send_packet(socket: RawFd, bytes: &[u8], fd: Option<RawFd>) -> Result<(), Errno> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut rights = Rights([0; 24]);
    // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(fd) = fd {
        // cmsghdr: length, level, type, then the descriptor (cmsg(3)).
        let length = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
        rights.0[..8].copy_from_slice(&length.to_ne_bytes());
        rights.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        rights.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
        rights.0[16..20].copy_from_slice(&fd.to_ne_bytes());
        message.msg_control = (&raw mut rights).cast();
        message.msg_controllen = size_of::<Rights>();
    }
    // SAFETY: the message and all it points to live until the call returns.
    unsafe { kernel::sendmsg(socket, &raw const message, 0) }.map(|_| ())
}

/// Take a control message and the descriptor that came with it, and never wait.
pub(crate) fn receive_packet(
    socket: RawFd,
    bytes: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut rights = MaybeUninit::<Rights>::zeroed();
    // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = rights.as_mut_ptr().cast();
    // Room for exactly one descriptor.
    message.msg_controllen = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
    // SAFETY: the message and all it points to live until the call returns.
    let length = unsafe { kernel::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) }?;
    // SAFETY: zeroed above and written to by the kernel only.
    let rights = unsafe { rights.assume_init() };
    Ok((length, passed_descriptor(&rights, message.msg_controllen)))
}

fn passed_descriptor(rights: &Rights, length: usize) -> Option<OwnedFd> {
    let word = |at: usize| rights.0[at..at + 4].try_into().map(i32::from_ne_bytes).ok();
    let expected = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
    if length < expected || word(8)? != libc::SOL_SOCKET || word(12)? != libc::SCM_RIGHTS {
        return None;
    }
    // SAFETY: the kernel has just put this descriptor into our table for us.
    Some(unsafe { OwnedFd::from_raw_fd(word(16)?) })
}
