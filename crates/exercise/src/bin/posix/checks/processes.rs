//! fork and exec with live connections.

use std::ffi::CString;
use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    clone_child, close, dup2, exec_missing, exec_missing_by_list, exec_shell, exec_shell_by_list,
    exec_shell_in, exit_now, exit_thread, fork, fork_by_clone3, fork_by_number, fork_unseen,
    pipe_to, read, recv, restrict_calls, send, setsockopt, shutdown, system, wait_for, write,
};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, POLLRDHUP, SHUT_WR, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, hears, pattern, says, take};

/// Bytes that come one by one to a receive that sleeps between them.
const WORDS: usize = 5;
const ENOUGH_CALLS: usize = 40;

/// Fork; the child runs `child`, whose success is its exit status, and the parent goes on.
pub(super) fn in_child(child: impl FnOnce() -> bool) -> libc::pid_t {
    match fork().expect("a process can be made") {
        Some(pid) => pid,
        None => exit_now(i32::from(!child())),
    }
}

/// Fork; the child becomes a shell with the connection as its standard input and output.
fn in_shell(fd: i32, script: &str) -> libc::pid_t {
    let script = CString::new(script).expect("it has no null");
    in_child(|| {
        dup2(fd, 0).expect("standard input can be replaced");
        dup2(fd, 1).expect("standard output can be replaced");
        exec_shell(&script);
        false
    })
}

/// Its parent leaves the connection to a child that has been made by `make`.
fn talk_after(s: &mut Stage, make: fn() -> Result<Option<libc::pid_t>, Errno>) {
    let fd = s.fd;
    let child = match make().expect("a process can be made") {
        Some(pid) => pid,
        None => exit_now(i32::from(!talks_alone(fd))),
    };
    s.say("close", close(fd));
    s.say("child", wait_for(child));
}

/// In the child, when the parent has closed its own.
fn talks_alone(fd: i32) -> bool {
    std::thread::sleep(Duration::from_millis(20));
    talks(fd) && close(fd).is_ok()
}

fn talks(fd: i32) -> bool {
    (0..50).all(|_| says(fd, b"word") && hears(fd, b"WORD"))
}

extern "C" fn talk_in_clone(fd: *mut libc::c_void) -> i32 {
    // SAFETY: `clone_child` passes a descriptor.
    let fd = unsafe { fd.cast::<i32>().read() };
    std::thread::sleep(Duration::from_millis(20));
    // It has the connection still when it ends.
    i32::from(!talks(fd))
}

/// Far: repeat every word in capitals until the end.
pub(super) fn echo(s: &mut Stage) {
    let mut buffer = [0; 100];
    while let Ok(count @ 1..) = read(s.fd, &mut buffer) {
        let loud = buffer[..count].to_ascii_uppercase();
        send(s.fd, &loud, MSG_NOSIGNAL).expect("somebody listens");
    }
    s.say("end", true);
}

/// Far: tell what came until the end.
pub(super) fn listen(s: &mut Stage) {
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Far: listen without ever waiting in a call.
fn ask_on(s: &mut Stage) {
    let mut heard = Vec::new();
    let mut buffer = [0; 100];
    loop {
        match recv(s.fd, &mut buffer, MSG_DONTWAIT) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(errno) if errno.0 == libc::EAGAIN => {}
            Err(errno) => return s.say("failed", Err::<usize, _>(errno)),
        }
    }
    s.say("heard", digest(&heard));
}

/// Far: send two lines, make no call on the connection until told to, and listen.
fn two_lines_in_silence(s: &mut Stage) {
    s.send(b"first\nsecond\n");
    s.wait();
    listen(s);
}

/// Go on with nothing but read, write and the plainest exit.
fn talk_restricted(fd: i32) -> bool {
    let mut buffer = [0; 4];
    let mut talk =
        || write(fd, b"word") == Ok(4) && read(fd, &mut buffer) == Ok(4) && &buffer == b"WORD";
    if !talk() || restrict_calls().is_err() {
        return false;
    }
    exit_thread(i32::from(!(0..20).all(|_| talk())))
}

