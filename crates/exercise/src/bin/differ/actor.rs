//! A process of a program: takes orders from a pipe, one at a time, and replies to each.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::mpsc::{self, Sender};

use crosslane_exercise::calls::{TcpLook, close, exit_now, fork, look_at_tcp, read, write};

use crate::act::{Matter, Outcome, Place, act, catch, port_of};
use crate::call::Call;

/// What a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Call {
        thread: usize,
        matter: Matter,
        call: Call,
    },
    /// Have this thread; the reply is its number in the kernel.
    Thread(usize),
    /// Look past all libraries.
    Look(RawFd),
    /// On which port the descriptor listens.
    Port(RawFd),
    /// fork(2); the child is the process of this number.
    Fork(usize),
    /// Handle SIGUSR1 with these flags.
    Handle(i32),
    Exit,
}

/// What a process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub thread: usize,
    pub outcome: Outcome,
}

/// What a thread says before it calls.
pub const BEGUN: &str = "begun";

/// The pipes of a process: for orders and for replies, reading and writing end.
#[derive(Clone, Copy)]
pub struct Channel {
    pub orders: [RawFd; 2],
    pub replies: [RawFd; 2],
}

impl Order {
    pub fn line(&self) -> String {
        match self {
            Self::Call {
                thread,
                matter: Matter { key, offset, port },
                call,
            } => format!("call {thread} {key} {offset} {port} {call}"),
            Self::Thread(thread) => format!("thread {thread}"),
            Self::Look(fd) => format!("look {fd}"),
            Self::Port(fd) => format!("port {fd}"),
            Self::Fork(child) => format!("fork {child}"),
            Self::Handle(flags) => format!("handle {flags}"),
            Self::Exit => "exit".into(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(match words.next()? {
            "call" => Self::Call {
                thread: words.next()?.parse().ok()?,
                matter: Matter {
                    key: words.next()?.parse().ok()?,
                    offset: words.next()?.parse().ok()?,
                    port: words.next()?.parse().ok()?,
                },
                call: Call::parse(&mut words)?,
            },
            "thread" => Self::Thread(words.next()?.parse().ok()?),
            "look" => Self::Look(words.next()?.parse().ok()?),
            "port" => Self::Port(words.next()?.parse().ok()?),
            "fork" => Self::Fork(words.next()?.parse().ok()?),
            "handle" => Self::Handle(words.next()?.parse().ok()?),
            "exit" => Self::Exit,
            _ => return None,
        })
    }
}

impl Reply {
    fn line(&self) -> String {
        let Outcome { text, bytes, fd } = &self.outcome;
        format!("{} {bytes} {} {text}\n", self.thread, fd.unwrap_or(-1))
    }

    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let thread = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let fd = words.next()?.parse().ok().filter(|fd| *fd >= 0);
        let text = words.next()?.to_owned();
        Some(Self {
            thread,
            outcome: Outcome { text, bytes, fd },
        })
    }
}

/// As what a look is written in a reply.
pub fn look_text(look: TcpLook) -> String {
    format!(
        "{} {} {} {} {}",
        look.state, look.sent, look.held_back, look.received, look.events
    )
}

/// The same back.
pub fn parse_look(text: &str) -> Option<TcpLook> {
    let mut words = text.split(' ');
    Some(TcpLook {
        state: words.next()?.parse().ok()?,
        sent: words.next()?.parse().ok()?,
        held_back: words.next()?.parse().ok()?,
        received: words.next()?.parse().ok()?,
        events: words.next()?.parse().ok()?,
    })
}

/// A running process of a program.
struct Actor {
    channel: Channel,
    place: Place,
    // After a fork those of the parent are not there, and must not be touched.
    threads: ManuallyDrop<BTreeMap<usize, (i32, Sender<Order>)>>,
}

/// Be the process number `me` until told to exit.
pub fn live(channels: &[Channel], me: usize, place: Place) -> ! {
    end_with_parent();
    // With the writing ends in one process only, its end is the end of all orders.
    for channel in channels {
        close(channel.orders[1]).expect("it is open");
    }
    catch(libc::SIGPIPE, libc::SA_RESTART);
    catch(libc::SIGUSR1, 0);
    catch(libc::SIGUSR2, 0);
    let mut actor = Actor {
        channel: channels[me],
        place,
        threads: ManuallyDrop::new(BTreeMap::new()),
    };
    loop {
        let order = actor.next_order();
        if let Order::Fork(child) = order {
            let pid = fork().expect("a process can be made");
            if pid.is_none() {
                // It goes on when its parent ends.
                actor.channel = channels[child];
                actor.threads = ManuallyDrop::new(BTreeMap::new());
            }
            actor.reply(0, text(pid.unwrap_or(0)));
        } else {
            actor.follow(order);
        }
    }
}

impl Actor {
    fn next_order(&self) -> Order {
        let mut line = [0; 4096];
        match read(self.channel.orders[0], &mut line) {
            Ok(count @ 1..) => {
                let line = String::from_utf8_lossy(&line[..count]);
                Order::parse(&line).unwrap_or_else(|| panic!("no order: {line}"))
            }
            Err(crosslane_exercise::Errno(libc::EINTR)) => self.next_order(),
            _ => exit_now(0),
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Call {
                thread: 0,
                matter,
                call,
            } => self.reply(0, act(&call, matter, self.place)),
            Order::Call { thread, .. } => {
                let (_, sender) = &self.threads[&thread];
                sender.send(order).expect("the thread waits for orders");
            }
            Order::Thread(thread) => {
                let tid = self.thread(thread);
                self.reply(0, text(tid));
            }
            Order::Look(fd) => {
                let look = look_at_tcp(fd).map_or("-".into(), look_text);
                self.reply(0, text(look));
            }
            Order::Port(fd) => self.reply(0, text(port_of(fd).unwrap_or(0))),
            Order::Handle(flags) => {
                catch(libc::SIGUSR1, flags);
                self.reply(0, text("handled"));
            }
            Order::Exit => exit_now(0),
            Order::Fork(_) => unreachable!("the loop forks"),
        }
    }

