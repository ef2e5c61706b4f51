//! For tests: both ends of a connection in this process, over TCP on the loopback.

use core::sync::atomic::Ordering;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use crosslane_ctl::lane::{Geometry, Location};
use crosslane_ctl::message::Grant;
use crosslane_ctl::slab::Mode;
use crosslane_sys::memory::create_sealed;
use crosslane_sys::{kernel, process};
use crosslane_window::arena::Arena;

use crate::family::Family;
use crate::{End, register, slices};

const GEOMETRY: Geometry = Geometry {
    ring_lines: 512,
    slots: 1,
};

fn enter(socket: &TcpStream, role: u32, arena: &'static Arena) -> End {
    let end = register::track(socket.as_raw_fd(), Family::Tcp, role == 1, None).unwrap();
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
    end
}

/// Two ends that have been granted lanes and are on TCP yet, and the sockets below.
pub(crate) fn granted() -> ([End; 2], [TcpStream; 2]) {
    process::resolve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let memory = create_sealed(c"both", GEOMETRY.arena_bytes()).unwrap();
    let arena = Arena::open(memory.as_fd(), GEOMETRY, Location::default()).unwrap();
    let arena = &*Box::leak(Box::new(arena));
    let ends = [enter(&near, 0, arena), enter(&far, 1, arena)];
    for end in ends {
        end.local.adopted.store(1, Ordering::Release);
    }
    (ends, [near, far])
}

/// Two ends whose streams are in their lanes, and the sockets below.
pub(crate) fn ends() -> ([End; 2], [TcpStream; 2]) {
    let (ends, sockets) = granted();
    while ends.iter().any(|end| end.rx_mode() != Mode::Ring) {
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(slices::send(&ends[from], &[1; 100], false), Ok(100));
            assert_eq!(slices::receive(&ends[to], &mut [0; 200], false), Ok(100));
        }
    }
    (ends, sockets)
}

/// Bytes that the kernel holds for it.
pub(crate) fn queued(end: &End) -> u32 {
    kernel::queued(end.fd(), libc::FIONREAD).unwrap()
}
