//! rsync against its own daemon, whose client and server both fork with the connection.

use std::path::{Path, PathBuf};

use crosslane_testkit::{Host, Process, Route, free_port, on_both_routes};

use super::{body, sha256_of};

/// Files of these lengths, besides many small ones.
const LENGTHS: [usize; 4] = [0, 1, 70_000, 20_000_000];
const SMALL: usize = 200;

struct Server {
    process: Process,
    port: u16,
}

impl Server {
    fn start(host: &Host) -> Self {
        let port = free_port();
        let root = if crosslane_testkit::is_root() {
            "uid = root\ngid = root\n"
        } else {
            ""
        };
        let configuration = host.file(
            "rsyncd.conf",
            format!(
                "address = 127.0.0.1\nport = {port}\nuse chroot = no\n{root}[files]\npath = {}\nread only = no\n",
                host.folder().join("served").display()
            ),
        );
        std::fs::create_dir(host.folder().join("served")).expect("a folder in the test's own");
        let process = host
            .program("rsync")
            .args(["--daemon", "--no-detach", "--config"])
            .arg(configuration)
            .start();
        process.wait_for_port(port);
        Self { process, port }
    }

    fn copy(&self, host: &Host, options: &[&str], from: &str, to: &str) {
        let there = format!("rsync://127.0.0.1:{}/files/", self.port);
        let place = |name: &str| match name {
            "there" => there.clone(),
            here => format!("{}/", host.folder().join(here).display()),
        };
        let rsync = host.program("rsync").arg("-a").args(options);
        let _copied = rsync.arg(place(from)).arg(place(to)).run();
    }
}

fn names() -> impl Iterator<Item = (String, usize)> {
    let small = (0..SMALL).map(|at| (format!("small{at}"), at * 37));
    let large = LENGTHS.map(|length| (format!("large{length}"), length));
    small.chain(large)
}

fn sums(folder: &Path) -> Vec<String> {
    names()
        .map(|(name, _)| sha256_of(&folder.join(name)))
        .collect()
}

fn make(host: &Host) -> PathBuf {
    let folder = host.folder().join("made");
    std::fs::create_dir(&folder).expect("a folder in the test's own");
    for (at, (name, length)) in names().enumerate() {
        std::fs::write(folder.join(name), body(at as u64, length)).expect("room for files");
    }
    folder
}

/// Up and down, whole, by differences, and compressed.
fn folders_are_copied_there_and_back(host: &Host) {
    let server = Server::start(host);
    let made = sums(&make(host));
    server.copy(host, &[], "made", "there");
    assert!(sums(&host.folder().join("served")) == made, "on the way up");
    server.copy(host, &[], "there", "back");
    assert!(sums(&host.folder().join("back")) == made, "on the way down");

    let changed = host.folder().join("made").join("large20000000");
    let mut bytes = std::fs::read(&changed).expect("it was made");
    bytes[10_000_000..10_000_100].fill(0);
    std::fs::write(&changed, bytes).expect("room for files");
    let made = sums(&host.folder().join("made"));
    server.copy(host, &["--checksum", "--no-whole-file"], "made", "there");
    assert!(
        sums(&host.folder().join("served")) == made,
        "by differences"
    );
    server.copy(host, &["--checksum", "-z"], "there", "back");
    assert!(sums(&host.folder().join("back")) == made, "compressed");

    server.process.assert_running();
    if host.route() == Route::Crosslane {
        let by_ring = host.stats().count("ring_bytes_sent");
        assert!(
            by_ring > 40_000_000,
            "{by_ring} bytes by ring: {:?}",
            host.stats()
        );
    }
}

on_both_routes!(folders_are_copied_there_and_back);
