//! Two virtual machines with a network between them and one PCI device's memory in both.

use crosslane_testkit::guest::{Image, Machine, Parts, Rack};
use crosslane_testkit::{Host, Route, Stats, binary};

/// Where the programs of this project lie in a machine.
const OWN: &str = "/opt/crosslane";

/// The memory that both machines have, as the kernel maps it with and without write combining.
const BARS: [&str; 2] = ["/run/ivshmem/resource2", "/run/ivshmem/resource2_wc"];

fn image(parts: &Parts) -> Image {
    ["crosslane", "libcrosslane.so", "crosslane-token"]
        .iter()
        .fold(Image::new(parts), |image, name| {
            image.with(binary(name), &format!("{OWN}/{name}"))
        })
}

#[test]
fn hosts_reach_each_other_by_network_and_by_memory() {
    let host = Host::without_monitor(Route::Tcp);
    let parts = Parts::unpacked();
    let image = image(&parts);
    let mut rack = Rack::boot(&host, &parts, image);
    let [first, second] = &mut rack.machines;

    let reply = first.run(&format!("ping -c 3 -A -W 5 {}", second.address()));
    assert!(reply.contains("3 packets received"), "{reply}");
    bytes_arrive_by_tcp(first, second);
    for bar in BARS {
        a_token_passes_through(bar, first, second);
    }
}

/// A mebibyte of random bytes, compared by its sum.
fn bytes_arrive_by_tcp(first: &mut Machine, second: &mut Machine) {
    first.run("head -c 1048576 /dev/urandom >/tmp/sent");
    // Its standard input stays open, as nc ends with that.
    second.begin(
        "mkfifo /tmp/open; nc -l -p 7000 <>/tmp/open >/tmp/received; sha256sum </tmp/received",
    );
    let address = second.address();
    first.run_until_success(&format!("nc {address} 7000 </tmp/sent"));
    let sent = first.run("sha256sum </tmp/sent");
    assert_eq!(second.end(), (0, sent));
}

fn a_token_passes_through(bar: &str, first: &mut Machine, second: &mut Machine) {
    first.run(&format!("crosslane-token --path {bar} --clear"));
    let command = |side: u8| format!("crosslane-token --path {bar} --side {side}");
    first.begin(&command(0));
    second.begin(&command(1));
    for machine in [first, second] {
        let (status, output) = machine.end();
        assert_eq!(status, 0, "{output}");
        assert!(output.contains("\"rounds\":2000"), "{output}");
        println!("{output}");
    }
}

#[test]
fn redis_serves_the_other_host() {
    let host = Host::without_monitor(Route::Tcp);
    let parts = Parts::unpacked();
    let image = ["redis-server", "redis-cli", "redis-benchmark"]
        .iter()
        .fold(image(&parts), |image, name| {
            image.with(format!("/usr/bin/{name}"), &format!("/usr/bin/{name}"))
        });
    let mut rack = Rack::boot(&host, &parts, image);
    let [first, second] = &mut rack.machines;

    let address = first.address();
    let options = "--bind 0.0.0.0 --protected-mode no --save ''";
    first.run(&format!(
        "crosslane run -- redis-server {options} >/tmp/redis.log 2>&1 &"
    ));
    first.run_until_success("redis-cli ping");
    values_come_back_whole(second, &address);

    let by_network = gets_per_second(second, "redis-benchmark", &address);
    let by_tcp = gets_per_second(first, "redis-benchmark", "127.0.0.1");
    let by_rings = gets_per_second(first, "crosslane run -- redis-benchmark", "127.0.0.1");
    println!(
        "GET per second, 64 B, 8 clients: {by_network} from the other host by the virtual network; \
         within a host {by_tcp} by TCP and {by_rings} by rings"
    );
    let share = Stats::parse(&first.run("crosslane stats --json")).ring_share();
    assert!(share > 0.1, "{share} of all bytes went through rings");
}

/// Text of 270 kB that nothing else would make up.
fn values_come_back_whole(client: &mut Machine, server: &str) {
    client.run("head -c 200000 /dev/urandom | base64 >/tmp/value");
    client.run(&format!("redis-cli -h {server} -x set key </tmp/value"));
    // The answer ends on a line of its own.
    client.run(&format!(
        "redis-cli -h {server} get key | sed '$d' >/tmp/answer"
    ));
    client.run("cmp /tmp/value /tmp/answer && test -s /tmp/answer");
}

fn gets_per_second(machine: &mut Machine, benchmark: &str, server: &str) -> f64 {
    let options = "-c 8 -n 4000 -d 64 -t get --csv";
    let table = machine.run(&format!("{benchmark} -h {server} {options}"));
    let row = table.lines().find(|line| line.starts_with("\"GET\""));
    row.and_then(|row| row.split('"').nth(3)?.parse().ok())
        .unwrap_or_else(|| panic!("no rate in {table}"))
}
