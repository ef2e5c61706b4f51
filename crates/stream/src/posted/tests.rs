//! Both ends of connections in this process, each with a memory of its own, over TCP on the loopback. What they post
//! arrives late, in order, as chance has it.

pub(super) mod dice;
mod resets;
pub(crate) mod schedules;
pub(super) mod wire;

use core::time::Duration;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::channel;
use std::time::Instant;

use crosslane_ctl::lane::receiver_flags::READY;
use crosslane_ctl::lane::{Geometry, Location, Pages, Posting};
use crosslane_ctl::message::Grant;
use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::Ending;
use crosslane_sys::memory::create_sealed;
use crosslane_sys::{Errno, kernel, process};
use crosslane_window::arena::Arena;

use super::*;
use crate::family::Family;
use crate::{adopt, close, doubt, lost, ready, register, slices, switch};
use dice::Dice;
use wire::Courier;

const GEOMETRY: Geometry = Geometry {
    ring_lines: 512,
    slots: 1,
};

/// Longer than any wait that is meant.
const PATIENCE: Duration = Duration::from_secs(30);

/// One end, and the program that has it.
struct Side {
    socket: TcpStream,
    end: End,
}

/// Two ends, and what lies between.
struct Link {
    sides: [Side; 2],
    _couriers: [Courier; 2],
    _memory: Memory,
}

