//! Windows that are lost under connections whose sockets have gone to other programs.

use crosslane_testkit::rack::{ADDRESSES, Rack, can_run};
use crosslane_testkit::{End, Process, wait_or_tell};

use crate::stalls;

const PORT: u16 = 6704;

/// Losses after which a connection has been in lanes that its new owner was granted by itself.
const LOSSES: usize = 3;

/// `send N` or `receive N` numbers, which must come from 0 on in order; `pass` the socket to another program by SCM_RIGHTS, or
/// become that program (`exec`).
const PROGRAM: &str = r#"
import os, socket, subprocess, sys
role, *rest = sys.argv[1:]
sent = received = 0
if role == "server":
    connection = socket.create_server((rest[0], int(rest[1]))).accept()[0]
elif role == "client":
    connection = socket.create_connection((rest[0], int(rest[1])))
else:
    number, sent, received = map(int, rest)
    if role == "pass":
        number = socket.recv_fds(socket.socket(fileno=number), 1, 1)[1][0]
    connection = socket.socket(fileno=number)
    print("ok", flush=True)
def heir(role, number):
    return [sys.executable, "-c", sys.orig_argv[2], role, str(number), str(sent), str(received)]
for line in sys.stdin:
    word, count = (line.split() + ["0"])[:2]
    if word == "send":
        for _ in range(int(count)):
            connection.sendall(b"%08d" % sent)
            sent += 1
    if word == "receive":
        for _ in range(int(count)):
            number = connection.recv(8, socket.MSG_WAITALL)
            assert number == b"%08d" % received, (number, received)
            received += 1
    if word == "pass":
        ours, theirs = socket.socketpair()
        program = subprocess.Popen(heir(word, theirs.fileno()), pass_fds=[theirs.fileno()])
        socket.send_fds(ours, [b"."], [connection.fileno()])
        connection.close()
        sys.exit(program.wait())
    if word == "exec":
        connection.set_inheritable(True)
        words = heir(word, connection.fileno())
        os.execv(words[0], words)
    print("ok", flush=True)
"#;

/// A server on alpha, and a client on beta.
struct Scene {
    server: Process,
    client: Process,
}

impl Scene {
    fn new(rack: &Rack) -> Self {
        let start = |at: usize, role: &str| {
            let program = rack.hosts[at].program("python3");
            let program = program.args(["-c", PROGRAM, role, ADDRESSES[0], &PORT.to_string()]);
            program.with_open_input().start()
        };
        let server = start(0, "server");
        server.wait_for_port(PORT);
        let client = start(1, "client");
        Self { server, client }
    }

    fn talk(&mut self) {
        order(&mut self.client, "send 20");
        order(&mut self.server, "receive 20");
        order(&mut self.server, "send 20");
        order(&mut self.client, "receive 20");
    }

    /// Talk until all goes by the lanes. A monitor does not show an end whose table it has never been shown, but its peer.
    fn go_to_lanes(&mut self, rack: &Rack) {
        let is_fast = || rack.ends(0, PORT).iter().any(End::is_accelerated);
        let ends = || format!("{:#?}, {:#?}", rack.ends(0, PORT), rack.ends(1, PORT));
        let talk = || {
            self.talk();
            is_fast().then_some(())
        };
        wait_or_tell("an accelerated connection", talk, ends);
    }

    /// Have the window go with what stands in it both ways, and with what is on its way.
    fn lose(&mut self, lose: impl FnOnce()) {
        self.send();
        lose();
        self.send();
        order(&mut self.server, "receive 600");
        order(&mut self.client, "receive 600");
    }

    fn send(&mut self) {
        order(&mut self.client, "send 300");
        order(&mut self.server, "send 300");
    }
}

fn order(program: &mut Process, line: &str) {
    program.write_line(line);
    assert_eq!(program.next_line().as_deref(), Some("ok"), "{line}");
}

#[test]
fn a_socket_that_has_been_passed_on_outlives_its_window() {
    if can_run() {
        lose_windows(&Rack::new());
    }
}

/// Take windows away under connections that other programs have taken over.
pub fn lose_windows(rack: &Rack) {
    hand_on(rack, |is_lost| match is_lost {
        true => rack.lose_window(),
        false => rack.wait_for_another_window(),
    });
}

/// Who has given the socket away has shown its table to none of these monitors.
#[test]
fn a_socket_that_has_been_passed_on_outlives_its_window_with_new_monitors() {
    if !can_run() {
        return;
    }
    let rack = Rack::new();
    hand_on(&rack, |is_lost| match is_lost {
        true => {
            for host in &rack.hosts {
                host.kill_monitor();
                host.start_monitor();
            }
            rack.wait_for_window();
            rack.lose_window();
        }
        false => rack.wait_for_another_window(),
    });
}

#[test]
fn a_socket_that_has_been_passed_on_outlives_a_window_that_stands_still() {
    if !can_run() {
        return;
    }
    let rack = stalls::mapped();
    let mut stall = rack.stall();
    hand_on(&rack, |is_lost| match is_lost {
        true => stall.begin(1),
        false => {
            stall.end();
            rack.wait_for_window();
        }
    });
}

/// Have other programs take connections over, of which `change` takes the window away, and brings it back.
fn hand_on(rack: &Rack, mut change: impl FnMut(bool)) {
    for way in ["pass", "exec"] {
        let mut scene = Scene::new(rack);
        scene.go_to_lanes(rack);
        order(&mut scene.client, way);
        for _ in 0..LOSSES {
            scene.go_to_lanes(rack);
            scene.lose(|| change(true));
            change(false);
        }
        scene.go_to_lanes(rack);
        for host in &rack.hosts {
            let stats = host.stats();
            assert!(stats.count("windows_lost") >= LOSSES as u64, "{way}");
            assert_eq!(stats.count("windows_unsettled"), 0, "{way}");
            assert_eq!(stats.count("peer_lies"), 0, "{way}");
        }
    }
}
