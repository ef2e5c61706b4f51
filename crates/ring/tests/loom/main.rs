//! The lane and the wake-ups around it under the model checker: every order in which two threads
//! can run, with every value that the memory model lets them read, up to a bound on preemptions.
//!
//! Each protocol is also checked with one of its steps left out, which the checker must find.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crosslane-ring --release --test loom`
#![cfg(loom)]

mod close;
mod doorbell;
mod lane;
mod rest;
mod sleep;
mod stream;
mod support;
mod switch;
mod wake;

/// Run `scenario` in every order with at most `preemptions`.
fn check(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(scenario);
}
