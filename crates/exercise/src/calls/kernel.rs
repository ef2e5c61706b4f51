//! A look at a TCP socket that no library can see or change: the system calls are issued here.

use std::os::fd::RawFd;

use super::size;
use crate::{Answer, Errno};

/// The number of bytes of the kernel's `struct tcp_info` that are looked at.
const INFO_BYTES: usize = 216;

/// What the kernel's TCP knows of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpLook {
    /// Its state, as in `TCP_ESTABLISHED`.
    pub state: u8,
    /// Bytes of data handed to TCP so far, whether on their way or not.
    pub sent: u64,
    /// Those of them that have not left yet.
    pub held_back: u64,
    /// Bytes of data that TCP has taken in.
    pub received: u64,
    /// What poll(2) says.
    pub events: i16,
}

/// Look at `fd`; None if it is no TCP socket.
pub fn look_at_tcp(fd: RawFd) -> Option<TcpLook> {
    let mut info = [0u8; INFO_BYTES];
    let mut length = u32::try_from(INFO_BYTES).expect("it is small");
    let arguments = [
        number(fd),
        number(libc::IPPROTO_TCP),
        number(libc::TCP_INFO),
        info.as_mut_ptr().expose_provenance(),
        (&raw mut length).expose_provenance(),
        0,
    ];
    // SAFETY: the information is writable for its length, which is writable too.
    let returned = unsafe { system_call(libc::SYS_getsockopt, arguments) };
    if returned != 0 {
        return None;
    }
    let word = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().expect("eight bytes"));
    let not_sent = u32::from_ne_bytes(info[144..148].try_into().expect("four bytes"));
    let (sent, again) = (word(200), word(208));
    Some(TcpLook {
        state: info[0],
        sent: (sent - again) + u64::from(not_sent),
        held_back: not_sent.into(),
        received: word(128),
        events: poll(fd),
    })
}

/// An option of a socket, by a system call that no library sees.
///
/// # Errors
/// As getsockopt(2).
pub fn getsockopt_unseen(fd: RawFd, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = 0_i32;
    let mut length = u32::try_from(size_of::<i32>()).expect("it is small");
    let arguments = [
        number(fd),
        number(level),
        number(name),
        (&raw mut value).expose_provenance(),
        (&raw mut length).expose_provenance(),
        0,
    ];
    // SAFETY: the value is writable for its length, which is writable too.
    let returned = unsafe { system_call(libc::SYS_getsockopt, arguments) };
    match i32::try_from(-returned) {
        Ok(0) => Ok(value),
        errno => Err(Errno(errno.unwrap_or(i32::MAX))),
    }
}

/// Send bytes by a system call that no library sees.
///
/// # Errors
/// As send(2).
pub fn send_unseen(fd: RawFd, bytes: &[u8]) -> Answer {
    let flags = number(libc::MSG_NOSIGNAL);
    let arguments = [
        number(fd),
        bytes.as_ptr().expose_provenance(),
        bytes.len(),
        flags,
        0,
        0,
    ];
    // SAFETY: the bytes are valid for reads of their length.
    let returned = unsafe { system_call(libc::SYS_sendto, arguments) };
    usize::try_from(returned).map_err(|_| Errno(i32::try_from(-returned).unwrap_or(i32::MAX)))
}

/// Close a descriptor by a system call that no library sees.
///
/// # Errors
/// As close(2).
pub fn close_unseen(fd: RawFd) -> Answer {
    // SAFETY: no memory is passed.
    let returned = unsafe { system_call(libc::SYS_close, [number(fd), 0, 0, 0, 0, 0]) };
    usize::try_from(returned).map_err(|_| Errno(i32::try_from(-returned).unwrap_or(i32::MAX)))
}

fn poll(fd: RawFd) -> i16 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut now = [now; 1];
    let arguments = [
        (&raw mut entry).expose_provenance(),
        1,
        now.as_mut_ptr().expose_provenance(),
        0,
        usize::try_from(size::<libc::sigset_t>()).unwrap_or(0),
        0,
    ];
    // SAFETY: the entry and the time are readable and writable; there is no mask.
    unsafe { system_call(libc::SYS_ppoll, arguments) };
    entry.revents
}

fn number(value: i32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Issue a system call; negative is an errno.
///
/// # Safety
/// What the kernel's manual demands for this call.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    let [a, b, c, d, e, f] = arguments;
    let returned;
    // SAFETY: arguments and result are in these registers, rcx and r11 are destroyed.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => returned,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    returned
}

/// Issue a system call; negative is an errno.
///
/// # Safety
/// What the kernel's manual demands for this call.
#[cfg(target_arch = "aarch64")]
unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    let [a, b, c, d, e, f] = arguments;
    let returned;
    // SAFETY: the number is in x8, arguments from x0 on, the result in x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => returned,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    returned
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    const ESTABLISHED: u8 = 1;

    #[test]
    fn bytes_on_their_way_are_counted_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.write_all(&[1; 1000]).unwrap();
        far.peek(&mut [0]).unwrap();
        let near = look_at_tcp(near.as_raw_fd()).unwrap();
        let far = look_at_tcp(far.as_raw_fd()).unwrap();
        assert_eq!(
            (near.state, near.sent, far.received),
            (ESTABLISHED, 1000, 1000)
        );
        assert_eq!(far.events, libc::POLLIN | libc::POLLOUT);
        assert_eq!(look_at_tcp(2), None);
    }
}
