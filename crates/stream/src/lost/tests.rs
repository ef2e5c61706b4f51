//! Both ends of connections in this process, over TCP on the loopback, each with a view of its own of one memory, which may
//! stop to carry anything. What monitors carry these tests carry.

use core::ptr;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use crosslane_ctl::lane::receiver_flags::READY;
use crosslane_ctl::lane::{Geometry, Location, Pages};
use crosslane_ctl::message::Grant;
use crosslane_ring::Part;
use crosslane_window::arena::Arena;

use super::*;
use crate::family::Family;
use crate::process::Process;
use crate::replay::tests::make_small;
use crate::short::{Missed, far};
use crate::{register, slices};

const GEOMETRY: Geometry = Geometry {
    ring_lines: 512,
    slots: 1,
};
const PAIR: u64 = 7;
/// Longer than any wait that is meant.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than a lane has room for.
const MUCH: usize = 100_000;

/// One end, and its host.
struct Side {
    socket: TcpStream,
    end: End,
    view: &'static Arena,
}

struct Link {
    sender: Side,
    receiver: Side,
    memory: File,
}

impl Drop for Link {
    fn drop(&mut self) {
        for side in [&self.sender, &self.receiver] {
            switch::dissolve(&side.end);
            side.end.clear_lanes();
            side.view.retire().unwrap();
        }
        watcher::AWAKE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Link {
    fn new() -> Self {
        crosslane_sys::process::resolve();
        // One that comes to rest would keep the sender out of its lane.
        watcher::AWAKE.fetch_add(1, Ordering::SeqCst);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receives, _) = listener.accept().unwrap();
        let memory = File::from(create_sealed(c"window", GEOMETRY.arena_bytes()).unwrap());
        Self {
            sender: enter(sends, 0, &memory),
            receiver: enter(receives, 1, &memory),
            memory,
        }
    }

    /// From here on what either host writes stays its own.
    fn stand_still(&self) {
        let bytes = GEOMETRY.arena_bytes();
        let mut content = vec![0; bytes];
        self.memory.read_exact_at(&mut content, 0).unwrap();
        let copy = File::from(create_sealed(c"copy", bytes).unwrap());
        copy.write_all_at(&content, 0).unwrap();
        // SAFETY: an arena begins with its first lane, and is not unmapped meanwhile.
        let at = unsafe { self.sender.view.lane(0, 0) }
            .unwrap()
            .arena
            .start();
        // SAFETY: in the place of the same memory as it was.
        let mapped = unsafe {
            libc::mmap(
                at.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                copy.as_raw_fd(),
                0,
            )
        };
        assert!(ptr::eq(mapped, at.as_ptr().cast()));
    }

    /// The receiver would read in its lane, and the sender knows.
    fn make_ready(&self) {
        let lane = self.sender.end.tx_lane().unwrap();
        until("the receiver is ready", || {
            assert_eq!(self.receiver.try_receive(), None);
            lane.control().receiver.flags.load(Ordering::SeqCst) & READY != 0
        });
    }

    /// Both hosts find out.
    fn lose(&self) {
        for side in [&self.sender, &self.receiver] {
            side.view.lost().unwrap().store(1, Ordering::SeqCst);
            look(&side.end);
            assert!(side.end.has_flags(LOST));
        }
    }
}

fn enter(socket: TcpStream, role: u32, memory: &File) -> Side {
    let place = Location::File {
        offset: 0,
        pages: Pages::SMALL,
    };
    let view = Arena::open(memory.as_fd(), GEOMETRY, place).unwrap();
    let view: &'static Arena = Box::leak(Box::new(view));
    let end = register::track(socket.as_raw_fd(), Family::Tcp, role == 1, None).unwrap();
    let grant = Grant {
        token: end.token(),
        arena: role,
        slot: 0,
        role,
        geometry: GEOMETRY,
        location: place,
        pair: PAIR,
    };
    register::enter(&end, &grant, view, |_| true);
    watcher::start(end.process());
    Side { socket, end, view }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..=250).cycle().take(bytes).collect()
}

