//! What the player knows of descriptors and connections while it plays: enough to leave out calls
//! that would sleep for ever, to know when a sleeper must wake, and when all is at rest.
//!
//! It is no model of TCP. Where it is not sure it calls a connection *wild*, on which only calls
//! are made that cannot sleep.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::os::fd::RawFd;

use crate::act::{Matter, Outcome};
use crate::call::Call;
use crate::word::{Choice, EpollEvents, Family, Handle, How};

mod apply;
mod copies;
mod full;
mod judge;
mod signalled;

pub use copies::is_poll;
pub use full::{CAPACITY, Full, overfilling, without_count};

/// More than this is not left unread, so that room is never a matter of buffers.
const ROOM: usize = 12_000;

/// A name of a descriptor in a process.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub fd: RawFd,
    pub file: usize,
}

/// An open file description.
#[derive(Clone, Debug)]
pub struct File {
    pub kind: Kind,
    pub nonblocking: bool,
    /// SO_RCVTIMEO; 0 for none.
    pub limit_ms: u32,
    /// SO_SNDTIMEO; 0 for none.
    pub send_limit_ms: u32,
    /// SO_RCVLOWAT.
    pub least: usize,
    lingers_not: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not connected.
    Socket,
    Listener {
        port: u16,
        is_tcp: bool,
        /// Connections that have not been accepted.
        backlog: Vec<usize>,
    },
    End {
        connection: usize,
        side: usize,
    },
    Epoll {
        /// Processes that have used it.
        users: Vec<usize>,
        members: Vec<Member>,
    },
}

/// A file that is registered in an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub file: usize,
    /// The name by which it was registered.
    pub by: Handle,
    pub events: EpollEvents,
    /// Who has put it there as it is, or has been forked since, a bit for each process.
    known_to: u32,
}

/// A connection between side 0 and side 1.
#[derive(Clone, Debug)]
pub struct Connection {
    /// By the side that sends.
    pub streams: [Stream; 2],
    pub ends: [End; 2],
    pub wild: bool,
    /// Whether something has happened that may still be on its way.
    pub dirty: bool,
}

/// The bytes that one side sends.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub key: u64,
    pub sent: usize,
    pub taken: usize,
    /// Set while it is not known how much of what was sent has been taken in.
    pub full: Option<Full>,
}

/// What has become of an end.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    pub shut_reading: bool,
    pub shut_writing: bool,
    pub gone: bool,
    pub reset: bool,
}

/// A call that sleeps in a thread.
#[derive(Clone, Debug)]
pub struct Sleeper {
    pub process: usize,
    pub thread: usize,
    pub call: Call,
    /// What it holds open and waits for.
    pub file: usize,
    /// The second that a poll waits for.
    other: Option<usize>,
    /// The numbers that it was called with.
    numbers: Vec<RawFd>,
    /// How much its connections had seen when it began.
    progress: usize,
    /// SO_SNDTIMEO when it began.
    limit_ms: u32,
    /// It has been told to come back.
    pub interrupted: bool,
}

impl Sleeper {
    pub fn is_send(&self) -> bool {
        self.call.writes().is_some()
    }

    /// Whether it begins again behind a signal whose action has SA_RESTART.
    fn begins_again(&self) -> bool {
        self.call.reads().is_some() || matches!(self.call, Call::Accept { .. })
    }

    /// All that it holds open and waits for.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        iter::once(self.file).chain(self.other)
    }

    pub fn sleeps_on(&self, file: usize) -> bool {
        self.files().any(|other| other == file)
    }
}

/// See the [module](self).
#[derive(Default)]
pub struct World {
    pub names: BTreeMap<(usize, Handle), Entry>,
    pub files: Vec<File>,
    pub connections: Vec<Connection>,
    pub sleepers: Vec<Sleeper>,
    /// Files that have been passed and not taken.
    passed: VecDeque<usize>,
    /// Files that threads of processes hold who sleep on although they were to wake.
    held: Vec<(usize, usize)>,
}

impl File {
    fn new(kind: Kind, nonblocking: bool) -> Self {
        Self {
            kind,
            nonblocking,
            limit_ms: 0,
            send_limit_ms: 0,
            least: 1,
            lingers_not: false,
        }
    }

