//! Life with and without the monitor.

mod forks;
mod handed_on;
mod idle;
mod killed;
mod lack;
mod leaks;
mod lies;
mod lost_window;
mod memory;
mod musl;
mod put_off;
mod relatives;
mod restart;
mod sandbox;
mod scribble;
mod sets;
mod strict;
mod talk;
mod users;

use crosslane_testkit::{Host, Process, Route, binary, free_port, wait_until};

/// A talk of `crosslane-posix` that a test can hold: between its warm-up and its check.
fn held_check(host: &Host) -> (Process, String) {
    let mut program = host
        .program(binary("crosslane-posix"))
        .args(["--step", "--only", "half_close_with_much_to_come"])
        .with_open_input()
        .start();
    let ready = program.next_line().expect("the check gets ready");
    (program, ready)
}

/// Have it talk until it is accelerated.
fn see_accelerated(host: &Host, program: &mut Process, ready: &str) {
    let words: Vec<&str> = ready.split(' ').collect();
    wait_until("the connection to be accelerated", || {
        let ends = host.ends();
        let of_it = ends.iter().filter(|end| end.is_between(words[2], words[3]));
        if of_it.filter(|end| end.is_accelerated()).count() == 2 {
            return Some(());
        }
        program.write_line("again");
        assert_eq!(program.next_line().as_deref(), Some(ready));
        None
    });
}

/// Let the check go on; it must see what it sees natively.
fn finish(mut program: Process) {
    program.write_line("go");
    let seen = program.finish().expect_success().text();
    let line = seen.lines().last().unwrap_or_default().to_owned();
    let native = Host::new(Route::Tcp);
    let expected = native
        .program(binary("crosslane-posix"))
        .args(["--only", "half_close_with_much_to_come"])
        .run()
        .text();
    assert_eq!(line, expected.trim_end());
}

#[test]
fn an_accelerated_connection_outlives_the_monitor() {
    let host = Host::new(Route::Crosslane);
    let (mut program, ready) = held_check(&host);
    see_accelerated(&host, &mut program, &ready);
    host.kill_monitor();
    finish(program);
}

#[test]
fn a_restarted_monitor_learns_of_living_connections() {
    let host = Host::new(Route::Crosslane);
    let (program, _) = held_check(&host);
    host.kill_monitor();
    host.start_monitor();
    finish(program);
    let (mut program, ready) = held_check(&host);
    see_accelerated(&host, &mut program, &ready);
    finish(program);
}

#[test]
fn a_private_monitor_is_started_when_none_is_there() {
    let host = Host::without_monitor(Route::Crosslane);
    let (mut program, ready) = held_check(&host);
    see_accelerated(&host, &mut program, &ready);
    finish(program);
}

#[test]
fn a_killed_program_leaves_no_connection_and_no_shared_memory() {
    let host = Host::new(Route::Crosslane);
    let before = shared_memory();
    let port = free_port();
    let server = host
        .program(binary("crosslane-stress"))
        .args([
            "serve",
            "--seed",
            "1",
            "--peer-may-die",
            "--port",
            &port.to_string(),
        ])
        .with_open_input()
        .start();
    server.wait_for_port(port);
    let client = host
        .program(binary("crosslane-stress"))
        .args([
            "connect",
            "--seed",
            "1",
            "--peer-may-die",
            "--seconds",
            "60",
        ])
        .args(["--to", &format!("127.0.0.1:{port}")])
        .start();
    wait_until("an accelerated connection", || {
        let is_accelerated = host.ends().iter().any(|end| end.is_accelerated());
        (is_accelerated && host.stats().monitor_count("slots") > 0).then_some(())
    });
    drop(client.kill());
    drop(server.kill());
    wait_until("the monitor to forget the dead", || {
        host.ends().is_empty().then_some(())
    });
    wait_until("the memory of the dead to be given back", || {
        let stats = host.stats();
        let left = ["ends", "arenas", "slots"].map(|name| stats.monitor_count(name));
        (left == [0; 3]).then_some(())
    });
    assert_eq!(shared_memory(), before);
}

#[test]
fn a_refused_io_uring_is_counted() {
    const PROGRAM: &str = r#"
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
SYS_IO_URING_SETUP = 425
for _ in range(2):
    print(libc.syscall(SYS_IO_URING_SETUP, 8, 0), errno.errorcode[ctypes.get_errno()])
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname())
print(libc.syscall(SYS_IO_URING_SETUP, 8, 0))
"#;
    let host = Host::new(Route::Crosslane);
    let said = host.program("/usr/bin/python3").args(["-c", PROGRAM]).run();
    assert_eq!(said.text(), "-1 ENOSYS\n-1 ENOSYS\n-1\n");
    wait_until("the count of a finished program", || {
        (host.stats().count("io_uring_refused") == 3).then_some(())
    });
}

/// The names in /dev/shm, where memory would stay behind.
fn shared_memory() -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names
}
