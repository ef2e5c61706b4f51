//! What travels beside the bytes of an AF_UNIX stream: descriptors and credentials, in control
//! messages (unix(7)). The kernel carries them, at their place in the stream: a message with any is
//! sent by the kernel, which the direction goes back to for it ([`crate::send::leave_ring`]), and so it
//! is received from the kernel, between what came by ring before and after.

use core::cell::Cell;

use libc::{c_int, msghdr};

/// A program's room for control messages, and what a receive has put there.
#[derive(Debug)]
pub struct Beside {
    control: *mut libc::c_void,
    room: usize,
    asked: c_int,
    bytes: Cell<usize>,
    flags: Cell<c_int>,
}

impl Beside {
    /// The room in a program's message, for a receive with these flags.
    ///
    /// # Safety
    /// As recvmsg(2) demands of its message.
    pub unsafe fn of(message: &msghdr, flags: c_int) -> Self {
        Self {
            control: message.msg_control,
            room: message.msg_controllen,
            asked: flags & libc::MSG_CMSG_CLOEXEC,
            bytes: Cell::new(0),
            flags: Cell::new(flags & libc::MSG_CMSG_CLOEXEC),
        }
    }

    /// Bytes of control messages received, and the flags of recvmsg(2) that go with them.
    pub fn received(&self) -> (usize, c_int) {
        (self.bytes.get(), self.flags.get())
    }

    /// Whether nothing has been received.
    pub fn is_empty(&self) -> bool {
        self.bytes.get() == 0 && self.flags.get() & libc::MSG_CTRUNC == 0
    }

    /// Let the kernel use the room. Returns the flags for its call.
    pub(crate) fn lend(&self, message: &mut msghdr) -> c_int {
        message.msg_control = self.control;
        message.msg_controllen = self.room;
        self.asked
    }

    /// The kernel has received this message.
    pub(crate) fn note(&self, message: &msghdr) {
        self.bytes.set(message.msg_controllen);
        self.flags.set(message.msg_flags);
    }
}

/// Whether something stood beside the bytes of a received message: no receive goes on behind it.
pub(crate) fn ends_a_receive(message: &msghdr) -> bool {
    message.msg_controllen > 0 || message.msg_flags & libc::MSG_CTRUNC != 0
}
