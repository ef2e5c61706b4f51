//! Locks of ordinary files beside a connection: the library has locks of its own, on memory of its own.

use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::calls::{
    Record, close, disk_file_of, dup, exit_now, flock, fork, lock_record, lockf, open, pipe,
    wait_for,
};
use libc::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_SETLK, F_SETLKW, F_TLOCK, F_ULOCK, F_UNLCK,
    F_WRLCK, LOCK_EX, LOCK_NB, LOCK_UN, O_RDWR,
};

use super::asleep::interrupted;
use super::processes::echo;
use super::{Check, pair};
use crate::Stage;
use crate::stage::{Other, Shown, hears, limit_to_seconds, says};

const ROUNDS: usize = 60;

fn talks(fd: RawFd) -> bool {
    (0..ROUNDS).all(|_| says(fd, b"word") && hears(fd, b"WORD"))
}

fn front(kind: i32) -> Record {
    Record {
        kind,
        start: 0,
        bytes: 10,
    }
}

fn back(kind: i32) -> Record {
    Record {
        kind,
        start: 10,
        bytes: 0,
    }
}

fn set(fd: RawFd, command: i32, record: Record) -> String {
    lock_record(fd, command, record)
        .map(|_| "done".to_owned())
        .shown()
}

/// Who keeps a process from a lock.
fn asked(fd: RawFd, command: i32, record: Record, parent: libc::pid_t) -> String {
    let found = lock_record(fd, command, record);
    let shown = found.map(|(found, pid)| match found.kind {
        F_UNLCK => "nobody".to_owned(),
        kind => {
            let who = if pid == parent {
                "the parent"
            } else {
                "another"
            };
            let is_write = kind == F_WRLCK;
            format!(
                "{who} from {} for {} write={is_write}",
                found.start, found.bytes
            )
        }
    });
    shown.shown()
}

/// Do what a word says with a file of which the parent has locks.
fn obey(file: RawFd, word: &str, parent: libc::pid_t) -> String {
    match word {
        "try" => set(file, F_SETLK, front(F_WRLCK)),
        "try to read" => set(file, F_SETLK, front(F_RDLCK)),
        "take the back" => set(file, F_SETLK, back(F_WRLCK)),
        "ask" => asked(file, F_GETLK, front(F_WRLCK), parent),
        "wait" => set(file, F_SETLKW, front(F_WRLCK)),
        "give" => set(file, F_SETLK, front(F_UNLCK)),
        "lockf" => lockf(file, F_TLOCK, 5).shown(),
        _ => panic!("nobody knows what {word} is"),
    }
}

/// A child that obeys words with a file until there are no more.
fn obeying_child(file: RawFd) -> (libc::pid_t, Other) {
    let [from_child, to_parent] = pipe().expect("a pipe can be made");
    let [from_parent, to_child] = pipe().expect("a pipe can be made");
    let both = |fds: [RawFd; 2]| fds.map(|fd| close(fd).expect("it is open"));
    let parent = std::process::id().cast_signed();
    match fork().expect("a process can be made") {
        Some(pid) => {
            both([to_parent, from_parent]);
            (pid, Other::pipes(from_child, to_child))
        }
        None => {
            both([from_child, to_child]);
            limit_to_seconds(15);
            let mut other = Other::pipes(from_parent, to_parent);
            loop {
                match other.line() {
                    none if none.is_empty() => exit_now(0),
                    word => other.say(&obey(file, &word, parent)),
                }
            }
        }
    }
}

fn ask(s: &mut Stage, child: &mut Other, word: &str) {
    child.say(word);
    s.say(word, child.line());
}

fn until_asleep(pid: libc::pid_t) {
    let path = format!("/proc/{pid}/stat");
    for _ in 0..2 {
        while !std::fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") S ")) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Near: a file is locked while the connection is used, shared and closed once, and two processes wait for each other.
