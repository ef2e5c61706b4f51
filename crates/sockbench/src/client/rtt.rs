//! Blocking round trips: send, wait for the echo, check it, record the time in between.

use std::io::{Read, Write};

use super::{CaseError, at, histogram, rtt_outcome};
use crate::connection::Connection;
use crate::message::{check, stamp};
use crate::outcome::Outcome;
use crate::request::{Request, Work};
use crate::span::{Span, Stopwatch};

pub(crate) fn run(
    connection: &mut Connection,
    bytes: usize,
    span: Span,
) -> Result<Outcome, CaseError> {
    let (mut out, mut back) = (vec![0x5a; bytes], vec![0; bytes]);
    let mut times = histogram();
    connection
        .write_all(
            &Request {
                work: Work::Echo,
                bytes,
            }
            .encode(),
        )
        .map_err(at(0))?;
    let watch = Stopwatch::start(span);
    let (mut number, mut last) = (0, false);
    while !last {
        last = watch.is_over(watch.now());
        stamp(&mut out, number, last);
        let sent_at = watch.now();
        connection.write_all(&out).map_err(at(number))?;
        connection.read_exact(&mut back).map_err(at(number))?;
        let back_at = watch.now();
        check(&back, number)?;
        if !last && watch.is_warm(sent_at) {
            times.saturating_record(watch.between_ns(sent_at, back_at));
        }
        number += 1;
    }
    rtt_outcome(bytes, &times, span)
}
