//! Too few descriptors, too little memory: programs do what they can do natively, on TCP.

use crosslane_testkit::{Host, Route, Stats, is_root, skipped};

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

/// Talks under this limit, and returns what was counted.
fn talk_under(resource: &str, limit: &str) -> Stats {
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
    host.stats()
}

#[test]
fn a_program_without_descriptors_to_spare_stays_on_tcp() {
    // Five are its own: three standard ones, the listener, the connection. Each more lets the
    // library come one step further.
    let stats = [5, 6, 7, 8, 9].map(|most: u32| talk_under("RLIMIT_NOFILE", &most.to_string()));
    // Without a descriptor for its table a program can count nothing, and is nobody's peer.
    for (reason, of) in [("no-peer", &stats[..2]), ("no-descriptors", &stats[2..3])] {
        assert!(
            of.iter().all(|stats| stats.reason_count(reason) >= 2),
            "{of:?}"
        );
    }
    for stats in &stats[3..] {
        assert!(stats.count("upgrades") > 0, "{stats:?}");
    }
}

#[test]
fn a_limit_on_files_does_not_kill_for_the_librarys_memory() {
    let stats = talk_under("RLIMIT_FSIZE", "1 << 20");
    assert!(stats.reason_count("no-peer") >= 2, "{stats:?}");
}

#[test]
fn a_program_without_address_space_to_spare_stays_on_tcp() {
    // From too little for the slab over too little for the arena to enough, in steps that are
    // smaller than either.
    let mut reasons = [0; 2];
    let mut upgrades = 0;
    for spare_mib in (4..160).step_by(4) {
        let stats = talk_under("RLIMIT_AS", &format!("used + ({spare_mib} << 20)"));
        let counts = ["no-peer", "no-memory"].map(|reason| stats.reason_count(reason));
        upgrades = stats.count("upgrades");
        assert!(
            counts[0] + counts[1] >= 2 || upgrades > 0,
            "{spare_mib} MiB: {stats:?}"
        );
        for (seen, count) in reasons.iter_mut().zip(counts) {
            *seen += count;
        }
        if upgrades > 0 {
            break;
        }
    }
    assert!(reasons.iter().all(|seen| *seen > 0), "{reasons:?}");
    assert!(upgrades > 0, "156 MiB are not enough");
}

#[test]
fn a_full_dev_shm_takes_nothing_away() {
    const FULL: &str = "mount -t tmpfs -o size=4k full /dev/shm; \
                        dd if=/dev/zero of=/dev/shm/full bs=4k count=2 2>&1 | grep -q 'No space'; \
                        exec \"$@\"";
    if !is_root() {
        skipped("only root can mount a full /dev/shm");
        return;
    }
    let host = Host::new(Route::Crosslane);
    let mut talk = Talk::with_server_under(&host, "unshare", &["-m", "sh", "-ec", FULL, "sh"]);
    talk.go();
    talk.open();
    talk.wait_for_accelerated(&host, 2);
    talk.close();
    talk.end();
}
