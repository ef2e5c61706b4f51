//! Calls issued to the kernel past every interposed function. None of them waits unless it says
//! so, and none is a cancellation point.

use core::mem::MaybeUninit;
use core::net::{IpAddr, SocketAddr};

use libc::{c_int, epoll_event, iovec, msghdr, pollfd, timespec};

use crate::Errno;
pub use crate::held::SignalsHeld;
use crate::raw::syscall;

/// A descriptor number, sign-extended as the C ABI does it.
fn arg(number: c_int) -> usize {
    (number as isize).cast_unsigned()
}

/// Receive what is there into memory of the caller.
///
/// # Safety
/// `buffer` must be valid for writes of `bytes`, or the kernel must be allowed to answer EFAULT.
pub unsafe fn recv(fd: c_int, buffer: *mut u8, bytes: usize, flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT;
    let args = [arg(fd), buffer.addr(), bytes, arg(flags), 0, 0];
    // SAFETY: the kernel checks the buffer; no source address is asked for.
    unsafe { syscall(libc::SYS_recvfrom, args) }
}

/// Whether an AF_UNIX stream can be sent to: neither end has shut the direction down or closed. A
/// send of nothing finds out, and does nothing else.
pub fn can_send_unix(fd: c_int) -> bool {
    // SAFETY: no byte is read.
    let sent = unsafe { send(fd, core::ptr::null(), 0, 0) };
    sent != Err(Errno::PIPE)
}

/// Take up to `bytes` away from a TCP socket without copying them (MSG_TRUNC, tcp(7)).
pub fn discard(fd: c_int, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: nothing is written with MSG_TRUNC.
    unsafe { recv(fd, core::ptr::null_mut(), bytes, libc::MSG_TRUNC) }
}

/// Bytes that a TCP socket has for a receive of up to `most`, without taking or copying them; 0 at
/// the end of the stream.
pub fn available(fd: c_int, most: usize) -> Result<usize, Errno> {
    let flags = libc::MSG_TRUNC | libc::MSG_PEEK;
    // SAFETY: nothing is written with MSG_TRUNC.
    unsafe { recv(fd, core::ptr::null_mut(), most, flags) }
}

/// Send what fits; never raises SIGPIPE.
///
/// # Safety
/// `buffer` must be valid for reads of `bytes`, or the kernel must be allowed to answer EFAULT.
pub unsafe fn send(
    fd: c_int,
    buffer: *const u8,
    bytes: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let args = [arg(fd), buffer.addr(), bytes, arg(flags), 0, 0];
    // SAFETY: the kernel checks the buffer; no destination is given.
    unsafe { syscall(libc::SYS_sendto, args) }
}

/// Receive a message without waiting.
///
/// # Safety
/// `message` must be valid as recvmsg(2) demands.
pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<usize, Errno> {
    let args = [
        arg(fd),
        message.addr(),
        arg(flags | libc::MSG_DONTWAIT),
        0,
        0,
        0,
    ];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_recvmsg, args) }
}

/// Send a message without waiting; never raises SIGPIPE.
///
/// # Safety
/// `message` must be valid as sendmsg(2) demands.
pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise.
    unsafe {
        syscall(
            libc::SYS_sendmsg,
            [arg(fd), message.addr(), arg(flags), 0, 0, 0],
        )
    }
}

