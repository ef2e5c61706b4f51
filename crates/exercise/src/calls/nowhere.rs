//! Calls with pointers to where nothing is, or nothing may be written.

use std::os::fd::RawFd;

use libc::{c_int, c_void};

use super::{answer, answer_int};
use crate::{Answer, Errno};

/// Where a call is told to look.
#[derive(Clone, Copy)]
pub struct Nowhere(*mut c_void);

impl Nowhere {
    /// An address below all that can be mapped.
    pub fn low() -> Self {
        Self(std::ptr::without_provenance_mut(8))
    }

    /// An address of the kernel's.
    pub fn high() -> Self {
        Self(std::ptr::without_provenance_mut(usize::MAX - 0xffff))
    }

    /// A page that was mapped once, where nothing is mapped unless by that address.
    pub fn unmapped() -> Self {
        let page = Self::map_at(1 << 40, 1, libc::PROT_READ);
        // SAFETY: nobody uses the page.
        unsafe { libc::munmap(page.0, PAGE) };
        page
    }

    /// A page with this protection, of zeros.
    pub fn page(protection: c_int) -> Self {
        Self::map(1, protection)
    }

    fn pages(count: usize) -> Self {
        Self::map(count, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(count: usize, protection: c_int) -> Self {
        Self::map_at(0, count, protection)
    }

    fn map_at(address: usize, count: usize, protection: c_int) -> Self {
        let (nowhere, bytes) = (std::ptr::without_provenance_mut(address), count * PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, wherever there is room.
        let start = unsafe { libc::mmap(nowhere, bytes, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "a page can be mapped");
        Self(start)
    }
}

const PAGE: usize = 4096;

/// A buffer of which the second half is nowhere.
#[derive(Clone, Copy)]
pub struct HalfThere {
    start: *mut u8,
    bytes: usize,
}

impl HalfThere {
    /// A buffer of so many bytes, behind whose first half nothing may be read or written; that begins as `there` does.
    pub fn new(bytes: usize, there: &[u8]) -> Self {
        let half = bytes / 2;
        let pages = half.div_ceil(PAGE);
        let Nowhere(start) = Nowhere::pages(pages + bytes.div_ceil(PAGE) + 1);
        let end = start.wrapping_byte_add(pages * PAGE);
        // SAFETY: nobody uses these pages.
        let closed = unsafe { libc::mprotect(end, bytes.div_ceil(PAGE) * PAGE, libc::PROT_NONE) };
        assert_eq!(closed, 0, "a page can be closed");
        let start = end.cast::<u8>().wrapping_sub(half);
        // SAFETY: the half is writable, and nobody else's.
        unsafe { start.copy_from_nonoverlapping(there.as_ptr(), half.min(there.len())) };
        Self { start, bytes }
    }

    /// What stands at its beginning, which must be in the first half.
    pub fn there(&self, bytes: usize) -> Vec<u8> {
        assert!(
            bytes <= self.bytes / 2,
            "{bytes} of {} are there",
            self.bytes
        );
        // SAFETY: the half is readable.
        unsafe { std::slice::from_raw_parts(self.start, bytes) }.to_vec()
    }

    /// The half that is there, and another below all that can be mapped.
    fn and_nowhere(&self) -> [libc::iovec; 2] {
        let there = libc::iovec {
            iov_base: self.start.cast(),
            iov_len: self.bytes / 2,
        };
        let nowhere = libc::iovec {
            iov_base: Nowhere::low().0,
            iov_len: self.bytes - self.bytes / 2,
        };
        [there, nowhere]
    }

    fn part(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.start.cast(),
            iov_len: self.bytes,
        }
    }
}

/// A call that is given such a buffer.
pub type HalfCall = fn(RawFd, HalfThere) -> Answer;

/// Calls that receive, and do not wait.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "the same for all of them: the kernel checks the address and answers EFAULT"
)]
pub const RECEIVE_HALF: [(&str, HalfCall); 5] = [
    ("read", |fd, half| {
        answer(unsafe { libc::read(fd, half.start.cast(), half.bytes) })
    }),
    ("recv", |fd, half| {
        answer(unsafe { libc::recv(fd, half.start.cast(), half.bytes, libc::MSG_DONTWAIT) })
    }),
    ("readv", |fd, half| {
        let (mut none, rest) = (half.part(), half.part());
        none.iov_len = 0;
        answer(unsafe { libc::readv(fd, [none, rest].as_ptr(), 2) })
    }),
    ("recvmsg", |fd, half| {
        let mut message = message_of(half);
        answer(unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) })
    }),
    ("readv of two", |fd, half| {
        answer(unsafe { libc::readv(fd, half.and_nowhere().as_ptr(), 2) })
    }),
];

