//! `crosslane-sockbench`: see the library's documentation.
#![forbid(unsafe_code)]

use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use crosslane_sockbench::address::Address;
use crosslane_sockbench::client::{self, Case};
use crosslane_sockbench::connection::Listener;
use crosslane_sockbench::crowd::{self, Crowd, allow_connections};
use crosslane_sockbench::load::{self, Load, Pace};
use crosslane_sockbench::moments::{self, Conversation};
use crosslane_sockbench::outcome::{Line, Listening, Ready};
use crosslane_sockbench::receiving::Receiving;
use crosslane_sockbench::server::crowd::By;
use crosslane_sockbench::span::Span;
use crosslane_sockbench::store::{self, Mix, Protocol};
use crosslane_sockbench::{both, clocks, cpus, fetch, limit, server, ticks};
use rustix::process::{Signal, set_parent_process_death_signal};

/// An ordinary blocking socket program that measures what it is run over.
///
/// Start a server, which prints its address, and then one client per case. Results are JSON lines.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// End when the program that started this one ends
    #[arg(long, global = true)]
    die_with_parent: bool,
    /// Run on this CPU only
    #[arg(long, global = true)]
    cpu: Option<usize>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer clients until killed
    Server {
        /// Where to listen: tcp:IP:PORT (port 0: any), unix:PATH or unix:@NAME
        #[arg(long, default_value = "tcp:127.0.0.1:0")]
        listen: Address,
        /// How to wait for the next message
        #[arg(long, value_enum, default_value_t)]
        receive: Receiving,
        /// Serve so many connections at once instead of one after the other
        #[arg(long, value_name = "CONNECTIONS", conflicts_with = "receive")]
        crowd: Option<u64>,
        /// By which call the server of many connections waits
        #[arg(long, value_enum, default_value_t, requires = "crowd")]
        by: By,
    },
    /// Answer one client on standard input and output
    Answer,
    /// Measure one case against a server
    Client {
        /// The address that the server printed, or pipe: to start one behind pipes
        #[arg(long)]
        connect: Address,
        /// What to measure
        #[arg(long, value_enum)]
        case: Case,
        /// Message size: 8, or 16 and more
        #[arg(long, default_value_t = 64)]
        bytes: u64,
        #[command(flatten)]
        span: SpanArgs,
        /// After printing the result, keep the connection open until standard input ends
        #[arg(long)]
        hold: bool,
    },
    /// Send requests at random moments, and count latency from when each was due
    Load(LoadArgs),
    /// Open many connections and measure one; steered by lines on standard input
    Crowd {
        /// The address that the server printed
        #[arg(long)]
        connect: Address,
        /// How many
        #[arg(long)]
        connections: u64,
        /// Message size: 8, or 16 and more
        #[arg(long, default_value_t = 64)]
        bytes: u64,
        #[command(flatten)]
        span: SpanArgs,
    },
    /// Be both ends of connections in one thread, for counting instructions
    Both(BothArgs),
    /// Fetch one file again and again by HTTP, over one connection
    Fetch(FetchArgs),
    /// Read and write the values of a store, from several connections at once
    Store(StoreArgs),
    /// Exchange messages, and write down when each call began and ended
    Moments(MomentsArgs),
    /// Compare the counters of two CPUs
    Clocks,
    /// Measure the cache-line ping-pong between two CPUs
    Limit {
        #[command(flatten)]
        span: SpanArgs,
    },
}

#[derive(clap::Args)]
struct LoadArgs {
    /// The address that the server printed
    #[arg(long)]
    connect: Address,
    /// Requests per second on average; 0 measures processor time only
    #[arg(long)]
    rate: f64,
    /// Message size: 8, or 16 and more
    #[arg(long, default_value_t = 64)]
    bytes: u64,
    /// Decides on the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to do between requests
    #[arg(long, value_enum, default_value_t)]
    pace: Pace,
    #[command(flatten)]
    span: SpanArgs,
    /// When warm, say so and wait for a line; after printing the result, keep the connection open
    /// until standard input ends
    #[arg(long)]
    hold: bool,
}

