//! Streams into which more has been sent than buffers hold.
//!
//! How much of that is taken in depends on buffers. So it counts as sent as a whole, what was not is remembered, and until
//! all of it has been read only calls are made whose outcome is the same for any size of buffers.

use std::os::fd::RawFd;

use super::copies::{has_no_room, is_poll};
use super::{Call, End, File, How, Kind, Outcome, ROOM, Sleeper, World};
use crate::act::FILL_LIMIT;

/// More than the buffers of a connection hold, however they have grown.
pub const CAPACITY: usize = 16 << 20;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Full {
    /// Of what counts as sent, how much was not.
    pub missing: usize,
    /// How much can surely be read.
    sure: usize,
    /// Whether that has been read under a send, which goes on when there is room, and more comes in time.
    flows: bool,
    /// Whether a send would take nothing.
    is_brimful: bool,
    /// Whether something else has been called since: the connection may have entered its rings, where there is room.
    may_have_grown: bool,
    /// Whether it was cut off within a call whose outcome nobody was told.
    pub is_cut: bool,
    /// Whether a reset has taken some of it.
    is_lost: bool,
}

/// What is to be read of a full stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// So many bytes.
    pub most: usize,
    /// Where nobody was told how much was sent, the stream ends behind so many at the earliest.
    pub least_before_end: Option<usize>,
}

impl World {
    /// Whether `call` sends more than there is room for, and nobody depends on how much of it is taken at what time.
    pub(super) fn overfills(&self, file: &File, call: &Call) -> bool {
        let Kind::End { connection, side } = file.kind else {
            return false;
        };
        let it = &self.connections[connection];
        let (own, peer) = (it.ends[side], it.ends[1 - side]);
        let is_open = !(it.wild || own.shut_writing || own.reset || peer.shut_reading || peer.gone);
        let is_enough = |count| match it.streams[side].full {
            None => count >= CAPACITY,
            Some(full) => {
                let is_brimful = full.is_brimful && !full.may_have_grown;
                count > 0 && is_brimful && !full.is_cut && !full.is_lost
            }
        };
        let is_plain = match call {
            Call::Fill { .. } => it.streams[side].full.is_none(),
            _ => overfilling(call).is_some_and(is_enough),
        };
        is_open && is_plain && !self.depends_on_room(connection, side)
    }

    /// Whether a sleeper would wake at a time that depends on buffers, or sends already.
    fn depends_on_room(&self, connection: usize, side: usize) -> bool {
        let of = |side| Kind::End { connection, side };
        let (own, peer) = (of(side), of(1 - side));
        self.sleepers.iter().any(|sleeper| {
            let kind = &self.files[sleeper.file].kind;
            let sends = sleeper.is_send() && *kind == own;
            let receives = sleeper.call.reads().is_some() && *kind == peer;
            // What makes room wakes it, which ends it.
            let idles = has_no_room(&sleeper.call) && *kind == own;
            let mut all = self.all_of(sleeper).into_iter();
            let is_set = matches!(kind, Kind::Epoll { .. });
            sends || receives || idles || is_set && all.any(|file| self.files[file].kind == own)
        })
    }

    /// Whether the outcome of `call` is the same however much is on its way.
    pub(super) fn is_sure(&self, process: usize, file: usize, call: &Call) -> bool {
        let (out, into) = self.full_of(file);
        let is_at_full = out.is_some() || into.is_some();
        let reads = into.is_none_or(|into| self.reads_surely(file, into, call));
        let is_in_place = match *call {
            Call::Fionread { .. } => into.is_none(),
            Call::Setsockopt { .. } => !is_at_full || call.keeps_low_water(),
            Call::Getsockopt {
                option: super::Choice::ERROR,
                ..
            } => self.peer_behind_full(file).is_none_or(|peer| !peer.gone),
            Call::Disconnect { .. } => !is_at_full,
            // The kernel looks at both with each portion of a file.
            Call::SetNonblocking { .. } | Call::Fionbio { .. } | Call::Sndtimeo { .. } => {
                !self.sends_a_file(file)
            }
            // Whoever reads no more leaves it there. A connection is over when the ends of both streams have come.
            Call::Shutdown { how, .. } => {
                let is_end_awaited = out.is_some() && self.is_awaited(&self.peer_of(file));
                (how == How::WR || into.is_none()) && !self.holds_end_back(file) && !is_end_awaited
            }
            Call::Close { .. } => out.is_none() || !self.is_awaited(&self.peer_of(file)),
            Call::EpollAdd { fd, .. } | Call::EpollMod { fd, .. } => {
                self.entry(process, fd).is_none_or(|entry| {
                    let is_awaited = self.is_awaited(&self.files[file].kind);
                    let is_end_awaited = is_awaited && self.holds_end_back(entry.file);
                    self.full_of(entry.file).0.is_none() && !is_end_awaited
                })
            }
            Call::Fill { .. } => self.overfills(&self.files[file], call),
            _ => call.writes().is_none() || self.sends_surely(file, call),
        };
        let second = self.second(process, call);
        let mut looked_at = std::iter::once(file).chain(second);
        reads
            && is_in_place
            && (!waits(call) || looked_at.all(|file| self.tells_surely(file, call)))
    }