/// Calls that send.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "the same for all of them: the kernel checks the address and answers EFAULT"
)]
pub const SEND_HALF: [(&str, HalfCall); 5] = [
    ("write", |fd, half| {
        answer(unsafe { libc::write(fd, half.start.cast(), half.bytes) })
    }),
    ("send", |fd, half| {
        answer(unsafe { libc::send(fd, half.start.cast(), half.bytes, libc::MSG_NOSIGNAL) })
    }),
    ("writev", |fd, half| {
        let part = half.part();
        answer(unsafe { libc::writev(fd, &raw const part, 1) })
    }),
    ("sendmsg", |fd, half| {
        let message = message_of(half);
        answer(unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) })
    }),
    ("writev of two", |fd, half| {
        answer(unsafe { libc::writev(fd, half.and_nowhere().as_ptr(), 2) })
    }),
];

fn message_of(half: HalfThere) -> libc::msghdr {
    // SAFETY: a message of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = Box::into_raw(Box::new(half.part()));
    message.msg_iovlen = 1;
    message
}

/// sendmmsg(2) of two messages, of which the second is nowhere.
pub fn send_two_of_one(fd: RawFd) -> Answer {
    // SAFETY: a message of zeros is an empty one.
    let first: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&first);
    // SAFETY: integers and pointers, and what is between them is zero.
    let there = unsafe { std::slice::from_raw_parts((&raw const first).cast(), bytes) };
    let both = HalfThere::new(2 * bytes, there);
    // SAFETY: the kernel checks the address and says how many it has sent.
    answer_int(unsafe { libc::sendmmsg(fd, both.start.cast(), 2, 0) })
}

/// epoll_ctl(2) with EPOLL_CTL_DEL and an event that is nowhere.
pub fn epoll_delete_by(epoll: RawFd, fd: RawFd, at: Nowhere) -> Answer {
    // SAFETY: EPOLL_CTL_DEL does not look at the event.
    answer_int(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, at.0.cast()) })
}

/// select(2) of what can be read of `count` descriptors, by a set for 1024 behind which there is nothing: how many, and whether
/// `fd` is among them.
pub fn select_beyond(fd: RawFd, count: c_int) -> Result<(usize, bool), Errno> {
    let Nowhere(start) = Nowhere::pages(2);
    let behind = start.wrapping_byte_add(PAGE);
    // SAFETY: nobody uses the second page.
    unsafe { libc::munmap(behind, PAGE) };
    let set = behind.cast::<libc::fd_set>().wrapping_sub(1);
    // SAFETY: the set is the end of the first page.
    unsafe { libc::FD_SET(fd, set) };
    let mut now = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the set is writable, as far as there are descriptors.
    let found = answer_int(unsafe { libc::select(count, set, none, none, &raw mut now) })?;
    // SAFETY: as above.
    Ok((found, unsafe { libc::FD_ISSET(fd, set) }))
}

/// A call that is given an address.
pub type Call = fn(RawFd, Nowhere) -> Answer;

/// Calls that store what they receive there, or take from there what they send.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "the same for all of them: the kernel checks the address and answers EFAULT"
)]
pub const OF_BYTES: [(&str, Call); 6] = [
    ("read", |fd, at| answer(unsafe { libc::read(fd, at.0, 4) })),
    ("recv", |fd, at| {
        answer(unsafe { libc::recv(fd, at.0, 4, 0) })
    }),
    ("readv", |fd, at| {
        answer(unsafe { libc::readv(fd, &raw const *part(at), 1) })
    }),
    ("recvmsg", |fd, at| {
        let mut message = message(at);
        answer(unsafe { libc::recvmsg(fd, &raw mut message, 0) })
    }),
    ("send", |fd, at| {
        answer(unsafe { libc::send(fd, at.0, 4, 0) })
    }),
    ("writev", |fd, at| {
        answer(unsafe { libc::writev(fd, &raw const *part(at), 1) })
    }),
];

fn part(at: Nowhere) -> Box<libc::iovec> {
    Box::new(libc::iovec {
        iov_base: at.0,
        iov_len: 4,
    })
}

fn message(at: Nowhere) -> libc::msghdr {
    // SAFETY: a message of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = Box::into_raw(part(at));
    message.msg_iovlen = 1;
    message
}