impl Side {
    /// As much as goes without waiting.
    fn send(&self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            match slices::send(&self.end, &bytes[sent..], true) {
                Ok(more) => sent += more,
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    break;
                }
            }
        }
        sent
    }

    fn try_receive(&self) -> Option<Vec<u8>> {
        let mut room = vec![0; 4096];
        match slices::receive(&self.end, &mut room, true) {
            Ok(taken) => {
                room.truncate(taken);
                Some(room)
            }
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                None
            }
        }
    }

    fn send_short(&self, bytes: &[u8]) -> Result<(), Missed> {
        // SAFETY: a slice is valid for its length.
        unsafe { far::send(&self.end, Part::of(bytes)) }
    }

    fn receive_short(&self) -> Result<Vec<u8>, Missed> {
        let mut room = vec![0; 9000];
        // SAFETY: as above.
        let taken = unsafe { far::receive(&self.end, Part::of_mut(&mut room)) }?;
        room.truncate(taken);
        Ok(room)
    }

    fn receive(&self, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        until("all that was sent comes", || {
            all.extend(self.try_receive().unwrap_or_default());
            all.len() >= bytes
        });
        all
    }

    fn process(&self) -> &'static Process {
        self.end.process()
    }

    /// A position from the other end.
    fn hear_from(&self, other: &Self) {
        let token = self.end.token();
        let position = position(&other.end);
        hear_position(self.process(), &Position { token, ..position });
        look(&self.end);
    }

    /// What the other end has yet to read of ours.
    fn refill(&self, other: &Self) {
        let (remainder, bytes) = {
            let (lane, _tx) = self.end.hold_tx_lane().unwrap();
            remainder(&self.end, &lane).unwrap()
        };
        let token = other.end.token();
        let memory = (!bytes.is_empty()).then(|| object_of(&bytes).unwrap().into());
        hear_remainder(other.process(), &Remainder { token, ..remainder }, memory);
        self.end.add_flags(SHIPPED);
    }

    fn is_on_tcp(&self) -> bool {
        look(&self.end);
        self.end.tx_mode() == Mode::Tcp
    }
}

/// A sender has entered its lane after the window had ceased to carry anything.
fn enter_unseen(link: &Link, bytes: usize) -> Vec<u8> {
    let content = content(bytes);
    let (mut sent, begun) = (0, Instant::now());
    // For as long as a full lane is borne with.
    while begun.elapsed() < Duration::from_millis(100) {
        sent += link.sender.send(&content[sent..]);
    }
    assert_eq!(link.receiver.try_receive(), None, "a byte of nobody's");
    assert_eq!(link.sender.end.tx_mode(), Mode::Ring);
    content[..sent].to_vec()
}

fn come_through(link: &Link, unseen: &[u8]) {
    let (sender, receiver) = (&link.sender, &link.receiver);
    link.lose();
    sender.hear_from(receiver);
    receiver.hear_from(sender);
    until("the sender goes on by TCP", || sender.is_on_tcp());
    sender.refill(receiver);
    receiver.refill(sender);
    assert_eq!(receiver.receive(unseen.len()), unseen);
    assert_eq!(sender.send(b"more"), 4);
    assert_eq!(receiver.receive(4), b"more");
}

#[test]
fn who_sleeps_is_not_rung_behind_a_start_that_cannot_be_seen() {
    let link = Link::new();
    link.make_ready();
    {
        let (lane, _rx) = link.receiver.end.hold_rx_lane().unwrap();
        bell::arm(&link.receiver.end, &lane);
    }
    link.stand_still();
    let unseen = enter_unseen(&link, 100);
    assert_eq!(unseen.len(), 100);
    come_through(&link, &unseen);
}

#[test]
fn what_a_lane_has_no_room_for_stays_behind_a_start_that_cannot_be_seen() {
    let link = Link::new();
    link.make_ready();
    link.stand_still();
    let unseen = enter_unseen(&link, MUCH);
    assert!(unseen.len() < MUCH);
    come_through(&link, &unseen);
}

#[test]
fn a_time_limit_ends_a_send_behind_a_start_that_cannot_be_seen() {
    let link = Link::new();
    link.make_ready();
    link.stand_still();
    let Side { socket, end, .. } = &link.sender;
    let limit = Duration::from_millis(100);
    socket.set_write_timeout(Some(limit)).unwrap();
    let content = content(MUCH);
    let sent = slices::send(end, &content, false).unwrap();
    assert!(sent < MUCH);
    assert_eq!(slices::send(end, &content, false), Err(Errno::AGAIN));
}

/// Who gets the socket knows no START: after a while the peer is not waited for.
#[test]
fn an_end_that_is_given_away_leaves_its_lane_behind_a_start_that_cannot_be_seen() {
    let link = Link::new();
    link.make_ready();
    link.stand_still();
    enter_unseen(&link, 100);
    let end = &link.sender.end;
    rest::give_away(end, Reason::Passed, Duration::from_millis(50));
    assert_eq!(end.tx_mode(), Mode::Tcp);
}

/// A link on which something has gone by the lane, and whose sender is on TCP again.
fn used_before() -> Link {
    let link = Link::new();
    link.make_ready();
    let content = content(3000);
    assert_eq!(link.sender.send(&content), content.len());
    assert_eq!(link.receiver.receive(content.len()), content);
    assert_eq!(link.receiver.end.rx_mode(), Mode::Ring);
    switch::leave(&link.sender.end, Reason::Chaos);
    until("the receiver is on TCP", || {
        assert_eq!(link.receiver.try_receive(), None);
        link.receiver.end.rx_mode() == Mode::Tcp
    });
    switch::reenter(&link.sender.end);
    link
}

