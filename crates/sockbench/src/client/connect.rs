//! Short connections: connect, send a request and receive its reply, once or some times, close.

use std::io::{Read, Write};

use super::{CaseError, at, per_second};
use crate::address::Address;
use crate::connection::Connection;
use crate::message::{check, stamp};
use crate::outcome::Outcome;
use crate::request::{REQUEST_BYTES, Request, Work};
use crate::span::{Span, Stopwatch};

/// Connections of so many requests each.
pub(super) fn run(
    address: &Address,
    bytes: usize,
    requests: u32,
    span: Span,
) -> Result<Outcome, CaseError> {
    let mut out = Request {
        work: Work::Echo,
        bytes,
    }
    .encode()
    .to_vec();
    out.resize(REQUEST_BYTES + bytes, 0x5a);
    let mut back = vec![0; bytes];
    let mut once = |number: u64| -> Result<(), CaseError> {
        let mut connection = Connection::open(address).map_err(at(number))?;
        for request in 0..requests {
            stamp(
                &mut out[REQUEST_BYTES..],
                request.into(),
                request + 1 == requests,
            );
            // What is asked for stands before the first one.
            let begin = if request == 0 { 0 } else { REQUEST_BYTES };
            connection.write_all(&out[begin..]).map_err(at(number))?;
            connection.read_exact(&mut back).map_err(at(number))?;
            check(&back, request.into())?;
        }
        Ok(())
    };

    let watch = Stopwatch::start(span);
    let mut number = 0;
    while !watch.is_warm(watch.now()) {
        once(number)?;
        number += 1;
    }
    let (warm_at, uncounted) = (watch.now(), number);
    while !watch.is_over(watch.now()) {
        once(number)?;
        number += 1;
    }
    let connections = number - uncounted;
    if connections == 0 {
        return Err(CaseError::Nothing(span.measure));
    }
    let per_s = per_second(connections, watch.between_ns(warm_at, watch.now()));
    Ok(Outcome::Connect { connections, per_s })
}