#[derive(clap::Args)]
struct BothArgs {
    /// Message size
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// How many to send after the warm-up
    #[arg(long, default_value_t = 10_000)]
    messages: u64,
    /// All from one end, to a receiver that was woken and is behind from then on
    #[arg(long)]
    behind: bool,
    /// Each over a connection of its own, with an answer, and without a warm-up
    #[arg(long, conflicts_with = "behind")]
    brief: bool,
}

#[derive(clap::Args)]
struct FetchArgs {
    /// The server's address
    #[arg(long)]
    connect: Address,
    /// The file's path, from a slash on
    #[arg(long)]
    path: String,
    /// The file's size; its bytes must count from 0 to 250 again and again
    #[arg(long)]
    bytes: u64,
    #[command(flatten)]
    span: SpanArgs,
}

#[derive(clap::Args)]
struct StoreArgs {
    /// The server's address
    #[arg(long)]
    connect: Address,
    /// How it talks
    #[arg(long, value_enum)]
    protocol: Protocol,
    /// How many connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    clients: u64,
    /// What is asked for
    #[arg(long, value_enum)]
    mix: Mix,
    /// The size of values: 12 and more
    #[arg(long, default_value_t = 256)]
    bytes: usize,
    /// Decides on what is asked
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    span: SpanArgs,
}

#[derive(clap::Args)]
struct MomentsArgs {
    /// Answer the client that connects
    #[arg(long, required_unless_present = "connect", conflicts_with = "connect")]
    listen: Option<Address>,
    /// Send to a server at this address, which it printed
    #[arg(long)]
    connect: Option<Address>,
    /// Message size: 8, or 16 and more
    #[arg(long, default_value_t = 64)]
    bytes: u64,
    /// How many
    #[arg(long, default_value_t = 10_000)]
    messages: u64,
    /// The file for the moments: three words of 64 bits for each message
    #[arg(long)]
    into: PathBuf,
}

#[derive(clap::Args)]
struct SpanArgs {
    /// Time before anything counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200)]
    warmup: u64,
    /// Time that counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    measure: u64,
}

