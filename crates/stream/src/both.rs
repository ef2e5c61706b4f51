//! For tests: both ends of a connection in this process, over TCP on the loopback or AF_UNIX.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use crosslane_ctl::lane::{Geometry, Location};
use crosslane_ctl::message::Grant;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::Mode;
use crosslane_sys::memory::create_sealed;
use crosslane_sys::{kernel, process, signals};
use crosslane_window::arena::Arena;

use crate::family::Family;
use crate::{End, register, slices, step, switch};

const GEOMETRY: Geometry = Geometry {
    ring_lines: 512,
    slots: 1,
};

fn enter(fd: RawFd, family: Family, role: u32, arena: &'static Arena) -> End {
    let end = register::track(fd, family, role == 1, None).unwrap();
    let grant = Grant {
        token: end.token(),
        arena: 0,
        slot: 0,
        role,
        geometry: GEOMETRY,
        location: Location::default(),
        pair: 0,
    };
    register::enter(&end, &grant, arena, |_| true);
    end.local.adopted.store(1, Ordering::Release);
    end
}

fn grant([near, far]: [RawFd; 2], family: Family) -> [End; 2] {
    let bytes = Location::default().layout().arena_bytes(&GEOMETRY);
    let memory = create_sealed(c"both", bytes).unwrap();
    let arena = Arena::open(memory.as_fd(), GEOMETRY, Location::default()).unwrap();
    let arena = &*Box::leak(Box::new(arena));
    [(near, 0), (far, 1)].map(|(fd, role)| enter(fd, family, role, arena))
}

/// What a test has left unclosed by this number would be sent by it, whoever has the number next.
pub(crate) fn name_nothing(fd: RawFd) {
    if let Some(process) = crate::process::get() {
        process.name(fd, None);
    }
}

/// A socket whose number names nothing any more when it is closed.
pub(crate) struct Socket<S: AsRawFd>(S);

impl<S: AsRawFd> Deref for Socket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: AsRawFd> DerefMut for Socket<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

impl<S: AsRawFd> AsRawFd for Socket<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<S: AsRawFd> Drop for Socket<S> {
    fn drop(&mut self) {
        name_nothing(self.as_raw_fd());
    }
}

/// Two ends that have been granted lanes and are on TCP yet, and the sockets below.
pub(crate) fn granted() -> ([End; 2], [Socket<TcpStream>; 2]) {
    process::resolve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let fds = [near.as_raw_fd(), far.as_raw_fd()];
    fds.into_iter().for_each(name_nothing);
    (grant(fds, Family::Tcp), [near, far].map(Socket))
}

/// Two ends whose streams are in their lanes, and the sockets below.
pub(crate) fn ends() -> ([End; 2], [Socket<TcpStream>; 2]) {
    let (ends, sockets) = granted();
    go_to_lanes(ends);
    (ends, sockets)
}

/// Two ends, the first of which has come into its lane again, where the second has yet to find its START, and the sockets
/// below.
pub(crate) fn ends_before_a_start() -> ([End; 2], [Socket<TcpStream>; 2]) {
    let ([near, far], sockets) = ends();
    switch::leave(&near, Reason::Chaos);
    while far.rx_mode() != Mode::Tcp || near.tx_mode() != Mode::Ring {
        step::settle(&far);
        switch::reenter(&near);
        step::settle(&near);
    }
    ([near, far], sockets)
}

/// As [`ends`], over AF_UNIX.
pub(crate) fn unix_ends() -> ([End; 2], [Socket<UnixStream>; 2]) {
    process::resolve();
    let (near, far) = UnixStream::pair().unwrap();
    name_nothing(near.as_raw_fd());
    name_nothing(far.as_raw_fd());
    let ends = grant([near.as_raw_fd(), far.as_raw_fd()], Family::Unix);
    go_to_lanes(ends);
    (ends, [near, far].map(Socket))
}

fn go_to_lanes(ends: [End; 2]) {
    while ends.iter().any(|end| end.rx_mode() != Mode::Ring) {
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(slices::send(&ends[from], &[1; 100], false), Ok(100));
            assert_eq!(slices::receive(&ends[to], &mut [0; 200], false), Ok(100));
        }
    }
}

/// Bytes that the kernel holds for it.
pub(crate) fn queued(end: &End) -> u32 {
    kernel::queued(end.fd(), libc::FIONREAD).unwrap()
}

extern "C" fn nothing(_: i32) {}

/// Handle a signal, or with `None` leave it to the kernel again.
pub(crate) fn handle(signal: i32, flags: Option<i32>) {
    // SAFETY: an action is integers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    if let Some(flags) = flags {
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = flags;
    }
    // SAFETY: the handler touches nothing.
    unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
    signals::note_action(signal);
}