    /// Whether reads give up after a moment.
    pub fn is_impatient(&self) -> bool {
        is_short(self.limit_ms)
    }

    /// Whether a call that may sleep gives up after a moment.
    pub fn limits(&self, call: &Call) -> bool {
        call.reads().is_some() && self.is_impatient()
            || call.writes().is_some() && is_short(self.send_limit_ms)
    }
}

/// That of a process among several.
fn bit(process: usize) -> u32 {
    1 << process
}

/// Whether a time limit is over before the next step.
fn is_short(limit_ms: u32) -> bool {
    (1..1000).contains(&limit_ms)
}

impl Connection {
    pub fn is_full(&self) -> bool {
        self.streams.iter().any(|stream| stream.full.is_some())
    }

    /// How many bytes `side` could read.
    pub fn unread(&self, side: usize) -> usize {
        let stream = self.streams[1 - side];
        stream.sent - stream.taken
    }

    /// Whether a read of at least so many bytes would not wait.
    pub fn is_readable(&self, side: usize, least: usize) -> bool {
        let (end, other) = (self.ends[side], self.ends[1 - side]);
        let ended = other.shut_writing || other.gone || end.reset || end.shut_reading;
        ended || self.unread(side) >= least
    }

    /// Whether both ends are there and can talk.
    pub fn is_whole(&self) -> bool {
        let sound = |end: &End| !(end.shut_reading || end.shut_writing || end.gone || end.reset);
        !self.wild && self.ends.iter().all(sound)
    }

    /// A number that grows with whatever could wake a sleeper.
    fn progress(&self, side: usize) -> usize {
        let other = self.ends[1 - side];
        let events = [other.shut_writing, other.gone, self.ends[side].reset];
        self.streams[1 - side].sent + events.iter().filter(|on| **on).count()
    }
}

impl World {
    pub fn entry(&self, process: usize, handle: Handle) -> Option<Entry> {
        self.names.get(&(process, handle)).copied()
    }

    pub fn file(&self, process: usize, handle: Handle) -> Option<&File> {
        Some(&self.files[self.entry(process, handle)?.file])
    }

    /// The connection and side of a descriptor.
    pub fn end(&self, process: usize, handle: Handle) -> Option<(usize, usize)> {
        match self.file(process, handle)?.kind {
            Kind::End { connection, side } => Some((connection, side)),
            _ => None,
        }
    }

    /// Some process and descriptor by which an end can be looked at.
    pub fn window(&self, connection: usize, side: usize) -> Option<(usize, RawFd)> {
        let is_it = |entry: &Entry| self.files[entry.file].kind == Kind::End { connection, side };
        self.names
            .iter()
            .find(|(_, entry)| is_it(entry))
            .map(|((process, _), entry)| (*process, entry.fd))
    }

    /// How many names a process has for a file.
    pub fn names_of(&self, process: usize, file: usize) -> usize {
        let is_it =
            |((of, _), entry): &(&(usize, Handle), &Entry)| *of == process && entry.file == file;
        self.names.iter().filter(is_it).count()
    }

    /// Whether some other process has a file, or is to have it.
    pub fn is_elsewhere(&self, process: usize, file: usize) -> bool {
        let is_it =
            |((of, _), entry): (&(usize, Handle), &Entry)| *of != process && entry.file == file;
        self.passed.contains(&file) || self.names.iter().any(is_it)
    }

    /// Whether a file is in an epoll set.
    pub fn is_member(&self, file: usize) -> bool {
        self.files.iter().any(|set| match &set.kind {
            Kind::Epoll { members, .. } => members.iter().any(|member| member.file == file),
            _ => false,
        })
    }

