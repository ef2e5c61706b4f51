//! Signals that come all the time, over every way to send, to receive, to wait, to end and to make a child.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::thread::sleep;
use std::time::Duration;

use crosslane_exercise::calls::{
    accept, block, close, connect, dup, epoll_create, epoll_ctl, epoll_pwait_unblocked, exit_now,
    file_of, fork, pipe, poll_one, ppoll_unblocked, pselect_unblocked, read, readv, recv, recvmmsg,
    recvmsg, send, sendfile, sendmmsg_lengths, sendmsg, set_linger, setsockopt, shutdown, socket,
    splice, take_error, wait_for, write, writev,
};
use crosslane_exercise::content::Content;
use crosslane_exercise::{Answer, Errno};
use libc::{
    AF_INET, EINTR, EIO, EPOLL_CTL_ADD, EPOLLIN, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITFORONE,
    POLLOUT, SA_RESTART, SHUT_RDWR, SHUT_WR, SIGUSR1, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET,
};

use super::connecting::listener;
use super::processes::in_child;
use super::signals::has_caught;
use super::stdio::{Stream, dprintf};
use super::storm::{Failures, in_storm};
use super::{Check, pair, solo};
use crate::Stage;
use crate::stage::{limit_to_seconds, pattern};

/// How far signals are apart.
const APART: Duration = Duration::from_micros(100);
/// With a handler that ends calls, and with one after which they go on.
const BOTH: &[i32] = &[0, SA_RESTART];
/// For calls that do not tell how far they have come when a signal ends them.
const RESTARTED: &[i32] = &[SA_RESTART];

const BYTES: usize = 2 << 20;
/// What is sent and received at a time, in turn.
const SENT: [usize; 8] = [40_000, 100, 9_000, 8_185, 1, 70_000, 3, 20_000];
const RECEIVED: [usize; 6] = [1, 30_000, 7, 4096, 50_000, 3];
/// Of buffers that are soon full, and not small enough to keep a connection on TCP.
const BUFFER: i32 = 40_000;

/// After so many turns a side rests, so that the other one sleeps in its call, for some signals or many.
const SHORT_REST: (usize, Duration) = (5, Duration::from_micros(300));
const LONG_REST: (usize, Duration) = (64, Duration::from_millis(15));

/// What a pipe holds at least.
const PIPE: usize = 65_536;

type Sending = Box<dyn FnMut(&[u8]) -> Answer>;
type Receiving = Box<dyn FnMut(&mut [u8]) -> Answer>;
type Waiting = Box<dyn Fn() -> Answer>;

/// A way to move bytes.
struct Way {
    handlers: &'static [i32],
    send: fn(RawFd) -> Sending,
    receive: fn(RawFd) -> Receiving,
}

const VECTORS: Way = Way {
    handlers: BOTH,
    send: |fd| Box::new(move |bytes| writev(fd, &thirds(bytes))),
    receive: |fd| Box::new(move |room| readv(fd, &mut thirds_mut(room))),
};

const MESSAGES: Way = Way {
    handlers: BOTH,
    send: |fd| Box::new(move |bytes| sendmsg(fd, &thirds(bytes), MSG_NOSIGNAL)),
    receive: |fd| {
        Box::new(move |room| recvmsg(fd, &mut thirds_mut(room), 0).map(|received| received.bytes))
    },
};

const SEVERAL_MESSAGES: Way = Way {
    handlers: BOTH,
    send: |fd| {
        Box::new(move |bytes| {
            let parts = thirds(bytes);
            let first = first_with_some(&parts);
            sendmmsg_lengths(fd, &parts[first..], MSG_NOSIGNAL).map(|sent| sum(&sent))
        })
    },
    receive: |fd| Box::new(move |room| receive_several(fd, room)),
};

