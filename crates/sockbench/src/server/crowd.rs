//! A server for many connections at once: one thread, level-triggered epoll or poll, blocking sockets.
//!
//! It answers one message per readiness, as simple event loops do, and waits only in `epoll_wait` or `poll`.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::Serialize;

use super::usage;
use crate::connection::{Connection, Listener};
use crate::message::check;
use crate::receiving::has_device_queue;
use crate::request::{Request, Work};

const EVENTS: usize = 256;
const DOOR: u64 = u64::MAX;

/// By which call the server waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// `epoll_wait`, which tells of those that are ready.
    #[default]
    Epoll,
    /// `poll`, which is given all connections each time.
    Poll,
}

/// A connection between two readinesses.
struct Guest {
    connection: Connection,
    /// The size and the number of the next message, while an echo goes on.
    echo: Option<(usize, u64)>,
}

/// Serves for ever. A connection that fails is reported on standard error and ends alone.
///
/// # Errors
/// When accepting or waiting fails.
pub fn serve(listener: &Listener, by: By) -> io::Result<()> {
    match by {
        By::Epoll => serve_by_epoll(listener),
        By::Poll => serve_by_poll(listener),
    }
}

fn serve_by_poll(listener: &Listener) -> io::Result<()> {
    let (mut guests, mut message) = (Vec::<Guest>::new(), Vec::new());
    loop {
        let ready = poll(listener, &guests)?;
        for place in (0..guests.len()).rev() {
            if ready[1 + place] && !goes_on(&mut guests[place], &mut message) {
                guests.remove(place);
            }
        }
        if ready[0] {
            guests.push(Guest::new(listener.accept()?));
        }
    }
}

/// Waits. Returns whether there is somebody at the door, and which guests have something.
fn poll(listener: &Listener, guests: &[Guest]) -> io::Result<Vec<bool>> {
    let connections = guests.iter().map(|guest| guest.connection.as_fd());
    let all = [listener.as_fd()].into_iter().chain(connections);
    let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match nix::poll::poll(&mut all, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |one: &PollFd<'_>| one.any().unwrap_or(true);
    Ok(all.iter().map(is_ready).collect())
}

fn serve_by_epoll(listener: &Listener) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, DOOR))?;
    let mut guests = HashMap::new();
    let mut events = [EpollEvent::empty(); EVENTS];
    let mut message = Vec::new();
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            waited => waited?,
        };
        for event in &events[..count] {
            if event.data() == DOOR {
                let guest = admit(listener, &epoll)?;
                guests.insert(key(&guest.connection), guest);
            } else if let Some(guest) = guests.get_mut(&event.data())
                && !goes_on(guest, &mut message)
            {
                // Closing takes it out of the epoll set.
                guests.remove(&event.data());
            }
        }
    }
}

fn admit(listener: &Listener, epoll: &Epoll) -> io::Result<Guest> {
    let connection = listener.accept()?;
    let event = EpollEvent::new(EpollFlags::EPOLLIN, key(&connection));
    epoll.add(&connection, event)?;
    Ok(Guest::new(connection))
}

fn key(connection: &Connection) -> u64 {
    u64::from(connection.as_fd().as_raw_fd().unsigned_abs())
}

fn goes_on(guest: &mut Guest, message: &mut Vec<u8>) -> bool {
    guest.step(message).unwrap_or_else(|error| {
        eprintln!("crosslane-sockbench server: {error}");
        false
    })
}

impl Guest {
    fn new(connection: Connection) -> Self {
        let echo = None;
        Self { connection, echo }
    }

    /// Takes and answers what has come. False at the connection's end.
    fn step(&mut self, message: &mut Vec<u8>) -> io::Result<bool> {
        let Some((bytes, number)) = self.echo else {
            return self.begin();
        };
        message.resize(bytes, 0);
        self.connection.read_exact(message)?;
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        let last = check(message, number).map_err(invalid)?;
        self.connection.write_all(message)?;
        self.echo = (!last).then_some((bytes, number + 1));
        Ok(true)
    }

    fn begin(&mut self) -> io::Result<bool> {
        let Some(request) = Request::read(&mut self.connection)? else {
            return Ok(false);
        };
        match request.work {
            Work::Echo => self.echo = Some((request.bytes, 0)),
            Work::Usage => {
                let usage = usage(has_device_queue(&self.connection));
                self.connection.write_all(&usage.encode())?;
            }
            Work::Sink { .. } => {
                let what = "an event loop counts no one-way traffic";
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
        }
        Ok(true)
    }
}
