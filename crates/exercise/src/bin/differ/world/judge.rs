//! Which calls would sleep for ever, and which sleepers must wake.

use std::collections::BTreeSet;

use super::copies::is_poll;
use super::{Call, File, How, Kind, Member, ROOM, Sleeper, World};

impl World {
    /// Whether the main thread of a process can make this call without sleeping for ever, without
    /// racing with a sleeper, and with an outcome that does not depend on buffers.
    pub fn allows(&self, process: usize, call: &Call) -> bool {
        let Some(handle) = call.main_handle() else {
            return !matches!(call, Call::Take { .. }) || !self.passed.is_empty();
        };
        let Some(entry) = self.entry(process, handle) else {
            return false;
        };
        let file = &self.files[entry.file];
        !self.disturbs(process, entry.file, call)
            && !self.races(file, call)
            && !self.hurries(entry.file, call)
            && !self.ends_both(file, call)
            && self.is_sure(process, entry.file, call)
            && self.returns(file, call)
            && self.has_room(file, call)
            && is_in_place(file, call)
            && !self.ends_listener_of_waiter(entry.file, call)
    }

    /// Whether a listener is shut down that a call waits for in a set, which shows what it is then, too, and not
    /// only what comes: the world does not know of that.
    fn ends_listener_of_waiter(&self, file: usize, call: &Call) -> bool {
        let is_end = matches!(call, Call::Shutdown { .. })
            && matches!(self.files[file].kind, Kind::Listener { .. });
        let waits_for_it =
            |sleeper: &Sleeper| sleeper.call.waits_in_set() && self.all_of(sleeper).contains(&file);
        is_end && self.sleepers.iter().any(waits_for_it)
    }

    /// Whether a thread may begin this call: one that sleeps on one thing.
    pub fn may_sleep(&self, process: usize, thread: usize, call: &Call) -> bool {
        let sleeps = call.reads().is_some() && !matches!(call, Call::Drain { .. })
            || call.timeout_ms().is_some_and(|timeout| timeout < 0)
            || matches!(call, Call::Accept { .. });
        let is_busy = |sleeper: &Sleeper| sleeper.process == process && sleeper.thread == thread;
        let Some(entry) = call.main_handle().and_then(|fd| self.entry(process, fd)) else {
            return false;
        };
        let file = &self.files[entry.file];
        let blocks = call.writes().is_some() && !gives_up(file, call) && self.overfills(file, call);
        let is_wild = |file: &File| self.connection_of(file).is_some_and(|of| of.wild);
        let second = self.second(process, call).map(|file| &self.files[file]);
        let may_be_second = |file: &File| matches!(file.kind, Kind::End { .. }) && !is_wild(file);
        (sleeps || blocks)
            && !is_wild(file)
            && second.is_none_or(may_be_second)
            && !self.sleepers.iter().any(is_busy)
            && !self.disturbs(process, entry.file, call)
            && self.is_sure(process, entry.file, call)
            && is_in_place(file, call)
    }

    /// Whether `call` and a sleeper could take something away from each other.
    fn disturbs(&self, process: usize, file: usize, call: &Call) -> bool {
        let takes = takes(call) || looks(call);
        if !takes {
            return false;
        }
        let mut files = vec![file];
        if let Kind::Epoll { members, .. } = &self.files[file].kind {
            files.extend(members.iter().map(|member| member.file));
        }
        files.extend(self.second(process, call));
        let mut takers = self.sleepers.iter().filter(|sleeper| !sleeper.is_send());
        takers.any(|sleeper| {
            let held = self.all_of(sleeper);
            let both_look = looks(call) && looks(&sleeper.call);
            !both_look && held.iter().any(|file| files.contains(file))
        })
    }

    /// The second thing that a call is about.
    pub(super) fn second(&self, process: usize, call: &Call) -> Option<usize> {
        match call {
            Call::PollBoth { other, .. } => Some(self.entry(process, *other)?.file),
            _ => None,
        }
    }

    /// What a sleeper waits for, and what is in it.
    pub(super) fn all_of(&self, sleeper: &Sleeper) -> Vec<usize> {
        let mut all: Vec<usize> = sleeper.files().collect();
        if let Kind::Epoll { members, .. } = &self.files[sleeper.file].kind {
            all.extend(members.iter().map(|member| member.file));
        }
        all
    }

