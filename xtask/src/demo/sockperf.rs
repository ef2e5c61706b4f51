//! sockperf's ping-pong: the round trip of one small message, as the latency people measure it.

use anyhow::Context;

use super::workload::{Figures, Metric, Pace, Program, Workload, words};

const MESSAGE_BYTES: &str = "64";
/// Left to itself, sockperf makes room for the times of 600,000 messages a second and fails when
/// there are more. This is the most that it accepts.
const MOST_PER_SECOND: &str = "10000000";

pub fn program() -> Program {
    Program {
        name: "sockperf server",
        server,
        workloads: vec![Box::new(PingPong)],
    }
}

fn server(port: u16) -> Vec<String> {
    words([
        "sockperf",
        "server",
        "--tcp",
        "-i",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ])
}

struct PingPong;

impl Workload for PingPong {
    fn name(&self) -> String {
        "sockperf-ping-pong".into()
    }

    fn description(&self) -> String {
        format!("sockperf ping-pong, {MESSAGE_BYTES} B")
    }

    fn client(&self, port: u16, pace: Pace) -> Vec<String> {
        let (port, seconds) = (port.to_string(), pace.whole_seconds().to_string());
        let mut client = words([
            "sockperf",
            "ping-pong",
            "--tcp",
            "-i",
            "127.0.0.1",
            "-p",
            &port,
        ]);
        client.extend(words([
            "-m",
            MESSAGE_BYTES,
            "-t",
            &seconds,
            "--full-rtt",
            "--mps",
            MOST_PER_SECOND,
        ]));
        client
    }

    fn parse(&self, stdout: &str) -> anyhow::Result<Figures> {
        let percentile = |name: &str| -> anyhow::Result<f64> {
            let title = format!("percentile {name} =");
            let line = stdout
                .lines()
                .find_map(|line| line.split_once(&title))
                .with_context(|| format!("no {title}"))?;
            line.1
                .trim()
                .parse()
                .with_context(|| format!("{title} {:?}", line.1))
        };
        Ok(vec![
            (Metric::P50Us, percentile("50.000")?),
            (Metric::P99Us, percentile("99.000")?),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_percentiles_are_read() {
        let printed = "sockperf: ---> percentile 99.000 =  135.659\n\
                       sockperf: ---> percentile 90.000 =  100.698\n\
                       sockperf: ---> percentile 50.000 =   86.257\n";
        let figures = PingPong.parse(printed).expect("its own output");
        assert_eq!(figures, [(Metric::P50Us, 86.257), (Metric::P99Us, 135.659)]);
        assert!(
            PingPong
                .parse("sockperf: No messages were received")
                .is_err()
        );
    }
}
