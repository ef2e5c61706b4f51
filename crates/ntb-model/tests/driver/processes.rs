//! Two hosts that are processes, and the model in a third.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crosslane_ntb_model::serve::Model;

const WATCHDOG: Duration = Duration::from_secs(180);

struct Host {
    child: Child,
    lines: Receiver<String>,
}

impl Host {
    fn start(model: &Path, side: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crosslane-ntb-host"))
            .arg(model)
            .arg(side)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line, which must begin so.
    fn says(&self, words: &str) -> String {
        let line = self.lines.recv_timeout(WATCHDOG);
        let line = line.unwrap_or_else(|error| panic!("no {words:?}: {error}; see above"));
        assert!(line.starts_with(words), "{line:?} instead of {words:?}");
        line
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole way: link, meeting, scratchpads, every word of the memory, doorbells, the cable pulled while
/// both write, and all of it again.
#[test]
fn two_processes_use_the_bridge_and_outlive_its_cable() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("model");
    let model = Model::new(1 << 18);
    model.listen(&socket).unwrap();
    let mut hosts = ["0", "1"].map(|side| Host::start(&socket, side));
    let both = |words: &str| hosts.each_ref().map(|host| host.says(words));
    both("met");
    both("moving");
    model.change(|device| device.set_cable(false));
    for line in both("lost: ") {
        assert!(line.contains("the link is down"), "{line}");
    }
    model.change(|device| device.set_cable(true));
    both("met again");
    both("done");
    for host in &mut hosts {
        assert!(host.child.wait().unwrap().success());
    }
    let faults = model.faults();
    assert!(faults.is_empty(), "{faults:?}");
}
