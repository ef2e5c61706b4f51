//! The processes of a program, seen by the one that plays it.

use std::collections::VecDeque;
use std::fmt::Write;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crosslane_exercise::calls::{
    TcpLook, close, fcntl, fork, kill, pipe, poll_one, read, socketpair, write,
};

use crate::act::{Matter, Outcome, Place};
use crate::actor::{BEGUN, Channel, Order, Reply, live, parse_look};
use crate::call::Call;
use crate::program::PROCESSES;

/// More than any call takes that does not wait for ever.
const PATIENCE: Duration = Duration::from_secs(4);
/// Pipes are out of the way, so that a program's own descriptors have the numbers they would have.
const FIRST_FD: i32 = 600;

/// A call that did not end.
#[derive(Debug)]
pub struct Hung;

/// See the [module](self).
pub struct Cast {
    channels: Vec<Channel>,
    players: Vec<Option<Player>>,
    /// Which of the numbers have been used.
    used: [bool; PROCESSES],
}

#[derive(Default)]
struct Player {
    pid: i32,
    /// What has come and is no whole line yet.
    rest: Vec<u8>,
    inbox: VecDeque<Reply>,
    tids: [Option<i32>; crate::program::THREADS],
}

impl Cast {
    /// Processes 0 and 1.
    pub fn new() -> Self {
        let channels: Vec<_> = (0..PROCESSES).map(|_| channel()).collect();
        let passage = socketpair().expect("sockets can be made").map(aside);
        adopt_orphans();
        let mut players = Vec::new();
        players.resize_with(PROCESSES, || None);
        for (me, player) in players.iter_mut().enumerate().take(2) {
            match fork().expect("a process can be made") {
                None => live(&channels, me, Place { passage }),
                Some(pid) => {
                    *player = Some(Player {
                        pid,
                        ..Player::default()
                    });
                }
            }
        }
        let mut used = [false; PROCESSES];
        used[..2].fill(true);
        Self {
            channels,
            players,
            used,
        }
    }

    pub fn is_alive(&self, process: usize) -> bool {
        self.players[process].is_some()
    }

    /// Whether the process is or was there.
    pub fn was_there(&self, process: usize) -> bool {
        self.used[process]
    }

    /// Have the main thread of a process make a call.
    pub fn call(&mut self, process: usize, matter: Matter, call: Call) -> Result<Outcome, Hung> {
        let thread = 0;
        self.ask(
            process,
            &Order::Call {
                thread,
                matter,
                call,
            },
        )
    }

    /// Have another thread of a process begin a call, and come back when it sleeps or has ended.
    pub fn begin(
        &mut self,
        process: usize,
        thread: usize,
        matter: Matter,
        call: Call,
    ) -> Result<(), Hung> {
        let tid = self.tid(process, thread)?;
        let order = Order::Call {
            thread,
            matter,
            call,
        };
        self.send(process, &order);
        let begun = self.reply_of(process, thread, PATIENCE)?;
        assert_eq!(begun.text, BEGUN, "a thread says so first");
        self.wait_for_sleep(process, thread, tid);
        Ok(())
    }

    /// What the call of a thread returned, if it does within `patience`.
    pub fn ended(&mut self, process: usize, thread: usize, patience: Duration) -> Option<Outcome> {
        self.reply_of(process, thread, patience).ok()
    }

    pub fn look(&mut self, process: usize, fd: RawFd) -> Result<Option<TcpLook>, Hung> {
        Ok(parse_look(&self.ask(process, &Order::Look(fd))?.text))
    }

    pub fn port(&mut self, process: usize, fd: RawFd) -> Result<u16, Hung> {
        Ok(self
            .ask(process, &Order::Port(fd))?
            .text
            .parse()
            .unwrap_or(0))
    }

    pub fn fork(&mut self, process: usize, child: usize) -> Result<(), Hung> {
        let pid = self.ask(process, &Order::Fork(child))?.text.parse();
        self.used[child] = true;
        self.players[child] = Some(Player {
            pid: pid.expect("the reply is a number"),
            ..Player::default()
        });
        self.reply_of(child, 0, PATIENCE).map(drop)
    }

