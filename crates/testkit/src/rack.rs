//! Two hosts on one machine: two network namespaces with a veth pair between them, a monitor in
//! each, and a window file in tmpfs that both open.

mod huge;
mod network;
mod stall;

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{
    End, Host, Output, Program, Route, binary, is_root, skipped, wait_or_tell, wait_until,
};
pub use huge::{HUGE_PAGE_BYTES, HugePages};
use network::Network;
pub use stall::Stall;

/// What the hosts are called. The first is the window's owner.
pub const NAMES: [&str; 2] = ["alpha", "beta"];

/// Their addresses.
pub const ADDRESSES: [&str; 2] = ["10.91.7.1", "10.91.7.2"];

/// What their monitors call the windows between them; most racks have the first only.
pub const WINDOWS: [&str; 2] = ["alpha-beta", "second"];

/// The kind of windows that have a memory at each host.
pub const POSTED: &str = "posted";

/// The same, where what leads to the other host's memory is a file of its own, as a bridge's region is: see [`Rack::region`].
/// The window is open once the test has seen to it.
pub const BRIDGED: &str = "bridged";

fn is_apart(kind: &str) -> bool {
    [POSTED, BRIDGED].contains(&kind)
}

/// Whether the monitors make the window's file.
fn is_made(kind: &str) -> bool {
    kind == "file" || is_apart(kind)
}

/// The file that is the window's memory at a host. Of a posted window, the second host's has a name of its own.
fn memory(window: &Path, kind: &str, at: usize) -> PathBuf {
    match is_apart(kind) && at == 1 {
        true => window.with_extension(NAMES[1]),
        false => window.to_owned(),
    }
}

/// The file by which a host reaches the other's memory of a window, which is there twice.
fn beyond(window: &Path, kind: &str, at: usize) -> PathBuf {
    match kind == BRIDGED {
        true => window.with_extension(format!("region-{}", NAMES[at])),
        false => memory(window, kind, 1 - at),
    }
}

/// Two hosts and what is between them. The hosts come first, so that their programs are gone when
/// the rest goes.
pub struct Rack {
    /// In the order of [`NAMES`].
    pub hosts: [Host; 2],
    windows: Windows,
    window_bytes: u64,
    kind: &'static str,
    network: Network,
}

/// The files of windows, gone with this. That comes after the monitors' end, which would make them anew.
struct Windows(Vec<PathBuf>);

/// What a test changes before the monitors start.
pub struct Plan {
    /// Connections over windows that a user of each may have, if not the usual.
    pub quota: [Option<usize>; 2],
    /// Instead of the `[[allow]]` that `crosslane rack init` writes, if any.
    pub allow: [Option<&'static str>; 2],
    /// Instead of the right fingerprint of the other host.
    pub wrong_key: [bool; 2],
    /// The size of each window.
    pub window_bytes: u64,
    /// How many there are.
    pub windows: usize,
    /// What `rack.toml` calls them. Those that are no "file" are files all the same; the monitors make those that are
    /// "posted", one at each host, and map the others, which are made beforehand.
    pub kind: &'static str,
    /// Where their files are.
    pub folder: PathBuf,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            quota: [None, None],
            allow: [None, None],
            wrong_key: [false, false],
            window_bytes: 64 << 20,
            windows: 1,
            kind: "file",
            folder: "/dev/shm".into(),
        }
    }
}

/// Whether namespaces can be made. Tests of two hosts cannot run without, and say so.
pub fn can_run() -> bool {
    let lack = match Command::new("ip").arg("-V").output() {
        _ if !is_root() => "which only root can make",
        Err(_) => "which ip(8) makes, which is missing: run `cargo xtask setup`",
        Ok(_) => return true,
    };
    skipped(&format!("two hosts are two network namespaces, {lack}"));
    false
}

