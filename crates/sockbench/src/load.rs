//! Open-loop load: requests are sent when they are due, whether or not earlier ones are answered.
//!
//! Latency is counted from the moment at which a request was due, not from when it was sent, so
//! that a server which stalls is charged for all the requests that had to wait for it, and none
//! is left out: this is how coordinated omission is avoided. Requests that are due while the
//! connection takes no more wait in this program, and their time counts as well.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::address::Address;
use crate::arrivals::Arrivals;
use crate::client::{CaseError, at, histogram, per_second};
use crate::connection::Connection;
use crate::message::{check, stamp};
use crate::outcome::{Line, Outcome};
use crate::request::{Request, Work};
use crate::span::{Span, Stopwatch};
use crate::usage::{Usage, idle_cpu, own_cpu_ns};

/// What this program does while nothing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Pace {
    /// Look at the clock and the connection all the time: nothing but the server's waiting is seen
    #[default]
    Spin,
    /// Sleep in `ppoll` until an answer is there or a request is due, as an ordinary program does
    Poll,
}

/// The load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests per second on average; with 0 there are none, and only processor time is measured.
    pub per_second: f64,
    /// The size of requests and of answers.
    pub bytes: u64,
    /// Decides on the moments.
    pub seed: u64,
    /// Waiting between requests.
    pub pace: Pace,
    /// How long to warm up, by round trips, and for how long requests are due.
    pub span: Span,
}

/// Runs the load. `warm` is told of the connection between warming up and measuring.
///
/// # Errors
/// [`CaseError`].
pub fn run(
    address: &Address,
    load: &Load,
    warm: impl FnOnce(&str, &str) -> io::Result<()>,
) -> Result<(Line, Connection), CaseError> {
    let size = crate::message::checked_size(load.bytes)?;
    let mut connection = Connection::open(address).map_err(at(0))?;
    let (local, peer) = connection.names().map_err(at(0))?;
    let trips = warm_up(&mut connection, size, load.span.warmup)?;
    warm(&local, &peer).map_err(at(trips))?;
    let outcome = if load.per_second > 0.0 {
        busy(&mut connection, size, load)?
    } else {
        let idle = idle_cpu(&mut connection, load.span.measure).map_err(at(0))?;
        let asked = Usage::ask(&mut connection).map_err(at(0))?;
        outcome(
            load,
            &histogram(),
            load.span.measure,
            idle,
            asked.has_device_queue,
        )
    };
    Ok((
        Line {
            outcome,
            local,
            peer,
        },
        connection,
    ))
}

/// Requests in flight, and the processor time that they cost.
fn busy(connection: &mut Connection, bytes: usize, load: &Load) -> Result<Outcome, CaseError> {
    let (before, own_before) = (Usage::ask(connection).map_err(at(0))?, own_cpu_ns());
    let started_at = Instant::now();
    begin_echo(connection, bytes).map_err(at(0))?;
    let latency = Flight::new(connection, bytes, load).map_err(at(0))?.run()?;
    let (taken, own) = (started_at.elapsed(), own_cpu_ns() - own_before);
    let after = Usage::ask(connection).map_err(at(latency.len()))?;
    let share = |ns| Duration::from_nanos(ns).as_secs_f64() / taken.as_secs_f64();
    let cpu = [after.cpu_ns - before.cpu_ns, own].map(share);
    Ok(outcome(load, &latency, taken, cpu, after.has_device_queue))
}

fn outcome(
    load: &Load,
    latency: &Histogram<u64>,
    taken: Duration,
    cpu: [f64; 2],
    has_device_queue: bool,
) -> Outcome {
    let quantile = |share| (!latency.is_empty()).then(|| latency.value_at_quantile(share));
    let measure_ns = u64::try_from(load.span.measure.as_nanos()).unwrap_or(u64::MAX);
    let taken_ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
    Outcome::Load {
        bytes: load.bytes,
        per_second: load.per_second,
        answers: latency.len(),
        due_per_s: per_second(latency.len(), measure_ns),
        answered_per_s: per_second(latency.len(), taken_ns),
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        server_cpu: cpu[0],
        client_cpu: cpu[1],
        has_device_queue,
    }
}

fn begin_echo(connection: &mut Connection, bytes: usize) -> io::Result<()> {
    let work = Work::Echo;
    connection.write_all(&Request { work, bytes }.encode())
}

/// Round trips for this time; the last one ends the echo. Tells how many there were.
fn warm_up(connection: &mut Connection, bytes: usize, time: Duration) -> Result<u64, CaseError> {
    let (mut out, mut back) = (vec![0x5a; bytes], vec![0; bytes]);
    begin_echo(connection, bytes).map_err(at(0))?;
    let watch = Stopwatch::start(Span {
        warmup: Duration::ZERO,
        measure: time,
    });
    let (mut number, mut last) = (0, false);
    while !last {
        last = watch.is_over(watch.now());
        stamp(&mut out, number, last);
        connection.write_all(&out).map_err(at(number))?;
        connection.read_exact(&mut back).map_err(at(number))?;
        check(&back, number)?;
        number += 1;
    }
    Ok(number)
}

