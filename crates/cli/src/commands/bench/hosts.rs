//! Two hosts for a bench: network namespaces of this machine with a veth pair between them, a monitor in each,
//! and a window of files. All of it ends with the bench.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use crosslane_benchkit::{Crosslane, End, Folder, Process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::daemon;
use super::programs::{FOLDER, GRACE, Programs, folder};

const NAMES: [&str; 2] = ["alpha", "beta"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 91, 8, 1), Ipv4Addr::new(10, 91, 8, 2)];
/// Room for some hundred connections.
pub const WINDOW_BYTES: u64 = 64 << 20;

/// What makes hosts out of a machine, and Debian's package of it.
const TOOLS: [(&str, &str); 3] = [
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
];

/// Of what kind the window between two hosts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One memory that both map
    Shared,
    /// A memory for each host, which the other one only writes, as over a PCIe bridge: experimental
    Posted,
}

/// Two hosts whose window is open.
pub struct Hosts {
    hosts: [Host; 2],
    /// With a second file like the window, for what goes over a window alone.
    memory: Folder,
}

struct Host {
    programs: Programs,
    _monitor: Process,
    // Both are needed until the monitor has ended.
    _namespace: Namespace,
    _directory: Folder,
}

/// A network namespace without a name, which ends with the program that keeps it.
struct Namespace {
    keeper: Process,
}

/// What `crosslane rack status` says of a window.
#[derive(Deserialize)]
struct Status {
    hosts: Vec<OtherHost>,
}

#[derive(Deserialize)]
struct OtherHost {
    trouble: Option<String>,
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Window {
    state: String,
    trouble: Option<String>,
}

impl Hosts {
    /// Make them and wait until both say that the window, of that kind and so many bytes, is open.
    pub fn start(programs: &Programs, kind: Kind, window_bytes: u64) -> anyhow::Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "two hosts are made of network namespaces, which only root can make: run it as root"
        );
        let missing = TOOLS
            .iter()
            .find_map(|(tool, of)| daemon::missing(tool, of));
        if let Some(missing) = missing {
            bail!("two hosts cannot be made: {missing}");
        }
        let memory = Folder::within(Path::new("/dev/shm"), FOLDER)
            .context("cannot make a folder for the window in /dev/shm")?;
        let namespaces = connected()?;
        let directories = [folder()?, folder()?];
        let files = directories.each_ref().map(|at| at.path().join("rack.toml"));
        configure(
            &programs.crosslane,
            &files,
            memory.path(),
            (kind, window_bytes),
        )?;
        let [alpha, beta] = namespaces;
        let [first, second] = directories;
        let hosts = [
            Host::start(programs, alpha, ADDRESSES[0], first)?,
            Host::start(programs, beta, ADDRESSES[1], second)?,
        ];
        hosts.iter().try_for_each(Host::wait_for_window)?;
        Ok(Self { hosts, memory })
    }

    /// The programs as they run on the first host, the server's.
    pub fn server(&self) -> &Programs {
        &self.hosts[0].programs
    }

    /// The programs as they run on the second host, the clients'.
    pub fn client(&self) -> &Programs {
        &self.hosts[1].programs
    }

    /// What both monitors know of their programs' connections. Fails where one is accelerated by something
    /// else than the window.
    pub fn connections(&self) -> anyhow::Result<Vec<End>> {
        let mut ends = Vec::new();
        for host in &self.hosts {
            ends.extend(host.programs.crosslane.connections()?);
        }
        let elsewhere = |end: &&End| end.is_accelerated() && end.window.is_none();
        if let Some(end) = ends.iter().find(elsewhere) {
            bail!("{} to {} is not in the window", end.local, end.peer);
        }
        Ok(ends)
    }

    /// A file of the window's kind that nobody uses.
    pub fn spare_window(&self) -> anyhow::Result<PathBuf> {
        let path = self.memory.path().join("spare");
        File::create(&path)?.set_len(WINDOW_BYTES)?;
        Ok(path)
    }
}

impl Host {
    fn start(
        programs: &Programs,
        namespace: Namespace,
        address: Ipv4Addr,
        directory: Folder,
    ) -> anyhow::Result<Self> {
        let crosslane = programs.crosslane.clone().with_monitor_in(directory.path());
        let programs = programs.using(&crosslane).inside(namespace.path(), address);
        let mut command = crosslane.command();
        command.args(["monitor", "--private", "--announce", "--runtime-dir"]);
        command.arg(directory.path());
        command
            .arg("--rack")
            .arg(directory.path().join("rack.toml"));
        let mut monitor = Process::spawn("monitor", &mut programs.there(command))?;
        monitor.next_line(GRACE)?;
        Ok(Self {
            programs,
            _monitor: monitor,
            _namespace: namespace,
            _directory: directory,
        })
    }