    /// Whether a sleeper waits for several connections that end with a process: how many of them it is told together is
    /// a matter of how fast it wakes.
    pub fn is_told_at_once(&self, process: usize) -> bool {
        let names = self.names.iter().filter(|((of, _), _)| *of == process);
        let of_process: Vec<usize> = names.map(|(_, entry)| entry.file).collect();
        let ends = |file: &usize| match self.files[*file].kind {
            Kind::End { connection, side } => of_process.iter().any(|other| {
                let side = 1 - side;
                self.files[*other].kind == Kind::End { connection, side }
            }),
            _ => false,
        };
        let others = self
            .sleepers
            .iter()
            .filter(|sleeper| sleeper.process != process);
        others.into_iter().any(|sleeper| {
            let ending = self.all_of(sleeper).into_iter().filter(ends);
            ending.collect::<BTreeSet<_>>().len() > 1
        })
    }

    /// Whether `call` sends one message after another to who sleeps for them, or to an end that has been closed, or that only
    /// a sleeper has open: how many are received, or make an edge, is a matter of how fast it wakes, and how many are sent
    /// of how fast it answers that nobody is there.
    fn races(&self, file: &File, call: &Call) -> bool {
        let (Call::Sendmmsg { messages, .. }, Kind::End { connection, side }) = (call, &file.kind)
        else {
            return false;
        };
        let peer = Kind::End {
            connection: *connection,
            side: 1 - side,
        };
        let receives = |sleeper: &Sleeper| {
            let all = self.all_of(sleeper);
            takes(&sleeper.call) && all.iter().any(|file| self.files[*file].kind == peer)
        };
        let is_gone = self.connections[*connection].ends[1 - side].gone;
        let is_kept = self.is_kept_by_calls(&peer);
        *messages > 1 && (is_gone || is_kept || self.sleepers.iter().any(receives))
    }

    /// Whether only calls that sleep on it have an end open.
    fn is_kept_by_calls(&self, end: &Kind) -> bool {
        let is_it = |file: usize| self.files[file].kind == *end;
        let is_named = self.names.values().any(|entry| is_it(entry.file));
        let keeps = |sleeper: &Sleeper| sleeper.files().any(is_it);
        let is_held = || self.held.iter().any(|(_, file)| is_it(*file));
        !is_named && (is_held() || self.sleepers.iter().any(keeps))
    }

    /// Whether `call` sets a short time limit under a call that receives again and again: how much it gets in that
    /// time is a matter of what TCP holds back.
    fn hurries(&self, file: usize, call: &Call) -> bool {
        let is_limit =
            matches!(call, Call::Rcvtimeo { timeout_ms, .. } if super::is_short(*timeout_ms));
        let goes_on = |sleeper: &Sleeper| {
            let call = &sleeper.call;
            sleeper.file == file && matches!(call, Call::StdioRead { .. } | Call::Recvmmsg { .. })
        };
        is_limit && self.sleepers.iter().any(goes_on)
    }

    /// Whether a connection is shut down or dissolved both ends of which a call sleeps on: whether it is told of the second, too, is a
    /// matter of how fast it wakes.
    fn ends_both(&self, file: &File, call: &Call) -> bool {
        let Kind::End { connection, .. } = &file.kind else {
            return false;
        };
        let has_both = |sleeper: &Sleeper| {
            let all = self.all_of(sleeper);
            (0..2).all(|side| {
                let connection = *connection;
                let end = Kind::End { connection, side };
                all.iter().any(|file| self.files[*file].kind == end)
            })
        };
        let is_end = matches!(call, Call::Shutdown { .. } | Call::Disconnect { .. });
        is_end && self.sleepers.iter().any(has_both)
    }

    fn returns(&self, file: &File, call: &Call) -> bool {
        if let Some(reading) = call.reads() {
            if file.nonblocking || file.is_impatient() || reading.flags.has(libc::MSG_DONTWAIT) {
                // A stream asks again and again.
                return !matches!(call, Call::Drain { .. }) || self.has_plenty(file);
            }
            return match &file.kind {
                Kind::End { connection, side } => {
                    let it = &self.connections[*connection];
                    let least = reading.least.max(file.least);
                    !it.wild && it.is_readable(*side, least)
                }
                // Not connected: it fails at once.
                Kind::Socket | Kind::Listener { .. } | Kind::Epoll { .. } => true,
            };
        }
        match call {
            Call::Accept { .. } => match &file.kind {
                Kind::Listener { backlog, .. } => file.nonblocking || !backlog.is_empty(),
                _ => true,
            },
            _ => call.timeout_ms().is_none_or(|timeout| timeout >= 0),
        }
    }

