//! UCX and libfabric, measured by their own programs.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Process, plain};
use crosslane_sockbench::client;
use crosslane_sockbench::span::Span;

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

/// How many messages tell how many fill the time: these programs take a number of messages and no time.
const FEW: Count = Count {
    warmup: 1000,
    measure: 10_000,
};

/// How many messages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    warmup: u64,
    measure: u64,
}

/// Measures for about as long as the others are measured.
pub fn calibrated(
    span: Span,
    measure: impl Fn(Count) -> anyhow::Result<Figures>,
) -> anyhow::Result<Figures> {
    measure(count(&measure(FEW)?, span))
}

/// How many messages fill the time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "millions of messages for some seconds"
)]
fn count(few: &Figures, span: Span) -> Count {
    let trip_ns = few.p50_ns().or(few.mean_ns());
    let per_second = trip_ns.map(|ns| 1e9 / ns).or(few.msgs_per_s());
    let within = |time: Duration| (per_second.unwrap_or(0.0) * time.as_secs_f64()) as u64;
    Count {
        warmup: within(span.warmup).max(FEW.warmup),
        measure: within(span.measure).max(FEW.measure),
    }
}

/// Measures UCX over POSIX shared memory.
pub fn ucx(case: Case, count: Count) -> anyhow::Result<Figures> {
    let port = free_port(Ipv4Addr::LOCALHOST)?.to_string();
    let mut server = plain(UCX_PERFTEST);
    server.env("UCX_TLS", "posix").args(["-p", &port]);
    let mut client = plain(UCX_PERFTEST);
    let test = match case.kind {
        client::Case::Rtt => "tag_lat",
        client::Case::Stream | client::Case::Connect | client::Case::Brief => "stream_bw",
    };
    client.env("UCX_TLS", "posix");
    client.args(["127.0.0.1", "-p", &port, "-f", "-t", test]);
    client.args(["-w", &count.warmup.to_string()]);
    client.args(["-n", &count.measure.to_string()]);
    client.args(["-s", &case.bytes.to_string()]);
    let text = talk("UCX", &mut server, &mut client)?;
    ucx_figures(case, count, &text).with_context(|| format!("{UCX_PERFTEST} printed {text:?}"))
}

/// Measures libfabric's provider for shared memory, which has a warm-up of its own.
pub fn libfabric(case: Case, count: Count) -> anyhow::Result<Figures> {
    let port = free_port(Ipv4Addr::LOCALHOST)?.to_string();
    let bytes = case.bytes.to_string();
    let program = |port_option| {
        let mut command = plain(FI_PINGPONG);
        command.args(["-p", "shm", "-e", "rdm", "-S", &bytes]);
        command.args(["-I", &count.measure.to_string(), port_option, &port]);
        command
    };
    let mut client = program("-P");
    client.arg("127.0.0.1");
    let text = talk("libfabric", &mut program("-B"), &mut client)?;
    libfabric_figures(count, &text).with_context(|| format!("{FI_PINGPONG} printed {text:?}"))
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
fn ucx_figures(case: Case, count: Count, text: &str) -> anyhow::Result<Figures> {
    let fields = numbers(text)?;
    let [_, median_us, _, _, _, _, _, per_second] = fields[..] else {
        return Err(anyhow!("its last line has {} numbers, not 8", fields.len()));
    };
    Ok(match case.kind {
        client::Case::Rtt => Figures::RoundTrip {
            trips: count.measure,
            p50_ns: Some(2e3 * median_us),
            mean_ns: None,
        },
        client::Case::Stream | client::Case::Connect | client::Case::Brief => {
            Figures::stream(case.bytes, count.measure, per_second)
        }
    })
}

/// The last line is size, counts, total and time with units, MB/s, us per transfer (half of a round
/// trip) and transfers per us.
fn libfabric_figures(count: Count, text: &str) -> anyhow::Result<Figures> {
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let fields: Vec<_> = last.unwrap_or_default().split_whitespace().collect();
    let [_, _, _, _, _, _, us, _] = fields[..] else {
        return Err(anyhow!("its last line has {} fields, not 8", fields.len()));
    };
    let us: f64 = us.parse()?;
    Ok(Figures::RoundTrip {
        trips: count.measure,
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
        let figures = ucx_figures(RTT, FEW, text).expect("eight numbers");
        assert_eq!(figures.p50_ns(), Some(300.0));
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      100k    =100k    12m         0.04s    286.21       0.22       4.47\n";
        let figures = libfabric_figures(FEW, text).expect("eight fields");
        assert_eq!((figures.p50_ns(), figures.mean_ns()), (None, Some(440.0)));
    }

    #[test]
    fn a_stream_is_counted_in_messages() {
        let case = Case {
            kind: client::Case::Stream,
            bytes: 1000,
        };
        let figures = ucx_figures(case, FEW, "9 1 1 1 1 1 1 2000000").expect("eight numbers");
        assert_eq!(
            (figures.msgs_per_s(), figures.gbps()),
            (Some(2e6), Some(16.0))
        );
    }

    #[test]
    fn messages_fill_the_time_that_the_others_have() {
        let span = Span {
            warmup: Duration::from_millis(200),
            measure: Duration::from_millis(1000),
        };
        let trip = Figures::RoundTrip {
            trips: 10_000,
            p50_ns: Some(500.0),
            mean_ns: None,
        };
        let (warmup, measure) = (400_000, 2_000_000);
        assert_eq!(count(&trip, span), Count { warmup, measure });
        let slow = Figures::stream(65536, 10_000, 1000.0);
        assert_eq!(count(&slow, span), FEW, "so many at least");
    }

    #[test]
    fn other_output_is_refused() {
        assert!(ucx_figures(RTT, FEW, "Waiting for connection...\n").is_err());
        assert!(ucx_figures(RTT, FEW, "1 2 3").is_err());
        assert!(libfabric_figures(FEW, "").is_err());
    }
}
