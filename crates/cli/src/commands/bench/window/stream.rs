//! Two processors and the window between them: messages one way by each [`Carrier`], as fast as they go.

use anyhow::Context;
use crosslane_sockbench::client::{CaseError, stream_outcome};
use crosslane_sockbench::cpus::{pin, two_cpus};
use crosslane_sockbench::message::{Broken, check, stamp};
use crosslane_sockbench::outcome::Outcome;
use crosslane_sockbench::span::{Span, Stopwatch};
use crosslane_window::backend::Window;

use super::carrier::{Carrier, End};
use super::copies::{Copies, RINGS};

/// Messages between two looks at the clock.
const BATCH: usize = 64;

/// What arrived after the warm-up.
struct Arrived {
    messages: u64,
    nanos: u64,
}

/// A stream of messages by a carrier, measured as programs' streams are: the receiver counts.
pub fn by_carrier(
    window: &'static dyn Window,
    carrier: Carrier,
    bytes: usize,
    span: Span,
) -> anyhow::Result<Outcome> {
    let ends = carrier
        .ends(window)
        .context("the window is too small for lanes")?;
    Ok(rate(ends, bytes, span)?.outcome(bytes))
}

/// The most that the machine does: by bare copies, through a short or a long ring.
pub fn by_copies(window: &'static dyn Window, bytes: usize, span: Span) -> anyhow::Result<Outcome> {
    let mut best: Option<Arrived> = None;
    for ring_bytes in RINGS {
        let ends = Copies::ends(window, ring_bytes, bytes);
        let arrived = rate(ends, bytes, span)?;
        if best.as_ref().is_none_or(|best| arrived.is_faster(best)) {
            best = Some(arrived);
        }
    }
    let best = best.context("there are rings to measure")?;
    Ok(best.outcome(bytes))
}

impl Arrived {
    fn is_faster(&self, other: &Self) -> bool {
        let product = |messages: u64, nanos: u64| u128::from(messages) * u128::from(nanos);
        product(self.messages, other.nanos) > product(other.messages, self.nanos)
    }

    fn outcome(&self, bytes: usize) -> Outcome {
        stream_outcome(bytes, self.messages, self.nanos)
    }
}

fn rate<E: End>([mut from, mut to]: [E; 2], bytes: usize, span: Span) -> anyhow::Result<Arrived> {
    let (here, there) = two_cpus()?;
    let arrived = std::thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let placed = pin(there);
            let arrived = receive(&mut to, bytes, span);
            placed.map(|()| arrived)
        });
        let sending = scope.spawn(move || {
            let placed = pin(here);
            send(&mut from, bytes, span);
            placed
        });
        sending.join().expect("the side that sends ends")?;
        receiving.join().expect("the side that receives ends")
    })??;
    if arrived.messages == 0 || arrived.nanos == 0 {
        return Err(CaseError::Nothing(span.measure).into());
    }
    Ok(arrived)
}

fn send(end: &mut impl End, bytes: usize, span: Span) {
    let mut message = vec![0x5a; bytes];
    let watch = Stopwatch::start(span);
    let mut number = 0;
    let mut send = |is_last| {
        stamp(&mut message, number, is_last);
        number += 1;
        end.send(&message);
    };
    while !watch.is_over(watch.now()) {
        (0..BATCH).for_each(|_| send(false));
    }
    send(true);
    end.flush();
}

fn receive(end: &mut impl End, bytes: usize, span: Span) -> Result<Arrived, Broken> {
    let mut message = vec![0; bytes];
    let watch = Stopwatch::start(span);
    let (mut number, mut is_last) = (0, false);
    let mut receive = |number: &mut u64| {
        end.receive(&mut message);
        let is_last = check(&message, *number)?;
        *number += 1;
        Ok(is_last)
    };
    while !is_last && !watch.is_warm(watch.now()) {
        is_last = receive(&mut number)?;
    }
    let (warm_at, uncounted) = (watch.now(), number);
    while !is_last {
        is_last = receive(&mut number)?;
    }
    Ok(Arrived {
        messages: number - uncounted,
        nanos: watch.between_ns(warm_at, watch.now()),
    })
}
