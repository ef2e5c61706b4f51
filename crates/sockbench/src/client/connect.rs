//! Short connections: connect, send one request, receive its reply, close.

use std::io::{Read, Write};

use super::{CaseError, at, per_second};
use crate::address::Address;
use crate::connection::Connection;
use crate::message::{check, stamp};
use crate::outcome::Outcome;
use crate::request::{REQUEST_BYTES, Request, Work};
use crate::span::{Span, Stopwatch};

pub(super) fn run(address: &Address, bytes: usize, span: Span) -> Result<Outcome, CaseError> {
    let mut out = Request {
        work: Work::Echo,
        bytes,
    }
    .encode()
    .to_vec();
    out.resize(REQUEST_BYTES + bytes, 0x5a);
    stamp(&mut out[REQUEST_BYTES..], 0, true);
    let mut back = vec![0; bytes];
    let mut once = |number: u64| -> Result<(), CaseError> {
        let mut connection = Connection::open(address).map_err(at(number))?;
        connection.write_all(&out).map_err(at(number))?;
        connection.read_exact(&mut back).map_err(at(number))?;
        check(&back, 0)?;
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
