//! The names of sockets that go with bytes, of which a connection needs none.

use crosslane_stream::End;
use crosslane_stream::family::Family;
use crosslane_sys::Errno;
use libc::{msghdr, sockaddr, socklen_t};

use crate::c;

/// The longest name that a socket has.
const LONGEST_NAME: usize = size_of::<libc::sockaddr_storage>();

/// Whether the kernel refuses to send a message to this name, which it looks at even where it is of no use: of one that is too long
/// it takes the beginning.
#[inline]
pub fn is_bad_name(message: &msghdr) -> bool {
    let name = message.msg_name.cast::<u8>();
    let bytes = (message.msg_namelen as usize).min(LONGEST_NAME);
    has_no_length(message) || !name.is_null() && !c::may_be(name, bytes)
}

/// Whether the kernel refuses to send something to this address, which may not be too long.
#[inline]
pub fn is_bad_address(address: *const sockaddr, length: socklen_t) -> bool {
    let bytes = length as usize;
    !address.is_null() && (bytes > LONGEST_NAME || !c::may_be(address.cast::<u8>(), bytes))
}

/// Whether the kernel refuses a message, sent or received, because its name would be shorter than nothing.
#[inline]
pub fn has_no_length(message: &msghdr) -> bool {
    message.msg_namelen.cast_signed() < 0 && !message.msg_name.is_null()
}

/// Fill in where received bytes came from: TCP does not tell; AF_UNIX tells the peer's name, if it has
/// one, at an address that may be nowhere.
///
/// # Safety
/// As recvfrom(2) demands.
pub unsafe fn tell_source(
    end: &End,
    has_some: bool,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<(), Errno> {
    const NAMELESS: usize = size_of::<libc::sa_family_t>();
    // SAFETY: the caller's promise.
    if unsafe { *length }.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    if end.family() == Family::Unix && has_some {
        let mut own: sockaddr = sockaddr {
            sa_family: 0,
            sa_data: [0; 14],
        };
        let mut bytes = socklen_t::try_from(size_of_val(&own)).unwrap_or(0);
        // SAFETY: there is room for so much; what is longer is cut off.
        let asked = unsafe { libc::getpeername(end.fd(), &raw mut own, &raw mut bytes) };
        if asked == 0 && bytes as usize > NAMELESS {
            // SAFETY: the caller's promise; the kernel refuses what is nowhere.
            let told = unsafe { libc::getpeername(end.fd(), address, length) };
            let is_nowhere = told < 0 && Errno::last() == Errno::FAULT;
            return if is_nowhere {
                Err(Errno::last())
            } else {
                Ok(())
            };
        }
    }
    // SAFETY: as above.
    unsafe { c::tell(length, 0) }
}