    /// Whether the call has to do with a set that several processes use by then, while not each of them has, by the same name, all
    /// that is in it.
    pub fn shares_a_set_unequally(&self, process: usize, call: &Call) -> bool {
        let mut handles = call.clone();
        let files = handles.handles().into_iter();
        let files = files.filter_map(|handle| Some(self.entry(process, *handle)?.file));
        let added = match call {
            Call::EpollAdd { fd, .. } => self.entry(process, *fd).map(|entry| (entry.file, *fd)),
            _ => None,
        };
        files.into_iter().any(|file| {
            let Kind::Epoll { users, members } = &self.files[file].kind else {
                return false;
            };
            let waits = |user: usize| {
                let is_it = |sleeper: &Sleeper| sleeper.process == user && sleeper.sleeps_on(file);
                self.sleepers.iter().any(is_it)
            };
            let lives = |user: &usize| self.names_of(*user, file) > 0 || waits(*user);
            let users = users.iter().copied().filter(lives);
            let users: Vec<usize> = users.chain([process]).collect();
            let is_alone = users.iter().all(|user| *user == process);
            let has = |user: &usize, (file, by): (usize, Handle)| {
                let entry = self.entry(*user, by);
                entry.is_some_and(|entry| entry.file == file)
            };
            let lacks = |member: &Member| {
                member.known_to & bit(process) == 0 && !has(&process, (member.file, member.by))
            };
            if is_alone {
                // Who has put it there has left the set.
                return members.iter().any(lacks);
            }
            let mut all = members
                .iter()
                .map(|member| (member.file, member.by))
                .chain(added);
            all.any(|member| !users.iter().all(|user| has(user, member)))
        })
    }

    /// A process makes a call, perhaps of a set.
    pub fn uses(&mut self, process: usize, call: &Call) {
        let is_use = call.waits_in_set()
            || matches!(
                call,
                Call::EpollAdd { .. } | Call::EpollMod { .. } | Call::EpollDel { .. }
            )
            || matches!(
                call,
                Call::Poll { .. }
                    | Call::PollBoth { .. }
                    | Call::Ppoll { .. }
                    | Call::PpollMasked { .. }
            )
            || matches!(
                call,
                Call::Select { .. } | Call::Pselect { .. } | Call::PselectMasked { .. }
            );
        let mut handles = call.clone();
        for handle in handles.handles().into_iter().filter(|_| is_use) {
            let file = self.entry(process, *handle).map(|entry| entry.file);
            if let Some(Kind::Epoll { users, .. }) = file.map(|file| &mut self.files[file].kind)
                && !users.contains(&process)
            {
                users.push(process);
            }
        }
    }

    /// A new connection, whose streams have keys of their own.
    pub fn connect(&mut self) -> usize {
        let number = self.connections.len();
        let stream = |side| Stream {
            key: 2 * number as u64 + side,
            sent: 0,
            taken: 0,
            full: None,
        };
        self.connections.push(Connection {
            streams: [stream(0), stream(1)],
            ends: [End::default(); 2],
            wild: false,
            dirty: true,
        });
        number
    }

    /// A new descriptor of a new file.
    pub fn open(
        &mut self,
        process: usize,
        handle: Handle,
        fd: RawFd,
        kind: Kind,
        nonblocking: bool,
    ) {
        let file = self.files.len();
        self.files.push(File::new(kind, nonblocking));
        self.names.insert((process, handle), Entry { fd, file });
    }

    /// The call with descriptors for names, and what else it needs. None: it cannot be made.
    pub fn resolve(&self, process: usize, call: &Call) -> Option<(Call, Matter)> {
        let matter = self.matter(process, call)?;
        let mut call = call.clone();
        if let Some(new) = call.new_handle()
            && self.entry(process, new).is_some()
        {
            return None;
        }
        for handle in call.handles() {
            let entry = self.entry(process, *handle)?;
            *handle = Handle(u32::try_from(entry.fd).ok()?);
        }
        Some((call, matter))
    }

    fn matter(&self, process: usize, call: &Call) -> Option<Matter> {
        let mut matter = Matter::default();
        if let Call::Connect { listener, .. } = call {
            let Kind::Listener { port, .. } = self.file(process, *listener)?.kind else {
                return None;
            };
            matter.port = port;
        }
        let end = call.main_handle().and_then(|fd| self.end(process, fd));
        if let Some((connection, side)) = end {
            let sends = call.writes().is_some() || matches!(call, Call::Fill { .. });
            let streams = &self.connections[connection].streams;
            let stream = streams[if sends { side } else { 1 - side }];
            matter.key = stream.key;
            let missing = stream.full.map_or(0, |full| full.missing);
            let sent = stream.sent - missing;
            let offset = if sends { sent } else { stream.taken };
            matter.offset = offset as u64;
        }
        Some(matter)
    }
}

#[cfg(test)]
mod tests;