const FILE: Way = Way {
    handlers: BOTH,
    send: |fd| {
        let file = file_of(&text()).expect("a file can be made");
        let mut offset = 0;
        Box::new(move |bytes| {
            let before = offset;
            let sent = sendfile(fd, file, Some(&mut offset), bytes.len());
            let moved = usize::try_from(offset - before).expect("it goes on");
            agreed(moved == sent.unwrap_or(0), sent)
        })
    },
    receive: plain,
};

const SPLICES: Way = Way {
    handlers: BOTH,
    send: |fd| {
        let [out, into] = pipe().expect("a pipe can be made");
        let mut piped = 0;
        Box::new(move |bytes| {
            if piped == 0 {
                piped = write(into, &bytes[..bytes.len().min(PIPE)])?;
            }
            let moved = splice(out, fd, piped.min(bytes.len()), 0)?;
            piped -= moved;
            Ok(moved)
        })
    },
    receive: |fd| {
        let [out, into] = pipe().expect("a pipe can be made");
        Box::new(move |room| {
            let most = room.len().min(PIPE);
            let moved = splice(fd, into, most, 0)?;
            agreed(read(out, &mut room[..moved]) == Ok(moved), Ok(moved))
        })
    },
};

/// A stream with a buffer loses what a signal ends the writing of.
const STREAMS: Way = Way {
    handlers: BOTH,
    send: |fd| {
        let mut stream = stream(fd, c"w");
        assert_eq!(stream.unbuffered(), 0, "a stream needs no buffer");
        Box::new(move |bytes| {
            let written = stream.write(bytes);
            told(&mut stream, written)
        })
    },
    receive: |fd| {
        let mut stream = stream(fd, c"r");
        Box::new(move |room| {
            let got = stream.read_into(room);
            told(&mut stream, got)
        })
    },
};

const LINES: Way = Way {
    handlers: RESTARTED,
    send: |fd| {
        let mut stream = stream(fd, c"w");
        Box::new(move |bytes| {
            let written = stream.write(bytes);
            agreed(stream.flush() == 0, told(&mut stream, written))
        })
    },
    receive: |fd| {
        let mut stream = stream(fd, c"r");
        Box::new(move |room| {
            let (mut line, mut got) = (vec![0; room.len() + 1], 0);
            while let Some(more @ 1..) = stream.line_into(&mut line[got..]) {
                got += more;
            }
            room.copy_from_slice(&line[..room.len()]);
            told(&mut stream, got)
        })
    },
};

const PRINTS: Way = Way {
    handlers: RESTARTED,
    send: |fd| {
        Box::new(move |bytes| {
            let most = i32::try_from(bytes.len()).expect("it is short");
            // SAFETY: the format takes a length and so many bytes.
            let printed = unsafe { dprintf(fd, c"%.*s".as_ptr(), most, bytes.as_ptr()) };
            usize::try_from(printed).map_err(|_| Errno::last())
        })
    },
    receive: plain,
};

/// Every third or so call is made by a child, for which this process waits.
const CHILDREN: Way = Way {
    handlers: BOTH,
    send: |fd| {
        let mut turn = 0;
        Box::new(move |bytes| {
            turn += 1;
            match turn % 3 {
                0 => by_child(|| all_by_send(fd, bytes)).map(|()| bytes.len()),
                1 => by_child(|| true).and_then(|()| send(fd, bytes, MSG_NOSIGNAL)),
                _ => send(fd, bytes, MSG_NOSIGNAL),
            }
        })
    },
    receive: |fd| {
        let mut turn = 0;
        Box::new(move |room| {
            turn += 1;
            if turn % 8 == 0 {
                by_child(|| true)?;
            }
            recv(fd, room, 0)
        })
    },
};

fn plain(fd: RawFd) -> Receiving {
    Box::new(move |room| recv(fd, room, 0))
}

fn thirds(bytes: &[u8]) -> [IoSlice<'_>; 3] {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    [first, second, third].map(IoSlice::new)
}

