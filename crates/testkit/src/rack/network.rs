//! Two network namespaces with a veth pair between them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ADDRESSES, NAMES};

/// Namespaces for one test, gone with it.
pub struct Network {
    pub namespaces: [String; 2],
}

/// What names of namespaces and of the files of windows begin with; the process that uses them follows, and a minus sign.
pub(super) const PREFIX: &str = "xl";
/// Where namespaces have their names, and windows their files.
const FOLDERS: [&str; 2] = ["/run/netns", "/dev/shm"];

impl Network {
    pub fn new() -> Self {
        FOLDERS.iter().for_each(|folder| sweep(folder.as_ref()));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let of = |name: &str| format!("{PREFIX}{}-{number}-{name}", std::process::id());
        let network = Self {
            namespaces: NAMES.map(of),
        };
        let [alpha, beta] = &network.namespaces;
        ip(&["netns", "add", alpha]);
        ip(&["netns", "add", beta]);
        ip(&[
            "link", "add", "lane", "netns", alpha, "type", "veth", "peer", "name", "lane", "netns",
            beta,
        ]);
        [0, 1].iter().for_each(|at| network.set_up(*at));
        network
    }

    /// Give a host its address, and take its links up.
    fn set_up(&self, at: usize) {
        let namespace = &self.namespaces[at];
        let address = format!("{}/24", ADDRESSES[at]);
        ip(&["-n", namespace, "addr", "add", &address, "dev", "lane"]);
        ip(&["-n", namespace, "link", "set", "lane", "up"]);
        ip(&["-n", namespace, "link", "set", "lo", "up"]);
    }

    /// Take a host's link down, and both lose it.
    pub fn cut(&self, at: usize) {
        ip(&["-n", &self.namespaces[at], "link", "set", "lane", "down"]);
    }

    /// Have a host's kernel begin anew, which knows nothing of earlier connections. None of its processes may be left.
    pub fn renew(&self, at: usize) {
        let (namespace, other) = (&self.namespaces[at], &self.namespaces[1 - at]);
        // The other host keeps its link.
        ip(&[
            "-n", namespace, "link", "set", "lane", "name", "kept", "netns", other,
        ]);
        ip(&["netns", "del", namespace]);
        ip(&["netns", "add", namespace]);
        ip(&[
            "-n", other, "link", "set", "kept", "name", "lane", "netns", namespace,
        ]);
        self.set_up(at);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // One that is still in use is told about by the next test of the same name.
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .status();
        }
    }
}

/// Take away what test programs have left that were killed before they could.
fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str().filter(|name| is_left_over(name)) else {
            continue;
        };
        // Another test program may sweep as well.
        let _ = Command::new("ip")
            .args(["netns", "del", name])
            .stderr(Stdio::null())
            .status();
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(&path);
    }
}

/// Whether it is of a test program that runs no more.
pub(super) fn is_left_over(name: &str) -> bool {
    let pid = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once('-'));
    let pid: Option<u32> = pid.and_then(|(pid, _)| pid.parse().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .status();
    let status = status.expect("ip-netns(8) is installed");
    assert!(status.success(), "ip {}", arguments.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_test_has_left_is_left_over() {
        let mut dead = Command::new("true").spawn().expect("true(1) is installed");
        let pid = dead.id();
        dead.wait().expect("it is our child");
        assert!(is_left_over(&format!("{PREFIX}{pid}-0-alpha")));
        let own = std::process::id();
        assert!(!is_left_over(&format!("{PREFIX}{own}-0-alpha-second")));
        for foreign in ["xl", "xlarge-1", "alpha", "xl12"] {
            assert!(!is_left_over(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_a_dead_test_has_left_is_swept_away() {
        let mut dead = Command::new("true").spawn().expect("true(1) is installed");
        let pid = dead.id();
        dead.wait().expect("it is our child");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let [left, hidden, kept] = [
            format!("{PREFIX}{pid}-0-a"),
            format!("{PREFIX}{pid}-0-b"),
            "else".into(),
        ]
        .map(|name| folder.path().join(name));
        for file in [&left, &kept] {
            std::fs::write(file, "").expect("the folder is the test's own");
        }
        std::fs::create_dir(&hidden).expect("the folder is the test's own");
        sweep(folder.path());
        assert_eq!(
            [left, hidden, kept].map(|path| path.exists()),
            [false, false, true]
        );
    }
}
