//! memcached under memcslap, the load program of libmemcached: one client and many.

use anyhow::Context;

use super::workload::{Figures, Metric, Pace, Program, Workload, words};

const CLIENTS: [u32; 2] = [1, 50];

pub fn program() -> Program {
    Program {
        name: "memcached",
        server,
        workloads: CLIENTS
            .map(|clients| Box::new(Memcslap { clients }) as Box<dyn Workload>)
            .into(),
    }
}

fn server(port: u16) -> Vec<String> {
    // Root must name a user, which may be root.
    words([
        "memcached",
        "-u",
        "root",
        "-l",
        "127.0.0.1",
        "-U",
        "0",
        "-p",
        &port.to_string(),
    ])
}

struct Memcslap {
    clients: u32,
}

impl Workload for Memcslap {
    fn name(&self) -> String {
        format!("memcached-get-c{}", self.clients)
    }

    fn description(&self) -> String {
        match self.clients {
            1 => "memcached get, 1 client".into(),
            clients => format!("memcached get, {clients} clients"),
        }
    }

    fn client(&self, port: u16, pace: Pace) -> Vec<String> {
        // Each client gets so many, and one has set as many before.
        let each = pace.requests().div_ceil(self.clients.into());
        words([
            "memcslap",
            "--test=get",
            "--tcp-nodelay",
            &format!("--servers=127.0.0.1:{port}"),
            &format!("--concurrency={}", self.clients),
            &format!("--execute-number={each}"),
        ])
    }

    fn parse(&self, stdout: &str) -> anyhow::Result<Figures> {
        let line = stdout
            .lines()
            .find_map(|line| line.strip_prefix("Time to get "))
            .context("no time in what it printed")?;
        let numbers: Vec<f64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [keys, _threads, seconds] = numbers[..] else {
            anyhow::bail!("no keys, threads and seconds in {line:?}");
        };
        Ok(vec![(Metric::Rps, keys / seconds)])
    }

    fn counts_requests(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_time_is_read() {
        let printed = "Time to set            1000 keys:                     0.059 seconds.\n\
                       Time to get            3000 keys by    3 threads:     0.150 seconds.\n";
        let workload = &program().workloads[0];
        let figures = workload.parse(printed).expect("its own output");
        assert_eq!(figures, [(Metric::Rps, 20_000.0)]);
        assert!(workload.parse("CONNECTION FAILURE").is_err());
    }
}