/// Requests on their way.
struct Flight<'a> {
    connection: &'a mut Connection,
    load: &'a Load,
    watch: Stopwatch,
    end_ns: u64,
    arrivals: Arrivals,
    next_due_ns: u64,
    /// When the requests were due that have no answer yet, the oldest first.
    due_ns: VecDeque<u64>,
    request: Vec<u8>,
    sent: u64,
    /// What the connection did not take yet.
    unsent: VecDeque<u8>,
    answer: Vec<u8>,
    filled: usize,
    answered: u64,
    latency: Histogram<u64>,
}

impl<'a> Flight<'a> {
    fn new(connection: &'a mut Connection, bytes: usize, load: &'a Load) -> io::Result<Self> {
        connection.set_nonblocking(true)?;
        let mut arrivals = Arrivals::new(load.per_second, load.seed);
        let next_due_ns = arrivals.next().unwrap_or(u64::MAX);
        Ok(Self {
            connection,
            load,
            watch: Stopwatch::start(load.span),
            end_ns: u64::try_from(load.span.measure.as_nanos()).unwrap_or(u64::MAX),
            arrivals,
            next_due_ns,
            due_ns: VecDeque::new(),
            request: vec![0x5a; bytes],
            sent: 0,
            unsent: VecDeque::new(),
            answer: vec![0; bytes],
            filled: 0,
            answered: 0,
            latency: histogram(),
        })
    }

    /// Until all requests are answered, however late.
    fn run(mut self) -> Result<Histogram<u64>, CaseError> {
        loop {
            let now_ns = self.now_ns();
            while self.next_due_ns <= now_ns && self.next_due_ns < self.end_ns {
                self.due_ns.push_back(self.next_due_ns);
                self.next_due_ns = self.arrivals.next().unwrap_or(u64::MAX);
                self.send(false)?;
            }
            let all_sent = self.next_due_ns >= self.end_ns;
            self.flush()?;
            if !self.receive()? && self.load.pace == Pace::Poll {
                self.sleep(all_sent)?;
            }
            if all_sent && self.due_ns.is_empty() {
                return self.end();
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.watch.since_start_ns(self.watch.now())
    }

    /// Queues a request; every one has a call of its own while the connection takes them.
    fn send(&mut self, last: bool) -> Result<(), CaseError> {
        stamp(&mut self.request, self.sent, last);
        self.unsent.extend(&self.request);
        self.sent += 1;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CaseError> {
        while !self.unsent.is_empty() {
            let (front, _) = self.unsent.as_slices();
            match self.connection.write(front) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(at(self.sent)(error)),
            }
        }
        Ok(())
    }

    /// Takes the answer that is there, or a part of it. False if nothing was there.
    fn receive(&mut self) -> Result<bool, CaseError> {
        match self.connection.read(&mut self.answer[self.filled..]) {
            Ok(0) => Err(at(self.answered)(ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => {
                self.filled += bytes;
                if self.filled == self.answer.len() {
                    self.take_answer()?;
                }
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(at(self.answered)(error)),
        }
    }

    fn take_answer(&mut self) -> Result<(), CaseError> {
        self.filled = 0;
        check(&self.answer, self.answered)?;
        self.answered += 1;
        let now_ns = self.now_ns();
        // The one without an entry is the last, which belongs to no arrival.
        if let Some(due_ns) = self.due_ns.pop_front() {
            self.latency.saturating_record((now_ns - due_ns).max(1));
        }
        Ok(())
    }

    /// Until an answer is there, a request is due, or the connection takes more.
    fn sleep(&self, all_sent: bool) -> Result<(), CaseError> {
        let left_ns = self.next_due_ns.saturating_sub(self.now_ns());
        let timeout = (!all_sent).then(|| TimeSpec::from(Duration::from_nanos(left_ns)));
        if self.due_ns.is_empty() && all_sent {
            return Ok(());
        }
        let mut events = PollFlags::POLLIN;
        events.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        let mut fds = [PollFd::new(
            std::os::fd::AsFd::as_fd(&*self.connection),
            events,
        )];
        match ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(at(self.answered)(errno.into())),
        }
    }

    /// Ends the server's echo with one more message, which is not counted.
    fn end(mut self) -> Result<Histogram<u64>, CaseError> {
        self.send(true)?;
        while self.answered < self.sent {
            self.flush()?;
            self.receive()?;
        }
        self.connection
            .set_nonblocking(false)
            .map_err(at(self.sent))?;
        if self.latency.is_empty() {
            return Err(CaseError::Nothing(self.load.span.measure));
        }
        Ok(self.latency)
    }
}