fn thirds_mut(room: &mut [u8]) -> [IoSliceMut<'_>; 3] {
    let (first, rest) = room.split_at_mut(room.len() / 3);
    let (second, third) = rest.split_at_mut(rest.len() / 2);
    [first, second, third].map(IoSliceMut::new)
}

fn sum(lengths: &[u32]) -> usize {
    lengths.iter().map(|length| *length as usize).sum()
}

/// A message without bytes is one, too.
fn first_with_some<T: std::ops::Deref<Target = [u8]>>(parts: &[T]) -> usize {
    parts.iter().position(|part| !part.is_empty()).unwrap_or(0)
}

/// Receive messages into thirds of the room, and move them together. Without MSG_WAITFORONE a kernel keeps the signal for
/// the next call.
fn receive_several(fd: RawFd, room: &mut [u8]) -> Answer {
    let parts = &mut thirds_mut(room);
    let starts = [0, parts[0].len(), parts[0].len() + parts[1].len()];
    let first = first_with_some(parts);
    let lengths = recvmmsg(fd, &mut parts[first..], MSG_WAITFORONE)?;
    let mut end = 0;
    for (start, length) in starts[first..].iter().zip(&lengths) {
        let length = *length as usize;
        room.copy_within(*start..*start + length, end);
        end += length;
    }
    Ok(end)
}

/// A stream on another name of the connection.
fn stream(fd: RawFd, mode: &std::ffi::CStr) -> Stream {
    Stream::open(dup(fd).expect("a descriptor is free"), mode)
}

/// What a call of stdio has done: as much as it says, or nothing, for the reason that errno gives.
fn told(stream: &mut Stream, count: usize) -> Answer {
    let errno = Errno::last();
    stream.forget_error();
    if count > 0 { Ok(count) } else { Err(errno) }
}

/// What a call has answered, if that is true.
fn agreed(is_so: bool, answer: Answer) -> Answer {
    if is_so { answer } else { Err(Errno(EIO)) }
}

/// Have a child do something, and wait for it however often a signal ends the waiting.
fn by_child(child: impl FnOnce() -> bool) -> Result<(), Errno> {
    let Some(pid) = fork()? else {
        limit_to_seconds(10);
        exit_now(i32::from(!child()))
    };
    let status = again(&mut Failures::default(), || wait_for(pid))?;
    agreed(status == 0, Ok(0)).map(drop)
}

/// What a call answers when no signal ends it.
fn again<T>(
    failures: &mut Failures,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match call() {
            Err(errno @ Errno(EINTR)) => failures.note(errno),
            Err(errno) => {
                failures.note(errno);
                return Err(errno);
            }
            answer => return answer,
        };
    }
}

fn all_by_send(fd: RawFd, bytes: &[u8]) -> bool {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(fd, &bytes[sent..], MSG_NOSIGNAL) {
            Ok(more) => sent += more,
            Err(_) => return false,
        }
    }
    true
}

/// Lines of many lengths, which are the same nowhere else.
fn text() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    Content::new(7).fill(0, &mut bytes);
    for byte in &mut bytes {
        *byte = match *byte {
            0..6 => b'\n',
            other => b'!' + other % 94,
        };
    }
    bytes[BYTES - 1] = b'\n';
    bytes
}

/// Where bytes first differ from those that belong there.
fn first_wrong(bytes: &[u8]) -> String {
    let right = text();
    match bytes
        .iter()
        .zip(&right)
        .position(|(is, should)| is != should)
    {
        Some(at) => format!("at {at}"),
        None => "nowhere".to_owned(),
    }
}

fn rest(turn: usize) {
    for (turns, time) in [SHORT_REST, LONG_REST] {
        if turn % turns == turns - 1 {
            sleep(time);
        }
    }
}