/// What both have mapped, for as long as couriers may write there. So many can be watched at a time.
struct Memory([&'static Arena; 2]);

impl Drop for Memory {
    fn drop(&mut self) {
        for arena in self.0 {
            arena.retire().unwrap();
        }
    }
}

fn arenas() -> [&'static Arena; 2] {
    let memory =
        [c"alpha", c"beta"].map(|name| create_sealed(name, GEOMETRY.arena_bytes()).unwrap());
    let place = Location::Apart {
        offset: 0,
        beyond: 0,
        posting: Posting::Memory,
        pages: Pages::SMALL,
    };
    [0, 1].map(|at| {
        let (own, beyond) = (memory[at].as_fd(), memory[1 - at].as_fd());
        let arena = Arena::open_with(own, Some(beyond), GEOMETRY, place).unwrap();
        &*Box::leak(Box::new(arena))
    })
}

fn base(arena: &'static Arena) -> usize {
    // SAFETY: it is never unmapped.
    let lane = unsafe { arena.lane(0, 0) }.unwrap();
    lane.arena.start().as_ptr().expose_provenance()
}

impl Link {
    fn new(seed: u64) -> Self {
        process::resolve();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let arenas = arenas();
        let couriers = [0, 1].map(|at| {
            let memory = arenas[at].beyond().unwrap();
            Courier::new(memory, base(arenas[1 - at]), seed ^ at as u64)
        });
        let mut role = 0;
        let sides = [near, far].map(|socket| {
            let end = enter(&socket, role, arenas[role as usize]);
            role += 1;
            Side { socket, end }
        });
        Self {
            sides,
            _couriers: couriers,
            _memory: Memory(arenas),
        }
    }
}

fn enter(socket: &TcpStream, role: u32, arena: &'static Arena) -> End {
    let end = register::track(socket.as_raw_fd(), Family::Tcp, role == 1, None).unwrap();
    let grant = Grant {
        token: end.token(),
        arena: role,
        slot: 0,
        role,
        geometry: GEOMETRY,
        location: Location::default(),
        pair: 0,
    };
    register::enter(&end, &grant, arena, |_| true);
    watcher::start(end.process());
    end
}

/// Byte `at` of a stream.
fn byte(seed: u64, at: u64) -> u8 {
    let [first, ..] = (seed ^ at.wrapping_mul(0x9e37_79b9))
        .wrapping_mul(0xff51_afd7)
        .to_be_bytes();
    first ^ at.to_le_bytes()[0]
}

/// As poll(2) does: wait until there may be something to read.
fn await_readable(end: &End) {
    if ready::is_kernels(end) || lost::is_unsettled(end) {
        std::thread::sleep(Duration::from_millis(1));
        return;
    }
    if ready::prepare_sleep(end, libc::POLLIN) {
        let mut one = [libc::pollfd {
            fd: end.fd(),
            events: ready::kernel_wish(end, libc::POLLIN),
            revents: 0,
        }];
        let _ = kernel::poll(&mut one, None);
        ready::note_bell(end);
    }
    ready::after_sleep(end);
}

/// Receive as programs do that block, or that poll.
fn receive(end: &End, room: &mut [u8], polls: bool) -> Result<usize, Errno> {
    loop {
        match slices::receive(end, room, polls) {
            Err(Errno::AGAIN) => await_readable(end),
            Err(Errno::INTR) => {}
            received => return received,
        }
    }
}

/// Check what comes against the stream, up to `bytes` or its end. Returns how many came.
fn read(end: &End, dice: &mut Dice, (seed, from): (u64, u64), bytes: u64) -> u64 {
    let (mut at, polls) = (0, dice.below(2) == 0);
    let mut room = vec![0; 20_000];
    while at < bytes {
        let most = usize::try_from(bytes - at)
            .unwrap()
            .min(1 + dice.below(room.len()));
        let taken = receive(end, &mut room[..most], polls).unwrap();
        if taken == 0 {
            break;
        }
        for found in &room[..taken] {
            assert_eq!(*found, byte(seed, from + at), "byte {}", from + at);
            at += 1;
        }
        pause(dice, 300);
    }
    at
}

fn write(end: &End, dice: &mut Dice, (seed, from): (u64, u64), bytes: u64) {
    let content: Vec<u8> = (from..from + bytes).map(|at| byte(seed, at)).collect();
    let mut rest = content.as_slice();
    while !rest.is_empty() {
        let most = rest.len().min(1 + dice.below(20_000));
        match slices::send(end, &rest[..most], false) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => panic!("{errno:?}"),
        }
    }
}

/// Now and then, and for longer now and then: ends fall asleep.
fn pause(dice: &mut Dice, rarely: usize) {
    match dice.below(rarely) {
        0 => std::thread::sleep(Duration::from_millis(dice.below(20) as u64)),
        1..=8 => std::thread::sleep(Duration::from_micros(dice.below(500) as u64)),
        _ => {}
    }
}

/// Back to TCP, and from there to the lane again; or what precedes the passing of a socket, which then stays here.
fn wander(end: &End, dice: &mut Dice, rarely: usize) {
    if dice.below(rarely) == 0 {
        switch::leave(end, Reason::Chaos);
    } else if dice.below(4 * rarely) == 0 {
        adopt::give_away(end, Reason::Passed, Duration::from_millis(200)).take_back();
    } else if dice.below(3) == 0 {
        switch::reenter(end);
    }
}

fn shut_down(side: &Side) {
    close::before_shutdown(&side.end, libc::SHUT_WR);
    kernel::shutdown(side.end.fd(), libc::SHUT_WR).unwrap();
    close::after_shutdown(&side.end, libc::SHUT_WR);
}

impl Drop for Side {
    fn drop(&mut self) {
        close::before_close(&self.end);
    }
}

/// Run it, and say so if it does not come to an end.
fn in_time(name: &str, seed: u64, work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let (name_of, begun) = (format!("{name} {seed}"), Instant::now());
    let thread = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    if is_done.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let _ = writeln!(
            std::io::stderr(),
            "{name_of} hangs, for {:?}",
            begun.elapsed()
        );
        let _ = writeln!(
            std::io::stderr(),
            "under way: {:?} {:?}",
            wire::under_way(),
            wire::most()
        );
        for end in crate::process::get().unwrap().ends() {
            let _ = writeln!(std::io::stderr(), "{}", describe(&end));
        }
        std::process::abort();
    }
    thread.join().unwrap_or_else(|_| panic!("{name_of}"));
}

fn describe(end: &End) -> String {
    let lane = |lane: Option<WindowLane>| {
        lane.map(|lane| {
            let control = lane.control();
            let flags = control.receiver.flags.load(Ordering::Relaxed);
            let posted = control.receiver.posted.load(Ordering::Relaxed);
            let credit = &control.credit;
            format!(
                "flags {flags:#x} posted {posted:#x} echo {} consumed {} found {} started {} total {} ended {}",
                control.sender.echo.load(Ordering::Relaxed),
                lane.consumed() >> 16,
                credit.found.load(Ordering::Relaxed),
                credit.started.load(Ordering::Relaxed),
                control.sender.tcp_total.load(Ordering::Relaxed) >> 1,
                control.sender.ended.load(Ordering::Relaxed),
            )
        })
    };
    let (tx, rx) = (&end.entry.tx, &end.entry.rx);
    format!(
        "end {} {:#x} poll {:#x} seen {} seq {:?} {:?} {:?} tx {:?} tail {} tcp {} owed {} [{:?}] rx {:?} head {} tcp {} limit {} record {} [{:?}]",
        end.index,
        end.entry.id.flags.load(Ordering::Relaxed),
        kernel::poll_now(end.fd(), libc::POLLIN | libc::POLLRDHUP),
        end.entry.wait.replay_seen.load(Ordering::Relaxed),
        end.rx_lane()
            .map(|lane| lane.control().sender.replay_seq.load(Ordering::Relaxed)),
        end.phase(),
        end.ending(),
        end.tx_mode(),
        tx.tail.load(Ordering::Relaxed),
        tx.tcp_bytes.load(Ordering::Relaxed),
        tx.bells_owed.load(Ordering::Relaxed),
        lane(end.tx_lane()),
        end.rx_mode(),
        rx.head.load(Ordering::Relaxed),
        rx.tcp_bytes.load(Ordering::Relaxed),
        rx.tcp_limit.load(Ordering::Relaxed),
        end.has_record(),
        lane(end.rx_lane()),
    )
}