impl Rack {
    /// Two hosts whose window is open.
    #[expect(
        clippy::new_without_default,
        reason = "it makes namespaces and processes, which nobody expects of a default"
    )]
    pub fn new() -> Self {
        Self::of_kind(Plan::default().kind)
    }

    /// The same, with a window that `rack.toml` calls so.
    pub fn of_kind(kind: &'static str) -> Self {
        let rack = Self::with(&Plan {
            kind,
            ..Plan::default()
        });
        rack.wait_for_window();
        rack
    }

    /// Two hosts whose monitors have been started, as `plan` says.
    ///
    /// # Panics
    /// When the namespaces cannot be made, or `crosslane rack` refuses the configuration.
    pub fn with(plan: &Plan) -> Self {
        let network = Network::new();
        let of =
            |namespace: &String| Host::without_monitor(Route::Crosslane).in_namespace(namespace);
        let [alpha, beta] = &network.namespaces;
        let hosts = [of(alpha), of(beta)];
        let path = |name| {
            plan.folder
                .join(format!("{}-{name}", network.namespaces[0]))
        };
        let windows = Windows(WINDOWS[..plan.windows].iter().map(path).collect());
        let is_posted = is_apart(plan.kind);
        if !is_made(plan.kind) {
            let paths = windows.0.iter();
            paths.for_each(|path| make(path, plan.window_bytes));
        }
        let prints = [0, 1].map(|at| init(&hosts[at], NAMES[at]));
        for at in 0..2 {
            let print = match plan.wrong_key[at] {
                true => format!("sha256:{}", "0".repeat(64)),
                false => prints[1 - at].clone(),
            };
            let bytes = plan.window_bytes.to_string();
            let mut add = crosslane(&hosts[at], &["rack", "add"])
                .args(["--address", ADDRESSES[1 - at], "--fingerprint", &print])
                .args(["--window-bytes", &bytes, "--window"])
                .arg(memory(&windows.0[0], plan.kind, at));
            if is_posted {
                add = add
                    .arg("--beyond")
                    .arg(beyond(&windows.0[0], plan.kind, at));
            }
            add.arg("--rack")
                .arg(hosts[at].folder().join("rack.toml"))
                .arg(NAMES[1 - at])
                .run();
            rewrite(&hosts[at], plan.allow[at], plan.quota[at]);
            for (name, path) in WINDOWS.iter().zip(&windows.0).skip(1) {
                add_window(&hosts[at], (name, path), plan.window_bytes, NAMES[1 - at]);
            }
            if !is_posted {
                call_windows(&hosts[at], plan.kind);
            }
        }
        let hosts = hosts.map(|host| {
            let file = host.folder().join("rack.toml");
            host.with_monitor_option("--rack", file)
        });
        hosts.iter().for_each(Host::start_monitor);
        Self {
            hosts,
            windows,
            window_bytes: plan.window_bytes,
            kind: plan.kind,
            network,
        }
    }

    /// What the windows are called.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Wait until both monitors say that all windows are open.
    pub fn wait_for_window(&self) {
        for (at, name) in NAMES.iter().enumerate() {
            wait_until(&format!("{name}'s windows to open"), || {
                let status = self.status(at);
                let is_open = |window| status["hosts"][0]["windows"][window]["state"] == "open";
                (0..self.windows.0.len()).all(is_open).then_some(())
            });
        }
    }

    /// What `crosslane rack status --json` says at host `at`.
    ///
    /// # Panics
    /// When it fails.
    pub fn status(&self, at: usize) -> Value {
        let output = crosslane(&self.hosts[at], &["rack", "status", "--json"]).run();
        serde_json::from_str(&output.text()).expect("one JSON object")
    }

    /// Change the `rack.toml` of host `at`.
    ///
    /// # Panics
    /// When it is not there.
    pub fn rewrite(&self, at: usize, change: impl FnOnce(String) -> String) {
        let path = self.hosts[at].folder().join("rack.toml");
        let text = std::fs::read_to_string(&path).expect("it was written at the start");
        std::fs::write(&path, change(text)).expect("it is ours");
    }

    /// Have the monitor of host `at` read it again. Returns what `crosslane rack reload` says.
    pub fn reload(&self, at: usize) -> Output {
        crosslane(&self.hosts[at], &["rack", "reload"]).finish()
    }

    /// The file of a window.
    pub fn window(&self, window: usize) -> &Path {
        &self.windows.0[window]
    }

    /// The file that is the first window's memory at a host.
    pub fn memory(&self, at: usize) -> PathBuf {
        memory(self.window(0), self.kind, at)
    }

    /// The file that stands for the region of a host's bridge.
    pub fn region(&self, at: usize) -> PathBuf {
        beyond(self.window(0), self.kind, at)
    }

    /// A file for a window that a test adds beside the first one.
    pub fn other_window(&self) -> PathBuf {
        other(self.window(0))
    }

    /// Take the first window away from whoever maps it: a touch raises SIGBUS, as when a device is removed.
    /// The monitors make it anew.
    ///
    /// # Panics
    /// When the file is not there.
    pub fn lose_window(&self) {
        let file = std::fs::File::options().write(true).open(self.window(0));
        let cut = file.and_then(|file| file.set_len(0));
        cut.expect("the monitors have made it");
    }

    /// As [`Rack::lose_window`] of any window, which stays away until [`Rack::give_window`].
    ///
    /// # Panics
    /// When the file is not there.
    pub fn take_window(&self, window: usize) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.window(window));
        let file = file.expect("the monitors have made it");
        self.hide_window(window);
        file.set_len(0).expect("it is ours");
    }

    /// The monitors find this window no more, but what is mapped goes on to answer, until
    /// [`Rack::give_window`].
    ///
    /// # Panics
    /// When the file is not there.
    pub fn hide_window(&self, window: usize) {
        let path = self.window(window);
        std::fs::remove_file(path).expect("the monitors have made it");
        // Nothing can be made there, nor opened.
        std::fs::create_dir(path).expect("the name is free");
    }

    /// As [`Rack::lose_window`], but what is mapped goes on to answer.
    ///
    /// # Panics
    /// When the file is not there.
    pub fn replace_window(&self) {
        std::fs::remove_file(self.window(0)).expect("the monitors have made it");
    }

    /// Wait until the first window is open that the monitors have made since it was lost.
    pub fn wait_for_another_window(&self) {
        wait_until("another window", || {
            let file = std::fs::metadata(self.window(0)).ok()?;
            (file.len() > 0).then_some(())
        });
        self.wait_for_window();
    }

    /// Let the monitors have the window again, as other memory.
    ///
    /// # Panics
    /// When it was not taken.
    pub fn give_window(&self, window: usize) {
        let path = self.window(window);
        std::fs::remove_dir(path).expect("it was taken");
        if !is_made(self.kind) {
            make(path, self.window_bytes);
        }
    }

    /// Take the link between the hosts down.
    pub fn cut(&self) {
        self.network.cut(1);
    }

    /// Host `at`, of which no process is left, is back with a kernel that knows no connections, and a link.
    pub fn reboot(&self, at: usize) {
        self.network.renew(at);
    }

    /// The connections of `port` at host `at`.
    pub fn ends(&self, at: usize, port: u16) -> Vec<End> {
        let ends = self.hosts[at].ends().into_iter();
        ends.filter(|end| end.has_port(port)).collect()
    }

    /// Wait until both hosts show `count` accelerated connections of `port`.
    pub fn wait_for_accelerated(&self, port: u16, count: usize) {
        for (at, name) in NAMES.iter().enumerate() {
            let look = || {
                let ends = self.ends(at, port);
                let fast = ends.iter().filter(|end| end.is_accelerated()).count();
                (fast >= count).then_some(())
            };
            let tell = || [0, 1].map(|at| self.tell(at, port)).concat();
            wait_or_tell(&format!("{count} accelerated at {name}"), look, tell);
        }
    }

    /// What there is at host `at`, for who has waited in vain.
    fn tell(&self, at: usize, port: u16) -> String {
        let (name, status, ends) = (NAMES[at], self.status(at), self.ends(at, port));
        format!("{name}: {status:#}\n{ends:#?}\n")
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        for window in &self.0 {
            // It is there unless no monitor came so far.
            let _ = std::fs::remove_file(window);
            let _ = std::fs::remove_file(memory(window, POSTED, 1));
            let _ = std::fs::remove_file(other(window));
            let regions = [0, 1].map(|at| beyond(window, BRIDGED, at));
            let _ = regions.map(std::fs::remove_file);
            let _ = std::fs::remove_dir(window);
        }
    }
}