/// Calls whose arguments are there.
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "the same for all of them: the kernel checks the address and answers EFAULT"
)]
pub const OF_ARGUMENTS: [(&str, Call); 26] = [
    ("readv's parts", |fd, at| {
        answer(unsafe { libc::readv(fd, at.0.cast(), 2) })
    }),
    ("writev's parts", |fd, at| {
        answer(unsafe { libc::writev(fd, at.0.cast(), 2) })
    }),
    ("recvmsg's header", |fd, at| {
        answer(unsafe { libc::recvmsg(fd, at.0.cast(), 0) })
    }),
    ("sendmsg's header", |fd, at| {
        answer(unsafe { libc::sendmsg(fd, at.0.cast(), 0) })
    }),
    ("sendmsg's name", |fd, at| {
        let mut message = message(Nowhere::page(libc::PROT_READ));
        (message.msg_name, message.msg_namelen) = (at.0, 16);
        answer(unsafe { libc::sendmsg(fd, &raw const message, 0) })
    }),
    ("sendto's name", |fd, at| {
        answer(unsafe { libc::sendto(fd, b"x".as_ptr().cast(), 1, 0, at.0.cast(), 16) })
    }),
    ("ppoll's time, by number", |fd, at| {
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let none = std::ptr::null::<u64>();
        let entry = &raw mut entry;
        super::answer_long(unsafe { libc::syscall(libc::SYS_ppoll, entry, 1, at.0, none, 8) })
    }),
    ("recvmmsg", |fd, at| {
        answer_int(unsafe {
            libc::recvmmsg(fd, at.0.cast(), 2, libc::MSG_DONTWAIT, std::ptr::null_mut())
        })
    }),
    ("sendmmsg", |fd, at| {
        answer_int(unsafe { libc::sendmmsg(fd, at.0.cast(), 2, 0) })
    }),
    ("recvfrom's name", |fd, at| {
        let mut length = 16;
        answer(unsafe {
            libc::recvfrom(
                fd,
                [0_u8; 4].as_mut_ptr().cast(),
                1,
                0,
                at.0.cast(),
                &raw mut length,
            )
        })
    }),
    ("recvfrom's length", |fd, at| {
        let mut name = [0_u8; 16];
        answer(unsafe {
            libc::recvfrom(
                fd,
                [0_u8; 4].as_mut_ptr().cast(),
                1,
                0,
                name.as_mut_ptr().cast(),
                at.0.cast(),
            )
        })
    }),
    ("recvfrom's length, of no bytes", |fd, at| {
        let mut name = [0_u8; 16];
        let (none, name) = (std::ptr::null_mut(), name.as_mut_ptr().cast());
        answer(unsafe { libc::recvfrom(fd, none, 0, 0, name, at.0.cast()) })
    }),
    ("ppoll's mask", |fd, at| {
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLPRI,
            revents: 0,
        };
        let none = std::ptr::null();
        answer_int(unsafe { libc::ppoll(&raw mut entry, 1, none, at.0.cast()) })
    }),
    ("epoll_pwait's mask", |fd, at| {
        let epoll = super::epoll_create().expect("a set can be made");
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let event = &raw mut event;
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, event) };
        let answer = answer_int(unsafe { libc::epoll_pwait(epoll, event, 1, -1, at.0.cast()) });
        unsafe { libc::close(epoll) };
        answer
    }),
    ("poll", |_, at| {
        answer_int(unsafe { libc::poll(at.0.cast(), 1, 0) })
    }),
    ("select", |fd, at| {
        let null = std::ptr::null_mut();
        answer_int(unsafe { libc::select(fd + 1, at.0.cast(), null, null, null.cast()) })
    }),
    ("epoll_ctl", |fd, at| {
        let epoll = super::epoll_create().expect("a set can be made");
        answer_int(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, at.0.cast()) })
    }),
    ("epoll_wait", |fd, at| {
        let epoll = super::epoll_create().expect("a set can be made");
        super::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, 5, 0).expect("it can be added");
        answer_int(unsafe { libc::epoll_wait(epoll, at.0.cast(), 1, 1000) })
    }),
    ("getsockopt's value", |fd, at| {
        let mut length = 4;
        answer_int(unsafe {
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, at.0, &raw mut length)
        })
    }),
    ("getsockopt's length", |fd, at| {
        answer_int(unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_TYPE,
                [0; 4].as_mut_ptr().cast(),
                at.0.cast(),
            )
        })
    }),
    ("setsockopt", |fd, at| {
        answer_int(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, at.0, 4) })
    }),
    ("FIONREAD", |fd, at| {
        answer_int(unsafe { libc::ioctl(fd, libc::FIONREAD, at.0) })
    }),
    ("FIONBIO", |fd, at| {
        answer_int(unsafe { libc::ioctl(fd, libc::FIONBIO, at.0) })
    }),
    ("getpeername", |fd, at| {
        let mut length = 16;
        answer_int(unsafe { libc::getpeername(fd, at.0.cast(), &raw mut length) })
    }),
    ("connect", |fd, at| {
        answer_int(unsafe { libc::connect(fd, at.0.cast(), 16) })
    }),
    ("sendfile's offset", |fd, at| {
        let file = super::file_of(b"file").expect("a file can be made");
        answer(unsafe { libc::sendfile(fd, file, at.0.cast(), 4) })
    }),
];

/// accept(2) that stores the name there.
pub fn accept_into(listener: RawFd, at: Nowhere) -> Answer {
    let mut length = 16;
    // SAFETY: the kernel checks the address and answers EFAULT.
    answer_int(unsafe { libc::accept(listener, at.0.cast(), &raw mut length) })
}

/// recv(2) of so many bytes into memory that may only be read.
pub fn recv_constant(fd: RawFd, bytes: usize) -> Answer {
    let Nowhere(at) = Nowhere::map(bytes.div_ceil(PAGE), libc::PROT_READ);
    // SAFETY: the kernel checks the address and answers EFAULT.
    answer(unsafe { libc::recv(fd, at, bytes, libc::MSG_DONTWAIT) })
}
