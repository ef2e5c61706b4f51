//! UCX and libfabric, measured by their own programs.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Process, plain};
use crosslane_sockbench::client;

use super::super::daemon::free_port;
use super::super::sockets::case::Case;
use super::results::Figures;

pub const UCX_PERFTEST: &str = "ucx_perftest";
pub const FI_PINGPONG: &str = "fi_pingpong";

/// A measurement takes a second or two; only a hang takes this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a client is tried until its server listens, and how long to wait in between. The
/// servers say nothing when they do.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// How many messages make a measurement of a fraction of a second.
fn iterations(case: Case) -> &'static str {
    match (case.kind, case.bytes) {
        (client::Case::Rtt, _) => "100000",
        (_, ..1024) => "300000",
        (_, ..16384) => "100000",
        _ => "10000",
    }
}

/// Measures UCX over POSIX shared memory.
pub fn ucx(case: Case) -> anyhow::Result<Figures> {
    let port = free_port()?.to_string();
    let mut server = plain(UCX_PERFTEST);
    server.env("UCX_TLS", "posix").args(["-p", &port]);
    let mut client = plain(UCX_PERFTEST);
    let test = match case.kind {
        client::Case::Rtt => "tag_lat",
        client::Case::Stream | client::Case::Connect => "stream_bw",
    };
    client.env("UCX_TLS", "posix");
    client.args(["127.0.0.1", "-p", &port, "-f", "-w", "1000", "-t", test]);
    client.args(["-s", &case.bytes.to_string(), "-n", iterations(case)]);
    let text = talk("UCX", &mut server, &mut client)?;
    ucx_figures(case, &text).with_context(|| format!("{UCX_PERFTEST} printed {text:?}"))
}

/// Measures libfabric's provider for shared memory.
pub fn libfabric(case: Case) -> anyhow::Result<Figures> {
    let port = free_port()?.to_string();
    let bytes = case.bytes.to_string();
    let program = |port_option| {
        let mut command = plain(FI_PINGPONG);
        command.args(["-p", "shm", "-e", "rdm", "-S", &bytes]);
        command.args(["-I", iterations(case), port_option, &port]);
        command
    };
    let mut client = program("-P");
    client.arg("127.0.0.1");
    let text = talk("libfabric", &mut program("-B"), &mut client)?;
    libfabric_figures(&text).with_context(|| format!("{FI_PINGPONG} printed {text:?}"))
}

/// What the client prints in the end.
fn talk(name: &str, server: &mut Command, client: &mut Command) -> anyhow::Result<String> {
    let server = Process::spawn(format!("{name} server"), server)?;
    let mut tried = 0;
    loop {
        let exit = Process::spawn(format!("{name} client"), client)?.end(PATIENCE)?;
        tried += 1;
        if exit.status.success() {
            server.stop()?;
            return Ok(exit.stdout);
        }
        if tried == TRIES || !server.runs_after(PAUSE)? {
            let said = exit.stderr;
            return Err(anyhow!("its client ended with {}: {said}", exit.status));
        }
    }
}

/// The last line is iterations, three latencies in us (half of a round trip; median, average,
/// overall), two bandwidths in MiB/s and two message rates (average, overall).
fn ucx_figures(case: Case, text: &str) -> anyhow::Result<Figures> {
    let fields = numbers(text)?;
    let [_, median_us, _, _, _, _, _, per_second] = fields[..] else {
        return Err(anyhow!("its last line has {} numbers, not 8", fields.len()));
    };
    Ok(match case.kind {
        client::Case::Rtt => Figures::RoundTrip {
            p50_ns: Some(2e3 * median_us),
            mean_ns: None,
        },
        client::Case::Stream | client::Case::Connect => Figures::stream(case.bytes, per_second),
    })
}

/// The last line is size, counts, total and time with units, MB/s, us per transfer (half of a round
/// trip) and transfers per us.
fn libfabric_figures(text: &str) -> anyhow::Result<Figures> {
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let fields: Vec<_> = last.unwrap_or_default().split_whitespace().collect();
    let [_, _, _, _, _, _, us, _] = fields[..] else {
        return Err(anyhow!("its last line has {} fields, not 8", fields.len()));
    };
    let us: f64 = us.parse()?;
    Ok(Figures::RoundTrip {
        p50_ns: None,
        mean_ns: Some(2e3 * us),
    })
}

/// The numbers of the last line that has any.
fn numbers(text: &str) -> anyhow::Result<Vec<f64>> {
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let fields = last.unwrap_or_default().split_whitespace();
    let numbers: Result<_, _> = fields.map(str::parse).collect();
    Ok(numbers?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Case = Case {
        kind: client::Case::Rtt,
        bytes: 64,
    };

    #[test]
    fn half_round_trips_are_doubled() {
        let text =
            "| Test | 50.0%ile |\n  1000  0.150  0.202  0.202  302.60  302.60  4957865  4957865\n";
        let figures = ucx_figures(RTT, text).expect("eight numbers");
        assert_eq!(figures.p50_ns(), Some(300.0));
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      100k    =100k    12m         0.04s    286.21       0.22       4.47\n";
        let figures = libfabric_figures(text).expect("eight fields");
        assert_eq!((figures.p50_ns(), figures.mean_ns()), (None, Some(440.0)));
    }

    #[test]
    fn a_stream_is_counted_in_messages() {
        let case = Case {
            kind: client::Case::Stream,
            bytes: 1000,
        };
        let figures = ucx_figures(case, "9 1 1 1 1 1 1 2000000").expect("eight numbers");
        assert_eq!(
            (figures.msgs_per_s(), figures.gbps()),
            (Some(2e6), Some(16.0))
        );
    }

    #[test]
    fn other_output_is_refused() {
        assert!(ucx_figures(RTT, "Waiting for connection...\n").is_err());
        assert!(ucx_figures(RTT, "1 2 3").is_err());
        assert!(libfabric_figures("").is_err());
    }
}
