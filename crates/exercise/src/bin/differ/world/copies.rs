//! Copies of connections that get the number of a call that sleeps.

use std::os::fd::RawFd;

use super::{Call, EpollEvents, How, Kind, Sleeper, World};

impl World {
    /// Whether a connection with something unread gets the number that a call sleeps by, or may get it: unread from another
    /// process, or anything where the call does not sleep on connections.
    pub fn may_get_the_number_of_a_call(&self, process: usize, call: &Call) -> bool {
        let entry_of = |handle| self.entry(process, handle);
        let copied = match *call {
            Call::Dup { fd, .. } | Call::DupFrom { fd, .. } => {
                entry_of(fd).map(|entry| (entry.file, None))
            }
            Call::Dup2 { fd, onto } | Call::Dup3 { fd, onto } => entry_of(fd)
                .zip(entry_of(onto))
                .map(|(entry, onto)| (entry.file, Some(onto.fd))),
            Call::Take { .. } => self.passed.front().map(|file| (*file, None)),
            _ => None,
        };
        copied.is_some_and(|(file, number)| {
            let sleeps_by = |sleeper: &&Sleeper| {
                let mut numbers = sleeper.numbers.iter();
                sleeper.process == process
                    && numbers.any(|by| match number {
                        Some(number) => number == *by,
                        None => !self.is_named(process, *by),
                    })
            };
            let waiting = self.sleepers.iter().filter(|sleeper| !sleeper.is_send());
            waiting
                .filter(sleeps_by)
                .any(|sleeper| match self.is_on_connections(sleeper) {
                    true => self.has_unread_from_elsewhere(process, file),
                    false => self.unread_of(file) > 0,
                })
        })
    }

    /// Whether a shutdown for writing wakes a call of another process that any wake ends.
    pub fn ends_a_call_elsewhere(&self, process: usize, call: &Call) -> bool {
        let Call::Shutdown { fd, how } = call else {
            return false;
        };
        let Some(entry) = self.entry(process, *fd).filter(|_| *how == How::WR) else {
            return false;
        };
        let has_lost_a_number = |sleeper: &Sleeper| {
            let is_lost = |number: &RawFd| !self.is_named(sleeper.process, *number);
            is_poll(&sleeper.call) && sleeper.numbers.iter().any(is_lost)
        };
        self.sleepers.iter().any(|sleeper| {
            sleeper.process != process
                && sleeper.sleeps_on(entry.file)
                && (has_no_room(&sleeper.call) || has_lost_a_number(sleeper))
        })
    }

    /// Whether edges come into a set at the number of a poll that began when this was something else.
    pub fn adds_edges_under_a_poll(&self, process: usize, call: &Call) -> bool {
        let (Call::EpollAdd { epoll, events, .. } | Call::EpollMod { epoll, events, .. }) = call
        else {
            return false;
        };
        let Some(set) = self
            .entry(process, *epoll)
            .filter(|_| is_for_edges(*events))
        else {
            return false;
        };
        let is_at_its_number = |number: &RawFd| {
            let mut names = self.names.iter();
            names.any(|((of, _), entry)| {
                *of == process && entry.fd == *number && entry.file == set.file
            })
        };
        self.sleepers.iter().any(|sleeper| {
            sleeper.process == process
                && is_poll(&sleeper.call)
                && sleeper.files().all(|file| file != set.file)
                && sleeper.numbers.iter().any(is_at_its_number)
        })
    }

    /// Whether a poll asks for a set with a registration for edges, or to be told once, by a number that names something else by now.
    pub fn polls_by_a_lost_number(&self, process: usize, call: &Call) -> bool {
        let mut copy = call.clone();
        let mut polled = copy.handles().into_iter().filter(|_| is_poll(call));
        polled.any(|handle| {
            let set = self.file(process, *handle);
            let Some(Kind::Epoll { members, .. }) = set.map(|set| &set.kind) else {
                return false;
            };
            members.iter().any(|member| {
                let named = self.entry(process, member.by);
                let is_lost = named.is_none_or(|named| named.file != member.file);
                let is_again = is_for_edges(member.events) && tells_of_room_again(member.events);
                // Of a number that is free the library can make a copy.
                is_lost && (is_again || named.is_some() && is_once(member.events))
            })
        })
    }

    fn is_named(&self, process: usize, number: RawFd) -> bool {
        let mut names = self.names.iter();
        names.any(|((of, _), entry)| *of == process && entry.fd == number)
    }

    fn is_on_connections(&self, sleeper: &Sleeper) -> bool {
        let mut kinds = sleeper.files().map(|file| &self.files[file].kind);
        kinds.all(|kind| matches!(kind, Kind::End { .. }))
    }

    fn unread_of(&self, file: usize) -> usize {
        match self.files[file].kind {
            Kind::End { connection, side } => self.connections[connection].unread(side),
            _ => 0,
        }
    }

    fn has_unread_from_elsewhere(&self, process: usize, file: usize) -> bool {
        let Kind::End { connection, side } = self.files[file].kind else {
            return false;
        };
        let peer = Kind::End {
            connection,
            side: 1 - side,
        };
        let is_here = self
            .names
            .iter()
            .any(|((of, _), entry)| *of == process && self.files[entry.file].kind == peer);
        !is_here && self.unread_of(file) > 0
    }
}

fn is_once(events: EpollEvents) -> bool {
    events.has(libc::EPOLLONESHOT.cast_unsigned())
}

fn is_for_edges(events: EpollEvents) -> bool {
    events.has(libc::EPOLLET.cast_unsigned())
}

/// Whether the kernel tells of room when something has come, which may have been read since.
fn tells_of_room_again(events: EpollEvents) -> bool {
    let has = |event: i32| events.has(event.cast_unsigned());
    has(libc::EPOLLIN) && has(libc::EPOLLOUT) && !has(libc::EPOLLONESHOT)
}

/// Whether a call receives nothing.
pub(super) fn has_no_room(call: &Call) -> bool {
    matches!(
        call,
        Call::Read { count: 0, .. }
            | Call::Recv { count: 0, .. }
            | Call::Recvfrom { count: 0, .. }
            | Call::RecvfromShort { count: 0, .. }
            | Call::Recvmmsg { count: 0, .. }
            | Call::RecvBeside { count: 0, .. }
            | Call::Preadv2 { count: 0, .. }
            | Call::RawRead { count: 0, .. }
            | Call::Readv {
                first: 0,
                second: 0,
                ..
            }
            | Call::ReadvEmpty {
                first: 0,
                second: 0,
                ..
            }
            | Call::Recvmsg {
                first: 0,
                second: 0,
                ..
            }
    )
}

/// Whether a call waits for one or two descriptors to be ready, without a set.
pub fn is_poll(call: &Call) -> bool {
    matches!(
        call,
        Call::Poll { .. }
            | Call::PollBoth { .. }
            | Call::Ppoll { .. }
            | Call::PpollMasked { .. }
            | Call::Select { .. }
            | Call::Pselect { .. }
            | Call::PselectMasked { .. }
    )
}
