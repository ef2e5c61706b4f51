//! What a call has changed.

use super::full::counted;
use super::{
    Call, Choice, Connection, Entry, EpollEvents, Family, Handle, How, Kind, Member, Outcome,
    Sleeper, World, bit,
};

impl World {
    /// Take in that `call` had this outcome.
    pub fn apply(&mut self, process: usize, call: &Call, outcome: &Outcome) {
        let Some(handle) = call.main_handle() else {
            return self.opened(process, call, outcome);
        };
        let Some(entry) = self.entry(process, handle) else {
            return;
        };
        if !self.overfills(&self.files[entry.file], call) {
            self.let_grow();
        }
        self.uses(process, call);
        self.moved(entry.file, call, outcome);
        self.opened(process, call, outcome);
        self.described(entry.file, call, outcome);
        match call {
            Call::Close { .. } | Call::CloseRange { .. } => self.close(process, handle),
            Call::Dup2 { fd, onto } | Call::Dup3 { fd, onto } if outcome.fd.is_some() => {
                self.replace(process, *fd, *onto);
            }
            Call::EpollAdd { fd, events, .. } | Call::EpollMod { fd, events, .. }
                if outcome.text == "0" =>
            {
                self.register(entry.file, process, *fd, Some(*events));
            }
            Call::Pass { .. } if outcome.text == "1" => self.passed.push_back(entry.file),
            Call::EpollDel { fd, .. } if outcome.text == "0" => {
                self.register(entry.file, process, *fd, None);
            }
            _ => {}
        }
    }

    fn register(&mut self, epoll: usize, process: usize, fd: Handle, events: Option<EpollEvents>) {
        let Some(Entry { file, .. }) = self.entry(process, fd) else {
            return;
        };
        if let Kind::Epoll { members, .. } = &mut self.files[epoll].kind {
            members.retain(|member| member.file != file);
            members.extend(events.map(|events| Member {
                file,
                by: fd,
                events,
                known_to: bit(process),
            }));
        }
        // Whether a change wakes who sleeps on the set is not known, but what comes after it does.
        let progress = self.progress(epoll);
        let of_set = |sleeper: &&mut Sleeper| sleeper.sleeps_on(epoll);
        for sleeper in self.sleepers.iter_mut().filter(of_set) {
            sleeper.progress = progress;
        }
    }

    /// Bytes that went over a connection.
    fn moved(&mut self, file: usize, call: &Call, outcome: &Outcome) {
        let Kind::End { connection, side } = self.files[file].kind else {
            return;
        };
        if self.overfills(&self.files[file], call) {
            self.fill(connection, side, counted(call));
            self.filled(connection, side, call, outcome.bytes);
            self.connections[connection].dirty = true;
            return;
        }
        if call
            .reads()
            .is_some_and(|reading| !reading.flags.has(libc::MSG_PEEK))
        {
            self.drained(connection, 1 - side, outcome.bytes);
        }
        let it = &mut self.connections[connection];
        if let Some(reading) = call.reads() {
            it.wild |= reading.flags.has(libc::MSG_OOB);
            if !reading.flags.has(libc::MSG_PEEK) {
                let stream = &mut it.streams[1 - side];
                stream.taken = stream.sent.min(stream.taken + outcome.bytes);
                it.dirty |= stream.full.is_some();
            }
        } else if call.writes().is_some() {
            it.streams[side].sent += outcome.bytes;
            it.wild |= is_urgent(call) || it.ends[1 - side].shut_reading;
            if outcome.bytes > 0 && it.ends[1 - side].gone {
                it.ends[side].reset = true;
            }
            it.dirty = true;
        }
    }

    fn opened(&mut self, process: usize, call: &Call, outcome: &Outcome) {
        let (Some(fd), Some(new)) = (outcome.fd, call.new_handle()) else {
            return;
        };
        match *call {
            Call::Socket { nonblocking, .. } => {
                self.open(process, new, fd, Kind::Socket, nonblocking);
            }
            Call::EpollCreate { .. } => {
                let (users, members) = (Vec::new(), Vec::new());
                let epoll = Kind::Epoll { users, members };
                self.open(process, new, fd, epoll, false);
            }
            Call::Dup { fd: of, .. } | Call::DupFrom { fd: of, .. } => {
                if let Some(Entry { file, .. }) = self.entry(process, of) {
                    self.names.insert((process, new), Entry { fd, file });
                }
            }
            Call::Take { .. } => {
                if let Some(file) = self.passed.pop_front() {
                    self.names.insert((process, new), Entry { fd, file });
                }
            }
            Call::Accept {
                fd: of,
                nonblocking,
                ..
            } => {
                if let Some(connection) = self.take_from_backlog(process, of) {
                    let side = 0;
                    let end = Kind::End { connection, side };
                    self.open(process, new, fd, end, nonblocking);
                }
            }
            _ => {}
        }
    }

