//! MariaDB over TCP: a server with a thread for each connection, and its own clients.

use std::path::PathBuf;

use crosslane_testkit::{Host, Process, Program, Route, free_port, is_root, wait_until};

const QUERIES: &str = "
create database few; use few;
create table words (id int primary key, word varchar(400));
insert into words select seq, repeat(char(97 + seq % 26), seq) from seq_1_to_300;
select count(*), sum(length(word)), md5(group_concat(word order by id)) from words;
select * from words order by id;
start transaction; delete from words where id > 10; select count(*) from words; rollback;
select count(*) from words;
create table large (id int primary key, bytes longblob);
insert into large select seq, repeat(sha1(seq), seq * 20) from seq_1_to_200;
select id, md5(bytes) from large order by id;
";

struct Server {
    process: Process,
    port: u16,
    socket: PathBuf,
}

impl Server {
    fn start(host: &Host) -> Self {
        let data = host.folder().join("data");
        let datadir = format!("--datadir={}", data.display());
        let _made = host
            .plain("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal"])
            .args(["--skip-test-db", &datadir])
            .args(user())
            .run();
        let (port, socket) = (free_port(), data.join("socket"));
        let process = host
            .program("/usr/sbin/mariadbd")
            .args(["--no-defaults", "--bind-address=127.0.0.1", &datadir])
            .args(["--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"])
            .args([
                format!("--port={port}"),
                format!("--socket={}", socket.display()),
            ])
            .args(user())
            .start();
        process.wait_for_log("ready for connections");
        Self {
            process,
            port,
            socket,
        }
    }

    /// A client's program, connected to the server by TCP.
    fn client<'a>(&self, host: &'a Host, name: &str) -> Program<'a> {
        host.program(name)
            .args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1"])
            .args(["-u", "tester", "-P", &self.port.to_string()])
    }

    fn let_in(&self, host: &Host) {
        let mariadb = host.plain("mariadb").args(["--no-defaults", "-u", "root"]);
        let grant = "create user tester@'127.0.0.1'; grant all on *.* to tester@'127.0.0.1';";
        let _granted = mariadb
            .arg("-S")
            .arg(&self.socket)
            .args(["-e", grant])
            .run();
    }
}

/// It refuses to run as root unasked.
fn user() -> Option<&'static str> {
    is_root().then_some("--user=root")
}

/// What a database answers along a route.
fn play(route: Route) -> (String, String) {
    let host = &Host::new(route);
    let server = Server::start(host);
    server.let_in(host);
    let answers = server
        .client(host, "mariadb")
        .arg("-N")
        .input(QUERIES)
        .run();
    let dump = server.client(host, "mariadb-dump");
    let dump = dump.args(["--hex-blob", "--skip-dump-date", "few"]).run();
    let slap = server.client(host, "mariadb-slap");
    let _answered = slap
        .args(["--concurrency=4", "--number-of-queries=4000"])
        .args(["--create-schema=few", "--query=select count(*) from words"])
        .run();
    server.process.assert_running();
    if route == Route::Crosslane {
        wait_until("much of it to have gone by rings", || {
            (host.stats().count("ring_bytes_sent") > 2_000_000).then_some(())
        });
    }
    let _ended = server.process.stop().expect_success();
    (answers.text(), dump.text())
}

#[test]
fn a_database_answers_by_tcp_as_it_does_natively() {
    let [natively, accelerated] = [Route::Tcp, Route::Crosslane].map(play);
    assert!(natively.0.contains("300\t45150"), "{}", natively.0);
    assert!(natively == accelerated, "other answers, or another dump");
}
