//! Too few descriptors, too little memory: programs do what they can do natively, on TCP.

use crosslane_testkit::{Host, Route};

use crate::talk::Talk;

/// Echoes on one connection after the other, having set a limit on itself.
const SERVER: &str = r#"
import resource, signal, socket, sys

# Python ignores it, most programs do not.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.readline()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = {LIMIT}
resource.setrlimit(resource.{RESOURCE}, (limit, limit))
while True:
    connection = listener.accept()[0]
    while data := connection.recv(4096):
        connection.sendall(data)
    connection.close()
"#;

fn talk_under(resource: &str, limit: &str) {
    let server = SERVER
        .replace("{RESOURCE}", resource)
        .replace("{LIMIT}", limit);
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server(&host, &server);
    talk.go();
    for _ in 0..2 {
        talk.open();
        talk.wait_for_words(200);
        talk.close();
    }
    talk.end();
}

#[test]
fn a_program_without_descriptors_to_spare_stays_on_tcp() {
    // Five are its own: three standard ones, the listener, the connection. Each more lets the
    // library come one step further.
    for descriptors in 5..=9 {
        talk_under("RLIMIT_NOFILE", &descriptors.to_string());
    }
}

#[test]
fn a_limit_on_files_does_not_kill_for_the_librarys_memory() {
    talk_under("RLIMIT_FSIZE", "1 << 20");
}

#[test]
fn a_program_without_address_space_to_spare_stays_on_tcp() {
    // From too little for the slab to too little for the arena.
    for spare_mib in [1, 12, 18, 24] {
        talk_under("RLIMIT_AS", &format!("used + ({spare_mib} << 20)"));
    }
}