    fn sends_surely(&self, file: usize, call: &Call) -> bool {
        let (out, into) = self.full_of(file);
        let has_place = out.is_none() || self.overfills(&self.files[file], call);
        // Where the connection does not come to rest, TCP has what is held back held back still.
        let is_held_back = into.is_some() && holds_back(call);
        let is_refused = self
            .peer_behind_full(file)
            .is_some_and(|peer| peer.gone || peer.shut_reading);
        has_place && !is_held_back && !is_refused
    }

    /// What has become of the peer of `file`, if that depends on room for what it has sent.
    fn peer_behind_full(&self, file: usize) -> Option<End> {
        let Kind::End { connection, side } = self.files[file].kind else {
            return None;
        };
        let it = &self.connections[connection];
        let peer = it.ends[1 - side];
        // A reset comes at once, but which error it is depends on whether the end of the stream has come before it.
        let is_reset = it.ends[side].reset && !peer.shut_writing;
        let is_told = it.streams[1 - side].full.is_none() || is_reset;
        (!is_told).then_some(peer)
    }

    /// Whether something has come for `file` that nobody has been given yet.
    pub fn has_come(&self, file: usize) -> bool {
        match self.files[file].kind {
            Kind::End { connection, side } => self.connections[connection].unread(side) > 0,
            _ => false,
        }
    }

    /// Whether the end of what comes to `file` may find no room, so that nothing tells of it.
    fn holds_end_back(&self, file: usize) -> bool {
        self.peer_behind_full(file)
            .is_some_and(|peer| peer.gone || peer.shut_writing)
    }

    /// Whether a call sleeps until something is ready, there or in a set that it is in.
    fn is_awaited(&self, kind: &Kind) -> bool {
        let mut waiters = self.sleepers.iter().filter(|sleeper| waits(&sleeper.call));
        waiters.any(|sleeper| {
            let mut all = self.all_of(sleeper).into_iter();
            all.any(|file| self.files[file].kind == *kind)
        })
    }

    /// The other end of a connection; what is none has itself for it.
    fn peer_of(&self, file: usize) -> Kind {
        match &self.files[file].kind {
            Kind::End { connection, side } => Kind::End {
                connection: *connection,
                side: 1 - side,
            },
            kind => kind.clone(),
        }
    }

    fn reads_surely(&self, file: usize, full: Full, call: &Call) -> bool {
        let Kind::End { connection, side } = self.files[file].kind else {
            return true;
        };
        let stream = self.connections[connection].streams[1 - side];
        match (call, call.reads()) {
            (_, None) => true,
            (Call::Drain { count, .. }, _) => {
                let rest = stream.unread().checked_sub(*count);
                let is_sending = self.is_sending(connection, 1 - side);
                let comes = full.sure > 0 || full.flows;
                comes && is_sending && rest.is_some_and(|rest| rest >= CAPACITY)
            }
            (_, Some(reading)) => !full.is_lost && reading.most <= full.sure,
        }
    }

    /// Whether a send sleeps.
    fn is_sending(&self, connection: usize, side: usize) -> bool {
        let end = Kind::End { connection, side };
        let mut senders = self.sleepers.iter().filter(|sleeper| sleeper.is_send());
        senders.any(|sleeper| self.files[sleeper.file].kind == end)
    }

    fn sends_a_file(&self, file: usize) -> bool {
        self.sleepers
            .iter()
            .any(|sleeper| sleeper.file == file && matches!(sleeper.call, Call::Sendfile { .. }))
    }