impl SpanArgs {
    fn span(&self) -> Span {
        let [warmup, measure] = [self.warmup, self.measure].map(Duration::from_millis);
        Span { warmup, measure }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosslane-sockbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if cli.die_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    if let Some(cpu) = cli.cpu {
        cpus::pin(cpu)?;
    }
    // Where instructions are counted, none are spent on clocks.
    if !matches!(cli.role, Role::Both(_)) {
        ticks::prepare();
    }
    match &cli.role {
        Role::Server {
            listen,
            receive,
            crowd,
            by,
        } => serve(listen, *receive, crowd.map(|crowd| (crowd, *by))),
        Role::Answer => Ok(server::answer()?),
        Role::Load(args) => send_load(args),
        Role::Crowd {
            connect,
            connections,
            bytes,
            span,
        } => {
            let crowd = Crowd {
                connections: *connections,
                bytes: *bytes,
                span: span.span(),
            };
            crowd::run(connect, &crowd).with_context(|| format!("{connect}"))
        }
        Role::Both(args) => be_both(args),
        Role::Fetch(args) => fetch_file(args),
        Role::Store(args) => load_store(args),
        Role::Moments(args) => note_moments(args),
        Role::Clocks => {
            println!("{}", serde_json::to_string(&clocks::compare()?)?);
            Ok(())
        }
        Role::Limit { span } => print(&limit::run(span.span())?),
        Role::Client {
            connect,
            case,
            bytes,
            span,
            hold,
        } => {
            let measured = client::run(*case, connect, *bytes, span.span());
            let (line, connection) = measured.with_context(|| format!("{connect}"))?;
            print(&line)?;
            if *hold {
                std::io::stdin().read_to_end(&mut Vec::new())?;
            }
            drop(connection);
            Ok(())
        }
    }
}

fn send_load(args: &LoadArgs) -> anyhow::Result<()> {
    let load = Load {
        per_second: args.rate,
        bytes: args.bytes,
        seed: args.seed,
        pace: args.pace,
        span: args.span.span(),
    };
    if load.pace == Pace::Poll {
        // Sleeps end when they should, not up to 50 us later.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    }
    let warm = |local: &str, peer: &str| {
        if !args.hold {
            return Ok(());
        }
        let ready = Ready {
            ready: 1,
            local: local.to_owned(),
            peer: peer.to_owned(),
        };
        println!("{}", serde_json::to_string(&ready)?);
        std::io::stdin().lock().read_line(&mut String::new())?;
        Ok(())
    };
    let sent = load::run(&args.connect, &load, warm);
    let (line, connection) = sent.with_context(|| format!("{}", args.connect))?;
    print(&line)?;
    if args.hold {
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    drop(connection);
    Ok(())
}

fn be_both(args: &BothArgs) -> anyhow::Result<()> {
    let done = match args.brief {
        true => both::run_briefly(args.messages, args.bytes),
        false => both::run(args.messages, args.bytes, args.behind),
    };
    Ok(done?)
}

fn fetch_file(args: &FetchArgs) -> anyhow::Result<()> {
    let fetched = fetch::run(&args.connect, &args.path, args.bytes, args.span.span());
    let (line, connection) = fetched.with_context(|| format!("{}", args.connect))?;
    print_and_hold(&line, connection)
}

fn load_store(args: &StoreArgs) -> anyhow::Result<()> {
    let load = store::Load {
        protocol: args.protocol,
        clients: args.clients,
        mix: args.mix,
        value_bytes: args.bytes,
        seed: args.seed,
        span: args.span.span(),
    };
    let loaded = store::run(&args.connect, load);
    let (line, connections) = loaded.with_context(|| format!("{}", args.connect))?;
    print_and_hold(&line, connections)
}

/// Whoever asks about the connections does so before the end of this program's input.
fn print_and_hold<T>(line: &Line, connections: T) -> anyhow::Result<()> {
    print(line)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(connections);
    Ok(())
}

fn note_moments(args: &MomentsArgs) -> anyhow::Result<()> {
    let talk = Conversation::new(args.bytes, args.messages)?;
    let moments = match (&args.listen, &args.connect) {
        (Some(address), _) => {
            let (listener, address) = Listener::open(address)?;
            let listening = address.to_string();
            println!("{}", serde_json::to_string(&Listening { listening })?);
            moments::answer(&mut listener.accept()?, talk)?
        }
        (None, Some(address)) => {
            let (line, moments, connection) = moments::ask(address, talk)?;
            print_and_hold(&line, connection)?;
            moments
        }
        (None, None) => anyhow::bail!("neither --listen nor --connect was given"),
    };
    std::fs::write(&args.into, moments::bytes(&moments))
        .with_context(|| format!("cannot write {}", args.into.display()))
}

fn serve(address: &Address, receive: Receiving, crowd: Option<(u64, By)>) -> anyhow::Result<()> {
    crowd.map_or(Ok(()), |(connections, _)| allow_connections(connections))?;
    let (listener, address) =
        Listener::open(address).with_context(|| format!("cannot listen on {address}"))?;
    server::prepare(&listener, receive).context("the kernel refuses SO_BUSY_POLL")?;
    println!(
        "{}",
        serde_json::to_string(&Listening {
            listening: address.to_string()
        })?
    );
    match crowd {
        Some((_, by)) => server::crowd::serve(&listener, by)?,
        None => server::serve(&listener, receive)?,
    }
    Ok(())
}

fn print(line: &Line) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}
