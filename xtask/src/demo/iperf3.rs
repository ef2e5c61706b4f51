//! iperf3: one stream as fast as it goes.

use anyhow::Context;
use serde_json::Value;

use super::workload::{Figures, Metric, Pace, Program, Workload, words};

pub fn program() -> Program {
    Program {
        name: "iperf3 server",
        server,
        workloads: vec![Box::new(OneStream)],
    }
}

fn server(port: u16) -> Vec<String> {
    words([
        "iperf3",
        "--server",
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
    ])
}

struct OneStream;

impl Workload for OneStream {
    fn name(&self) -> String {
        "iperf3".into()
    }

    fn description(&self) -> String {
        "iperf3, 1 stream".into()
    }

    fn client(&self, port: u16, pace: Pace) -> Vec<String> {
        let (port, seconds) = (port.to_string(), pace.whole_seconds().to_string());
        words([
            "iperf3",
            "--client",
            "127.0.0.1",
            "--port",
            &port,
            "--time",
            &seconds,
            "--json",
        ])
    }

    /// What the receiver counted.
    fn parse(&self, stdout: &str) -> anyhow::Result<Figures> {
        let report: Value = serde_json::from_str(stdout).context("no JSON")?;
        let bits = report
            .pointer("/end/sum_received/bits_per_second")
            .and_then(Value::as_f64);
        let error = || {
            report["error"]
                .as_str()
                .unwrap_or("no sum of what was received")
                .to_owned()
        };
        Ok(vec![(Metric::Gbps, bits.with_context(error)? / 1e9)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_is_read_and_its_errors_are_quoted() {
        let printed = r#"{"end":{"sum_sent":{"bits_per_second":2e10},"sum_received":{"bits_per_second":1.65e10}}}"#;
        assert_eq!(
            OneStream.parse(printed).expect("its own output"),
            [(Metric::Gbps, 16.5)]
        );
        let error = OneStream
            .parse(r#"{"end":{},"error":"unable to connect"}"#)
            .expect_err("no sum");
        assert!(error.to_string().contains("unable to connect"));
    }
}