    fn take_from_backlog(&mut self, process: usize, listener: Handle) -> Option<usize> {
        let file = self.entry(process, listener)?.file;
        match &mut self.files[file].kind {
            Kind::Listener { backlog, .. } if !backlog.is_empty() => Some(backlog.remove(0)),
            _ => None,
        }
    }

    /// The state of a socket or connection that a call has set.
    fn described(&mut self, file: usize, call: &Call, outcome: &Outcome) {
        let it = &mut self.files[file];
        match *call {
            Call::SetNonblocking { on, .. } | Call::Fionbio { on, .. } => it.nonblocking = on,
            Call::Rcvtimeo { timeout_ms, .. } => it.limit_ms = timeout_ms,
            Call::Sndtimeo { timeout_ms, .. } => it.send_limit_ms = timeout_ms,
            Call::Linger { seconds, .. } => it.lingers_not = seconds == 0,
            Call::Setsockopt {
                option: Choice::RCVLOWAT,
                value,
                ..
            } if outcome.text == "0" => {
                it.least = usize::try_from(value).unwrap_or(1).max(1);
            }
            _ => {}
        }
        let stops = matches!(call, Call::Shutdown { how, .. } if *how != How::WR);
        if let Kind::Listener { backlog, .. } = &mut it.kind
            && stops
            && outcome.text == "0"
        {
            let backlog = std::mem::take(backlog);
            it.kind = Kind::Socket;
            return self.refuse(backlog);
        }
        let Kind::End { connection, side } = it.kind else {
            return;
        };
        let it = &mut self.connections[connection];
        match call {
            Call::Shutdown { how, .. } if outcome.text == "0" => {
                let end = &mut it.ends[side];
                end.shut_reading |= *how != How::WR;
                end.shut_writing |= *how != How::RD;
                it.wild |= *how != How::WR;
                it.dirty = true;
            }
            Call::Disconnect { .. } => {
                it.ends[1 - side].reset = true;
                it.wild = true;
                it.dirty = true;
            }
            Call::Connect { .. } | Call::ConnectNobody { .. } => {
                it.wild = true;
                it.dirty = true;
            }
            _ => {}
        }
    }

    /// Nobody is going to accept these.
    fn refuse(&mut self, backlog: Vec<usize>) {
        for connection in backlog {
            self.connections[connection].leave(0, true);
        }
    }

    /// A socket that has begun to listen.
    pub fn listens(&mut self, process: usize, handle: Handle, port: u16, family: Family) {
        if let Some(entry) = self.entry(process, handle) {
            self.files[entry.file].kind = Kind::Listener {
                port,
                is_tcp: Family::TCP.contains(&family),
                backlog: Vec::new(),
            };
        }
    }

    /// A socket that has connected, or is about to, to a listener.
    pub fn connects(&mut self, process: usize, handle: Handle, listener: Handle) {
        let Some(socket) = self.entry(process, handle) else {
            return;
        };
        let Some(to) = self.entry(process, listener) else {
            return;
        };
        let connection = self.connect();
        self.files[socket.file].kind = Kind::End {
            connection,
            side: 1,
        };
        if let Kind::Listener { backlog, .. } = &mut self.files[to.file].kind {
            backlog.push(connection);
        }
    }

    /// A name is gone; with the last one, and no sleeper, so is the file.
    pub fn close(&mut self, process: usize, handle: Handle) {
        if let Some(entry) = self.names.remove(&(process, handle)) {
            self.release_if_unused(entry.file);
        }
    }

    fn replace(&mut self, process: usize, fd: Handle, onto: Handle) {
        let (Some(from), Some(old)) = (self.entry(process, fd), self.entry(process, onto)) else {
            return;
        };
        let entry = Entry {
            fd: old.fd,
            file: from.file,
        };
        self.names.insert((process, onto), entry);
        self.release_if_unused(old.file);
    }

    /// A child has its parent's descriptors.
    pub fn fork(&mut self, process: usize, child: usize) {
        let of_parent: Vec<_> = self
            .names
            .iter()
            .filter(|((of, _), _)| *of == process)
            .map(|((_, handle), entry)| ((child, *handle), *entry))
            .collect();
        self.names.extend(of_parent);
        for file in &mut self.files {
            if let Kind::Epoll { members, .. } = &mut file.kind {
                let known = members.iter_mut();
                let known = known.filter(|member| member.known_to & bit(process) != 0);
                known.for_each(|member| member.known_to |= bit(child));
            }
        }
    }

