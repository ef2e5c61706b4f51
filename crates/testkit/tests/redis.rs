//! Redis: a real server with real clients.

use crosslane_testkit::redis::{Redis, resp};
use crosslane_testkit::{Route, Sides, on_all_routes, wait_until};

/// Commands that give a connection the traffic after which it is upgraded.
const WARM: &str = "PING\nPING\nPING\nPING\nPING\nPING\nPING\nPING\nPING\nPING\n";

/// Text of `length` bytes that differs all over.
fn value(length: usize, seed: u64) -> String {
    let mut state = seed;
    let letter = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from(state >> 59).expect("five bits are left") % 26)
    };
    (0..length).map(letter).collect()
}

fn values_up_to_8_mib(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let sizes = [1, 63, 64, 65, 4096, 65_537, 1 << 20, (8 << 20) - 1, 8 << 20];
    let values: Vec<_> = (1u64..)
        .zip(sizes)
        .map(|(seed, size)| value(size, seed))
        .collect();
    let set = |(index, value): (usize, &String)| format!("SET key{index} {value}\n");
    let sets: String = values.iter().enumerate().map(set).collect();
    let gets: String = (0..values.len())
        .map(|index| format!("GET key{index}\n"))
        .collect();
    let output = redis
        .cli()
        .input([&WARM.repeat(10), sets.as_str(), &gets].concat())
        .run();
    let text = output.text();
    let answers: Vec<&str> = text.lines().skip(100).collect();
    assert_eq!(answers.len(), 2 * values.len());
    assert!(answers[..values.len()].iter().all(|answer| *answer == "OK"));
    for (answer, value) in answers[values.len()..].iter().zip(&values) {
        assert!(
            answer == value,
            "a value of {} bytes came back changed",
            value.len()
        );
    }
    witness.assert_accelerated();
}

fn pipelines(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let count = 100_000;
    let commands: String = (0..count)
        .map(|index| resp(&["SET", &format!("k{index}"), &value(index % 200, 7)]))
        .collect();
    let output = redis.cli().arg("--pipe").input(commands).run().text();
    assert!(
        output.contains(&format!("errors: 0, replies: {count}")),
        "{output}"
    );
    assert_eq!(redis.ask(&["DBSIZE"]), count.to_string());
    assert_eq!(redis.ask(&["GET", "k199"]), value(199, 7));
    witness.assert_accelerated();
}

fn published_messages_arrive_in_order(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let subscriber = redis.cli().args(["SUBSCRIBE", "news"]).start();
    subscriber.wait_for_log("subscribe");
    let count = 3000;
    let messages: String = (0..count)
        .map(|index| format!("PUBLISH news message-{index}\n"))
        .collect();
    let published = redis.cli().input(messages).run().text();
    assert!(
        published.lines().all(|line| line == "1"),
        "not everything had one reader"
    );
    subscriber.wait_for_log(&format!("message-{}\n", count - 1));
    let log = subscriber.log();
    let received: Vec<&str> = log
        .lines()
        .filter(|line| line.starts_with("message-"))
        .collect();
    let expected: Vec<String> = (0..count).map(|index| format!("message-{index}")).collect();
    assert_eq!(received, expected);
    witness.assert_accelerated();
}

fn blocked_clients_are_woken(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let count = 200;
    let pops = "BLPOP queue 0\n".repeat(count);
    let blocked = redis.cli().input([WARM, &pops].concat()).start();
    blocked.wait_for_log("PONG");
    for batch in (0..count).collect::<Vec<_>>().chunks(20) {
        let pushes: String = batch
            .iter()
            .map(|index| format!("RPUSH queue item-{index}\n"))
            .collect();
        redis.cli().input(pushes).run();
    }
    let text = blocked.finish().expect_success().text();
    let items: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("item-"))
        .collect();
    let expected: Vec<String> = (0..count).map(|index| format!("item-{index}")).collect();
    assert_eq!(items, expected);
    // Most of it is said by clients that are gone after twenty items.
    witness.assert_ring_share(0.001);
}