fn records(s: &mut Stage) {
    let file = disk_file_of(&[0; 100]).expect("a file can be made");
    s.say("lock", set(file, F_SETLK, front(F_WRLCK)));
    let (pid, mut child) = obeying_child(file);
    ask(s, &mut child, "try");
    ask(s, &mut child, "ask");
    ask(s, &mut child, "take the back");
    s.say("talk", talks(s.fd));
    let twin = dup(s.fd).expect("a descriptor is free");
    s.say("close", close(twin));
    ask(s, &mut child, "try");
    ask(s, &mut child, "lockf");
    s.say("lock", set(file, F_SETLK, front(F_RDLCK)));
    ask(s, &mut child, "try to read");
    s.say("lock", set(file, F_SETLK, front(F_WRLCK)));
    ask(s, &mut child, "give");
    s.say("lock", set(file, F_SETLK, front(F_WRLCK)));
    child.say("wait");
    until_asleep(pid);
    s.say("talk", talks(s.fd));
    s.say("unlock", set(file, F_SETLK, front(F_UNLCK)));
    s.say("waited", child.line());
    s.say("lock", set(file, F_SETLK, front(F_WRLCK)));
    let waited = interrupted(s, 0, || set(file, F_SETLKW, front(F_WRLCK)));
    s.say("wait", waited);
    drop(child);
    s.say("child", wait_for(pid));
    s.say("lock", set(file, F_SETLKW, front(F_WRLCK)));
    s.say("close", close(s.fd));
}

/// Near: the locks of a process end with any descriptor of the file, those of an open file with its last.
fn descriptors(s: &mut Stage) {
    let file = disk_file_of(&[0; 100]).expect("a file can be made");
    let path = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("it has no null");
    let again = open(&path, O_RDWR).expect("a file can be opened again");
    let (pid, mut child) = obeying_child(file);
    s.say("lock", set(file, F_SETLK, front(F_WRLCK)));
    s.say("talk", talks(s.fd));
    ask(s, &mut child, "try");
    s.say("close", close(dup(file).expect("a descriptor is free")));
    ask(s, &mut child, "try");
    ask(s, &mut child, "give");
    s.say("lock", set(again, F_OFD_SETLK, front(F_WRLCK)));
    s.say("lock", set(file, F_OFD_SETLK, front(F_WRLCK)));
    s.say("ask", asked(file, F_OFD_GETLK, front(F_WRLCK), 0));
    ask(s, &mut child, "ask");
    s.say("close", close(dup(again).expect("a descriptor is free")));
    ask(s, &mut child, "try");
    s.say("close", close(again));
    ask(s, &mut child, "try");
    drop(child);
    s.say("child", wait_for(pid));
    s.say("close", close(s.fd));
}

/// Near: locks of the whole file, by the open file and by lockf(3).
fn whole(s: &mut Stage) {
    let file = disk_file_of(&[0; 100]).expect("a file can be made");
    let path = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("it has no null");
    let again = open(&path, O_RDWR).expect("a file can be opened again");
    let (pid, mut child) = obeying_child(file);
    s.say("flock", flock(file, LOCK_EX | LOCK_NB));
    s.say("flock", flock(again, LOCK_EX | LOCK_NB));
    s.say("talk", talks(s.fd));
    s.say("flock", flock(again, LOCK_EX | LOCK_NB));
    s.say("flock", flock(file, LOCK_UN));
    s.say("flock", flock(again, LOCK_EX | LOCK_NB));
    s.say("lockf", lockf(file, F_TLOCK, 10));
    ask(s, &mut child, "lockf");
    s.say("talk", talks(s.fd));
    ask(s, &mut child, "try");
    s.say("lockf", lockf(file, F_ULOCK, 10));
    ask(s, &mut child, "lockf");
    drop(child);
    s.say("child", wait_for(pid));
    s.say("locks of a connection", set(s.fd, F_SETLK, front(F_WRLCK)));
    s.say("flock of a connection", flock(s.fd, LOCK_EX | LOCK_NB));
    s.say("talk", talks(s.fd));
    s.say("close", close(s.fd));
}

pub const CHECKS: &[Check] = &[
    pair("record_locks_of_a_file", records, echo),
    pair("locks_of_a_file_and_its_descriptors", descriptors, echo),
    pair("locks_of_a_whole_file", whole, echo),
];
