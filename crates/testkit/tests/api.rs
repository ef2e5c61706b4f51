//! The native interface: the examples in Rust and C with each other, with sockets under Crosslane
//! and with plain ones, and random calls while the connection changes its path.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crosslane_testkit::{Host, Process, Route, binary};

fn api_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../api")
}

fn example(name: &str) -> PathBuf {
    binary(&format!("examples/{name}"))
}

/// How a C program finds the interface.
#[derive(Clone, Copy)]
enum Linked {
    Shared,
    Static,
}

/// Compile a C program as its author would, with all warnings as errors.
fn compile(host: &Host, source: &Path, linked: Linked) -> PathBuf {
    let name = source.file_stem().unwrap().to_string_lossy().into_owned();
    let program = host.folder().join(match linked {
        Linked::Shared => format!("{name}-shared"),
        Linked::Static => format!("{name}-static"),
    });
    let folder = installed_library(host).display().to_string();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(&program).arg(source);
    cc.arg("-I").arg(api_folder().join("include"));
    match linked {
        // Found by this path before any in LD_LIBRARY_PATH, where cargo has the folder of its own builds.
        Linked::Shared => cc.args([
            format!("-L{folder}"),
            "-lcrosslane_api".into(),
            format!("-Wl,--disable-new-dtags,-rpath,{folder}"),
        ]),
        Linked::Static => {
            cc.arg(binary("libcrosslane_api.a"));
            cc.args(["-lgcc_s", "-lpthread", "-ldl", "-lm"])
        }
    };
    let output = cc
        .output()
        .expect("a C compiler is there, as Rust needs one");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", source.display());
    program
}

/// The folder with the shared library under both of its names, as an installation has them.
fn installed_library(host: &Host) -> PathBuf {
    let folder = host.folder().join("lib");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libcrosslane_api.so", "libcrosslane_api.so.0"] {
        let path = folder.join(name);
        if !path.exists() {
            symlink(binary("libcrosslane_api.so"), path).unwrap();
        }
    }
    folder
}

fn c_example(host: &Host, name: &str, linked: Linked) -> PathBuf {
    let source = api_folder().join(format!("examples/{name}.c"));
    compile(host, &source, linked)
}

/// Start a server and wait for its address.
fn serve(host: &Host, program: impl AsRef<Path>) -> (Process, String) {
    let mut server = host.plain(program).start();
    let line = server
        .next_line()
        .expect("the server says where it listens");
    let address = line.strip_prefix("listening on ").expect("an address");
    (server, address.to_owned())
}

fn assert_by(output: &str, path: &str) {
    assert!(output.trim_end().ends_with(path), "not by {path}: {output}");
}

#[test]
fn examples_in_rust_and_c_talk_in_memory() {
    let host = Host::new(Route::Crosslane);
    let servers = [
        example("echo_server"),
        c_example(&host, "echo_server", Linked::Shared),
        c_example(&host, "echo_server", Linked::Static),
    ];
    for server in servers {
        let (_server, address) = serve(&host, &server);
        for bytes in ["8", "64", "1000", "8184"] {
            let client = host.plain(example("echo_client"));
            let said = client.args([&address, "20000", bytes]).run().text();
            assert_by(&said, "came back by Memory");
        }
        for linked in [Linked::Shared, Linked::Static] {
            let client = host.plain(c_example(&host, "echo_client", linked));
            let said = client.args([&address, "32000"]).run().text();
            assert_by(&said, "32000 messages came back by Memory");
        }
    }
}

#[test]
fn a_number_that_is_no_multiple_is_rounded_up() {
    let host = Host::new(Route::Crosslane);
    let (_server, address) = serve(&host, c_example(&host, "echo_server", Linked::Shared));
    let client = host.plain(c_example(&host, "echo_client", Linked::Shared));
    let said = client.args([&address, "10"]).run().text();
    assert!(said.starts_with("16 messages came back"), "{said}");
}

#[test]
fn a_server_says_the_address_at_which_it_listens() {
    let host = Host::without_monitor(Route::Tcp);
    for name in ["echo_server", "epoll_server"] {
        let server = host.plain(c_example(&host, name, Linked::Shared));
        let mut server = server.arg("localhost:0").start();
        let line = server.next_line().unwrap();
        let address = line.strip_prefix("listening on ").unwrap();
        assert!(address.starts_with("localhost:"), "{address}");
        TcpStream::connect(address).unwrap();
    }
}

