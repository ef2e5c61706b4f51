//! Redis: requests of one client, of many, and of one that pipelines; small and large values.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use crosslane_benchkit::Process;

use super::workload::{Figures, Metric, Pace, Program, Workload, words};

/// The key that redis-benchmark uses when it is not told to vary it.
const KEY: &str = "key:__rand_int__";
const VALUE_BYTES: [u32; 2] = [64, 16384];
/// Clients and pipeline depth.
const SHAPES: [(u32, u32); 4] = [(1, 1), (50, 1), (1, 16), (50, 16)];
const FILLING_TIME: Duration = Duration::from_secs(10);

pub fn program() -> Program {
    let mut workloads = Vec::<Box<dyn Workload>>::new();
    for value_bytes in VALUE_BYTES {
        for request in [Request::Get, Request::Set] {
            for (clients, pipeline) in SHAPES {
                workloads.push(Box::new(Redis {
                    request,
                    clients,
                    pipeline,
                    value_bytes,
                }));
            }
        }
    }
    Program {
        name: "redis-server",
        server,
        workloads,
    }
}

fn server(port: u16) -> Vec<String> {
    let port = port.to_string();
    // No snapshots: writing one in the middle of a measurement would be measured.
    words([
        "redis-server",
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
        "--daemonize",
        "no",
    ])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Get,
    Set,
}

struct Redis {
    request: Request,
    clients: u32,
    pipeline: u32,
    value_bytes: u32,
}

impl Request {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
        }
    }
}

impl Workload for Redis {
    fn name(&self) -> String {
        let pipeline = if self.pipeline > 1 {
            format!("-p{}", self.pipeline)
        } else {
            String::new()
        };
        let value = if self.value_bytes >= 1024 {
            format!("-{}k", self.value_bytes / 1024)
        } else {
            String::new()
        };
        format!(
            "redis-{}-c{}{pipeline}{value}",
            self.request.name(),
            self.clients
        )
    }

    fn description(&self) -> String {
        let shape = match (self.clients, self.pipeline) {
            (1, 1) => "1 client".into(),
            (clients, 1) => format!("{clients} clients"),
            (1, pipeline) => format!("pipeline {pipeline}"),
            (clients, pipeline) => format!("{clients} clients, pipeline {pipeline}"),
        };
        let value = crosslane_benchkit::show::bytes(self.value_bytes.into());
        format!(
            "Redis {}, {shape}, {value}",
            self.request.name().to_uppercase()
        )
    }

    /// A GET of a missing key would be answered by five bytes.
    fn prepare(&self, port: u16) -> anyhow::Result<()> {
        if self.request == Request::Set {
            return Ok(());
        }
        let pace = Pace {
            time: Duration::ZERO,
            requests_per_second: 0.0,
        };
        let fill = Self {
            request: Request::Set,
            clients: 1,
            pipeline: 1,
            ..*self
        };
        run(&fill.client(port, pace))?;
        let length = run(&words([
            "redis-cli",
            "-p",
            &port.to_string(),
            "strlen",
            KEY,
        ]))?;
        ensure!(
            length.trim() == self.value_bytes.to_string(),
            "redis-benchmark did not store {} bytes under {KEY} but {}",
            self.value_bytes,
            length.trim()
        );
        Ok(())
    }

    fn client(&self, port: u16, pace: Pace) -> Vec<String> {
        let numbers = [
            ("-p", u64::from(port)),
            ("-c", self.clients.into()),
            ("-P", self.pipeline.into()),
            ("-d", self.value_bytes.into()),
            ("-n", pace.requests()),
        ];
        let mut client = words([
            "redis-benchmark",
            "--csv",
            "-h",
            "127.0.0.1",
            "-t",
            self.request.name(),
        ]);
        client.extend(
            numbers
                .iter()
                .flat_map(|(option, number)| [(*option).to_owned(), number.to_string()]),
        );
        client
    }

    fn parse(&self, stdout: &str) -> anyhow::Result<Figures> {
        let mut lines = stdout
            .lines()
            .skip_while(|line| !line.starts_with("\"test\""));
        let (header, values) = lines
            .next()
            .zip(lines.next())
            .context("no table in what it printed")?;
        let cell = |name: &str, factor: f64| -> anyhow::Result<f64> {
            let unquoted = |line: &str| {
                line.split(',')
                    .map(|cell| cell.trim_matches('"').to_owned())
                    .collect()
            };
            let (header, values): (Vec<String>, Vec<String>) = (unquoted(header), unquoted(values));
            let column = header.iter().position(|title| title == name);
            let value = column
                .and_then(|column| values.get(column))
                .with_context(|| format!("no column {name}"))?;
            Ok(value
                .parse::<f64>()
                .with_context(|| format!("{name} is {value:?}"))?
                * factor)
        };
        Ok(vec![
            (Metric::Rps, cell("rps", 1.0)?),
            (Metric::P50Us, cell("p50_latency_ms", 1e3)?),
            (Metric::P99Us, cell("p99_latency_ms", 1e3)?),
        ])
    }

    fn counts_requests(&self) -> bool {
        true
    }
}

fn run(command: &[String]) -> anyhow::Result<String> {
    let (program, arguments) = command.split_first().context("an empty command line")?;
    let process = Process::spawn(program, Command::new(program).args(arguments))?;
    Ok(process.finish(FILLING_TIME)?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_the_documented_names() {
        let names: Vec<_> = program()
            .workloads
            .iter()
            .map(|workload| workload.name())
            .collect();
        assert_eq!(
            names[..4],
            [
                "redis-get-c1",
                "redis-get-c50",
                "redis-get-c1-p16",
                "redis-get-c50-p16"
            ]
        );
        assert_eq!(
            names[12..],
            [
                "redis-set-c1-16k",
                "redis-set-c50-16k",
                "redis-set-c1-p16-16k",
                "redis-set-c50-p16-16k"
            ]
        );
    }

    #[test]
    fn its_table_is_read_by_the_names_of_its_columns() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                       \"p99_latency_ms\",\"max_latency_ms\"\n\
                       \"GET\",\"15003.75\",\"0.059\",\"0.016\",\"0.055\",\"0.095\",\"0.119\",\"3.183\"\n";
        let figures = program().workloads[0]
            .parse(printed)
            .expect("its own output");
        let expected = [
            (Metric::Rps, 15003.75),
            (Metric::P50Us, 55.0),
            (Metric::P99Us, 119.0),
        ];
        assert_eq!(figures, expected);
        assert!(program().workloads[0].parse("Could not connect").is_err());
    }

    #[test]
    fn requests_fill_the_time() {
        let pace = Pace {
            time: Duration::from_millis(500),
            requests_per_second: 20_000.0,
        };
        let client = program().workloads[1].client(7000, pace).join(" ");
        assert!(
            client.contains("-p 7000 -c 50 -P 1 -d 64 -n 10000"),
            "{client}"
        );
    }
}
