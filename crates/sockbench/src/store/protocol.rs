//! What Redis and memcached are asked, and what they must answer.

use std::io::{self, ErrorKind};
use std::ops::Range;

/// Digits of a key, which a value begins with, too, so that it says whose it is.
pub const DIGITS: usize = 12;

/// How a server talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// RESP 2
    Redis,
    /// memcached's text
    Memcached,
}

/// Requests and answers of one connection, of which only the key's digits change.
pub struct Talk {
    protocol: Protocol,
    read: Text,
    write: Text,
    value: Text,
    done: Text,
    is_read: bool,
}

/// A text and where the digits of a key stand in it.
struct Text {
    bytes: Vec<u8>,
    digits: Vec<Range<usize>>,
}

/// Stands for the digits.
const HERE: &str = "############";

impl Text {
    fn new(text: &str) -> Self {
        let places = text.match_indices(HERE);
        Self {
            digits: places.map(|(at, _)| at..at + DIGITS).collect(),
            bytes: text.into(),
        }
    }

    fn set(&mut self, key: u64) -> &[u8] {
        let mut digits = [b'0'; DIGITS];
        let mut rest = key;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        for place in &self.digits {
            self.bytes[place.clone()].copy_from_slice(&digits);
        }
        &self.bytes
    }
}

impl Talk {
    /// About values of so many bytes, [`DIGITS`] at least.
    pub fn new(protocol: Protocol, value_bytes: usize) -> Self {
        let value_bytes = value_bytes.max(DIGITS);
        let value = HERE.to_owned() + &"v".repeat(value_bytes - DIGITS);
        let [read, write, answer, done] = match protocol {
            Protocol::Redis => [
                format!("*2\r\n$3\r\nGET\r\n${DIGITS}\r\n{HERE}\r\n"),
                format!("*3\r\n$3\r\nSET\r\n${DIGITS}\r\n{HERE}\r\n${value_bytes}\r\n{value}\r\n"),
                format!("${value_bytes}\r\n{value}\r\n"),
                "+OK\r\n".into(),
            ],
            Protocol::Memcached => [
                format!("get {HERE}\r\n"),
                format!("set {HERE} 0 0 {value_bytes}\r\n{value}\r\n"),
                format!("VALUE {HERE} 0 {value_bytes}\r\n{value}\r\nEND\r\n"),
                "STORED\r\n".into(),
            ],
        };
        Self {
            protocol,
            read: Text::new(&read),
            write: Text::new(&write),
            value: Text::new(&answer),
            done: Text::new(&done),
            is_read: false,
        }
    }

    /// The request to forget every key, and what must come for it.
    pub fn clear(&self) -> (&'static [u8], &'static [u8]) {
        match self.protocol {
            Protocol::Redis => (b"*1\r\n$8\r\nFLUSHALL\r\n", b"+OK\r\n"),
            Protocol::Memcached => (b"flush_all\r\n", b"OK\r\n"),
        }
    }

    /// The request for a key's value.
    pub fn read(&mut self, key: u64) -> &[u8] {
        self.is_read = true;
        self.value.set(key);
        self.read.set(key)
    }

    /// The request to write a key's value.
    pub fn write(&mut self, key: u64) -> &[u8] {
        self.is_read = false;
        self.write.set(key)
    }

    /// What must come for the last request.
    pub fn answer(&self) -> &[u8] {
        match self.is_read {
            true => &self.value.bytes,
            false => &self.done.bytes,
        }
    }

    /// Room for any answer.
    pub fn longest_answer(&self) -> usize {
        self.value.bytes.len().max(self.done.bytes.len())
    }
}

/// Whether the answer that is `due` has come. Anything else is an error.
pub fn check(come: &[u8], due: &[u8]) -> io::Result<bool> {
    if due.starts_with(come) {
        return Ok(come.len() == due.len());
    }
    let shown = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
    Err(io::Error::new(
        ErrorKind::InvalidData,
        format!("{:?} was answered, not {:?}", shown(come), shown(due)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        core::str::from_utf8(bytes).expect("plain text")
    }

    #[test]
    fn redis_is_asked_in_resp() {
        let mut talk = Talk::new(Protocol::Redis, 16);
        assert_eq!(
            text(talk.read(42)),
            "*2\r\n$3\r\nGET\r\n$12\r\n000000000042\r\n"
        );
        assert_eq!(text(talk.answer()), "$16\r\n000000000042vvvv\r\n");
        assert_eq!(
            text(talk.write(7)),
            "*3\r\n$3\r\nSET\r\n$12\r\n000000000007\r\n$16\r\n000000000007vvvv\r\n"
        );
        assert_eq!(text(talk.answer()), "+OK\r\n");
    }

    #[test]
    fn memcached_is_asked_in_its_text() {
        let mut talk = Talk::new(Protocol::Memcached, 16);
        assert_eq!(text(talk.read(42)), "get 000000000042\r\n");
        assert_eq!(
            text(talk.answer()),
            "VALUE 000000000042 0 16\r\n000000000042vvvv\r\nEND\r\n"
        );
        assert_eq!(
            text(talk.write(7)),
            "set 000000000007 0 0 16\r\n000000000007vvvv\r\n"
        );
        assert_eq!(text(talk.answer()), "STORED\r\n");
    }

    #[test]
    fn an_answer_is_compared_as_far_as_it_has_come() {
        assert!(!check(b"+O", b"+OK\r\n").expect("so far"));
        assert!(check(b"+OK\r\n", b"+OK\r\n").expect("all of it"));
        assert!(check(b"-ERR", b"+OK\r\n").is_err());
        assert!(check(b"+OK\r\n+", b"+OK\r\n").is_err());
    }
}