    /// A process has ended.
    pub fn exit(&mut self, process: usize) {
        let (dead, alive): (Vec<_>, _) = std::mem::take(&mut self.sleepers)
            .into_iter()
            .partition(|sleeper| sleeper.process == process);
        self.sleepers = alive;
        for sleeper in dead {
            self.cut(&sleeper);
        }
        let names: Vec<_> = self.names.keys().copied().collect();
        for (_, handle) in names.iter().filter(|(of, _)| *of == process) {
            self.close(process, *handle);
        }
        self.held.retain(|(of, _)| *of != process);
        // What only its sleepers held is closed as well.
        (0..self.files.len()).for_each(|file| self.release_if_unused(file));
    }

    pub fn begin(&mut self, process: usize, thread: usize, call: Call, file: usize) {
        self.uses(process, &call);
        let progress = self.progress(file);
        let mut same = call.clone();
        let handles = same.handles().into_iter();
        let entries = handles.filter_map(|handle| self.entry(process, *handle));
        let mut numbers: Vec<_> = entries.map(|entry| entry.fd).collect();
        if matches!(call, Call::StdioRead { .. }) {
            // Its stream has a number of its own.
            numbers.clear();
        }
        let other = self.second(process, &call);
        let limit_ms = self.files[file].send_limit_ms;
        if let (Some(_), Kind::End { connection, side }) = (call.writes(), &self.files[file].kind) {
            let (connection, side) = (*connection, *side);
            self.fill(connection, side, counted(&call));
            self.connections[connection].dirty = true;
        }
        self.sleepers.push(Sleeper {
            process,
            thread,
            call,
            file,
            other,
            numbers,
            progress,
            limit_ms,
            interrupted: false,
        });
    }

    /// A sleeper that was to come back sleeps on.
    pub fn keep_for(&mut self, index: usize) {
        let sleeper = &self.sleepers[index];
        let process = sleeper.process;
        self.held
            .extend(sleeper.files().map(|file| (process, file)));
    }

    /// It has come back after all.
    pub fn keep_no_more_for(&mut self, sleeper: &Sleeper) {
        for file in sleeper.files() {
            let held = (sleeper.process, file);
            if let Some(place) = self.held.iter().position(|other| *other == held) {
                self.held.remove(place);
            }
            self.release_if_unused(file);
        }
    }

    /// A sleeper came back.
    pub fn end_sleep(&mut self, index: usize, outcome: &Outcome) -> Sleeper {
        let sleeper = self.sleepers.remove(index);
        match &self.files[sleeper.file].kind {
            Kind::End { connection, side } if sleeper.is_send() => {
                let (connection, side) = (*connection, *side);
                self.filled(connection, side, &sleeper.call, outcome.bytes);
                self.connections[connection].dirty = true;
            }
            _ => self.moved(sleeper.file, &sleeper.call, outcome),
        }
        self.opened(sleeper.process, &sleeper.call, outcome);
        let files = sleeper.files();
        files.for_each(|file| self.release_if_unused(file));
        sleeper
    }

    pub(super) fn release_if_unused(&mut self, file: usize) {
        let is_named = self.names.values().any(|entry| entry.file == file);
        let is_held = self.sleepers.iter().any(|sleeper| sleeper.sleeps_on(file))
            || self.held.iter().any(|(_, held)| *held == file);
        if is_named || is_held || self.passed.contains(&file) {
            return;
        }
        for epoll in &mut self.files {
            if let Kind::Epoll { members, .. } = &mut epoll.kind {
                members.retain(|member| member.file != file);
            }
        }
        let lingers_not = self.files[file].lingers_not;
        match std::mem::replace(&mut self.files[file].kind, Kind::Socket) {
            Kind::End { connection, side } => self.connections[connection].leave(side, lingers_not),
            Kind::Listener { backlog, .. } => self.refuse(backlog),
            Kind::Socket | Kind::Epoll { .. } => {}
        }
    }
}

impl Connection {
    /// An end has been closed for good.
    fn leave(&mut self, side: usize, lingers_not: bool) {
        self.ends[side].gone = true;
        if self.unread(side) > 0 || lingers_not {
            self.ends[1 - side].reset = true;
            self.streams[side].lose();
        }
        // Nobody is left to read it.
        if self.streams[1 - side].full.is_some() {
            self.streams[1 - side].empty();
        }
        self.dirty = true;
    }
}

fn is_urgent(call: &Call) -> bool {
    matches!(call, Call::Send { flags, .. } | Call::Sendmsg { flags, .. }
        | Call::Sendmmsg { flags, .. } if flags.has(libc::MSG_OOB))
}
