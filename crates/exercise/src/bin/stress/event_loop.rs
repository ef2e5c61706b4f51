//! One thread that drives several connections without ever blocking on one.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::set_nonblocking;
use crosslane_exercise::random::Random;

use crate::board::Half;
use crate::connection::Connection;
use crate::mischief::{dawdle, renumber, set_some_option};
use crate::plan::Driver;
use crate::poller::{Interest, Poller, Waiter};
use crate::transfer::{Moved, Waiting};

/// How often a loop looks for connections that are still to come.
const LOOK_FOR_MORE_MS: i32 = 5;
/// How long it waits for connections of a client that has died.
const GIVE_UP: Duration = Duration::from_secs(2);
/// Calls on one connection before the next has its turn.
const CALLS_IN_A_ROW: usize = 4;

/// Carry all connections that come to their ends, until the sender is gone.
pub fn run(driver: Driver, coming: &Receiver<Connection>) {
    let mut event_loop = EventLoop {
        poller: Poller::new(driver),
        members: Vec::new(),
        more: true,
    };
    loop {
        event_loop.welcome(coming);
        if event_loop.members.iter().all(Option::is_none) {
            match coming.recv_timeout(GIVE_UP) {
                Ok(connection) => event_loop.add(connection),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
        event_loop.turn();
    }
}

struct EventLoop {
    poller: Poller,
    /// By key; None once it is over.
    members: Vec<Option<Member>>,
    /// Whether connections may still come.
    more: bool,
}

/// A connection, and what is known about it.
struct Member {
    connection: Connection,
    key: usize,
    waiting: Waiting,
    random: Random,
    is_sending: bool,
    is_receiving: bool,
    broken: Option<Errno>,
    /// What can be done as far as is known.
    ready: Interest,
}

impl EventLoop {
    fn welcome(&mut self, coming: &Receiver<Connection>) {
        while self.more {
            match coming.try_recv() {
                Ok(connection) => self.add(connection),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.more = false,
            }
        }
    }

    fn add(&mut self, connection: Connection) {
        let member = Member::new(connection, self.members.len());
        self.poller.add(member.waiter());
        self.members.push(Some(member));
    }

    /// Wait once, and do what can be done.
    fn turn(&mut self) {
        let members = self.members.iter().flatten();
        let waiters: Vec<_> = members.clone().map(Member::waiter).collect();
        // What an edge told and was not done yet will not be told again.
        let has_work = self.poller.is_edge() && members.clone().any(Member::has_work);
        let timeout = match (has_work, self.more) {
            (true, _) => Some(0),
            (false, true) => Some(LOOK_FOR_MORE_MS),
            (false, false) => None,
        };
        members.for_each(|member| {
            member
                .connection
                .end
                .status
                .begin(Half::Receiving, "waiting")
        });
        for (key, told) in self.poller.wait(&waiters, timeout) {
            // Something may be told of one that ended in this very turn.
            if let Some(member) = self.members[key].as_mut() {
                member.ready.read |= told.read;
                member.ready.write |= told.write;
            }
        }
        for key in 0..self.members.len() {
            self.serve(key);
        }
    }

    fn serve(&mut self, key: usize) {
        let Some(member) = self.members[key].as_mut() else {
            return;
        };
        let was_told = member.ready != Interest::default();
        let before = member.waiter().interest;
        if was_told && member.serve() {
            self.poller.remove(member.connection.end.fd);
            if let Some(member) = self.members[key].take() {
                member.end();
            }
            return;
        }
        if self.poller.is_edge() {
            return;
        }
        member.ready = Interest::default();
        if member.random.one_in(100) {
            self.poller.remove(member.connection.end.fd);
            member.connection.end.fd = renumber(member.connection.end.fd, &mut member.random);
            self.poller.add(member.waiter());
        } else if was_told || member.waiter().interest != before {
            self.poller.update(member.waiter());
        }
    }
}

impl Member {
    fn new(connection: Connection, key: usize) -> Self {
        let plan = connection.end.status.plan;
        let mut random = plan.choices(connection.end.status.side, 70);
        let waiting = if random.one_in(2) {
            set_nonblocking(connection.end.fd, true).expect("a flag can be set");
            Waiting::OffByDescriptor
        } else {
            Waiting::OffByCall
        };
        let mut member = Self {
            connection,
            key,
            waiting,
            random,
            is_sending: true,
            is_receiving: true,
            broken: None,
            ready: Interest::default(),
        };
        member.end_sending_if_all_is_sent();
        member
    }

    fn waiter(&self) -> Waiter {
        let interest = Interest {
            read: self.is_receiving,
            write: self.is_sending,
        };
        Waiter {
            fd: self.connection.end.fd,
            key: self.key,
            interest,
        }
    }

    fn has_work(&self) -> bool {
        (self.ready.read && self.is_receiving) || (self.ready.write && self.is_sending)
    }

    /// Make some calls. True: it is over.
    fn serve(&mut self) -> bool {
        for _ in 0..self.random.between(1, CALLS_IN_A_ROW) {
            if self.ready.write && self.is_sending {
                self.push();
            }
            if self.ready.read && self.is_receiving {
                self.pull();
            }
            if self.connection.is_to_break() || (!self.is_sending && !self.is_receiving) {
                return true;
            }
        }
        if self.random.one_in(100) {
            set_some_option(self.connection.end.fd, &mut self.random);
        }
        dawdle(&mut self.random);
        false
    }

    fn push(&mut self) {
        match self
            .connection
            .out
            .push(self.connection.end.fd, u64::MAX, self.waiting)
        {
            Moved::Some => self.end_sending_if_all_is_sent(),
            Moved::None => self.ready.write = false,
            Moved::Broken(errno) => {
                self.broken = Some(errno);
                self.is_sending = false;
            }
            Moved::End => unreachable!("sending sees no end"),
        }
    }

    fn end_sending_if_all_is_sent(&mut self) {
        if self.connection.out.is_over() && !self.connection.is_to_break() {
            self.is_sending = false;
            self.connection.end.end_sending();
        }
    }

    fn pull(&mut self) {
        match self
            .connection
            .incoming
            .pull(self.connection.end.fd, u64::MAX, self.waiting)
        {
            Moved::Some => {}
            Moved::None => self.ready.read = false,
            Moved::Broken(errno) => {
                self.broken = Some(errno);
                self.is_receiving = false;
                self.is_sending = false;
            }
            Moved::End => {
                self.is_receiving = false;
                self.connection.end.status.over(Half::Receiving);
            }
        }
    }

    fn end(self) {
        if self.connection.is_to_break() {
            self.connection.break_off();
        } else {
            self.connection.finish(self.broken);
        }
    }
}
