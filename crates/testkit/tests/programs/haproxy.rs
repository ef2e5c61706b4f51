//! HAProxy in front of nginx, and ab against both.

use crosslane_testkit::{Host, Process, free_port, on_both_routes, wait_until};

use super::{body, fetch, sha256};

const NGINX: &str = "/usr/sbin/nginx";
const HAPROXY: &str = "/usr/sbin/haproxy";

struct Sites {
    nginx: Process,
    haproxy: Process,
    behind: u16,
    front: u16,
    large: Vec<u8>,
}

impl Sites {
    fn open(host: &Host) -> Self {
        let (behind, front) = (free_port(), free_port());
        let large = body(80, 4_000_000);
        host.file("large", &large);
        host.file("small", [b's'; 100]);
        let folder = host.folder().display();
        // Workers that stay root can read the test's own folder.
        let user = if crosslane_testkit::is_root() {
            "user root;"
        } else {
            ""
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
            .concat();
        let configuration = host.file(
            "nginx.conf",
            format!(
                "daemon off; {user} worker_processes 4; pid {folder}/nginx.pid;
                 error_log stderr notice; events {{ }}
                 http {{
                     access_log off; sendfile on; {temporary}
                     server {{ listen 127.0.0.1:{behind} backlog=1024; root {folder}; }}
                 }}"
            ),
        );
        let nginx = eager(host, NGINX).args(["-e", "stderr", "-c"]);
        let nginx = nginx.arg(configuration).start();
        nginx.wait_for_port(behind);
        let configuration = host.file(
            "haproxy.cfg",
            format!(
                "global
                     maxconn 500
                     nbthread 2
                 defaults
                     mode http
                     timeout connect 10s
                     timeout client 60s
                     timeout server 60s
                     option splice-auto
                 frontend front
                     bind 127.0.0.1:{front}
                     default_backend behind
                 backend behind
                     http-reuse always
                     server nginx 127.0.0.1:{behind}\n"
            ),
        );
        let haproxy = eager(host, HAPROXY).args(["-db", "-f"]);
        let haproxy = haproxy.arg(configuration).start();
        haproxy.wait_for_port(front);
        Self {
            nginx,
            haproxy,
            behind,
            front,
            large,
        }
    }
}

fn eager<'a>(host: &'a Host, program: &str) -> crosslane_testkit::Program<'a> {
    host.program(program).run_option("--eager", "1-65535")
}

/// The report of ab, in which no request may have failed.
fn ab(host: &Host, port: u16, options: &[&str]) {
    let url = format!("http://127.0.0.1:{port}/small");
    let report = eager(host, "ab")
        .args(["-q", "-n", "2000", "-c", "16"])
        .args(options)
        .arg(url)
        .run()
        .text();
    for line in ["Complete requests:      2000", "Failed requests:        0"] {
        assert!(report.contains(line), "{report}");
    }
    assert!(!report.contains("Non-2xx"), "{report}");
}

fn bodies_are_whole_through_a_proxy(host: &Host) {
    let sites = Sites::open(host);
    let (front, behind) = (host.witness(sites.front), host.witness(sites.behind));
    fetch::all(host, sites.front, "large", 12, &sha256(&sites.large));
    front.assert_accelerated();
    // HAProxy keeps its connections to nginx, which can be looked at.
    behind.assert_port_accelerated();
    sites.haproxy.assert_running();
}

fn ab_with_and_without_kept_connections(host: &Host) {
    let sites = Sites::open(host);
    let witness = host.witness(sites.behind);
    for port in [sites.front, sites.behind] {
        ab(host, port, &["-k"]);
        ab(host, port, &[]);
    }
    witness.assert_accelerated();
}

/// New workers take over while requests come.
fn ab_while_nginx_reloads(host: &Host) {
    let sites = Sites::open(host);
    let count = || sites.nginx.log().matches("reconfiguring").count();
    for round in 1..=3 {
        let configuration = host.folder().join("nginx.conf");
        let client = host
            .plain(NGINX)
            .args(["-e", "stderr", "-s", "reload", "-c"]);
        let reload = client.arg(configuration).start();
        // Kept connections would be closed below requests, natively as well.
        ab(host, sites.behind, &[]);
        let _done = reload.finish().expect_success();
        wait_until("nginx to reload", || (count() >= round).then_some(()));
    }
    sites.nginx.assert_running();
    // Connections of one request may end before they are accelerated.
    let witness = host.witness(sites.behind);
    ab(host, sites.behind, &["-k"]);
    witness.assert_accelerated();
}

on_both_routes!(
    bodies_are_whole_through_a_proxy,
    ab_with_and_without_kept_connections,
    ab_while_nginx_reloads,
);