/// Look at one descriptor without waiting: the `revents` of poll(2).
pub fn poll_now(fd: c_int, events: i16) -> i16 {
    let mut one = [pollfd {
        fd,
        events,
        revents: 0,
    }];
    match poll(
        &mut one,
        Some(timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(_) => one[0].revents,
        Err(_) => 0,
    }
}

/// The beginning of a file. libc's open(3) and read(3) are cancellation points, and a caller may hold something.
pub fn read_file(path: &core::ffi::CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let how = (libc::O_RDONLY | libc::O_CLOEXEC).cast_unsigned() as usize;
    let args = [arg(libc::AT_FDCWD), path.as_ptr().addr(), how, 0, 0, 0];
    // SAFETY: the path ends with a null byte.
    let fd = unsafe { syscall(libc::SYS_openat, args) }?;
    let args = [fd, room.as_mut_ptr().addr(), room.len(), 0, 0, 0];
    // SAFETY: the slice is valid for writes of its length.
    let read = unsafe { syscall(libc::SYS_read, args) };
    close(c_int::try_from(fd).unwrap_or(-1));
    read
}

/// Wait for descriptors; `None` waits for ever.
pub fn poll(fds: &mut [pollfd], timeout: Option<timespec>) -> Result<usize, Errno> {
    let time = timeout
        .as_ref()
        .map_or(0, |time| core::ptr::from_ref(time).addr());
    let args = [fds.as_mut_ptr().addr(), fds.len(), time, 0, 0, 0];
    // SAFETY: the slice and the timespec outlive the call.
    unsafe { syscall(libc::SYS_ppoll, args) }
}

/// Read a socket option of a plain type.
pub fn getsockopt<T: Copy>(fd: c_int, level: c_int, name: c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>();
    let length = core::ptr::from_mut(&mut bytes).addr();
    let args = [
        arg(fd),
        arg(level),
        arg(name),
        value.as_mut_ptr().addr(),
        length,
        0,
    ];
    // SAFETY: the value and its length are valid for writes; the kernel writes at most as much.
    unsafe { syscall(libc::SYS_getsockopt, args) }?;
    // SAFETY: zeroed above, so initialised whatever the kernel wrote; callers use integer types
    // and C structs of integers only.
    Ok(unsafe { value.assume_init() })
}

/// Set a socket option of a plain type.
pub fn setsockopt<T: Copy>(fd: c_int, level: c_int, name: c_int, value: &T) -> Result<(), Errno> {
    let value_at = core::ptr::from_ref(value).addr();
    let args = [arg(fd), arg(level), arg(name), value_at, size_of::<T>(), 0];
    // SAFETY: the value is valid for reads of its size.
    unsafe { syscall(libc::SYS_setsockopt, args) }.map(|_| ())
}

/// Status flags of the description.
pub fn status_flags(fd: c_int) -> Result<c_int, Errno> {
    // SAFETY: numbers only.
    let flags = unsafe {
        syscall(
            libc::SYS_fcntl,
            [arg(fd), libc::F_GETFL as usize, 0, 0, 0, 0],
        )
    }?;
    c_int::try_from(flags).map_err(|_| Errno::INVAL)
}

/// Whether the descriptor is open here and stays open across exec.
pub fn survives_exec(fd: c_int) -> bool {
    let args = [arg(fd), libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: numbers only.
    let flags = unsafe { syscall(libc::SYS_fcntl, args) };
    flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize == 0)
}

/// Bytes in the receive queue (FIONREAD) or send queue (SIOCOUTQ) of a socket.
pub fn queued(fd: c_int, request: libc::c_ulong) -> Result<u32, Errno> {
    let mut bytes: c_int = 0;
    let request = usize::try_from(request).map_err(|_| Errno::INVAL)?;
    let args = [
        arg(fd),
        request,
        core::ptr::from_mut(&mut bytes).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: both requests write one int.
    unsafe { syscall(libc::SYS_ioctl, args) }?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Move a descriptor to a number of at least `lowest`, closed by exec.
pub fn duplicate_above(fd: c_int, lowest: c_int) -> Result<c_int, Errno> {
    let args = [
        arg(fd),
        libc::F_DUPFD_CLOEXEC as usize,
        arg(lowest),
        0,
        0,
        0,
    ];
    // SAFETY: numbers only.
    let copy = unsafe { syscall(libc::SYS_fcntl, args) }?;
    c_int::try_from(copy).map_err(|_| Errno::BADF)
}

/// Close a descriptor that this library opened.
pub fn close(fd: c_int) {
    // SAFETY: numbers only; the caller owns the descriptor.
    let _ = unsafe { syscall(libc::SYS_close, [arg(fd), 0, 0, 0, 0, 0]) };
}

/// Whether the socket is connected to a peer.
pub fn has_peer(fd: c_int) -> bool {
    socket_name(libc::SYS_getpeername, fd).is_some()
}

/// Whether the socket is connected to a peer on this host, as far as its names tell: both are the
/// same host's, or the peer's is the loopback.
pub fn is_local(fd: c_int) -> bool {
    match (own_name(fd), peer_name(fd)) {
        (Some(own), Some(peer)) => own.ip() == peer.ip() || peer.ip().is_loopback(),
        _ => false,
    }
}

/// The name of an IP socket; IPv4 in IPv6 undone.
pub fn own_name(fd: c_int) -> Option<SocketAddr> {
    ip_name(&socket_name(libc::SYS_getsockname, fd)?)
}

/// The name of an IP socket's peer; IPv4 in IPv6 undone.
pub fn peer_name(fd: c_int) -> Option<SocketAddr> {
    ip_name(&socket_name(libc::SYS_getpeername, fd)?)
}

/// The inode of a socket.
pub fn inode(fd: c_int) -> Option<u64> {
    // SAFETY: stat is plain integers, for which zero is a value.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let found_at = core::ptr::from_mut(&mut found).addr();
    // SAFETY: the structure outlives the call and is valid for writes.
    let asked = unsafe { syscall(libc::SYS_fstat, [arg(fd), found_at, 0, 0, 0, 0]) };
    asked.is_ok().then_some(found.st_ino)
}

fn ip_name(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = core::ptr::from_ref(name);
    // SAFETY: a sockaddr_storage is large enough and aligned for every kind of name.
    let v4 = unsafe { name.cast::<libc::sockaddr_in>().read() };
    // SAFETY: as above.
    let v6 = unsafe { name.cast::<libc::sockaddr_in6>().read() };
    let (host, port) = match i32::from(v4.sin_family) {
        libc::AF_INET => (IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()), v4.sin_port),
        libc::AF_INET6 => (IpAddr::from(v6.sin6_addr.s6_addr), v6.sin6_port),
        _ => return None,
    };
    Some(SocketAddr::new(host.to_canonical(), u16::from_be(port)))
}

fn socket_name(call: libc::c_long, fd: c_int) -> Option<libc::sockaddr_storage> {
    // SAFETY: sockaddr_storage is plain integers, for which zero is a value.
    let mut name: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut length: u32 = 128;
    let args = [
        arg(fd),
        core::ptr::from_mut(&mut name).addr(),
        core::ptr::from_mut(&mut length).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: only called for getsockname and getpeername; the name has the 128 bytes that its
    // length says.
    unsafe { syscall(call, args) }.ok().map(|_| name)
}

/// Lock one byte of a file for this process, without waiting. Its children do not inherit the lock;
/// it goes when the process ends or closes any descriptor of the file.
pub fn lock_byte(fd: c_int, byte: i64) -> Result<(), Errno> {
    record_lock(libc::F_SETLK, fd, byte).map(|_| ())
}

/// Whether another process has locked this byte of a file.
pub fn is_byte_locked(fd: c_int, byte: i64) -> bool {
    let found = record_lock(libc::F_GETLK, fd, byte);
    // Who cannot ask must not think that nobody is there.
    found.map_or(true, |kind| i32::from(kind) != libc::F_UNLCK)
}

/// Do something with a lock for writing; returns the kind of lock that the kernel tells.
fn record_lock(command: c_int, fd: c_int, byte: i64) -> Result<i16, Errno> {
    // SAFETY: flock is plain integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = KIND_WRITE;
    lock.l_start = byte;
    lock.l_len = 1;
    let lock_at = core::ptr::from_mut(&mut lock).addr();
    // SAFETY: the lock outlives the call.
    unsafe { syscall(libc::SYS_fcntl, [arg(fd), arg(command), lock_at, 0, 0, 0]) }?;
    Ok(lock.l_type)
}

/// F_WRLCK as it stands in a lock.
const KIND_WRITE: i16 = 1;

/// Shut down a direction of a connection.
pub fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno> {
    // SAFETY: numbers only.
    unsafe { syscall(libc::SYS_shutdown, [arg(fd), arg(how), 0, 0, 0, 0]) }.map(|_| ())
}

/// Dissolve a connection (connect(2) to AF_UNSPEC): a peer that has one over TCP is told by a reset.
pub fn disconnect(fd: c_int) -> Result<(), Errno> {
    let nobody = libc::sockaddr {
        // AF_UNSPEC.
        sa_family: 0,
        sa_data: [0; 14],
    };
    let args = [
        arg(fd),
        core::ptr::from_ref(&nobody).addr(),
        size_of_val(&nobody),
        0,
        0,
        0,
    ];
    // SAFETY: the address outlives the call.
    unsafe { syscall(libc::SYS_connect, args) }.map(|_| ())
}

/// A descriptor of its own (eventfd(2)), for the caller to [`close`].
pub fn event_descriptor() -> Result<c_int, Errno> {
    event(libc::EFD_CLOEXEC)
}

/// As [`event_descriptor`], readable until it has been [lowered](lower_event) as often as it was raised.
pub fn event_semaphore() -> Result<c_int, Errno> {
    event(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE)
}

fn event(flags: c_int) -> Result<c_int, Errno> {
    let args = [0, arg(flags), 0, 0, 0, 0];
    // SAFETY: numbers only.
    let fd = unsafe { syscall(libc::SYS_eventfd2, args) }?;
    c_int::try_from(fd).map_err(|_| Errno::INVAL)
}

/// Make an [`event_descriptor`] readable.
pub fn raise_event(event: c_int) -> Result<(), Errno> {
    let one = 1u64;
    let args = [
        arg(event),
        core::ptr::from_ref(&one).addr(),
        size_of::<u64>(),
        0,
        0,
        0,
    ];
    // SAFETY: the number outlives the call, which only reads it.
    unsafe { syscall(libc::SYS_write, args) }.map(|_| ())
}

/// Store a value where the program has asked for it, if it can be written there.
pub fn store<T: Copy>(at: *mut T, value: &T) {
    let part = |start: *const T| iovec {
        iov_base: start.cast_mut().cast(),
        iov_len: size_of::<T>(),
    };
    let (from, to) = (part(value), part(at));
    let at = |part: &iovec| core::ptr::from_ref(part).addr();
    let args = [crate::process::pid() as usize, at(&from), 1, at(&to), 1, 0];
    // SAFETY: the value outlives the call; the kernel finds out about the other address.
    let _ = unsafe { syscall(libc::SYS_process_vm_writev, args) };
}

/// Take back one [`raise_event`] of an [`event_semaphore`], if there is one left.
pub fn lower_event(event: c_int) {
    let mut count = 0u64;
    let args = [
        arg(event),
        core::ptr::from_mut(&mut count).addr(),
        size_of::<u64>(),
        0,
        0,
        0,
    ];
    // SAFETY: the number outlives the call, which writes nothing else.
    let _ = unsafe { syscall(libc::SYS_read, args) };
}

/// Change an epoll set.
pub fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: epoll_event,
) -> Result<(), Errno> {
    let event_at = core::ptr::from_ref(&event).addr();
    let args = [arg(epoll), arg(operation), arg(fd), event_at, 0, 0];
    // SAFETY: the event outlives the call, which only reads it.
    unsafe { syscall(libc::SYS_epoll_ctl, args) }.map(|_| ())
}

/// Whether a TCP socket stands before urgent data (SIOCATMARK, tcp(7)).
pub fn is_at_mark(fd: c_int) -> bool {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    queued(fd, SIOCATMARK) == Ok(1)
}

/// End the process, running nothing more of it.
pub fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: numbers only.
        let _ = unsafe { syscall(libc::SYS_exit_group, [arg(status), 0, 0, 0, 0, 0]) };
    }
}