/// What an end has sent by its lane.
fn ring_bytes(end: &End) -> u64 {
    end.entry.tx.ring_bytes.load(Ordering::Relaxed)
}

/// Question and answer: whoever is not woken hangs.
fn talk(seed: u64) -> u64 {
    let link = Link::new(seed);
    let [a, b] = &link.sides;
    let rounds = 60;
    let mut dice = Dice::new(seed);
    let lengths: Vec<u64> = (0..rounds)
        .map(|_| 1 + dice.next() % [10, 500, 40_000][dice.below(3)])
        .collect();
    let wanders = dice.below(3) == 0;
    std::thread::scope(|scope| {
        for (at, side) in [a, b].into_iter().enumerate() {
            let (lengths, mut dice) = (&lengths, Dice::of(seed, 1 + at as u64));
            scope.spawn(move || {
                let mut done = 0;
                for length in lengths {
                    if at == 0 {
                        write(&side.end, &mut dice, (seed, done), *length);
                    }
                    assert_eq!(read(&side.end, &mut dice, (seed, done), *length), *length);
                    if at == 1 {
                        write(&side.end, &mut dice, (seed, done), *length);
                    }
                    done += length;
                    pause(&mut dice, 20);
                    if wanders {
                        wander(&side.end, &mut dice, 8);
                    }
                }
            });
        }
    });
    ring_bytes(&a.end) + ring_bytes(&b.end)
}

/// Both directions at once, to the end of the stream.
fn stream(seed: u64) -> u64 {
    let link = Link::new(seed);
    let bytes = [1, 2].map(|at| Dice::new(seed ^ at).next() % 400_000);
    let wanders = Dice::new(seed).below(2) == 0;
    std::thread::scope(|scope| {
        for (at, side) in link.sides.iter().enumerate() {
            let [sent, received] = [bytes[at], bytes[1 - at]];
            let mut dice = Dice::of(seed, 7 + at as u64);
            scope.spawn(move || {
                let mut done = 0;
                while done < sent {
                    let length = (1 + dice.next() % 9_000).min(sent - done);
                    write(&side.end, &mut dice, (at as u64, done), length);
                    done += length;
                    pause(&mut dice, 40);
                    if wanders {
                        wander(&side.end, &mut dice, 15);
                    }
                }
                shut_down(side);
            });
            let mut dice = Dice::of(seed, 17 + at as u64);
            scope.spawn(move || {
                let found = read(&side.end, &mut dice, (1 - at as u64, 0), u64::MAX);
                assert_eq!(found, received, "all comes before the end");
            });
        }
    });
    link.sides.iter().map(|side| ring_bytes(&side.end)).sum()
}

/// Seeds of this run: 20, or as many as `CROSSLANE_POSTED_STREAMS` says.
fn schedules() -> core::ops::Range<u64> {
    let wanted = std::env::var("CROSSLANE_POSTED_STREAMS");
    0..wanted
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(20)
}

#[test]
fn who_asks_is_answered_however_late_what_is_posted_comes() {
    let (done, sum) = channel();
    for seed in schedules() {
        let done = done.clone();
        in_time("talk", seed, move || done.send(talk(seed)).unwrap());
    }
    drop(done);
    assert!(sum.iter().sum::<u64>() > 0, "nothing went by the lanes");
}

#[test]
fn all_bytes_come_in_order_however_late_what_is_posted_comes() {
    let (done, sum) = channel();
    for seed in schedules() {
        let done = done.clone();
        in_time("stream", seed, move || done.send(stream(seed)).unwrap());
    }
    drop(done);
    assert!(sum.iter().sum::<u64>() > 0, "nothing went by the lanes");
}

