//! `cargo xtask setup`: the Debian packages that the tests and the demo run real programs from.

mod policy;
mod unpack;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};

use policy::POLICY;

/// A program that a test or the demo needs, and where Debian has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name that is looked for in PATH, or an absolute path; the place in the package of what
    /// is unpacked.
    pub name: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
    how: How,
}

/// How it gets to where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By installing its package.
    Install,
    /// By unpacking its package below the target folder: it is for virtual machines, and this machine
    /// is to boot and work as before.
    Unpack,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    let how = How::Install;
    Program { name, package, how }
}

const fn unpacked(name: &'static str, package: &'static str) -> Program {
    let how = How::Unpack;
    Program { name, package, how }
}

pub const AB: Program = program("ab", "apache2-utils");
pub const CHROMIUM: Program = program("chromium", "chromium");
pub const CMAKE: Program = program("cmake", "cmake");
pub const CURL: Program = program("curl", "curl");
pub const DPKG_SOURCE: Program = program("dpkg-source", "dpkg-dev");
pub const FI_PINGPONG: Program = program("fi_pingpong", "libfabric-bin");
pub const GIT: Program = program("git", "git");
pub const GUEST_BUSYBOX: Program = unpacked("bin/busybox", "busybox-static");
pub const GUEST_KERNEL: Program = unpacked("boot/vmlinuz", "linux-image-cloud-amd64");
pub const HAPROXY: Program = program("/usr/sbin/haproxy", "haproxy");
pub const IP: Program = program("ip", "iproute2");
pub const IPERF3: Program = program("iperf3", "iperf3");
/// Java with its compiler.
pub const JAVAC: Program = program("javac", "openjdk-17-jdk-headless");
pub const MARIADB: Program = program("mariadb-slap", "mariadb-client");
pub const MARIADBD: Program = program("/usr/sbin/mariadbd", "mariadb-server");
pub const MEMCACHED: Program = program("memcached", "memcached");
pub const MEMCSLAP: Program = program("memcslap", "libmemcached-tools");
pub const NGINX: Program = program("/usr/sbin/nginx", "nginx");
/// Modules that nginx loads, each a file.
pub const NGINX_GEOIP: Program = program(
    "/usr/lib/nginx/modules/ngx_http_geoip_module.so",
    "libnginx-mod-http-geoip",
);
pub const NGINX_IMAGE_FILTER: Program = program(
    "/usr/lib/nginx/modules/ngx_http_image_filter_module.so",
    "libnginx-mod-http-image-filter",
);
pub const NGINX_MAIL: Program = program(
    "/usr/lib/nginx/modules/ngx_mail_module.so",
    "libnginx-mod-mail",
);
pub const NGINX_PERL: Program = program(
    "/usr/lib/nginx/modules/ngx_http_perl_module.so",
    "libnginx-mod-http-perl",
);
pub const NGINX_STREAM: Program = program(
    "/usr/lib/nginx/modules/ngx_stream_module.so",
    "libnginx-mod-stream",
);
pub const NGINX_STREAM_GEOIP: Program = program(
    "/usr/lib/nginx/modules/ngx_stream_geoip_module.so",
    "libnginx-mod-stream-geoip",
);
pub const NGINX_XSLT: Program = program(
    "/usr/lib/nginx/modules/ngx_http_xslt_filter_module.so",
    "libnginx-mod-http-xslt-filter",
);
pub const NODE: Program = program("/usr/bin/node", "nodejs");
pub const PERL: Program = program("perl", "perl");
/// Modules of Perl's, each a file.
pub const PERL_FCGI: Program = program(
    "/usr/lib/x86_64-linux-gnu/perl5/5.36/FCGI.pm",
    "libfcgi-perl",
);
pub const PERL_MEMCACHED: Program = program(
    "/usr/share/perl5/Cache/Memcached.pm",
    "libcache-memcached-perl",
);
pub const PERL_SCGI: Program = program("/usr/share/perl5/SCGI.pm", "libscgi-perl");
pub const PERL_SSL: Program = program("/usr/share/perl5/IO/Socket/SSL.pm", "libio-socket-ssl-perl");
pub const PERL_WEBSOCKET: Program = program(
    "/usr/share/perl5/Protocol/WebSocket.pm",
    "libprotocol-websocket-perl",
);
/// The server refuses root and runs as the user that its package makes.
pub const POSTGRES: Program = program("/usr/lib/postgresql/15/bin/postgres", "postgresql");
pub const PYTHON: Program = program("/usr/bin/python3", "python3");
/// CPython's tests are files, of which this is one.
pub const PYTHON_TESTS: Program = program(
    "/usr/lib/python3.11/test/test_socket.py",
    "libpython3.11-testsuite",
);
pub const QEMU: Program = program("qemu-system-x86_64", "qemu-system-x86");
/// A Go program.
pub const RCLONE: Program = program("/usr/bin/rclone", "rclone");
pub const REDIS_BENCHMARK: Program = program("redis-benchmark", "redis-tools");
pub const REDIS_CLI: Program = program("redis-cli", "redis-tools");
pub const REDIS_SERVER: Program = program("redis-server", "redis-server");
pub const RSYNC: Program = program("rsync", "rsync");
pub const SSH: Program = program("ssh", "openssh-client");
pub const SSHD: Program = program("/usr/sbin/sshd", "openssh-server");
pub const SOCKPERF: Program = program("sockperf", "sockperf");
pub const TCLSH: Program = program("tclsh", "tcl");
pub const UCX_PERFTEST: Program = program("ucx_perftest", "ucx-utils");
pub const VALGRIND: Program = program("valgrind", "valgrind");
pub const WRK: Program = program("wrk", "wrk");

