//! Real programs across the two hosts, in both directions. The scenarios of `redis`, `http`, `nginx` and the
//! others run across them in their own suites.

use crosslane_testkit::rack::{ADDRESSES, Rack, WINDOWS, can_run};

#[test]
fn redis_here_and_its_clients_there() {
    if can_run() {
        serve_redis("file");
    }
}

/// On each of the two hosts, with its clients on the other.
pub fn serve_redis(kind: &'static str) {
    serve_redis_over(|| Rack::of_kind(kind));
}

/// The same over hosts that `rack` makes.
pub fn serve_redis_over(rack: impl Fn() -> Rack) {
    for (server, address) in ADDRESSES.into_iter().enumerate() {
        let rack = rack();
        let port = 6400;
        let redis = rack.hosts[server]
            .program("redis-server")
            .args(["--port", &port.to_string(), "--bind", address])
            .args(["--save", "", "--protected-mode", "no"])
            .start();
        redis.wait_for_port(port);
        let load = rack.hosts[1 - server]
            .program("redis-benchmark")
            .args(["-h", address, "-p", &port.to_string()])
            .args(["-t", "get,set", "-n", "300000", "-c", "20", "-P", "4", "-q"])
            .start();
        rack.wait_for_accelerated(port, 20);
        let ends = rack.ends(server, port);
        let over: Vec<_> = ends.iter().filter(|end| end.is_accelerated()).collect();
        assert!(
            over.iter()
                .all(|end| end.window.as_deref() == Some(WINDOWS[0])),
            "{over:#?}"
        );
        println!("{}", load.finish().expect_success().text());
        let stats = rack.hosts[server].stats();
        let (ring, tcp) = (
            stats.count("ring_bytes_received"),
            stats.count("tcp_bytes_received"),
        );
        assert!(ring > 10 * tcp, "{ring} bytes by the window, {tcp} by TCP");
    }
}
