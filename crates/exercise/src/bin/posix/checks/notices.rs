//! Signals about a connection: SIGIO where data comes, SIGURG for an urgent byte, SIGPIPE to the thread that sends.

use std::io::IoSlice;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crosslane_exercise::Answer;
use crosslane_exercise::calls::{
    block, fcntl, file_of, ioctl_set, pipe, send, sendfile, sendmsg, shutdown, splice, take_signal,
    thread_id, write, writev,
};
use libc::{
    F_GETFL, F_GETOWN, F_SETFL, F_SETOWN, FIOASYNC, MSG_NOSIGNAL, MSG_OOB, O_ASYNC, POLLIN,
    POLLPRI, SHUT_WR, SIGIO, SIGPIPE, SIGURG,
};

use super::{Check, pair};
use crate::Stage;
use crate::stage::Shown;

/// More than a signal takes to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Long enough for one to arrive that should not.
const MOMENT: Duration = Duration::from_millis(30);
/// fcntl(2), which the bindings have not.
const F_SETSIG: i32 = 10;

fn this_process() -> i32 {
    i32::try_from(std::process::id()).expect("process numbers are ints")
}

/// Ask for `signal`, blocked, when something happens to the connection.
fn own(s: &mut Stage, signal: i32) {
    block(signal, true);
    s.say("own", fcntl(s.fd, F_SETOWN, this_process()));
    let owner = fcntl(s.fd, F_GETOWN, 0);
    s.say(
        "owner",
        owner.is_ok_and(|pid| pid == std::process::id() as usize),
    );
}

fn set_async(s: &mut Stage, on: bool) {
    let flags = fcntl(s.fd, F_GETFL, 0).expect("it is open");
    let flags = i32::try_from(flags).expect("flags came from an int");
    let flags = if on {
        flags | O_ASYNC
    } else {
        flags & !O_ASYNC
    };
    s.say("async", fcntl(s.fd, F_SETFL, flags));
}

/// Whether a signal comes, and for what reason.
fn comes(s: &mut Stage, signal: i32, patience: Duration) {
    let fd = s.fd;
    let notice = take_signal(signal, patience);
    s.say(
        "signal",
        notice.map(|notice| format!("code {} of it {}", notice.code, notice.fd == fd)),
    );
}

/// Take what further signals the same data has caused: how many is a matter of moments.
fn calm(signal: i32) {
    while take_signal(signal, MOMENT).is_ok() {}
}

/// Far: a word each time that it is told.
fn two_words(s: &mut Stage) {
    for word in ["one", "two"] {
        s.wait();
        s.send(word.as_bytes());
    }
    s.wait();
}

/// Near: a signal for each of two words, and none when it is wanted no more.
fn told_of_words(s: &mut Stage, signal: i32, off: impl FnOnce(&mut Stage)) {
    comes(s, signal, MOMENT);
    s.go();
    comes(s, signal, PATIENCE);
    s.until(POLLIN);
    s.read(100);
    calm(signal);
    off(s);
    s.go();
    s.until(POLLIN);
    comes(s, signal, MOMENT);
    s.read(100);
    s.send(b"still talks");
    s.go();
}

/// The thread in which SIGPIPE was handled. 0: none.
static HANDLED_IN: AtomicI32 = AtomicI32::new(0);
/// Why it was sent, and by whom (sigaction(2)).
static CODE: AtomicI32 = AtomicI32::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_thread(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let info = unsafe { &*info };
    CODE.store(info.si_code, Ordering::Relaxed);
    // SAFETY: a signal that is sent has a sender.
    SENDER.store(unsafe { info.si_pid() }, Ordering::Relaxed);
    HANDLED_IN.store(thread_id(), Ordering::Relaxed);
}

