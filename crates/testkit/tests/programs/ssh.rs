//! OpenSSH: a server that forks for each connection, gives up rights and enters a sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crosslane_testkit::{Host, Process, Program, Route, free_port, is_root, on_both_routes};

use super::{body, sha256, sha256_of};

/// It starts itself anew by this name.
const SSHD: &str = "/usr/sbin/sshd";

/// A server with keys of its own, for the user who runs this test.
struct Server {
    process: Process,
    port: u16,
    key: PathBuf,
}

fn key(host: &Host, name: &str) -> PathBuf {
    let path = host.folder().join(name);
    let make = host
        .plain("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let _made = make.arg(&path).run();
    path
}

impl Server {
    /// `options` beside the usual ones.
    fn start(host: &Host, options: &[&str]) -> Self {
        if is_root() {
            // Where its unprivileged child lives; Debian's service makes it at each boot.
            std::fs::create_dir_all("/run/sshd").expect("root can make a folder in /run");
        }
        let (port, folder) = (free_port(), host.folder().display());
        let (host_key, key) = (key(host, "host_key"), key(host, "user_key"));
        std::fs::copy(key.with_extension("pub"), host.folder().join("authorized"))
            .expect("the key was just made");
        let configuration = host.file(
            "sshd_config",
            format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nPidFile none\nUsePAM no\n\
                 AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPermitRootLogin yes\n\
                 PasswordAuthentication no\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
                host_key.display()
            ),
        );
        let process = host
            .program(SSHD)
            .run_option("--eager", "1-65535")
            .args(["-D", "-e", "-f"])
            .arg(configuration)
            .args(options)
            .start();
        process.wait_for_port(port);
        Self { process, port, key }
    }

    fn client<'a>(&self, host: &'a Host, program: &str, port_option: &str) -> Program<'a> {
        let known = format!("UserKnownHostsFile={}/known", host.folder().display());
        host.program(program)
            .run_option("--eager", "1-65535")
            .args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", &known])
            .args(["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", port_option])
            .arg(self.port.to_string())
            .arg("-i")
            .arg(&self.key)
    }

    fn ssh<'a>(&self, host: &'a Host, command: &str) -> Program<'a> {
        self.client(host, "ssh", "-p").args(["127.0.0.1", command])
    }

    fn scp(&self, host: &Host, from: &str, to: &str) {
        let _copied = self.client(host, "scp", "-P").args([from, to]).run();
    }
}

fn remote(path: &Path) -> String {
    format!("127.0.0.1:{}", path.display())
}

fn there_and_back(host: &Host, server: &Server) {
    let bytes = body(22, 8_000_000);
    host.file("sent", &bytes);
    let far = host.folder().join("far");
    server.scp(host, "sent", &remote(&far));
    assert_eq!(sha256_of(&far), sha256(&bytes));
    server.scp(host, &remote(&far), "back");
    assert_eq!(sha256_of(&host.folder().join("back")), sha256(&bytes));
    let through = server.ssh(host, "cat").input(&bytes).run();
    assert_eq!(sha256(&through.stdout), sha256(&bytes));
}

/// Several at once: each has a process of its own.
fn several_at_once(host: &Host, server: &Server) {
    let bodies: Vec<_> = (0..4).map(|seed| body(seed, 500_000)).collect();
    let clients: Vec<_> = bodies
        .iter()
        .map(|body| server.ssh(host, "cat").input(body).start())
        .collect();
    for (client, body) in clients.into_iter().zip(&bodies) {
        assert!(
            client.finish().expect_success().stdout == *body,
            "it came changed"
        );
    }
    server.process.assert_running();
}

/// Without starting itself anew for each connection, which `-r` keeps it from: connections go into
/// a sandbox with a child that shares them, and stay on TCP.
fn a_server_that_forks_into_a_sandbox(host: &Host) {
    open(host);
    let server = Server::start(host, &["-r"]);
    there_and_back(host, &server);
    several_at_once(host, &server);
    assert_counted(host, "sandbox");
}

/// As it is usually run: each image inherits its connection as its standard input.
fn a_server_that_starts_itself_anew(host: &Host) {
    open(host);
    let server = Server::start(host, &[]);
    there_and_back(host, &server);
    several_at_once(host, &server);
    assert_counted(host, "stdio");
}

fn assert_counted(host: &Host, reason: &str) {
    if host.route() == Route::Crosslane {
        let count = host.stats().reason_count(reason);
        assert!(
            count >= 7,
            "{count} connections had the reason {reason}: {:?}",
            host.stats()
        );
    }
}

/// The server's unprivileged processes must find the monitor.
fn open(host: &Host) {
    let mode = PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(host.folder(), mode).expect("the folder is the test's own");
}

on_both_routes!(
    a_server_that_forks_into_a_sandbox,
    a_server_that_starts_itself_anew,
);
