//! PostgreSQL over its local socket: a server that forks for each connection, as a user of its own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crosslane_testkit::{Host, Process, Program, Route, is_root, wait_until};
use rustix::process::Signal;

/// Debian's, whose wrappers in PATH choose among several.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses root; Debian makes this user for it.
const USER: &str = "postgres";

/// Rows of a table, some megabytes as text.
const ROWS: u32 = 40_000;

struct Server {
    process: Process,
    folder: PathBuf,
}

/// A program of PostgreSQL as the server's user.
fn as_user<'a>(
    host: &'a Host,
    start: impl Fn(&'a Host, &Path) -> Program<'a>,
    name: &str,
) -> Program<'a> {
    let path = Path::new(PROGRAMS).join(name);
    if !is_root() {
        return start(host, &path);
    }
    let [user, group] = ["reuid", "regid"].map(|option| format!("--{option}={USER}"));
    start(host, Path::new("setpriv"))
        .args([&user, &group, "--clear-groups", "--"])
        .arg(path)
}

impl Server {
    fn start(host: &Host) -> Self {
        let folder = host.folder().join("postgres");
        std::fs::create_dir(&folder).expect("a folder in the test's own");
        if is_root() {
            let open = std::fs::Permissions::from_mode(0o711);
            std::fs::set_permissions(host.folder(), open).expect("the test's own folder");
            let (user, group) = ids();
            chown(&folder, Some(user), Some(group)).expect("root may give a folder away");
        }
        let data = folder.join("data");
        let _made = as_user(host, |host, path| host.plain(path), "initdb")
            .args(["--no-sync", "--auth=trust", "--locale=C", "--encoding=UTF8"])
            .args(["--username", USER, "-D"])
            .arg(&data)
            .run();
        let options = [
            "listen_addresses=",
            "fsync=off",
            "autovacuum=off",
            "log_statement=none",
        ];
        let process = as_user(host, accelerated, "postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&folder)
            .args(options.iter().flat_map(|option| ["-c", option]))
            .start();
        process.wait_for_log("ready to accept connections");
        Self { process, folder }
    }

    /// A client's program, connected to the server.
    fn client<'a>(&self, host: &'a Host, name: &str) -> Program<'a> {
        accelerated(host, &Path::new(PROGRAMS).join(name))
            .args(["-U", USER, "-h"])
            .arg(&self.folder)
    }

    /// What psql prints for these commands.
    fn ask(&self, host: &Host, commands: &str) -> String {
        let psql = self.client(host, "psql");
        psql.args(["-X", "-q", "-A", "-t", USER])
            .input(commands)
            .run()
            .text()
    }
}

fn accelerated<'a>(host: &'a Host, path: &Path) -> Program<'a> {
    host.program(path).run_flag("--unix")
}

/// The numbers of the server's user and group.
fn ids() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").expect("there are users");
    let line = users
        .lines()
        .find(|line| line.starts_with(&format!("{USER}:")));
    let numbers: Vec<u32> = line
        .unwrap_or_else(|| panic!("there is no user {USER}: install the package postgresql"))
        .split(':')
        .skip(2)
        .map_while(|number| number.parse().ok())
        .collect();
    (numbers[0], numbers[1])
}

/// As `COPY` writes them.
fn rows() -> String {
    (0..ROWS)
        .map(|row| {
            format!(
                "{row}\t{:x}\t{}\n",
                row.wrapping_mul(2_654_435_761),
                "row ".repeat(row as usize % 40)
            )
        })
        .collect()
}

const QUERIES: &str = "
create table few (id int primary key, word text);
insert into few select n, repeat(chr(97 + n % 26), n) from generate_series(1, 300) n;
select count(*), sum(length(word)), md5(string_agg(word, '' order by id)) from few;
select * from few order by id;
begin;
delete from few where id > 10;
select count(*) from few;
rollback;
select count(*) from few;
select 1 / 0;
select repeat('x', 300000);
";

/// A table of some megabytes goes to the server and comes back.
fn copy_there_and_back(host: &Host, server: &Server) {
    let rows = rows();
    let file = host.file("rows", &rows);
    let _ = server.ask(
        host,
        &format!(
            "create table many (id int, number text, text text);\n\\copy many from '{}'\n",
            file.display()
        ),
    );
    let back = server.ask(host, "copy (select * from many order by id) to stdout;\n");
    assert!(
        back == rows,
        "{} bytes went and {} came back",
        rows.len(),
        back.len()
    );
}

/// Clients that change accounts, whose sums agree in the end.
fn transfer_money(host: &Host, server: &Server) {
    let pgbench = |options: &[&str]| {
        let run = server.client(host, "pgbench").args(options).arg(USER).run();
        run.text()
    };
    let _ = pgbench(&["-i", "-q"]);
    let said = pgbench(&["-n", "-c", "4", "-j", "2", "-t", "250"]);
    assert!(
        said.contains("number of transactions actually processed: 1000/1000"),
        "{said}"
    );
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
        (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers),
        (select count(*) from pgbench_history);\n";
    assert_eq!(server.ask(host, sums), "t|t|1000\n");
}

/// A session that goes on talks by rings, also when there is much to say.
fn read_by_rings(host: &Host, server: &Server) {
    let psql = server
        .client(host, "psql")
        .args(["-X", "-q", "-A", "-t", USER]);
    let mut psql = psql.with_open_input().start();
    wait_until("psql and its server to be accelerated", || {
        psql.write_line("select 'once more';");
        assert_eq!(psql.next_line().as_deref(), Some("once more"));
        let ends = host.ends();
        let by_rings = ends.iter().filter(|end| end.state == "accelerated");
        (by_rings.count() == 2).then_some(())
    });
    let rows = rows();
    let sent = || host.stats().count("ring_bytes_sent");
    let before = sent();
    psql.write_line("copy (select * from many order by id) to stdout;");
    for row in rows.lines() {
        assert_eq!(psql.next_line().as_deref(), Some(row));
    }
    let by_ring = sent() - before;
    assert!(by_ring > rows.len() as u64, "{by_ring} bytes by ring");
}

/// What a database answers along a route, after work whose results are known.
fn play(route: Route) -> String {
    let host = &Host::new(route);
    let server = Server::start(host);
    let answers = server.ask(host, QUERIES);
    copy_there_and_back(host, &server);
    transfer_money(host, &server);
    if route == Route::Crosslane {
        read_by_rings(host, &server);
    }
    server.process.signal(Signal::INT);
    let _ended = server.process.finish().expect_success();
    answers
}

#[test]
fn a_database_answers_as_it_does_natively() {
    let [natively, accelerated] = [Route::Tcp, Route::Crosslane].map(play);
    assert!(natively.contains("299|"), "{natively}");
    assert_eq!(natively, accelerated);
}