fn other(window: &Path) -> PathBuf {
    window.with_extension("other")
}

fn crosslane<'a>(host: &'a Host, arguments: &[&str]) -> Program<'a> {
    host.plain(binary("crosslane")).args(arguments)
}

/// Make a host's key and configuration. Returns its fingerprint.
fn init(host: &Host, name: &str) -> String {
    let output = crosslane(host, &["rack", "init", "--name", name, "--rack"])
        .arg(host.folder().join("rack.toml"))
        .run();
    let text = output.text();
    let print = text.lines().find(|line| line.starts_with("sha256:"));
    print.expect("a fingerprint is printed").to_owned()
}

fn add_window(host: &Host, (name, path): (&str, &Path), bytes: u64, other: &str) {
    let file = host.folder().join("rack.toml");
    let text = std::fs::read_to_string(&file).expect("it was just written");
    let window = format!(
        "\n[[window]]\nname = {name:?}\nkind = \"file\"\npath = {path:?}\nbytes = {bytes}\nhost = {other:?}\n"
    );
    std::fs::write(&file, text + &window).expect("it was just written");
}

/// A file in the place of a device's memory.
fn make(path: &Path, bytes: u64) {
    let mut options = std::fs::File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let made = file.open(path).and_then(|file| file.set_len(bytes));
    made.expect("tmpfs has room");
}

fn call_windows(host: &Host, kind: &str) {
    let path = host.folder().join("rack.toml");
    let text = std::fs::read_to_string(&path).expect("it was just written");
    // Which nobody could ask the memory.
    let coherent = match kind {
        "dax" => "\ncoherent = true",
        _ => "",
    };
    let text = text.replace("\nkind = \"file\"", &format!("\nkind = {kind:?}{coherent}"));
    std::fs::write(&path, text).expect("it was just written");
}

fn rewrite(host: &Host, allow: Option<&str>, quota: Option<usize>) {
    let path = host.folder().join("rack.toml");
    let mut text = std::fs::read_to_string(&path).expect("it was just written");
    if let Some(allow) = allow {
        text = text.replacen("[[allow]]\nusers = [0]\n", allow, 1);
    }
    if let Some(quota) = quota {
        let of = |number| format!("connections_per_user = {number}");
        text = text.replacen(&format!("# {}", of(4096)), &of(quota), 1);
    }
    std::fs::write(&path, text).expect("it was just written");
}