    /// Whether room, or an edge that tells of more, is nothing that the call could tell of.
    fn tells_surely(&self, file: usize, call: &Call) -> bool {
        let asks_for_room = match *call {
            Call::Poll { events, .. }
            | Call::PollBoth { events, .. }
            | Call::Ppoll { events, .. }
            | Call::PpollMasked { events, .. } => events.has(libc::POLLOUT),
            Call::Select { timeout_ms, .. }
            | Call::Pselect { timeout_ms, .. }
            | Call::PselectMasked { timeout_ms, .. } => timeout_ms >= 0,
            _ => false,
        };
        let (out, _) = self.full_of(file);
        let is_of_room = out.is_some() && asks_for_room;
        !is_of_room && !self.holds_end_back(file) && self.set_tells_surely(file)
    }

    fn set_tells_surely(&self, set: usize) -> bool {
        let Kind::Epoll { members, .. } = &self.files[set].kind else {
            return true;
        };
        members.iter().all(|member| {
            let (out, into) = self.full_of(member.file);
            let for_edges = member.events.has(libc::EPOLLET.cast_unsigned());
            let is_edge = for_edges && into.is_some();
            !is_edge
                && out.is_none()
                && !self.holds_end_back(member.file)
                && self.set_tells_surely(member.file)
        })
    }

    /// What is known of the streams from and to an end, if they are full.
    fn full_of(&self, file: usize) -> (Option<Full>, Option<Full>) {
        match self.files[file].kind {
            Kind::End { connection, side } => {
                let streams = &self.connections[connection].streams;
                (streams[side].full, streams[1 - side].full)
            }
            _ => (None, None),
        }
    }

    /// A call begins to send, or has sent, more than there is room for: all of it counts as sent.
    pub(super) fn fill(&mut self, connection: usize, side: usize, count: usize) {
        let stream = &mut self.connections[connection].streams[side];
        stream.sent += count;
        let full = stream.full.get_or_insert_default();
        // What is read while a send has taken nothing may wake it or not.
        full.sure = if full.is_brimful { 0 } else { ROOM };
        full.flows = false;
    }

    /// So much of what counts as sent was.
    pub(super) fn filled(&mut self, connection: usize, side: usize, call: &Call, sent: usize) {
        let Some(full) = &mut self.connections[connection].streams[side].full else {
            return;
        };
        full.missing += counted(call) - sent;
        full.is_brimful |= matches!(call, Call::Fill { .. });
        (full.sure, full.flows) = (ROOM, false);
    }

    /// Something has been called that does not fill a stream.
    pub(super) fn let_grow(&mut self) {
        let streams = self.connections.iter_mut().flat_map(|it| &mut it.streams);
        for full in streams.filter_map(|stream| stream.full.as_mut()) {
            full.may_have_grown = true;
        }
    }

    /// So much has been read.
    pub(super) fn drained(&mut self, connection: usize, side: usize, count: usize) {
        let is_sending = self.is_sending(connection, side);
        if let Some(full) = &mut self.connections[connection].streams[side].full
            && count > 0
        {
            full.is_brimful = false;
            // When the send goes on, TCP decides.
            full.flows |= is_sending && count >= full.sure;
            full.sure -= count.min(full.sure);
        }
    }

    /// A process ends in which a send sleeps.
    pub(super) fn cut(&mut self, sleeper: &Sleeper) {
        let Kind::End { connection, side } = self.files[sleeper.file].kind else {
            return;
        };
        if sleeper.is_send()
            && let Some(full) = &mut self.connections[connection].streams[side].full
        {
            full.is_cut |= !full.is_brimful;
            if full.is_brimful {
                full.missing += counted(&sleeper.call);
                full.sure = ROOM;
            }
        }
    }

    /// How much there is to read for whoever empties what its peer has filled.
    pub fn rest_of_full(&self, process: usize, handle: super::Handle) -> Option<Rest> {
        let (connection, side) = self.end(process, handle)?;
        let file = self.file(process, handle)?;
        let it = &self.connections[connection];
        let (stream, own, peer) = (it.streams[1 - side], it.ends[side], it.ends[1 - side]);
        let full = stream.full.filter(|full| !full.is_lost)?;
        let is_told = !full.is_cut || peer.gone || peer.shut_writing;
        let is_open = !own.shut_reading && !own.reset && file.least == 1;
        let is_kept = !self.is_released_by_sender(connection, 1 - side);
        (is_told && is_open && is_kept).then(|| Rest {
            most: stream.unread() - full.missing,
            least_before_end: full.is_cut.then_some(full.sure),
        })
    }