/// Move all bytes in parts of these sizes. What one call has answered is counted, or noted as a failure, which is the end.
fn move_all(
    s: &mut Stage,
    flags: i32,
    sizes: &[usize],
    mut call: impl FnMut(usize, usize) -> Answer,
) {
    let mut failures = Failures::default();
    let mut moved = 0;
    in_storm(flags, APART, || {
        for (turn, most) in sizes.iter().cycle().enumerate() {
            rest(turn);
            let most = (*most).min(BYTES - moved);
            match call(moved, most) {
                Ok(more) if (1..=most).contains(&more) => moved += more,
                // More than there was room for, or the end.
                Ok(_) => {
                    failures.note(Errno(EIO));
                    break;
                }
                Err(errno) if failures.note(errno) => {}
                Err(_) => break,
            }
            if moved == BYTES {
                break;
            }
        }
    });
    s.say("moved", moved);
    failures.say(s, flags);
    if moved < BYTES {
        // The other side is not to wait for the rest.
        let _ = shutdown(s.fd, SHUT_RDWR);
        let _ = close(s.fd);
    }
}

fn make_small(s: &mut Stage, buffer: i32) {
    let set = setsockopt(s.fd, SOL_SOCKET, buffer, BUFFER);
    set.expect("a buffer can be made smaller");
}

fn send_by(s: &mut Stage, way: &Way) {
    make_small(s, SO_SNDBUF);
    let bytes = text();
    for flags in way.handlers {
        s.wait();
        let mut send = (way.send)(s.fd);
        move_all(s, *flags, &SENT, |at, most| send(&bytes[at..at + most]));
    }
}

fn receive_by(s: &mut Stage, way: &Way) {
    make_small(s, SO_RCVBUF);
    for flags in way.handlers {
        let mut bytes = vec![0; BYTES];
        let mut receive = (way.receive)(s.fd);
        s.go();
        move_all(s, *flags, &RECEIVED, |at, most| {
            receive(&mut bytes[at..at + most])
        });
        s.say("wrong", first_wrong(&bytes));
    }
}

/// Longer than any wait lasts.
const LONG: Duration = Duration::from_secs(15);

/// Ways to wait for bytes that only signals may end which are let in meanwhile.
const WAITS: [fn(RawFd) -> Waiting; 3] = [
    |fd| Box::new(move || ppoll_unblocked(fd, LONG)),
    |fd| Box::new(move || pselect_unblocked(fd, LONG)),
    |fd| {
        let epoll = epoll_create().expect("an epoll set can be made");
        let events = EPOLLIN.cast_unsigned();
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, events, 0).expect("it can be added");
        Box::new(move || epoll_pwait_unblocked(epoll, 15_000))
    },
];

/// Near: wait where nothing comes but signals, and then for what comes beside them.
fn wait_and_receive(s: &mut Stage) {
    for wait in WAITS {
        for flags in BOTH {
            let (fd, wait) = (s.fd, wait(s.fd));
            let mut bytes = vec![0; BYTES];
            has_caught();
            block(SIGUSR1, true);
            let is_interrupted = in_storm(*flags, APART, || {
                (0..10).all(|_| wait() == Err(Errno(EINTR)) && has_caught())
            });
            s.say("interrupted", is_interrupted);
            s.go();
            move_all(s, *flags, &RECEIVED, |at, most| {
                while wait() == Err(Errno(EINTR)) {}
                recv(fd, &mut bytes[at..at + most], MSG_DONTWAIT)
            });
            block(SIGUSR1, false);
            s.say("wrong", first_wrong(&bytes));
        }
    }
}

fn send_for_waits(s: &mut Stage) {
    let bytes = text();
    for flags in WAITS.iter().flat_map(|_| BOTH) {
        s.wait();
        let fd = s.fd;
        move_all(s, *flags, &SENT, |at, most| {
            send(fd, &bytes[at..at + most], MSG_NOSIGNAL)
        });
    }
}

/// Connections of the check that makes and ends many, and what goes there and back on each.
const CONNECTIONS: usize = 60;
const WORDS: usize = 20_000;