fn monitor_sees_every_command(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let monitor = redis.cli().arg("MONITOR").start();
    monitor.wait_for_log("OK");
    let commands: String = (0..2000)
        .map(|index| format!("SET watched {index}\n"))
        .collect();
    redis.cli().input(commands).run();
    monitor.wait_for_log("\"SET\" \"watched\" \"1999\"");
    let log = monitor.log();
    assert_eq!(log.matches("\"SET\" \"watched\"").count(), 2000);
    witness.assert_accelerated();
}

/// Have a snapshot made, the server's `number`th, and see that it has come to a good end.
fn save(redis: &Redis<'_>, number: usize) {
    assert_eq!(redis.ask(&["BGSAVE"]), "Background saving started");
    let told = wait_until("the snapshot", || {
        let told = redis.ask(&["INFO", "persistence"]);
        told.contains("rdb_bgsave_in_progress:0").then_some(told)
    });
    for line in ["rdb_last_bgsave_status:ok", &format!("rdb_saves:{number}")] {
        assert!(
            told.lines().any(|of| of.trim_end() == line),
            "{line}: {told}"
        );
    }
}

fn snapshots_under_load_are_complete(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    let keep: String = (0..5000)
        .map(|index| resp(&["SET", &format!("kept{index}"), "x"]))
        .collect();
    redis.cli().arg("--pipe").input(keep).run();
    let load = redis.benchmark(&[
        "-c", "20", "-n", "300000", "-d", "512", "-r", "1000", "-t", "set,get",
    ]);
    for number in 1..=4 {
        save(&redis, number);
    }
    let load = load.finish().expect_success().text();
    assert_eq!(load.lines().count(), 3, "a heading and two results: {load}");
    save(&redis, 5);
    let digest = redis.ask(&["DEBUG", "DIGEST"]);
    assert_eq!(redis.ask(&["DEBUG", "RELOAD", "NOSAVE"]), "OK");
    assert_eq!(redis.ask(&["DEBUG", "DIGEST"]), digest);
    witness.assert_accelerated();
}

fn benchmarks_run_without_errors(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let witness = sides.witness(redis.port);
    for (clients, pipeline, size, count) in [
        ("1", "1", "64", "30000"),
        ("50", "1", "64", "100000"),
        ("1", "16", "64", "200000"),
        ("20", "4", "16384", "20000"),
    ] {
        let options = [
            "-c",
            clients,
            "-P",
            pipeline,
            "-d",
            size,
            "-n",
            count,
            "-t",
            "set,get,lpush,lpop",
        ];
        let output = redis.benchmark(&options).finish().expect_success();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!errors.contains("Error"), "{errors}");
        assert_eq!(output.text().lines().count(), 5, "{}", output.text());
    }
    witness.assert_ring_share(0.9);
}

/// The client's connection is in rings when the server ends.
fn a_server_that_is_shut_down_ends_well(sides: &Sides) {
    let redis = Redis::between(sides, &[]);
    let mut client = redis.cli().with_open_input().start();
    let mut served = 0;
    wait_until("the client to be served, by rings if it can be", || {
        served += 1;
        client.write_line("PING");
        assert_eq!(client.next_line().as_deref(), Some("PONG"));
        let host = sides.client();
        let is_fast = || {
            let ends = host.ends();
            let mut of_it = ends.iter().filter(|end| end.has_port(redis.port));
            of_it.any(|end| end.is_accelerated())
        };
        (host.route() == Route::Tcp || is_fast()).then_some(())
    });
    redis.cli().args(["SHUTDOWN", "NOSAVE"]).run();
    let _ended = redis.finish().expect_success();
    client.write_line("PING");
    let output = client.finish();
    assert!(output.status.code().is_some(), "{}", output.status);
    assert_eq!(output.text().matches("PONG").count(), served);
}

on_all_routes!(
    values_up_to_8_mib,
    pipelines,
    published_messages_arrive_in_order,
    blocked_clients_are_woken,
    monitor_sees_every_command,
    snapshots_under_load_are_complete,
    benchmarks_run_without_errors,
    a_server_that_is_shut_down_ends_well,
);