    /// Whether the end of a sleeping send leaves its connection with a reset.
    fn is_released_by_sender(&self, connection: usize, side: usize) -> bool {
        let end = Kind::End { connection, side };
        self.sleepers.iter().any(|sleeper| {
            let file = &self.files[sleeper.file];
            let is_unnamed = !self.names.values().any(|entry| entry.file == sleeper.file);
            let resets = file.lingers_not || self.connections[connection].unread(side) > 0;
            sleeper.is_send() && file.kind == end && is_unnamed && resets
        })
    }

    /// All has been read: from here on it is known again what is there.
    pub fn emptied(&mut self, process: usize, handle: super::Handle) {
        if let Some((connection, side)) = self.end(process, handle) {
            let it = &mut self.connections[connection];
            it.streams[1 - side].empty();
            it.dirty = true;
        }
    }

    /// Whether the numbers that it was called with are those of its file.
    pub(super) fn is_still_named(&self, sleeper: &Sleeper) -> bool {
        let is_named = |number: &RawFd| {
            let is_it = |((process, _), entry): (&(usize, super::Handle), &super::Entry)| {
                *process == sleeper.process && entry.fd == *number && entry.file == sleeper.file
            };
            self.names.iter().any(is_it)
        };
        sleeper.numbers.iter().all(is_named)
    }

    /// Whether a signal makes a send return.
    pub(super) fn is_send_ended_by_signal(&self, sleeper: &Sleeper, restart: bool) -> bool {
        let file = &self.files[sleeper.file];
        let (out, _) = self.full_of(sleeper.file);
        let has_sent = out.is_none_or(|full| !full.is_brimful);
        // What it begins again with goes by what its number names by now.
        let has_patience = !file.nonblocking && !(1..1000).contains(&file.send_limit_ms);
        let gives_up = !has_patience && self.is_still_named(sleeper);
        has_sent || !restart || sleeper.limit_ms > 0 || gives_up
    }
}

impl super::Stream {
    fn unread(&self) -> usize {
        self.sent - self.taken
    }

    pub(super) fn empty(&mut self) {
        self.taken = self.sent;
        self.full = None;
    }

    pub(super) fn lose(&mut self) {
        if let Some(full) = &mut self.full {
            full.is_lost = true;
        }
    }
}

impl Call {
    fn keeps_low_water(&self) -> bool {
        !matches!(
            self,
            Self::Setsockopt {
                option: super::Choice::RCVLOWAT,
                ..
            }
        )
    }
}

/// How much a call counts for that sends more than there is room for.
pub(super) fn counted(call: &Call) -> usize {
    match call {
        Call::Fill { .. } => FILL_LIMIT,
        _ => overfilling(call).unwrap_or(0),
    }
}

fn holds_back(call: &Call) -> bool {
    matches!(call, Call::Send { flags, .. } | Call::Sendmsg { flags, .. }
        | Call::Sendmmsg { flags, .. } if flags.has(libc::MSG_MORE))
}

/// How many bytes of which a call sends as many as there is room for, and then waits or comes back.
pub fn overfilling(call: &Call) -> Option<usize> {
    match *call {
        Call::Send { flags, .. } | Call::Sendmsg { flags, .. }
            if flags.0 & (libc::MSG_OOB | libc::MSG_MORE) != 0 =>
        {
            None
        }
        Call::Write { .. }
        | Call::Send { .. }
        | Call::Writev { .. }
        | Call::Sendmsg { .. }
        | Call::Pwritev2 { .. }
        | Call::RawWrite { .. }
        | Call::Sendfile { .. } => call.writes(),
        _ => None,
    }
}

/// What is shown of a call that sends more than there is room for.
pub fn without_count(call: &Call, outcome: &Outcome) -> String {
    let share = match overfilling(call) {
        Some(count) if count == outcome.bytes => "all",
        Some(_) if outcome.bytes > 0 => "some",
        _ => return outcome.text.clone(),
    };
    outcome.text.replacen(&outcome.bytes.to_string(), share, 1)
}

/// Whether a call tells what is ready.
fn waits(call: &Call) -> bool {
    is_poll(call) || call.waits_in_set()
}

#[cfg(test)]
mod tests;