    fn wait_for_window(&self) -> anyhow::Result<()> {
        let end = Instant::now() + GRACE;
        loop {
            let mut command = self.programs.crosslane.command();
            command.args(["rack", "status", "--json"]);
            let said = Process::spawn("crosslane rack status", &mut command)?.finish(GRACE)?;
            let status: Status = serde_json::from_str(&said.stdout)?;
            let windows = || status.hosts.iter().flat_map(|host| &host.windows);
            if windows().any(|window| window.state == "open") {
                return Ok(());
            }
            if Instant::now() >= end {
                let hosts = status
                    .hosts
                    .iter()
                    .filter_map(|host| host.trouble.as_deref());
                let of_windows = windows().filter_map(|window| window.trouble.as_deref());
                let troubles: Vec<_> = hosts.chain(of_windows).collect();
                bail!(
                    "the window does not open within {GRACE:?}: {}",
                    troubles.join("; ")
                );
            }
            std::thread::sleep(daemon::PAUSE);
        }
    }
}

impl Namespace {
    fn new() -> anyhow::Result<Self> {
        // Short connections would wear out the ports, which a minute of rest keeps from the next ones. It ends when its input
        // does, and so with this program, however that ends.
        let keep = "echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse; echo there; exec cat";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", keep]);
        let mut keeper = Process::spawn("namespace", &mut command)?;
        keeper.next_line(GRACE)?;
        Ok(Self { keeper })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.pid()))
    }
}

/// Two namespaces with a pair of network devices between them.
fn connected() -> anyhow::Result<[Namespace; 2]> {
    let namespaces = [Namespace::new()?, Namespace::new()?];
    let [one, other] = namespaces.each_ref().map(|of| of.keeper.pid().to_string());
    let pair = ["link", "add", "lane", "netns", &one, "type", "veth"];
    let peer = ["peer", "name", "lane", "netns", &other];
    do_ip(Command::new("ip").args(pair).args(peer))?;
    for (namespace, address) in namespaces.iter().zip(ADDRESSES) {
        let address = format!("{address}/24");
        for words in [
            &["addr", "add", &address, "dev", "lane"][..],
            &["link", "set", "lane", "up"],
            &["link", "set", "lo", "up"],
        ] {
            let mut command = Command::new("ip");
            do_ip(&mut inside(&namespace.path(), command.args(words)))?;
        }
    }
    Ok(namespaces)
}

fn do_ip(command: &mut Command) -> anyhow::Result<()> {
    Process::spawn("ip", command)?.finish(GRACE)?;
    Ok(())
}

/// Have each host know the other one by its key, and the window to it.
fn configure(
    crosslane: &Crosslane,
    files: &[PathBuf; 2],
    memory: &Path,
    (kind, bytes): (Kind, u64),
) -> anyhow::Result<()> {
    let run = |words: &[&str], at: usize| {
        let mut command = crosslane.command();
        command
            .arg("rack")
            .args(words)
            .arg("--rack")
            .arg(&files[at]);
        Process::spawn("crosslane rack", &mut command)?.finish(GRACE)
    };
    let mut fingerprints = Vec::new();
    for (at, name) in NAMES.iter().enumerate() {
        let said = run(&["init", "--name", name], at)?.stdout;
        let fingerprint = said.lines().find(|line| line.starts_with("sha256:"));
        fingerprints.push(fingerprint.context("init prints a fingerprint")?.to_owned());
    }
    let bytes = bytes.to_string();
    let file = |name: &str| memory.join(name).display().to_string();
    for (at, name) in NAMES.into_iter().enumerate() {
        let other = 1 - at;
        let address = ADDRESSES[other].to_string();
        let who = ["add", NAMES[other], "--address", &address];
        let key = ["--fingerprint", &fingerprints[other]];
        let what = match kind {
            Kind::Shared => vec![file("window")],
            Kind::Posted => vec![file(name), "--beyond".to_owned(), file(NAMES[other])],
        };
        let what: Vec<&str> = what.iter().map(String::as_str).collect();
        let size = ["--window-bytes", &bytes];
        run(&[&who[..], &key, &["--window"], &what, &size].concat(), at)?;
    }
    Ok(())
}

/// A command in a network namespace.
pub fn inside(namespace: &Path, command: &Command) -> Command {
    let mut net = std::ffi::OsString::from("--net=");
    net.push(namespace);
    let mut outer = Command::new("nsenter");
    outer.arg(net).arg("--").arg(command.get_program());
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Do something in a network namespace, by a thread of its own, as a thread can be in another one than its process.
pub fn do_inside<T: Send>(namespace: &Path, act: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let enter_and_act = || {
        let file = File::open(namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(act())
    };
    let done = std::thread::scope(|scope| scope.spawn(enter_and_act).join());
    let done: std::io::Result<T> = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    done.with_context(|| format!("cannot enter {}", namespace.display()))
}