/// The receiver has given its lanes up meanwhile, in which it has seen nothing since.
fn leave_unseen(link: Link) -> (Link, Vec<u8>) {
    link.make_ready();
    link.stand_still();
    switch::pin(&link.receiver.end, Reason::Uncounted);
    until("the receiver is the kernel's", || {
        assert_eq!(link.receiver.try_receive(), None);
        link.receiver.end.phase() == EndPhase::Plain
    });
    let unseen = enter_unseen(&link, 10_000);
    link.lose();
    (link, unseen)
}

#[test]
fn what_was_sent_to_an_end_of_the_kernels_comes_by_tcp() {
    let (link, unseen) = leave_unseen(Link::new());
    link.sender.hear_from(&link.receiver);
    until("the sender is on TCP", || link.sender.is_on_tcp());
    assert_eq!(link.receiver.receive(unseen.len()), unseen);
}

#[test]
fn what_was_sent_to_an_end_that_has_left_comes_by_tcp() {
    for link in [Link::new(), used_before()] {
        let (link, unseen) = leave_unseen(link);
        hear_left(link.sender.process(), link.sender.end.token(), PAIR);
        until("the sender is on TCP", || link.sender.is_on_tcp());
        assert_eq!(link.receiver.receive(unseen.len()), unseen);
    }
}

#[test]
fn short_messages_go_the_short_way_until_the_window_is_lost() {
    let link = Link::new();
    let (sender, receiver) = (&link.sender, &link.receiver);
    link.make_ready();
    assert_eq!(sender.send_short(b"early"), Err(Missed::Unusual));
    assert_eq!(sender.send(b"first"), 5);
    assert_eq!(receiver.receive(5), b"first");
    until("the START is known to be found", || {
        look(&sender.end);
        !sender.end.has_flags(end_flags::AWAITED)
    });
    for bytes in [1, 56, 57, 300] {
        let message = content(bytes);
        assert_eq!(sender.send_short(&message), Ok(()));
        assert_eq!(receiver.receive_short().as_ref(), Ok(&message));
    }
    assert_eq!(receiver.receive_short(), Err(Missed::Unusual));
    assert_eq!(sender.send_short(b"unread"), Ok(()));
    let head = receiver.end.rx_cursor();
    receiver.view.lost().unwrap().store(1, Ordering::SeqCst);
    assert_eq!(receiver.receive_short(), Err(Missed::Unusual));
    assert_eq!(receiver.end.rx_cursor(), head);
    sender.view.lost().unwrap().store(1, Ordering::SeqCst);
    assert_eq!(sender.send_short(b"too late"), Err(Missed::Unusual));
    come_through(&link, b"unread");
    assert_eq!(sender.send_short(b"on TCP"), Err(Missed::Unusual));
}

/// A START that can be seen is found by the library's thread, and who sleeps is rung behind it.
#[test]
fn who_sleeps_in_the_kernel_is_rung_when_the_start_has_been_found() {
    let link = Link::new();
    link.make_ready();
    {
        let (lane, _rx) = link.receiver.end.hold_rx_lane().unwrap();
        bell::arm(&link.receiver.end, &lane);
    }
    assert_eq!(link.sender.send(b"wake"), 4);
    assert_eq!(link.sender.end.tx_mode(), Mode::Ring);
    let end = &link.receiver.end;
    until("a doorbell comes", || {
        kernel::poll_now(end.fd(), libc::POLLIN) & libc::POLLIN != 0
    });
    assert_eq!(link.receiver.receive(4), b"wake");
}

/// The receiver has not found the START, and reads nothing by TCP before it knows what stood in the lane.
#[test]
fn a_sender_that_tcp_has_no_room_to_ring_for_goes_on_all_the_same() {
    let link = Link::new();
    let (sender, receiver) = (&link.sender, &link.receiver);
    for side in [sender, receiver] {
        make_small(core::slice::from_ref(&side.socket));
    }
    let content = content(MUCH);
    let mut sent = 0;
    let mut last = Instant::now();
    // The kernel makes some room by itself for a while.
    until("TCP is full", || {
        let more = sender.send(&content[sent..]);
        if more > 0 {
            (sent, last) = (sent + more, Instant::now());
        }
        last.elapsed() > Duration::from_millis(500)
    });
    let lane = sender.end.tx_lane().unwrap();
    lane.control()
        .receiver
        .flags
        .fetch_or(READY, Ordering::SeqCst);
    link.stand_still();
    assert_eq!(sender.send(&content[sent..sent + 100]), 100);
    link.lose();
    sender.hear_from(receiver);
    receiver.hear_from(sender);
    until("the sender goes on by TCP", || sender.is_on_tcp());
    sender.refill(receiver);
    assert_eq!(receiver.receive(sent + 100), content[..sent + 100]);
}

/// Whoever reads TCP alone from here on would miss what stood in the lane.
#[test]
fn an_end_that_has_lost_its_window_is_not_plain_before_it_knows_what_stood_there() {
    let link = Link::new();
    link.make_ready();
    assert!(switch::is_plain(&link.receiver.end));
    link.lose();
    assert!(!switch::is_plain(&link.receiver.end));
}