    /// The number of a thread in the kernel, which is begun if it is not there.
    fn thread(&mut self, number: usize) -> i32 {
        if let Some((tid, _)) = self.threads.get(&number) {
            return *tid;
        }
        let (sender, orders) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (channel, place) = (self.channel, self.place);
        std::thread::spawn(move || {
            // SAFETY: no memory is passed.
            let _ = tell.send(unsafe { libc::gettid() });
            for order in orders {
                if let Order::Call { matter, call, .. } = order {
                    say(channel, number, text(BEGUN));
                    say(channel, number, act(&call, matter, place));
                }
            }
        });
        let tid = told.recv().expect("the thread tells its number first");
        self.threads.insert(number, (tid, sender));
        tid
    }

    fn reply(&self, thread: usize, outcome: Outcome) {
        say(self.channel, thread, outcome);
    }
}

/// A line this short is written as a whole or not at all.
fn say(channel: Channel, thread: usize, outcome: Outcome) {
    let line = Reply { thread, outcome }.line();
    let written = write(channel.replies[1], line.as_bytes());
    if written != Ok(line.len()) {
        exit_now(1);
    }
}

fn text(value: impl ToString) -> Outcome {
    Outcome {
        text: value.to_string(),
        ..Outcome::default()
    }
}

fn end_with_parent() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Handle;

    #[test]
    fn orders_and_replies_are_read_as_written() {
        let matter = Matter {
            key: 1,
            offset: 2,
            port: 3,
        };
        let call = Call::Read {
            fd: Handle(7),
            count: 5,
        };
        let order = Order::Call {
            thread: 1,
            matter,
            call,
        };
        assert_eq!(Order::parse(&order.line()), Some(order));
        let outcome = Outcome {
            text: "5#00 and more".into(),
            bytes: 5,
            fd: None,
        };
        let reply = Reply { thread: 2, outcome };
        assert_eq!(Reply::parse(reply.line().trim_end()), Some(reply));
    }
}