/// Every program that the tests run.
pub const ALL: [Program; 29] = [
    AB,
    CHROMIUM,
    CURL,
    FI_PINGPONG,
    GUEST_BUSYBOX,
    GUEST_KERNEL,
    HAPROXY,
    IP,
    IPERF3,
    JAVAC,
    MARIADB,
    MARIADBD,
    MEMCACHED,
    NGINX,
    NODE,
    POSTGRES,
    PYTHON,
    QEMU,
    RCLONE,
    REDIS_BENCHMARK,
    REDIS_CLI,
    REDIS_SERVER,
    RSYNC,
    SOCKPERF,
    SSH,
    SSHD,
    UCX_PERFTEST,
    VALGRIND,
    WRK,
];

/// Services that Debian starts at boot once their package is installed.
const SERVICES: [(&str, &str); 8] = [
    ("redis-server", "redis-server"),
    ("nginx", "nginx"),
    ("memcached", "memcached"),
    ("iperf3", "iperf3"),
    ("haproxy", "haproxy"),
    ("postgresql", "postgresql"),
    ("openssh-server", "ssh"),
    ("mariadb-server", "mariadb"),
];

impl Program {
    /// Whether it is there to be run.
    pub fn is_installed(&self) -> bool {
        if self.how == How::Unpack {
            return unpack::folder().join(self.name).is_file();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Joining an absolute name replaces the folder.
        std::env::split_paths(&path).any(|folder| folder.join(self.name).is_file())
    }
}

/// Install what is missing and say how it went.
pub fn run() -> anyhow::Result<ExitCode> {
    let missing = ensure_installed(&ALL)?;
    if missing.is_empty() {
        println!("setup: all programs that the tests need are installed");
        return Ok(ExitCode::SUCCESS);
    }
    println!("setup: {}", how_to_install(&missing));
    Ok(ExitCode::FAILURE)
}

/// Install the missing ones among `programs` when root, and unpack what is to be unpacked; return
/// those that are missing still.
pub fn ensure_installed(programs: &[Program]) -> anyhow::Result<Vec<Program>> {
    let missing = missing_among(programs);
    let (to_install, to_unpack) = packages_of(&missing);
    let is_root = rustix::process::geteuid().is_root();
    if is_root && let Err(error) = policy::tidy_up(Path::new(POLICY)) {
        println!("setup: cannot remove {POLICY}, which an earlier setup has left: {error}");
    }
    if !to_install.is_empty() && is_root {
        println!("setup: installing {}", to_install.join(" "));
        if let Err(error) = install(&to_install) {
            println!("setup: {error:#}");
        }
    }
    for package in to_unpack {
        println!("setup: unpacking {package}");
        if let Err(error) = unpack::unpack(package) {
            println!("setup: {error:#}");
        }
    }
    Ok(missing_among(programs))
}

/// What a person has to type to get `missing`.
pub fn how_to_install(missing: &[Program]) -> String {
    let (to_install, to_unpack) = packages_of(missing);
    let mut ways = Vec::new();
    if !to_install.is_empty() {
        ways.push(format!(
            "run as root: apt-get install {}",
            to_install.join(" ")
        ));
    }
    if !to_unpack.is_empty() {
        ways.push(format!(
            "run: cargo xtask setup (unpacks {})",
            to_unpack.join(" ")
        ));
    }
    ways.join("; ")
}

fn missing_among(programs: &[Program]) -> Vec<Program> {
    programs
        .iter()
        .copied()
        .filter(|program| !program.is_installed())
        .collect()
}

/// The packages to install and those to unpack, each once.
fn packages_of(programs: &[Program]) -> (Vec<&'static str>, Vec<&'static str>) {
    let packages = |how| {
        let wanted = programs.iter().filter(|program| program.how == how);
        let mut packages: Vec<_> = wanted.map(|program| program.package).collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    };
    (packages(How::Install), packages(How::Unpack))
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    let options = [
        "-y",
        "-q",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=300",
    ];
    let install: Vec<&str> = [&["install"], &options[..], packages]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    if apt_get(&install).is_err() {
        // The lists of a fresh machine are empty or old.
        apt_get(&["update", "-q"])?;
        apt_get(&install)?;
    }
    disable_services(packages)
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    ensure!(
        program("apt-get", "apt").is_installed(),
        "there is no apt-get: is this Debian?"
    );
    let words = [&["apt-get"], arguments].concat();
    let output = policy::quietly(Path::new(POLICY), &words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("cannot start a shell")?;
    ensure!(
        output.status.success(),
        "apt-get {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Keep the services of what was just installed from starting at the next boot.
fn disable_services(packages: &[&str]) -> anyhow::Result<()> {
    if !Path::new("/run/systemd/system").exists() {
        return Ok(());
    }
    let services = SERVICES
        .iter()
        .filter(|(package, _)| packages.contains(package));
    for (_, service) in services {
        // A package without this service leaves nothing to disable.
        Command::new("systemctl")
            .args(["disable", "--quiet", service])
            .stderr(Stdio::null())
            .status()
            .context("cannot start systemctl")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_and_by_absolute_path() {
        assert!(program("sh", "dash").is_installed());
        assert!(program("/bin/sh", "dash").is_installed());
        assert!(!program("no-such-program", "none").is_installed());
        assert!(!program("/no/such/program", "none").is_installed());
    }

    #[test]
    fn a_package_is_named_once() {
        let missing = [REDIS_SERVER, REDIS_CLI, REDIS_BENCHMARK];
        assert_eq!(
            how_to_install(&missing),
            "run as root: apt-get install redis-server redis-tools"
        );
    }

    #[test]
    fn what_is_unpacked_is_not_to_be_installed() {
        assert_eq!(
            how_to_install(&[QEMU, GUEST_KERNEL]),
            "run as root: apt-get install qemu-system-x86; \
             run: cargo xtask setup (unpacks linux-image-cloud-amd64)"
        );
    }
}