fn note_sigpipe() {
    // SAFETY: an action of zeros is an empty one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = note_thread;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler asks for a number and touches atomics.
    let set = unsafe { libc::sigaction(SIGPIPE, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0, "a handler can be installed");
}

/// What was seen, by what it was seen in.
type Seen = Vec<(String, String)>;

/// Each way of sending, in a thread that is told of a broken pipe itself, whether it has blocked the signal or not.
fn each_way(fd: i32) -> Seen {
    let file = file_of(b"bytes").expect("a file can be made");
    let [out, into] = pipe().expect("a pipe can be made");
    write(into, b"piped").expect("a pipe has room");
    let ways: [(&str, &dyn Fn() -> Answer); 8] = [
        ("send", &|| send(fd, b"x", 0)),
        ("write", &|| write(fd, b"x")),
        ("writev", &|| writev(fd, &[IoSlice::new(b"x")])),
        ("sendmsg", &|| sendmsg(fd, &[IoSlice::new(b"x")], 0)),
        ("sendfile", &|| sendfile(fd, file, None, 3)),
        ("splice", &|| splice(out, fd, 5, 0)),
        ("send quietly", &|| send(fd, b"x", MSG_NOSIGNAL)),
        ("sendmsg quietly", &|| {
            sendmsg(fd, &[IoSlice::new(b"x")], MSG_NOSIGNAL)
        }),
    ];
    ways.iter()
        .map(|(name, send)| (String::from(*name), told_by(send)))
        .collect()
}

/// What a call answers, and who is told of it: this thread, with the signal open and blocked.
fn told_by(send: impl Fn() -> Answer) -> String {
    block(SIGPIPE, false);
    let open = send().shown();
    let handler = HANDLED_IN.swap(0, Ordering::Relaxed);
    block(SIGPIPE, true);
    let blocked = send().shown();
    let is_pending = take_signal(SIGPIPE, Duration::ZERO).is_ok();
    let elsewhere = HANDLED_IN.swap(0, Ordering::Relaxed) != 0;
    let here = handler == thread_id();
    format!("{open},here:{here},{blocked},pending:{is_pending},elsewhere:{elsewhere}")
}

pub const CHECKS: &[Check] = &[
    pair(
        "who_sends_the_signal_of_a_broken_pipe",
        |s| {
            note_sigpipe();
            shutdown(s.fd, SHUT_WR).expect("it is connected");
            s.say("write", write(s.fd, b"x"));
            s.say("code", CODE.load(Ordering::Relaxed));
            s.say("own", SENDER.load(Ordering::Relaxed) == this_process());
        },
        |s| s.read(10),
    ),
    pair(
        "signal_when_data_comes",
        |s| {
            own(s, SIGIO);
            set_async(s, true);
            told_of_words(s, SIGIO, |s| set_async(s, false));
        },
        two_words,
    ),
    pair(
        "chosen_signal_when_data_comes",
        |s| {
            let signal = libc::SIGRTMIN() + 3;
            own(s, signal);
            s.say("signal", fcntl(s.fd, F_SETSIG, signal));
            s.say("async", ioctl_set(s.fd, FIOASYNC, 1));
            told_of_words(s, signal, |s| {
                s.say("async", ioctl_set(s.fd, FIOASYNC, 0));
            });
        },
        two_words,
    ),
    pair(
        "signal_when_a_sleeper_sends",
        |s| {
            own(s, SIGIO);
            s.wait();
            std::thread::sleep(MOMENT);
            set_async(s, true);
            comes(s, SIGIO, MOMENT);
            s.send(b"question");
            s.until(POLLIN);
            comes(s, SIGIO, PATIENCE);
            s.read(100);
        },
        |s| {
            s.go();
            s.read(100);
            s.send(b"answer");
        },
    ),
    pair(
        "signal_of_the_end",
        |s| {
            own(s, SIGIO);
            set_async(s, true);
            s.go();
            s.until(POLLIN);
            comes(s, SIGIO, PATIENCE);
            s.read(100);
        },
        |s| {
            s.wait();
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "signal_of_an_urgent_byte",
        |s| {
            own(s, SIGURG);
            s.go();
            s.until(POLLIN);
            s.read(100);
            comes(s, SIGURG, MOMENT);
            s.go();
            comes(s, SIGURG, PATIENCE);
            s.until(POLLPRI);
        },
        |s| {
            s.wait();
            s.send(b"ordinary");
            s.wait();
            s.say("urgent", send(s.fd, b"!", MSG_OOB | MSG_NOSIGNAL));
        },
    ),
    pair(
        "broken_pipe_is_told_to_who_sends",
        |s| {
            note_sigpipe();
            shutdown(s.fd, SHUT_WR).expect("it is connected");
            let others = std::sync::Arc::new(std::sync::Barrier::new(3));
            // Threads to which a signal of the process could go.
            let idle = [others.clone(), others.clone()].map(|done| {
                std::thread::spawn(move || {
                    block(SIGPIPE, false);
                    done.wait();
                })
            });
            let fd = s.fd;
            let sender = std::thread::spawn(move || each_way(fd));
            for (way, seen) in sender.join().expect("it does not panic") {
                s.say(&way, seen);
            }
            others.wait();
            idle.into_iter()
                .for_each(|idle| idle.join().expect("it does not panic"));
        },
        |s| s.read(10),
    ),
];
