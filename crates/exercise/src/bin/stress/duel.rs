//! Both processes of a run, and the hand that kills one of them again and again.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crosslane_exercise::random::Random;

use crate::Victim;
use crate::choice::Choice;
use crate::plan::Side;

/// Options of a whole run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Repeat the run with this seed; else one is made up and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Begin connections for so long
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Kill this process with -9 at random moments and start it again
    #[arg(long, value_name = "WHOM")]
    kill: Option<Victim>,
    /// Port for the server, or one that is free
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    choice: Choice,
}

struct Duel<'a> {
    arguments: &'a Arguments,
    seed: u64,
    address: SocketAddr,
}

/// Run both processes to their ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(made_up_seed);
    let port = arguments.port.unwrap_or_else(free_port);
    println!("seed {seed}, port {port}");
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let duel = Duel {
        arguments,
        seed,
        address,
    };
    let outcome = match arguments.kill {
        None => duel.in_peace(),
        Some(victim) => duel.with_deaths(victim.side()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("FAILED with seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

impl Duel<'_> {
    fn in_peace(&self) -> Result<(), String> {
        let server = self.start(Side::Server, self.arguments.seconds, 0);
        let client = self.start(
            Side::Client,
            self.arguments.seconds,
            self.arguments.choice.first,
        );
        let client = finish(client, Side::Client);
        client.and(finish(server, Side::Server))
    }

    /// The survivor lives for the whole time; the victim is born again after each death.
    fn with_deaths(&self, victim: Side) -> Result<(), String> {
        let first_server = (victim == Side::Server).then(|| self.start(victim, 0, 0));
        let mut survivor = self.start(
            victim.other(),
            self.arguments.seconds,
            self.arguments.choice.first,
        );
        let deaths = self.kill_again_and_again(victim, first_server);
        // The survivor may be waiting for a server that it was about to reach.
        let last_server = (victim == Side::Server).then(|| self.start(victim, 0, 0));
        if deaths.is_err() {
            survivor.kill().expect("a child can be killed");
        }
        let survived = finish(survivor, victim.other());
        println!("{victim:?} was killed {} times", deaths?);
        survived.and(last_server.map_or(Ok(()), |server| finish(server, Side::Server)))
    }

    fn kill_again_and_again(&self, victim: Side, mut born: Option<Child>) -> Result<u32, String> {
        let deadline = Instant::now() + Duration::from_secs(self.arguments.seconds);
        let mut random = Random::of(&[self.seed, 6]);
        let mut deaths = 0;
        while Instant::now() < deadline {
            // Each client begins elsewhere, so that not always the same connections are cut.
            let first = self.arguments.choice.first + u64::from(deaths) * 100_000;
            let mut doomed = born
                .take()
                .unwrap_or_else(|| self.start(victim, 2 * self.arguments.seconds, first));
            std::thread::sleep(Duration::from_millis(random.between(30, 900) as u64));
            let ended = doomed.try_wait().expect("a child can be waited for");
            doomed
                .kill()
                .and_then(|()| doomed.wait())
                .expect("a child can be killed");
            if let Some(status) = ended {
                return Err(format!(
                    "the {victim:?} that was to be killed ended with {status}"
                ));
            }
            deaths += 1;
        }
        Ok(deaths)
    }

    fn start(&self, side: Side, seconds: u64, first: u64) -> Child {
        let mut command = Command::new("/proc/self/exe");
        match side {
            Side::Server => {
                command.args(["serve", "--port", &self.address.port().to_string()]);
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
            }
            Side::Client => {
                command.args(["connect", "--to", &self.address.to_string()]);
                command.args(["--seconds", &seconds.to_string()]);
                command.args(self.arguments.choice.beginning_with(first).words());
                command.stdin(Stdio::null());
            }
        }
        command.args(["--seed", &self.seed.to_string()]);
        if self.arguments.kill.is_some() {
            command.arg("--peer-may-die");
        }
        let mut child = command.spawn().expect("this program can be started");
        if let Some(output) = child.stdout.take() {
            pass_on(BufReader::new(output));
        }
        child
    }
}

/// Wait for the server's first line, and print the others as they come.
fn pass_on(mut output: impl BufRead + Send + 'static) {
    let mut line = String::new();
    output
        .read_line(&mut line)
        .expect("the server's output can be read");
    std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .for_each(|line| println!("{line}"));
    });
}

/// Let a process end by itself. The server ends when its input does.
fn finish(mut child: Child, side: Side) -> Result<(), String> {
    drop(child.stdin.take());
    let status = child.wait().expect("a child can be waited for");
    if status.success() {
        Ok(())
    } else {
        Err(format!("the {side:?} ended with {status}"))
    }
}

fn made_up_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)
}

fn free_port() -> u16 {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    probe
        .local_addr()
        .expect("a listener has an address")
        .port()
}
