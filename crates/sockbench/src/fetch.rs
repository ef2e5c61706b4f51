//! A client that fetches one file again and again over one connection of HTTP/1.1, and checks it.

use std::io::{self, ErrorKind, Read, Write};

use crate::address::Address;
use crate::client::{CaseError, at, histogram, per_second};
use crate::connection::Connection;
use crate::outcome::{Line, Outcome};
use crate::span::{Span, Stopwatch};

/// What a read asks for; a browser's order of magnitude.
const BUFFER_BYTES: usize = 128 * 1024;
/// So many fetches count at least, however long they take: of large files few fit into a brief span.
const LEAST: u64 = 3;
/// Fields of a response that there is room for.
const FIELDS: usize = 32;

/// Files are made of these bytes in turn, so that each says where it belongs.
const PERIOD: u8 = 251;

/// A file of so many bytes, as it must come.
#[must_use]
pub fn content(bytes: usize) -> Vec<u8> {
    (0..PERIOD).cycle().take(bytes).collect()
}

/// Fetches `path`, which must have so many bytes, for a while. Also returns the connection, still
/// open.
///
/// # Errors
/// [`CaseError`].
pub fn run(
    address: &Address,
    path: &str,
    bytes: u64,
    span: Span,
) -> Result<(Line, Connection), CaseError> {
    let mut connection = Connection::open(address).map_err(at(0))?;
    let (local, peer) = connection.names().map_err(at(0))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut times = histogram();
    let (mut busy_ns, mut number) = (0, 0);
    let watch = Stopwatch::start(span);
    while !watch.is_over(watch.now()) || times.len() < LEAST {
        let asked = watch.now();
        connection
            .write_all(request.as_bytes())
            .map_err(at(number))?;
        receive(&mut connection, &mut buffer, bytes).map_err(at(number))?;
        let done = watch.now();
        number += 1;
        if watch.is_warm(asked) {
            times.saturating_record(watch.between_ns(asked, done));
            busy_ns += watch.between_ns(asked, done);
        }
    }
    let per_s = per_second(times.len(), busy_ns);
    let outcome = Outcome::Fetch {
        bytes,
        fetches: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        gbps: per_second(8 * bytes * times.len(), busy_ns) / 1e9,
        per_s,
    };
    let line = Line {
        outcome,
        local,
        peer,
    };
    Ok((line, connection))
}

/// Takes one response.
fn receive(connection: &mut impl Read, buffer: &mut [u8], bytes: u64) -> io::Result<()> {
    let mut filled = 0;
    let head = loop {
        filled += read(connection, &mut buffer[filled..])?;
        if let Some(head) = head_of(&buffer[..filled], bytes)? {
            break head;
        }
    };
    let mut body = &buffer[head..filled];
    let mut taken = 0;
    loop {
        check(body, taken)?;
        taken += body.len() as u64;
        if taken >= bytes {
            break;
        }
        let got = read(connection, buffer)?;
        body = &buffer[..got];
    }
    if taken > bytes {
        return Err(wrong(format!("{taken} bytes came instead of {bytes}")));
    }
    Ok(())
}

fn read(connection: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    match connection.read(buffer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        bytes => Ok(bytes),
    }
}

/// How long the head of the response is, once it is whole. The response must be the file.
fn head_of(start: &[u8], bytes: u64) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(start);
    let httparse::Status::Complete(head) =
        parsed.map_err(|error| wrong(format!("no response of HTTP: {error}")))?
    else {
        return Ok(None);
    };
    if response.code != Some(200) {
        return Err(wrong(format!("the status is {:?}", response.code)));
    }
    let mut lengths = response
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().map(|field| field.value);
    if length != Some(bytes.to_string().as_bytes()) {
        return Err(wrong(format!(
            "the length is {:?}, not {bytes}",
            length.map(String::from_utf8_lossy)
        )));
    }
    Ok(Some(head))
}

/// Whether what came is what belongs at `from` of the file, judged by its first and its last byte.
fn check(piece: &[u8], from: u64) -> io::Result<()> {
    let ends = [0, piece.len().saturating_sub(1)];
    for at in ends.into_iter().filter(|at| *at < piece.len()) {
        let place = from + at as u64;
        let due = place % u64::from(PERIOD);
        if u64::from(piece[at]) != due {
            return Err(wrong(format!("byte {place} is {}, not {due}", piece[at])));
        }
    }
    Ok(())
}

fn wrong(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(length: usize, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    /// What a client says of bytes that come a few at a time.
    fn receive_all(bytes: &[u8], size: u64) -> io::Result<()> {
        struct Trickle<'a>(&'a [u8]);
        impl Read for Trickle<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let few = buffer.len().min(7);
                self.0.read(&mut buffer[..few])
            }
        }
        receive(&mut Trickle(bytes), &mut [0; 256], size)
    }

    #[test]
    fn a_file_is_received_in_pieces_and_checked() {
        let file = content(1000);
        receive_all(&response(1000, &file), 1000).expect("it is the file");
        for (bytes, says) in [
            (response(1000, &file[1..]), "byte 0 is 1"),
            (response(999, &file), "the length is"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(), "404"),
            (b"nonsense\r\n\r\n".to_vec(), "no response"),
            (response(1000, &file[..900]), "unexpected end"),
        ] {
            let error = receive_all(&bytes, 1000).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