/// A client on plain sockets that sends a lot in one thread, and receives it in another one only after a while: the
/// server has to wait for room.
const FLOOD_CLIENT: &str = r#"
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES (64 << 20)

static int fd;

static char at(size_t byte)
{
  return (char)(byte * 31 + byte / 4093);
}

static void *sends(void *nothing)
{
  static char out[50000];
  for (size_t sent = 0; sent < BYTES;) {
    size_t now = BYTES - sent < sizeof out ? BYTES - sent : sizeof out;
    for (size_t byte = 0; byte < now; byte++)
      out[byte] = at(sent + byte);
    for (size_t done = 0; done < now;) {
      ssize_t taken = write(fd, out + done, now - done);
      if (taken <= 0)
        _exit(5);
      done += (size_t)taken;
    }
    sent += now;
  }
  return nothing;
}

int main(int count, char **arguments)
{
  if (count < 2)
    return 2;
  char *port = strrchr(arguments[1], ':');
  *port++ = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  if (getaddrinfo(arguments[1], port, &hints, &found))
    return 3;
  fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (connect(fd, found->ai_addr, found->ai_addrlen))
    return 4;
  pthread_t thread;
  if (pthread_create(&thread, NULL, sends, NULL))
    return 6;
  static char back[70000];
  for (size_t received = 0; received < BYTES;) {
    if (received % (16 << 20) < sizeof back)
      usleep(300000);
    ssize_t now = read(fd, back, sizeof back);
    if (now <= 0)
      return 7;
    for (ssize_t byte = 0; byte < now; byte++)
      if (back[byte] != at(received + (size_t)byte))
        return 8;
    received += (size_t)now;
  }
  pthread_join(thread, NULL);
  puts("all came back");
  return 0;
}
"#;

#[test]
fn an_epoll_loop_serves_many_clients_at_once() {
    let host = Host::new(Route::Crosslane);
    let flood = host.file(
        "flood_client.c",
        format!("#define _GNU_SOURCE\n{FLOOD_CLIENT}"),
    );
    let flood = compile(&host, &flood, Linked::Shared);
    for linked in [Linked::Shared, Linked::Static] {
        let (_server, address) = serve(&host, c_example(&host, "epoll_server", linked));
        // It keeps nobody waiting.
        let _silent = TcpStream::connect(&address).unwrap();
        let clients: Vec<_> = ["64", "1000", "8184"]
            .into_iter()
            .map(|bytes| {
                let client = host.plain(example("echo_client"));
                client.args([&address, "5000", bytes]).start()
            })
            .collect();
        let floods = [host.program(&flood), host.plain(&flood)];
        let floods = floods.map(|client| client.arg(&address).start());
        for client in clients {
            let said = client.finish().expect_success().text();
            assert_by(&said, "came back by Memory");
        }
        for client in floods {
            let said = client.finish().expect_success().text();
            assert_eq!(said, "all came back\n");
        }
    }
}

#[test]
fn a_program_asks_for_the_interface_by_its_name() {
    let host = Host::without_monitor(Route::Tcp);
    let program = c_example(&host, "within", Linked::Shared);
    let bytes = std::fs::read(program).unwrap();
    let name = b"libcrosslane_api.so.0\0";
    assert!(bytes.windows(name.len()).any(|window| window == name));
}

#[test]
fn two_threads_talk_in_memory_without_a_monitor() {
    let host = Host::without_monitor(Route::Crosslane);
    for linked in [Linked::Shared, Linked::Static] {
        let program = host.plain(c_example(&host, "within", linked));
        let said = program.args(["20000"]).run().text();
        assert_by(&said, "20000 numbers came back by Memory");
    }
}

#[test]
fn calls_from_c_do_what_the_header_says() {
    let host = Host::without_monitor(Route::Crosslane);
    let source = host.file("calls.c", include_str!("calls.c"));
    let program = compile(&host, &source, Linked::Shared);
    let said = host.plain(program).run().text();
    assert_eq!(said, "all is as the header says\n");
}

#[test]
fn both_libraries_in_one_process_leave_each_other_alone() {
    let host = Host::new(Route::Crosslane);
    let (_server, address) = serve(&host, example("echo_server"));
    let client = host.program(example("echo_client"));
    let said = client.args([&address, "20000", "64"]).run().text();
    assert_by(&said, "came back by Memory");
    let ends = host.ends();
    assert!(ends.len() <= 1, "an end of the client's is left: {ends:?}");
}

/// A client on plain sockets that sends random sizes and expects them back.
const SOCKET_CLIENT: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char out[40000], back[40000];