/// Look at an epoll set without waiting.
pub fn epoll_now(epoll: c_int, events: &mut [MaybeUninit<epoll_event>]) -> Result<usize, Errno> {
    let args = [
        arg(epoll),
        events.as_mut_ptr().addr(),
        events.len(),
        0,
        0,
        8,
    ];
    // SAFETY: the slice is valid for writes of its length; no signal mask is given.
    unsafe { syscall(libc::SYS_epoll_pwait, args) }
}

/// A pair of connected AF_UNIX sockets, closed by exec.
pub fn socket_pair() -> Result<[c_int; 2], Errno> {
    let mut pair: [c_int; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let args = [
        arg(libc::AF_UNIX),
        arg(kind),
        0,
        pair.as_mut_ptr().addr(),
        0,
        0,
    ];
    // SAFETY: the array is valid for two ints.
    unsafe { syscall(libc::SYS_socketpair, args) }?;
    Ok(pair)
}

/// AF_UNIX as it stands in an address.
const FAMILY_UNIX: libc::sa_family_t = 1;

/// Connect to the AF_UNIX SOCK_SEQPACKET socket at `path`, without waiting; the descriptor is
/// closed by exec.
pub fn connect_unix(path: &[u8]) -> Result<c_int, Errno> {
    // SAFETY: sockaddr_un is plain integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = FAMILY_UNIX;
    if path.len() >= address.sun_path.len() {
        return Err(Errno::INVAL);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: numbers only.
    let fd = unsafe {
        syscall(
            libc::SYS_socket,
            [arg(libc::AF_UNIX), arg(kind), 0, 0, 0, 0],
        )
    }?;
    let bytes = size_of::<libc::sockaddr_un>();
    let args = [fd, core::ptr::from_ref(&address).addr(), bytes, 0, 0, 0];
    // SAFETY: the address outlives the call.
    let connected = unsafe { syscall(libc::SYS_connect, args) };
    let fd = c_int::try_from(fd).map_err(|_| Errno::BADF)?;
    match connected {
        Ok(_) => Ok(fd),
        Err(errno) => {
            close(fd);
            Err(errno)
        }
    }
}

/// Read at `offset`, or where the file stands, into memory of the caller what can be had without
/// waiting; EAGAIN if that is nothing, EOPNOTSUPP if this kind of file does not tell.
///
/// # Safety
/// The pieces must be valid for writes.
pub unsafe fn read_now(fd: c_int, pieces: &[iovec], offset: Option<i64>) -> Result<usize, Errno> {
    let offset = match offset {
        Some(offset) => usize::try_from(offset).map_err(|_| Errno::INVAL)?,
        None => usize::MAX,
    };
    let args = [
        arg(fd),
        pieces.as_ptr().addr(),
        pieces.len(),
        offset,
        // The upper half of the offset, where registers have 32 bits.
        0,
        arg(libc::RWF_NOWAIT),
    ];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_preadv2, args) }
}

/// Sleep in the kernel for about this long, or until a signal has been handled. Returns whether one
/// has.
pub fn nap(duration: core::time::Duration) -> bool {
    let time = timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    };
    let args = [core::ptr::from_ref(&time).addr(), 0, 0, 0, 0, 0];
    // SAFETY: the timespec outlives the call.
    unsafe { syscall(libc::SYS_nanosleep, args) }.is_err()
}
