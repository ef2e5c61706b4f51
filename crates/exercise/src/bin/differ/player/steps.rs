//! The kinds of steps.

use std::time::Duration;

use crosslane_exercise::Errno;

use super::{Player, WAKING};
use crate::act::Outcome;
use crate::call::Call;
use crate::cast::Hung;
use crate::program::Step;
use crate::word::{Choice, Family, Handle, PollEvents};
use crate::world::{Entry, Kind, Sleeper, without_count};

/// Long enough for a connection to be switched by whoever wants to.
const PAUSE: Duration = Duration::from_millis(8);
const AFTER_PAUSE: usize = 4;
/// A short limit of a receive is over, or is not kept.
const OVERDUE: Duration = Duration::from_millis(500);
/// More than any event takes on one machine.
const PATIENCE_MS: i32 = 3_000;

type End = (usize, Handle);

impl Player<'_> {
    /// Make a step; None: it cannot be made, and is left out.
    pub(super) fn step(&mut self, step: &Step) -> Result<Option<String>, Hung> {
        match step {
            Step::Call { process, call } => {
                let outcome = self.call(*process, call)?;
                Ok(outcome.map(|outcome| outcome.text))
            }
            Step::Begin {
                process,
                thread,
                call,
            } => self.begin(*process, *thread, call),
            Step::Pair {
                server,
                client,
                family,
                round_trips,
            } => self.pair(*server, *client, *family, *round_trips),
            Step::Transfer { from, to, count } => self.transfer(*from, *to, *count),
            Step::FillAndDrain { from, to } => self.fill_and_drain(*from, *to),
            Step::Empty { by } => self.empty(*by),
            Step::Fork { process, child } => self.fork(*process, *child),
            Step::Exit { process } if self.world.is_told_at_once(*process) => Ok(None),
            Step::Exit { process } => {
                self.cast.exit(*process)?;
                self.world.exit(*process);
                Ok(Some("gone".into()))
            }
            Step::Signal {
                process,
                thread,
                restart,
            } => self.signal(*process, *thread, *restart),
            Step::Pause => {
                std::thread::sleep(PAUSE);
                Ok(Some("over".into()))
            }
        }
    }

    fn begin(
        &mut self,
        process: usize,
        thread: usize,
        call: &Call,
    ) -> Result<Option<String>, Hung> {
        if self.is_stuck(process, thread)
            || !self.world.may_sleep(process, thread, call)
            || self.is_known(process, call)
        {
            return Ok(None);
        }
        let Some((resolved, matter)) = self.world.resolve(process, call) else {
            return Ok(None);
        };
        let entry = call
            .main_handle()
            .and_then(|fd| self.world.entry(process, fd));
        let file = entry.expect("it was resolved").file;
        self.cast.begin(process, thread, matter, resolved)?;
        self.world.begin(process, thread, call.clone(), file);
        self.was_full = call.writes().is_some();
        let patience = match self.world.files[file].limits(call) {
            // What comes before that would depend on time.
            true => OVERDUE,
            false => Duration::ZERO,
        };
        let Some(outcome) = self.cast.ended(process, thread, patience) else {
            return Ok(Some("sleeps".into()));
        };
        let last = self.world.sleepers.len() - 1;
        self.world.end_sleep(last, &outcome);
        Ok(Some(without_count(call, &outcome)))
    }

    fn pair(
        &mut self,
        server: End,
        client: End,
        family: Family,
        round_trips: usize,
    ) -> Result<Option<String>, Hung> {
        let is_taken = |(process, handle)| self.world.entry(process, handle).is_some();
        if is_taken(server) || is_taken(client) || server == client {
            return Ok(None);
        }
        let Some([server_fd, client_fd]) = self.connected(server.0, client.0, family)? else {
            return Ok(Some("failed".into()));
        };
        let connection = self.world.connect();
        for ((process, handle), fd, side) in [(server, server_fd, 0), (client, client_fd, 1)] {
            let end = Kind::End { connection, side };
            self.world.open(process, handle, fd, end, false);
        }
        let mut said = format!("{server_fd} {client_fd}");
        if round_trips > 0 {
            for count in [round_trips, AFTER_PAUSE] {
                said.push(' ');
                said.push_str(&self.talk(server, client, count)?);
                std::thread::sleep(PAUSE);
            }
        }
        Ok(Some(said))
    }

    /// The descriptors of a new connection.
    fn connected(
        &mut self,
        server: usize,
        client: usize,
        family: Family,
    ) -> Result<Option<[i32; 2]>, Hung> {
        let new = crate::word::New(0);
        if family == Family::pair {
            return self.socket_pair(server, client);
        }
        let nonblocking = false;
        let socket = Call::Socket {
            new,
            family,
            nonblocking,
        };
        let Some(listener) = self.bare(server, 0, socket.clone())?.fd else {
            return Ok(None);
        };
        let fd = name(listener);
        self.bare(server, 0, Call::Listen { fd, family })?;
        let port = self.cast.port(server, listener)?;
        let Some(client_fd) = self.bare(client, 0, socket)?.fd else {
            return Ok(None);
        };
        let connect = Call::Connect {
            fd: name(client_fd),
            listener: fd,
            family,
        };
        self.bare(client, port, connect)?;
        let accept = Call::Accept {
            fd,
            new,
            nonblocking,
        };
        let accepted = self.bare(server, 0, accept)?.fd;
        self.bare(server, 0, Call::Close { fd })?;
        let Some(server_fd) = accepted else {
            return Ok(None);
        };
        for (process, fd) in [(server, server_fd), (client, client_fd)] {
            if family == Family::unix {
                break;
            }
            let (fd, option, value) = (name(fd), Choice::NODELAY, 1);
            self.bare(process, 0, Call::Setsockopt { fd, option, value })?;
        }
        Ok(Some([server_fd, client_fd]))
    }

    /// A pair of sockets, one of which is passed on to who is to have it.
    fn socket_pair(&mut self, server: usize, client: usize) -> Result<Option<[i32; 2]>, Hung> {
        let new = crate::word::New(0);
        let made = self.bare(server, 0, Call::Socketpair { new })?;
        let numbers: Option<Vec<i32>> = made.text.split(' ').map(|fd| fd.parse().ok()).collect();
        let Some(&[one, other]) = numbers.as_deref() else {
            return Ok(None);
        };
        if server == client {
            return Ok(Some([one, other]));
        }
        let fd = name(other);
        self.bare(server, 0, Call::Pass { fd })?;
        let passed = self.bare(client, 0, Call::Take { new })?.fd;
        self.bare(server, 0, Call::Close { fd })?;
        Ok(passed.map(|passed| [one, passed]))
    }

    /// A call on descriptors that have no name.
    fn bare(&mut self, process: usize, port: u16, call: Call) -> Result<Outcome, Hung> {
        let matter = crate::act::Matter {
            port,
            ..Default::default()
        };
        self.cast.call(process, matter, call)
    }

    fn talk(&mut self, one: End, other: End, count: usize) -> Result<String, Hung> {
        let fd_of = |end: End| {
            let entry = self.world.entry(end.0, end.1);
            name(entry.expect("it was just made").fd)
        };
        let (first, second) = (fd_of(one), fd_of(other));
        if one.0 == other.0 {
            let chat = Call::Chat {
                fd: first,
                other: second,
                count,
            };
            return Ok(self.bare(one.0, 0, chat)?.text);
        }
        let matter = crate::act::Matter::default();
        // In a thread of its own, so that both talk at the same time.
        let echo = Call::Echo { fd: second, count };
        self.cast
            .begin(other.0, crate::program::THREADS - 1, matter, echo)?;
        let said = self.bare(one.0, 0, Call::Talk { fd: first, count })?;
        let echoed = self
            .cast
            .ended(other.0, crate::program::THREADS - 1, WAKING);
        Ok(format!(
            "{}{}",
            said.text,
            echoed.map_or("-".into(), |echoed| echoed.text)
        ))
    }

    /// The connection over which one end can send to another with nothing in the way.
    fn is_clear(&self, from: End, to: End) -> bool {
        let ends = (self.world.end(from.0, from.1), self.world.end(to.0, to.1));
        let (Some((connection, side)), Some((same, other))) = ends else {
            return false;
        };
        let it = &self.world.connections[connection];
        let files = [from, to].map(|(process, fd)| self.world.entry(process, fd));
        let is_slept_on = self.world.sleepers.iter().any(|sleeper| {
            let is_it = |entry: &Entry| sleeper.sleeps_on(entry.file);
            files.iter().flatten().any(is_it)
                || matches!(&self.world.files[sleeper.file].kind, Kind::Epoll { .. })
        });
        let least = self.world.file(to.0, to.1).map_or(0, |file| file.least);
        connection == same
            && side != other
            && it.is_whole()
            && it.unread(other) == 0
            && least == 1
            && !is_slept_on
    }

    fn transfer(&mut self, from: End, to: End, count: usize) -> Result<Option<String>, Hung> {
        let thread = 1;
        let is_busy = self
            .world
            .sleepers
            .iter()
            .any(|sleeper| (sleeper.process, sleeper.thread) == (from.0, thread));
        let sender = self.world.file(from.0, from.1);
        let write = Call::Write { fd: from.1, count };
        let stays = sender.is_some_and(|file| !file.nonblocking && !file.limits(&write));
        if is_busy || self.is_stuck(from.0, thread) || !stays || !self.is_clear(from, to) {
            return Ok(None);
        }
        let drain = Call::Drain { fd: to.1, count };
        let resolved = (
            self.world.resolve(from.0, &write),
            self.world.resolve(to.0, &drain),
        );
        let (Some((sending, out)), Some((reading, into))) = resolved else {
            return Ok(None);
        };
        self.cast.begin(from.0, thread, out, sending)?;
        let at_once = self.cast.ended(from.0, thread, Duration::ZERO);
        self.was_full = at_once.is_none();
        let drained = self.cast.call(to.0, into, reading)?;
        let written = at_once.or_else(|| self.cast.ended(from.0, thread, WAKING));
        let written = written.unwrap_or_else(|| Outcome {
            text: "sleeps on".into(),
            ..Outcome::default()
        });
        self.world.apply(from.0, &write, &written);
        self.world.apply(to.0, &drain, &drained);
        Ok(Some(format!("{} {}", written.text, drained.text)))
    }

    /// How much fits is not compared, so both streams begin anew.
    fn fill_and_drain(&mut self, from: End, to: End) -> Result<Option<String>, Hung> {
        if !self.is_clear(from, to) {
            return Ok(None);
        }
        let fill = Call::Fill { fd: from.1 };
        let Some((resolved, mut matter)) = self.world.resolve(from.0, &fill) else {
            return Ok(None);
        };
        matter.offset = 0;
        let filled = self.cast.call(from.0, matter, resolved)?;
        let count = filled.bytes;
        let drain = Call::Drain { fd: to.1, count };
        let Some((resolved, _)) = self.world.resolve(to.0, &drain) else {
            return Ok(None);
        };
        let drained = self.cast.call(to.0, matter, resolved)?;
        let poll = Call::Poll {
            fd: from.1,
            events: PollEvents(libc::POLLOUT),
            timeout_ms: PATIENCE_MS,
        };
        let room = self.call(from.0, &poll)?;
        let room = room.map_or("-".into(), |room| room.text);
        Ok(Some(format!("{} {} {room}", filled.text, drained.text)))
    }

    /// How much the other end could send is not compared, but that all of it comes.
    fn empty(&mut self, by: End) -> Result<Option<String>, Hung> {
        if self.world.rest_of_full(by.0, by.1).is_none() {
            return Ok(None);
        }
        self.wake_idle_senders()?;
        let Some(rest) = self.world.rest_of_full(by.0, by.1) else {
            return Ok(None);
        };
        let count = rest.most;
        let drain = Call::Drain { fd: by.1, count };
        let Some((resolved, matter)) = self.world.resolve(by.0, &drain) else {
            return Ok(None);
        };
        let drained = self.cast.call(by.0, matter, resolved)?;
        self.world.emptied(by.0, by.1);
        let is_enough = |least| drained.text.starts_with("end after") && drained.bytes >= least;
        let ends = rest.least_before_end.is_some_and(is_enough);
        Ok(Some(if ends {
            "end".into()
        } else {
            rest_of_full(drained.text)
        }))
    }

    /// Those who have come back although they were not to: what they did not send is not waited for.
    fn wake_idle_senders(&mut self) -> Result<(), Hung> {
        let mut index = 0;
        while let Some(sleeper) = self.world.sleepers.get(index) {
            let (process, thread) = (sleeper.process, sleeper.thread);
            if sleeper.is_send() && self.cast.has_come_back(process, thread)? {
                self.wake(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    fn fork(&mut self, process: usize, child: usize) -> Result<Option<String>, Hung> {
        if self.cast.was_there(child) {
            return Ok(None);
        }
        self.cast.fork(process, child)?;
        self.world.fork(process, child);
        Ok(Some("forked".into()))
    }

    fn signal(
        &mut self,
        process: usize,
        thread: usize,
        restart: bool,
    ) -> Result<Option<String>, Hung> {
        let is_it = |sleeper: &Sleeper| (sleeper.process, sleeper.thread) == (process, thread);
        let Some(index) = self.world.sleepers.iter().position(is_it) else {
            return Ok(None);
        };
        // Whoever is on its way back comes by itself.
        if self.cast.has_come_back(process, thread)? {
            self.wake(index);
            return Ok(Some("too late".into()));
        }
        let sleeper = &self.world.sleepers[index];
        let is_ended = self.world.is_ended_by_signal(sleeper, restart);
        if !is_ended && !self.world.may_go_on(sleeper) {
            return Ok(None);
        }
        if matches!(sleeper.call, Call::Recvmmsg { .. }) && self.world.has_come(sleeper.file) {
            // It leaves an error on the socket that nobody is to see.
            return Ok(None);
        }
        self.cast.signal(process, thread, restart)?;
        self.world.signalled(index, is_ended);
        Ok(Some("sent".into()))
    }
}

fn name(fd: i32) -> Handle {
    Handle(u32::try_from(fd).expect("it is open"))
}

/// What is compared of the rest of what another end has sent until it found no room. A reset takes away what the kernel has not
/// delivered yet, which is a matter of its buffers.
fn rest_of_full(drained: String) -> String {
    let reset = Errno(libc::ECONNRESET).to_string();
    match drained.split_once(" after ") {
        Some((what, _)) if what == reset => reset,
        _ => drained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_comes_before_a_reset_is_not_compared() {
        assert_eq!(rest_of_full("ECONNRESET after 126977".into()), "ECONNRESET");
        for text in ["all", "end after 5", "nothing more after 5"] {
            assert_eq!(rest_of_full(text.into()), text);
        }
    }
}
