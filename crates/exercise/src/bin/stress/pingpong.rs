//! The client asks and the server answers, in one thread each, with blocking calls; sometimes the
//! connection changes its number, and sometimes the process.

use std::os::fd::RawFd;
use std::sync::Arc;

use libc::{POLLIN, POLLOUT};

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{close, close_range, exit_now, fork, wait_for};
use crosslane_exercise::random::Random;

use crate::board::{Half, Status};
use crate::connection::Connection;
use crate::mischief::{dawdle, renumber, set_some_option, wait_for as wait_until_ready};
use crate::plan::{Side, call_size};
use crate::transfer::{Moved, Waiting};

const LONGEST_MESSAGE: usize = 300_000;

/// Why a conversation ended.
enum Over {
    /// The plan says that this end breaks it off here.
    Breaking,
    /// The peer ended it, with an error or without.
    Ended(Option<Errno>),
    /// A child goes on with it, and has done so well.
    LeftToChild,
}

/// Carry the connection to its end.
pub fn run(mut connection: Connection, may_fork: bool) {
    let status = Arc::clone(&connection.end.status);
    let mut talk = Talk {
        messages: status.plan.common_choices(),
        random: status.plan.choices(status.side, 5),
        may_fork,
        is_child: false,
        children: Vec::new(),
    };
    match talk.converse(&mut connection) {
        Over::Breaking => connection.break_off(),
        Over::Ended(broken) => connection.finish(broken),
        Over::LeftToChild => {}
    }
    talk.children
        .into_iter()
        .for_each(|child| reap(&status, child));
    if talk.is_child {
        exit_now(0);
    }
}

struct Talk {
    /// Lengths of messages, which both sides draw alike.
    messages: Random,
    random: Random,
    may_fork: bool,
    is_child: bool,
    children: Vec<libc::pid_t>,
}

impl Talk {
    fn converse(&mut self, connection: &mut Connection) -> Over {
        loop {
            let totals = [Side::Client, Side::Server].map(|sender| left(connection, sender));
            if totals == [0, 0] {
                connection.end.end_sending();
                return self.await_end(connection);
            }
            for (sender, left) in [Side::Client, Side::Server].into_iter().zip(totals) {
                let length = (call_size(&mut self.messages, LONGEST_MESSAGE) as u64).min(left);
                let over = if sender == connection.end.status.side {
                    self.say(connection, length)
                } else {
                    self.hear(connection, length)
                };
                if let Some(over) = over {
                    return over;
                }
            }
            if self.play(connection) {
                return Over::LeftToChild;
            }
        }
    }

    fn say(&mut self, connection: &mut Connection, length: u64) -> Option<Over> {
        let end = connection.out.sent + length;
        loop {
            if connection.is_to_break() {
                return Some(Over::Breaking);
            }
            let left = end - connection.out.sent;
            if left == 0 {
                return None;
            }
            match connection
                .out
                .push(connection.end.fd, left, Waiting::Allowed)
            {
                Moved::Some => dawdle(&mut self.random),
                Moved::None => {
                    connection
                        .end
                        .status
                        .begin(Half::Sending, "waiting for room");
                    wait_until_ready(connection.end.fd, POLLOUT, &mut self.random);
                }
                Moved::Broken(errno) => return Some(self.hear_the_rest(connection, errno)),
                Moved::End => unreachable!("sending sees no end"),
            }
        }
    }

    fn hear(&mut self, connection: &mut Connection, length: u64) -> Option<Over> {
        let end = connection.incoming.received + length;
        loop {
            let left = end - connection.incoming.received;
            if left == 0 {
                return None;
            }
            match connection
                .incoming
                .pull(connection.end.fd, left, Waiting::Allowed)
            {
                Moved::Some => dawdle(&mut self.random),
                Moved::None => {
                    connection
                        .end
                        .status
                        .begin(Half::Receiving, "waiting for data");
                    wait_until_ready(connection.end.fd, POLLIN, &mut self.random);
                }
                Moved::Broken(errno) => return Some(Over::Ended(Some(errno))),
                Moved::End => return Some(Over::Ended(None)),
            }
        }
    }

    /// After a broken send there may still be good bytes to receive.
    fn hear_the_rest(&mut self, connection: &mut Connection, errno: Errno) -> Over {
        while self.hear(connection, 1).is_none() {}
        Over::Ended(Some(errno))
    }

    /// Everything is said; nothing but the end may come.
    fn await_end(&mut self, connection: &mut Connection) -> Over {
        if connection.is_to_break() {
            return Over::Breaking;
        }
        match self.hear(connection, 1) {
            Some(over) => over,
            None => connection
                .end
                .status
                .fail("a byte came after the last message"),
        }
    }

    /// Between two messages. True: a child has taken the connection over.
    fn play(&mut self, connection: &mut Connection) -> bool {
        if self.random.one_in(30) {
            set_some_option(connection.end.fd, &mut self.random);
        }
        if self.random.one_in(50) {
            connection.end.fd = renumber(connection.end.fd, &mut self.random);
        }
        self.may_fork && self.random.one_in(100) && self.fork(connection)
    }

    fn fork(&mut self, connection: &mut Connection) -> bool {
        let child_goes_on = !self.is_child && self.random.one_in(2);
        match fork().expect("a process can be made") {
            None if child_goes_on => {
                self.is_child = true;
                self.children.clear();
                close_all_but(connection.end.fd);
                false
            }
            None => {
                // It holds the connection open for a moment.
                dawdle(&mut self.random);
                exit_now(0)
            }
            Some(child) if child_goes_on => {
                close(connection.end.fd).expect("it was open");
                reap(&connection.end.status, child);
                true
            }
            Some(child) => {
                self.children.push(child);
                false
            }
        }
    }
}

/// A child that kept the other connections would keep them from ending, and be kept by them.
fn close_all_but(fd: RawFd) {
    let fd = u32::try_from(fd).expect("a descriptor is positive");
    if fd > 3 {
        close_range(3, fd - 1, 0).expect("descriptors can be closed");
    }
    close_range(fd + 1, u32::MAX, 0).expect("descriptors can be closed");
}

/// What `sender` has still to send, as this end knows it.
fn left(connection: &Connection, sender: Side) -> u64 {
    if sender == connection.end.status.side {
        connection.out.total - connection.out.sent
    } else {
        connection.incoming.total - connection.incoming.received
    }
}

fn reap(status: &Status, child: libc::pid_t) {
    match wait_for(child) {
        Ok(0) => {}
        ended => status.fail(&format!("a child that went on ended with {ended:?}")),
    }
}