    fn has_room(&self, file: &File, call: &Call) -> bool {
        let (Some(count), Some(it)) = (call.writes(), self.connection_of(file)) else {
            return true;
        };
        let Kind::End { side, .. } = file.kind else {
            return true;
        };
        it.ends[1 - side].gone
            || it.unread(1 - side) + count <= ROOM
            || gives_up(file, call) && self.overfills(file, call)
    }

    /// Whether more has been sent to `file` than there is room for.
    fn has_plenty(&self, file: &File) -> bool {
        let Kind::End { connection, side } = file.kind else {
            return false;
        };
        self.connections[connection].streams[1 - side]
            .full
            .is_some()
    }

    fn connection_of(&self, file: &File) -> Option<&super::Connection> {
        match file.kind {
            Kind::End { connection, .. } => Some(&self.connections[connection]),
            _ => None,
        }
    }

    fn is_readable(&self, file: &File) -> bool {
        match file.kind {
            Kind::End { connection, side } => {
                let it = &self.connections[connection];
                !it.wild && it.is_readable(side, file.least)
            }
            _ => false,
        }
    }

    /// How much what `file` waits for has seen.
    pub(super) fn progress(&self, file: usize) -> usize {
        match &self.files[file].kind {
            Kind::End { connection, side } => self.connections[*connection].progress(*side),
            Kind::Epoll { members, .. } => members
                .iter()
                .filter(|member| is_surely_reported(**member))
                .filter(|member| !matches!(self.files[member.file].kind, Kind::Epoll { .. }))
                .map(|member| self.progress(member.file))
                .sum(),
            Kind::Listener { backlog, .. } => backlog.len(),
            Kind::Socket => 0,
        }
    }

    /// Whether a sleeper has to come back now.
    pub fn must_wake(&self, sleeper: &Sleeper) -> bool {
        if sleeper.interrupted {
            return true;
        }
        let file = &self.files[sleeper.file];
        match (&sleeper.call, &file.kind) {
            (call, Kind::End { connection, side }) if call.writes().is_some() => {
                let it = &self.connections[*connection];
                let own = it.ends[*side];
                own.shut_writing || own.reset || it.unread(1 - side) == 0
            }
            (call, Kind::End { connection, side }) => {
                let it = &self.connections[*connection];
                let least = call.reads().map_or(1, |reading| reading.least);
                !it.wild && it.is_readable(*side, least.max(file.least))
                    || sleeper
                        .other
                        .is_some_and(|other| self.is_readable(&self.files[other]))
            }
            (call, Kind::Epoll { .. }) if call.waits_in_set() => {
                self.progress(sleeper.file) > sleeper.progress
            }
            (_, Kind::Listener { backlog, .. }) => !backlog.is_empty(),
            _ => true,
        }
    }
}

/// Whether a send takes what there is room for, and does not wait.
fn gives_up(file: &File, call: &Call) -> bool {
    let (Call::Send { flags, .. } | Call::Sendmsg { flags, .. }) = call else {
        return file.nonblocking;
    };
    file.nonblocking || flags.has(libc::MSG_DONTWAIT)
}

/// Whether something to read is reported whatever has been reported before.
fn is_surely_reported(member: Member) -> bool {
    member.events.has(libc::EPOLLIN.cast_unsigned())
        && !member.events.has(libc::EPOLLONESHOT.cast_unsigned())
}

/// Whether a call takes something that another would then not get.
fn takes(call: &Call) -> bool {
    call.reads().is_some() || call.waits_in_set() || matches!(call, Call::Accept { .. })
}

/// Whether a call tells what there is to take.
fn looks(call: &Call) -> bool {
    is_poll(call) || matches!(call, Call::Fionread { .. } | Call::Atmark { .. })
}

/// Calls that would make something else of a thing that the world keeps account of.
fn is_in_place(file: &File, call: &Call) -> bool {
    match call {
        Call::Listen { .. } | Call::Connect { .. } | Call::ConnectNobody { .. } => {
            file.kind == Kind::Socket
        }
        Call::Accept { .. } => matches!(file.kind, Kind::Listener { .. } | Kind::Socket),
        // Over AF_UNIX it would go on as a listener that nobody can connect to.
        Call::Shutdown { how, .. } => match file.kind {
            Kind::Listener { is_tcp, .. } => is_tcp || *how == How::WR,
            _ => true,
        },
        // Streams on a duplicate wait for more where a read would not.
        Call::StdioRead { .. } | Call::StdioWrite { .. } => {
            matches!(file.kind, Kind::End { .. })
        }
        _ => true,
    }
}