    /// Have a process end itself, and wait until its descriptors are closed.
    pub fn exit(&mut self, process: usize) -> Result<(), Hung> {
        self.send(process, &Order::Exit);
        let Some(player) = self.players[process].take() else {
            return Ok(());
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_dead(player.pid) {
            if Instant::now() > deadline {
                return Err(Hung);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Send SIGUSR1 to a thread, and come back when it sleeps again or has ended its call.
    pub fn signal(&mut self, process: usize, thread: usize, restart: bool) -> Result<(), Hung> {
        let flags = if restart { libc::SA_RESTART } else { 0 };
        self.ask(process, &Order::Handle(flags))?;
        self.send_signal(process, thread, libc::SIGUSR1)
    }

    /// Send a thread SIGUSR2, which no call of a program holds.
    pub fn send_home(&mut self, process: usize, thread: usize) -> Result<(), Hung> {
        self.send_signal(process, thread, libc::SIGUSR2)
    }

    fn send_signal(&mut self, process: usize, thread: usize, signal: i32) -> Result<(), Hung> {
        let tid = self.tid(process, thread)?;
        let pid = self.player(process).pid;
        // SAFETY: no memory is passed; the thread belongs to a process that this one made.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
        self.wait_for_sleep(process, thread, tid);
        Ok(())
    }

    /// Whether a thread has ended its call, once it has done so or sleeps.
    pub fn has_come_back(&mut self, process: usize, thread: usize) -> Result<bool, Hung> {
        let tid = self.tid(process, thread)?;
        self.wait_for_sleep(process, thread, tid);
        let mut inbox = self.player(process).inbox.iter();
        Ok(inbox.any(|reply| reply.thread == thread))
    }

    fn tid(&mut self, process: usize, thread: usize) -> Result<i32, Hung> {
        if let Some(tid) = self.player(process).tids[thread] {
            return Ok(tid);
        }
        let tid = self.ask(process, &Order::Thread(thread))?.text.parse();
        let tid = tid.expect("the reply is a number");
        self.player(process).tids[thread] = Some(tid);
        Ok(tid)
    }

    /// What all threads are doing, a line each: process and thread, name, state, where in the kernel, and its call with arguments.
    pub fn threads(&self) -> String {
        let mut text = String::new();
        for (process, player) in self.players.iter().enumerate() {
            let pid = player.as_ref().map_or(0, |player| player.pid);
            for tid in threads(pid) {
                let told = ["comm", "wchan", "syscall"].map(|what| {
                    let told = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{what}"));
                    told.map_or_else(|error| error.to_string(), |told| told.trim().to_owned())
                });
                let [name, place, call] = told;
                let state = state(pid, tid).unwrap_or('?');
                let _ = writeln!(text, "@{process} {pid}/{tid} {name} {state} {place} {call}");
            }
        }
        text
    }

    fn player(&mut self, process: usize) -> &mut Player {
        self.players[process]
            .as_mut()
            .expect("only processes that live are asked")
    }

    fn ask(&mut self, process: usize, order: &Order) -> Result<Outcome, Hung> {
        self.send(process, order);
        self.reply_of(process, 0, PATIENCE)
    }

    fn send(&mut self, process: usize, order: &Order) {
        // A process that has died does not reply, which is noticed.
        let _ = write(self.channels[process].orders[1], order.line().as_bytes());
    }

    fn reply_of(
        &mut self,
        from: usize,
        thread: usize,
        patience: Duration,
    ) -> Result<Outcome, Hung> {
        let deadline = Instant::now() + patience;
        loop {
            let inbox = &mut self.player(from).inbox;
            if let Some(index) = inbox.iter().position(|reply| reply.thread == thread) {
                let reply = inbox.remove(index).expect("it was found there");
                return Ok(reply.outcome);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.receive(from, left) {
                return Err(Hung);
            }
        }
    }

    /// Take in what a process says; false when it says nothing in time.
    fn receive(&mut self, from: usize, patience: Duration) -> bool {
        let fd = self.channels[from].replies[0];
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        if !matches!(poll_one(fd, libc::POLLIN, Some(patience)), Ok(1..)) {
            return false;
        }
        let mut bytes = [0; 4096];
        let Ok(count @ 1..) = read(fd, &mut bytes) else {
            return false;
        };
        let player = self.player(from);
        player.rest.extend_from_slice(&bytes[..count]);
        while let Some(end) = player.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = player.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            let reply = Reply::parse(&line).unwrap_or_else(|| panic!("no reply: {line}"));
            player.inbox.push_back(reply);
        }
        true
    }

    /// A thread sleeps when it is found asleep several times in a row.
    fn wait_for_sleep(&mut self, process: usize, thread: usize, tid: i32) {
        const LOOKS: u32 = 4;
        let deadline = Instant::now() + PATIENCE;
        let pid = self.player(process).pid;
        let mut asleep = 0;
        while asleep < LOOKS && Instant::now() < deadline {
            self.receive(process, Duration::ZERO);
            let mut inbox = self.player(process).inbox.iter();
            if inbox.any(|reply| reply.thread == thread) {
                return;
            }
            asleep = if state(pid, tid) == Some('S') {
                asleep + 1
            } else {
                0
            };
            std::thread::sleep(Duration::from_micros(400));
        }
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for player in self.players.iter().flatten() {
            let _ = kill(player.pid, libc::SIGKILL);
        }
        for channel in &self.channels {
            for fd in channel.orders.iter().chain(&channel.replies) {
                let _ = close(*fd);
            }
        }
    }
}

fn channel() -> Channel {
    let pipe = || pipe().expect("a pipe can be made").map(aside);
    Channel {
        orders: pipe(),
        replies: pipe(),
    }
}

/// Move a descriptor out of the way.
fn aside(fd: RawFd) -> RawFd {
    let moved = fcntl(fd, libc::F_DUPFD_CLOEXEC, FIRST_FD).expect("a number is free");
    close(fd).expect("it was open");
    i32::try_from(moved).expect("a descriptor is an int")
}

/// Grandchildren whose parent ends become this process's children.
fn adopt_orphans() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// The state of a thread, as in `man 5 proc`.
fn state(pid: i32, tid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The threads of a process.
fn threads(pid: i32) -> impl Iterator<Item = i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten();
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok())
}

/// Whether a process has closed its descriptors, which the last of its threads does; the first may be gone before.
fn is_dead(pid: i32) -> bool {
    let is_gone = |tid| matches!(state(pid, tid), None | Some('Z' | 'X'));
    threads(pid).all(is_gone)
}