/// Send all, and end the direction.
fn send_and_end(failures: &mut Failures, fd: RawFd, bytes: &[u8]) -> Result<(), Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += again(failures, || send(fd, &bytes[sent..], MSG_NOSIGNAL))?;
    }
    again(failures, || shutdown(fd, SHUT_WR)).map(drop)
}

fn read_to_the_end(failures: &mut Failures, fd: RawFd) -> Result<Vec<u8>, Errno> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 3000]);
    loop {
        match again(failures, || read(fd, &mut buffer))? {
            0 => return Ok(bytes),
            more => bytes.extend_from_slice(&buffer[..more]),
        }
    }
}

/// Connect, however often a signal ends the waiting: the kernel goes on.
fn connect_to(failures: &mut Failures, address: SocketAddr) -> Result<RawFd, Errno> {
    let fd = socket(AF_INET, 0)?;
    match connect(fd, address) {
        Err(errno @ Errno(EINTR)) => {
            failures.note(errno);
            again(&mut Failures::default(), || poll_one(fd, POLLOUT, None))?;
            match take_error(fd)? {
                Errno(0) => Ok(fd),
                errno => Err(errno),
            }
        }
        answer => answer.map(|_| fd),
    }
}

/// Whether what is sent on a connection comes back whole.
fn asks(failures: &mut Failures, address: SocketAddr, number: usize) -> Result<bool, Errno> {
    let bytes = pattern(WORDS + number);
    let fd = connect_to(failures, address)?;
    send_and_end(failures, fd, &bytes)?;
    let back = read_to_the_end(failures, fd)?;
    again(failures, || close(fd))?;
    Ok(back == bytes)
}

/// Send back what comes; every second connection is closed with a wait for what is still to be sent.
fn answers(failures: &mut Failures, listener: RawFd, number: usize) -> Result<bool, Errno> {
    let fd = again(failures, || accept(listener))?;
    let bytes = read_to_the_end(failures, fd)?;
    if number.is_multiple_of(2) {
        set_linger(fd, Some(5))?;
    }
    send_and_end(failures, fd, &bytes)?;
    again(failures, || close(fd)).map(|_| true)
}

/// How many connections did well, and what was no signal.
fn many(
    flags: i32,
    call: impl Fn(&mut Failures, usize) -> Result<bool, Errno>,
) -> (usize, Failures) {
    let mut failures = Failures::default();
    let well = in_storm(flags, APART, || {
        let numbers = 0..CONNECTIONS;
        numbers
            .filter(|number| call(&mut failures, *number) == Ok(true))
            .count()
    });
    (well, failures)
}

fn begin_and_end(s: &mut Stage) {
    for flags in BOTH {
        let (listener, address) = listener();
        let child = in_child(|| {
            limit_to_seconds(15);
            let (well, failures) = many(*flags, |failures, number| {
                answers(failures, listener, number)
            });
            well == CONNECTIONS && failures.are_none(*flags)
        });
        close(listener).expect("it is open");
        let (well, failures) = many(*flags, |failures, number| asks(failures, address, number));
        s.say("well", well);
        failures.say(s, *flags);
        s.say("child", again(&mut Failures::default(), || wait_for(child)));
    }
}

macro_rules! over {
    ($name:literal, $way:ident) => {
        pair($name, |s| send_by(s, &$way), |s| receive_by(s, &$way))
    };
}

pub const CHECKS: &[Check] = &[
    over!("storm_over_vectors", VECTORS),
    over!("storm_over_messages", MESSAGES),
    over!("storm_over_several_messages", SEVERAL_MESSAGES),
    over!("storm_over_a_file", FILE),
    over!("storm_over_splices", SPLICES),
    over!("storm_over_streams", STREAMS),
    over!("storm_over_lines", LINES),
    over!("storm_over_prints", PRINTS),
    over!("storm_over_children", CHILDREN),
    pair("storm_over_waits", wait_and_receive, send_for_waits),
    solo("storm_over_ends", begin_and_end),
];