pub const CHECKS: &[Check] = &[
    pair(
        "fork_child_writes",
        |s| {
            let fd = s.fd;
            let child = in_child(|| says(fd, b"child "));
            s.say("child", wait_for(child));
            s.send(b"parent");
            s.say("close", close(s.fd));
        },
        listen,
    ),
    pair(
        "fork_child_talks",
        |s| {
            let fd = s.fd;
            let child = in_child(|| talks(fd));
            s.say("child", wait_for(child));
            s.send(b"mine");
            s.read(100);
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "fork_by_system_call",
        |s| talk_after(s, fork_by_number),
        echo,
    ),
    pair(
        "fork_that_no_handler_is_told_of",
        |s| {
            for _ in 0..3 {
                let child = match fork_unseen().expect("a process can be made") {
                    Some(pid) => pid,
                    None => exit_now(7),
                };
                s.say("talk", talks(s.fd));
                s.say("child", wait_for(child));
                s.say("talk", talks(s.fd));
            }
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair("fork_by_clone3", |s| talk_after(s, fork_by_clone3), echo),
    pair(
        "clone_without_common_memory",
        |s| {
            let fd = s.fd;
            let child = clone_child(talk_in_clone, fd).expect("a process can be made");
            s.say("close", close(fd));
            s.say("child", wait_for(child));
        },
        echo,
    ),
    pair(
        "fork_child_exits_at_once",
        |s| {
            let child = in_child(|| true);
            s.say("child", wait_for(child));
            for _ in 0..50 {
                s.say("talk", says(s.fd, b"word") && hears(s.fd, b"WORD"));
            }
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "fork_child_closes_its_own",
        |s| {
            let fd = s.fd;
            let child = in_child(|| close(fd).is_ok());
            s.say("child", wait_for(child));
            s.send(b"word");
            s.read(100);
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "fork_parent_leaves_the_connection_to_the_child",
        |s| {
            let fd = s.fd;
            let child = in_child(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                says(fd, b"last") && hears(fd, b"LAST")
            });
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        echo,
    ),
    pair(
        "fork_both_take_turns",
        |s| {
            let fd = s.fd;
            for _ in 0..5 {
                let child = in_child(|| says(fd, b"child") && hears(fd, b"CHILD"));
                s.say("child", wait_for(child));
                s.say("parent", says(fd, b"parent") && hears(fd, b"PARENT"));
            }
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "fork_child_reads_the_rest",
        |s| {
            s.read_exactly(300_000);
            let fd = s.fd;
            let rest = pattern(1_000_000).split_off(300_000);
            let child = in_child(|| take(fd, rest.len()).is_ok_and(|bytes| bytes == rest));
            s.say("child", wait_for(child));
            s.say("close", close(s.fd));
        },
        |s| {
            s.send(&pattern(1_000_000));
            listen(s);
        },
    ),
    pair(
        "fork_child_writes_while_the_parent_reads",
        |s| {
            let fd = s.fd;
            let child = in_child(|| says(fd, &pattern(2_000_000)) && shutdown(fd, SHUT_WR).is_ok());
            s.read_exactly(2_000_000);
            s.say("child", wait_for(child));
            s.say("close", close(s.fd));
        },
        |s| {
            let fd = s.fd;
            let writer = std::thread::spawn(move || says(fd, &pattern(2_000_000)));
            listen(s);
            s.say("wrote", writer.join().is_ok_and(|wrote| wrote));
        },
    ),
    pair(
        "fork_shutdown_counts_for_both",
        |s| {
            let fd = s.fd;
            let child = in_child(|| shutdown(fd, SHUT_WR).is_ok());
            s.say("child", wait_for(child));
            s.send(b"too late");
        },
        |s| {
            s.until(POLLRDHUP);
            listen(s);
        },
    ),
    pair(
        "fork_last_close_ends_the_stream",
        |s| {
            let fd = s.fd;
            let child = in_child(|| {
                std::thread::sleep(std::time::Duration::from_millis(40));
                says(fd, b"child")
            });
            s.send(b"parent ");
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        listen,
    ),
    pair(
        "a_child_restricts_its_system_calls",
        |s| {
            let fd = s.fd;
            let child = in_child(|| talk_restricted(fd));
            s.say("child", wait_for(child));
            s.say("talk", says(fd, b"word") && hears(fd, b"WORD"));
            s.say("close", close(s.fd));
        },
        echo,
    ),
    pair(
        "the_only_holder_restricts_its_system_calls",
        |s| {
            let fd = s.fd;
            let child = in_child(|| talk_restricted(fd));
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        echo,
    ),
    pair(
        "exec_inherits",
        |s| {
            let fd = s.fd;
            let script = "echo hello from a shell; read word; echo \"you said $word\"";
            let child = in_shell(fd, script);
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            s.read_exactly("hello from a shell\n".len());
            s.send(b"word\n");
            listen(s);
        },
    ),
    pair(
        "exec_inherits_unread_data",
        |s| {
            s.until(libc::POLLIN);
            s.read(6);
            let fd = s.fd;
            let child = in_shell(fd, "read b; echo \"got $b\"");
            s.say("child", wait_for(child));
            s.say("write", write(s.fd, b"parent\n"));
            s.say("close", close(s.fd));
        },
        |s| {
            s.send(b"first\nsecond\n");
            listen(s);
        },
    ),
    pair(
        "exec_inherits_what_a_silent_peer_has_sent",
        |s| {
            s.until(libc::POLLIN);
            let child = in_shell(
                s.fd,
                "read a; sh -c 'read b; echo \"$b\"'; read c; echo \"$a and $c\"",
            );
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
            s.go();
        },
        |s| {
            s.send(b"first\nsecond\nthird\n");
            s.wait();
            listen(s);
        },
    ),
    pair(
        "exec_inherits_what_a_peer_that_has_shut_down_has_sent",
        |s| {
            s.until(POLLRDHUP);
            let child = in_shell(s.fd, "cat; echo and the end");
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            s.send(b"first\nsecond\n");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            listen(s);
        },
    ),
    pair(
        "exec_inherits_from_a_peer_that_has_shut_down_and_asks_on",
        |s| {
            s.wait();
            let child = in_shell(s.fd, "cat; echo and the end");
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            s.send(b"first\nsecond\n");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            s.go();
            ask_on(s);
        },
    ),
    pair(
        "an_end_waits_for_what_is_sent_again",
        |s| {
            s.say("few", setsockopt(s.fd, SOL_SOCKET, SO_RCVBUF, 32768));
            s.go();
            s.wait();
            let child = in_shell(s.fd, "exec env -i sh -c 'sleep 0.5; wc -c'");
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            s.say("few", setsockopt(s.fd, SOL_SOCKET, SO_SNDBUF, 32768));
            s.wait();
            let sent = send(s.fd, &pattern(1 << 17), MSG_DONTWAIT).unwrap_or(0);
            s.go();
            std::thread::sleep(Duration::from_millis(250));
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
            let is_whole = |count: Vec<u8>| count.trim_ascii() == sent.to_string().as_bytes();
            s.say("whole", drain(s.fd).is_ok_and(is_whole));
        },
    ),
    pair(
        "exec_into_a_long_talk",
        |s| {
            let fd = s.fd;
            let child = in_shell(fd, "while read word; do echo \"$word\"; done; exit 5");
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            let fd = s.fd;
            let is_well = (0..100).all(|_| says(fd, b"word\n") && hears(fd, b"word\n"));
            s.say("talk", is_well);
            s.say("shutdown", shutdown(fd, SHUT_WR));
            listen(s);
        },
    ),
    pair(
        "exec_and_the_parent_goes_on_afterwards",
        |s| {
            let fd = s.fd;
            let child = in_shell(fd, "read word; echo \"$word\"");
            s.say("child", wait_for(child));
            let is_well = (0..100).all(|_| says(fd, b"mine\n") && hears(fd, b"MINE\n"));
            s.say("talk", is_well);
            s.say("close", close(s.fd));
        },
        |s| {
            let fd = s.fd;
            s.say("talk", says(fd, b"word\n") && hears(fd, b"word\n"));
            echo(s);
        },
    ),
    pair(
        "exec_of_what_does_not_read_leaves_the_data",
        |s| {
            s.until(libc::POLLIN);
            let child = in_shell(s.fd, "exit 3");
            s.say("child", wait_for(child));
            s.read(100);
            s.say("write", write(s.fd, b"parent\n"));
            s.go();
            s.say("close", close(s.fd));
        },
        two_lines_in_silence,
    ),
    pair(
        "exec_that_fails_changes_nothing",
        |s| {
            s.until(libc::POLLIN);
            s.say("exec", exec_missing());
            s.read(100);
            s.send(b"still here");
            s.go();
            s.say("close", close(s.fd));
        },
        two_lines_in_silence,
    ),
    pair(
        "execl_that_fails_changes_nothing",
        |s| {
            s.until(libc::POLLIN);
            s.say("exec", exec_missing_by_list());
            s.say("exec", exec_missing_by_list());
            s.read(100);
            s.send(b"still here");
            s.go();
            s.say("close", close(s.fd));
        },
        two_lines_in_silence,
    ),
    pair(
        "execl_passes_its_arguments_and_the_connection",
        |s| {
            let fd = s.fd;
            let child = in_child(|| {
                dup2(fd, 0).expect("standard input can be replaced");
                dup2(fd, 1).expect("standard output can be replaced");
                exec_shell_by_list(c"read a; read b; echo \"$a $b $*\"");
                false
            });
            s.say("child", wait_for(child));
            let child = in_child(|| {
                dup2(fd, 1).expect("standard output can be replaced");
                exec_shell_in(c"echo \"$WORD\"", c"WORD=one of the environment");
                false
            });
            s.say("close", close(s.fd));
            s.say("child", wait_for(child));
        },
        |s| {
            s.send(b"first\nsecond\n");
            listen(s);
        },
    ),
    pair(
        "system_uses_the_connection",
        |s| {
            s.until(libc::POLLIN);
            let script = format!("read a <&{0}; echo \"got $a\" >&{0}; exit 4", s.fd);
            let script = CString::new(script).expect("it has no null");
            s.say("system", system(&script));
            s.read(100);
            s.send(b"and on");
            s.go();
            s.say("close", close(s.fd));
        },
        two_lines_in_silence,
    ),
    pair(
        "a_receive_sleeps_while_system_runs",
        |s| {
            let fd = s.fd;
            let sleeper = std::thread::spawn(move || {
                let mut heard = [0; WORDS];
                for byte in heard.chunks_mut(1) {
                    recv(fd, byte, 0).expect("a byte comes");
                }
                digest(&heard)
            });
            std::thread::sleep(Duration::from_millis(100));
            s.say("system", system(c"true"));
            // As many as have it leave TCP again.
            for _ in 0..ENOUGH_CALLS {
                send(fd, b"z", MSG_NOSIGNAL).expect("there is room");
            }
            s.go();
            s.say("heard", sleeper.join().expect("it received"));
            s.say("close", close(s.fd));
        },
        |s| {
            s.wait();
            s.read_exactly(ENOUGH_CALLS);
            for _ in 0..WORDS {
                s.send(b"w");
                std::thread::sleep(Duration::from_millis(20));
            }
            s.say("end", drain(s.fd).map(|bytes| digest(&bytes)));
        },
    ),
    pair(
        "popen_uses_the_connection",
        |s| {
            s.until(libc::POLLIN);
            let script = format!("cat >&{0}; read a <&{0}; echo \"got $a\" >&{0}", s.fd);
            let script = CString::new(script).expect("it has no null");
            s.say("popen", pipe_to(&script, b"through a pipe\n"));
            s.read(100);
            s.go();
            s.say("close", close(s.fd));
        },
        two_lines_in_silence,
    ),
    pair(
        "spawn_with_the_connection_as_standard_output",
        |s| {
            let fd = s.fd;
            let owned = {
                use std::os::fd::BorrowedFd;
                // SAFETY: the stage's connection stays open while it is cloned.
                let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
                borrowed.try_clone_to_owned().expect("a descriptor is free")
            };
            let status = std::process::Command::new("/bin/echo")
                .arg("spawned")
                .stdout(owned)
                .status();
            s.say("spawned", status.is_ok_and(|status| status.success()));
            s.send(b"and on");
            s.say("close", close(s.fd));
        },
        listen,
    ),
];