int main(int count, char **arguments)
{
  if (count < 2)
    return 2;
  char *port = strrchr(arguments[1], ':');
  *port++ = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  if (getaddrinfo(arguments[1], port, &hints, &found))
    return 3;
  int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (connect(fd, found->ai_addr, found->ai_addrlen))
    return 4;
  srandom(1);
  for (int round = 0; round < 3000; round++) {
    ssize_t bytes = 1 + random() % (round % 3 ? 300 : (long)sizeof out);
    for (ssize_t at = 0; at < bytes; at++)
      out[at] = (char)random();
    if (write(fd, out, (size_t)bytes) != bytes)
      return 5;
    if (recv(fd, back, (size_t)bytes, MSG_WAITALL) != bytes || memcmp(out, back, (size_t)bytes))
      return 6;
  }
  puts("all came back");
  return 0;
}
"#;

#[test]
fn sockets_under_crosslane_reach_the_native_interface_in_memory() {
    let host = Host::new(Route::Crosslane);
    let client = host.file(
        "socket_client.c",
        format!("#define _GNU_SOURCE\n{SOCKET_CLIENT}"),
    );
    let client = compile(&host, &client, Linked::Shared);
    for server in [
        example("echo_server"),
        c_example(&host, "echo_server", Linked::Shared),
    ] {
        let (_server, address) = serve(&host, server);
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        let witness = host.witness(port);
        let said = host.program(&client).arg(&address).run().text();
        assert_eq!(said, "all came back\n");
        witness.assert_accelerated();
    }
}

#[test]
fn plain_sockets_reach_the_native_interface_by_tcp() {
    let host = Host::new(Route::Crosslane);
    let (_server, address) = serve(&host, example("echo_server"));
    let mut stream = TcpStream::connect(&address).unwrap();
    for round in 1..300_usize {
        let out: Vec<u8> = (0..=250).cycle().skip(round).take(round * 97).collect();
        stream.write_all(&out).unwrap();
        let mut back = vec![0; out.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(out, back);
    }
    let ends = host.ends();
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0].reason.as_deref(), Some("no-peer"), "{ends:?}");
}

#[test]
fn the_native_interface_reaches_plain_sockets_by_tcp() {
    let host = Host::new(Route::Crosslane);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = host
        .plain(example("echo_client"))
        .args([&address, "3000", "5000"]);
    let client = client.start();
    let (mut stream, _) = listener.accept().unwrap();
    let mut buffer = vec![0; 70_000];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        stream.write_all(&buffer[..read]).unwrap();
    }
    let said = client.finish().expect_success().text();
    assert_by(&said, r#"came back by Tcp("no-peer")"#);
}

#[test]
fn without_a_monitor_it_is_tcp() {
    let host = Host::without_monitor(Route::Tcp);
    let (_server, address) = serve(&host, example("echo_server"));
    let client = host.plain(example("echo_client"));
    let said = client.args([&address, "2000", "64"]).run().text();
    assert_by(&said, r#"came back by Tcp("no-monitor")"#);
}

/// Random calls on both halves, waiting and not.
fn stress(host: &Host, seed: u32, environment: &[(&str, &str)]) -> String {
    let mut program = host.plain(example("stress"));
    for (name, value) in environment {
        program = program.env(name, value);
    }
    program.args([&seed.to_string(), "8000000"]).run().text()
}

#[test]
fn random_calls_carry_every_byte_in_memory() {
    let host = Host::new(Route::Crosslane);
    for seed in 1..=4 {
        stress(&host, seed, &[]);
        stress(&host, seed, &[("CROSSLANE_WAIT", "sleep")]);
        stress(&host, seed, &[("CROSSLANE_WAIT", "spin")]);
    }
    let stats = host.stats();
    assert!(
        stats.count("ring_bytes_sent") > 100_000_000,
        "too little went through memory"
    );
}

#[test]
fn random_calls_carry_every_byte_while_the_path_changes() {
    let host = Host::new(Route::Crosslane);
    for (seed, looks) in (10..14).zip(["1", "3", "20", "200"]) {
        stress(&host, seed, &[("CROSSLANE_CHAOS", looks)]);
    }
    assert!(host.stats().count("downgrades") > 0, "no path has changed");
}

#[test]
fn random_calls_carry_every_byte_by_tcp() {
    let host = Host::without_monitor(Route::Tcp);
    assert_by(
        &stress(&host, 20, &[("CROSSLANE_DISABLE", "1")]),
        r#"Tcp("disabled")"#,
    );
    stress(&host, 21, &[]);
}
