//! `crosslane rack init` and `crosslane rack add`, where the person has taken the wrong thing.

use std::process::Command;

use tempfile::TempDir;

struct Host(TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Whether it succeeded, and what it said.
    fn rack(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command.arg("rack").args(words).arg("--rack");
        let output = command.arg(self.0.path().join("rack.toml")).output();
        let output = output.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    fn refuses(&self, words: &[&str]) -> String {
        let (is_good, said) = self.rack(words);
        assert!(!is_good, "{said}");
        said
    }

    /// Its fingerprint.
    fn init(&self) -> String {
        let (is_good, said) = self.rack(&["init", "--name", "alpha"]);
        assert!(is_good, "{said}");
        let print = said.lines().find(|line| line.starts_with("sha256:"));
        print.unwrap().to_owned()
    }
}

fn add<'a>(fingerprint: &'a str, window: &'a str) -> Vec<&'a str> {
    let who = ["add", "beta", "--address", "192.0.2.2"];
    let what = ["--fingerprint", fingerprint, "--window", window];
    [who, what].concat()
}

#[test]
fn a_second_init_tells_what_is_there_and_changes_nothing() {
    let host = Host::new();
    let print = host.init();
    let key = std::fs::read(host.0.path().join("rack.key")).unwrap();
    let said = host.refuses(&["init", "--name", "gamma"]);
    assert!(said.contains("alpha") && said.contains(&print), "{said}");
    assert_eq!(std::fs::read(host.0.path().join("rack.key")).unwrap(), key);
    // Nor is half of it made where the rest is there.
    let configuration = host.0.path().join("rack.toml");
    std::fs::remove_file(&configuration).unwrap();
    let said = host.refuses(&["init", "--name", "alpha"]);
    assert!(
        said.contains("rack.key") && !configuration.exists(),
        "{said}"
    );
}

#[test]
fn a_hosts_own_fingerprint_and_what_is_no_shared_memory_are_refused() {
    let host = Host::new();
    let own = host.init();
    let said = host.refuses(&add(&own, "/dev/shm/lanes"));
    assert!(said.contains("own fingerprint"), "{said}");
    let others = format!("sha256:{}", "ab".repeat(32));
    for device in ["/sys/bus/pci/devices/none/resource2", "/dev/dax99.9"] {
        let said = host.refuses(&add(&others, device));
        assert!(said.contains("crosslane window probe"), "{said}");
    }
    let said = host.refuses(&add(&others, "/proc/lanes"));
    assert!(said.contains("name a file in tmpfs"), "{said}");
    let nowhere = [add(&others, "/dev/shm/no/such/dax"), vec!["--coherent"]].concat();
    let said = host.refuses(&nowhere);
    assert!(said.contains("no such device memory"), "{said}");
    let who = [
        "add",
        "beta",
        "--address",
        "192.0.2.2",
        "--fingerprint",
        &others,
    ];
    let said = host.refuses(&[&who[..], &["--window-bytes", "4096"]].concat());
    assert!(said.contains("--window <PATH>"), "{said}");
    let (is_good, said) = host.rack(&add(&others, "/dev/shm/lanes"));
    assert!(is_good, "{said}");
}

#[test]
fn without_a_monitor_it_is_said_how_one_joins_a_rack() {
    let host = Host::new();
    for asked in ["status", "reload"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command.args(["rack", asked]);
        let output = command.env("CROSSLANE_RUNTIME_DIR", host.0.path()).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(said.contains("crosslane monitor --rack FILE"), "{said}");
    }
}