/// Of several threads that look at a stream that has ended, some find all there while others ask how long it was in doubt.
#[test]
fn a_doubt_that_begins_anew_is_not_old() {
    let link = Link::new(0);
    let [Side { end, .. }, _] = &link.sides;
    let lane = end.rx_lane().unwrap();
    lane.control().receiver.flags.store(READY, Ordering::SeqCst);
    end.note_ending(Ending::Eof);
    let until = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until {
                    doubt::look(end);
                }
            });
        }
        while Instant::now() < until {
            for told in [1, 0] {
                lane.control().sender.ended.store(told, Ordering::SeqCst);
                doubt::look(end);
            }
        }
    });
    assert!(!end.has_flags(end_flags::SURE));
}

/// A peer is killed whose stream was to pass into the lane; TCP drops what comes before that, and a send is told so.
#[test]
fn a_receive_ends_before_a_passage_that_tcp_never_comes_to() {
    in_time("cut off", 0, || {
        let link = Link::new(0);
        let [a, b] = &link.sides;
        while slices::send(&b.end, &[1; 4096], true).is_ok() {}
        let mut room = [0; 1000];
        assert!(slices::receive(&a.end, &mut room, false).is_ok());
        while b.end.tx_mode() != Mode::Ring || !a.end.has_record() {
            let _ = slices::send(&b.end, &[1; 64], true);
            std::thread::sleep(Duration::from_millis(1));
        }
        kernel::disconnect(b.end.fd()).unwrap();
        // SAFETY: one byte is valid.
        let sent = unsafe { kernel::send(a.end.fd(), [1].as_ptr(), 1, 0) };
        assert_eq!(sent, Err(Errno::CONNRESET));
        loop {
            match slices::receive(&a.end, &mut room, true) {
                Ok(0) => break,
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => panic!("{errno:?}"),
            }
        }
    });
}

/// Two sockets that are connected, and the end of the first.
fn granted(first: &'static Arena) -> (End, [TcpStream; 2]) {
    process::resolve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let end = enter(&near, 0, first);
    // As a receive does that has found nothing.
    let lane = end.rx_lane().unwrap();
    lane.control()
        .receiver
        .flags
        .fetch_or(READY, Ordering::SeqCst);
    tell_flags(&end);
    (end, [near, far])
}

/// Whether an end in lanes that were dealt out before goes over into these.
fn follows_into(end: &End, arena: &'static Arena) -> bool {
    let grant = Grant {
        token: end.token(),
        arena: 7,
        slot: 0,
        role: 0,
        geometry: GEOMETRY,
        location: Location::default(),
        pair: 7,
    };
    register::granted(end.process(), &grant, arena);
    let (control, ..) = end.rx_lane().unwrap().into_raw();
    arena.contains(control.addr())
}

/// The peer was still leaving a lost window when these lanes were dealt out, and has been registered anew since.
#[test]
fn lanes_that_the_peer_never_came_to_are_left_for_those_that_are_dealt_next() {
    let (first, next) = (Memory(arenas()), Memory(arenas()));
    let (end, _sockets) = granted(first.0[0]);
    assert!(follows_into(&end, next.0[0]));
}

#[test]
fn lanes_that_the_peer_has_come_to_are_kept_until_it_has_heard() {
    let said: [fn(&End); 2] = [
        |end| {
            let lane = end.rx_lane().unwrap();
            lane.control().sender.echo.store(1, Ordering::SeqCst);
        },
        |end| {
            let lane = end.tx_lane().unwrap();
            let word = posted_flags::next(0, READY);
            lane.control().receiver.posted.store(word, Ordering::SeqCst);
        },
    ];
    for say in said {
        let (first, next) = (Memory(arenas()), Memory(arenas()));
        let (end, _sockets) = granted(first.0[0]);
        say(&end);
        assert!(!follows_into(&end, next.0[0]));
    }
}

/// A brief connection is closed by who has the grant alone.
#[test]
fn a_close_waits_for_a_peer_to_hear_of_it_only_where_that_one_may_ring() {
    let memory = Memory(arenas());
    let (end, _sockets) = granted(memory.0[0]);
    let lane = end.rx_lane().unwrap();
    let flags = &lane.control().receiver.flags;
    flags.store(CLOSED, Ordering::SeqCst);
    tell_flags(&end);
    assert!(close::are_bells_over(&end));
    doubt::note_invited(&end);
    assert!(!close::are_bells_over(&end));
}
