//! Round trips of which it is written down when each call began and ended, by a counter that both ends
//! can read. What lies between, a library that notes its own moments can say.

use std::io::{self, Read, Write};

use crate::address::Address;
use crate::client::{CaseError, at, histogram, rtt_outcome};
use crate::connection::Connection;
use crate::message::{BadSize, check, checked_size, stamp};
use crate::outcome::Line;
use crate::span::Span;
use crate::ticks::Ticks;

/// What is exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    bytes: usize,
    messages: u64,
}

/// Three moments of a message at one end, in the order in which they come. At the client: before it
/// is sent, when the send has returned, when the answer's receive has returned. At the server: when
/// the receive has returned, before the answer is sent, when that has returned.
pub type Moments = [u64; 3];

impl Conversation {
    /// So many messages of so many bytes.
    ///
    /// # Errors
    /// [`BadSize`].
    pub fn new(bytes: u64, messages: u64) -> Result<Self, BadSize> {
        let bytes = checked_size(bytes)?;
        Ok(Self { bytes, messages })
    }

    fn no_moments(self) -> Vec<Moments> {
        // Written to now, so that no page is met for the first time later.
        let mut moments = vec![[1; 3]; usize::try_from(self.messages).unwrap_or(0)];
        moments.clear();
        moments
    }
}

/// Sends and waits for each answer. The line has the round trips of the second half. Also returns
/// the connection, still open.
///
/// # Errors
/// [`CaseError`].
pub fn ask(
    address: &Address,
    talk: Conversation,
) -> Result<(Line, Vec<Moments>, Connection), CaseError> {
    let mut connection = Connection::open(address).map_err(at(0))?;
    let (local, peer) = connection.names().map_err(at(0))?;
    let clock = Ticks::new();
    let (mut out, mut back) = (vec![0x5a; talk.bytes], vec![0; talk.bytes]);
    let (mut moments, mut times) = (talk.no_moments(), histogram());
    for number in 0..talk.messages {
        stamp(&mut out, number, number + 1 == talk.messages);
        let before = clock.raw();
        connection.write_all(&out).map_err(at(number))?;
        let sent = clock.raw();
        connection.read_exact(&mut back).map_err(at(number))?;
        let returned = clock.raw();
        check(&back, number)?;
        moments.push([before, sent, returned]);
        if number >= talk.messages / 2 {
            times.saturating_record(clock.between_ns(before, returned));
        }
    }
    let nothing = Span {
        warmup: std::time::Duration::ZERO,
        measure: std::time::Duration::ZERO,
    };
    let line = Line {
        outcome: rtt_outcome(talk.bytes, &times, nothing)?,
        local,
        peer,
    };
    Ok((line, moments, connection))
}

/// Sends each message back.
///
/// # Errors
/// When the connection fails, or another message comes than is due.
pub fn answer(connection: &mut Connection, talk: Conversation) -> io::Result<Vec<Moments>> {
    let clock = Ticks::new();
    let mut message = vec![0; talk.bytes];
    let mut moments = talk.no_moments();
    for number in 0..talk.messages {
        connection.read_exact(&mut message)?;
        let received = clock.raw();
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        check(&message, number).map_err(invalid)?;
        let before = clock.raw();
        connection.write_all(&message)?;
        moments.push([received, before, clock.raw()]);
    }
    // The connection stays for others to look at until the client leaves.
    connection.read_to_end(&mut Vec::new())?;
    Ok(moments)
}

/// As they are written to a file.
#[must_use]
pub fn bytes(moments: &[Moments]) -> Vec<u8> {
    let words = moments.iter().flatten();
    words.flat_map(|word| word.to_ne_bytes()).collect()
}

/// The reverse; what is no whole message at the end is left out.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> Vec<Moments> {
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<_> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words.as_chunks::<3>().0.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Listener;

    #[test]
    fn both_ends_note_every_message_in_order() {
        let talk = Conversation::new(64, 50).expect("a size that is possible");
        let (listener, address) = Listener::open(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let server = std::thread::spawn(move || answer(&mut listener.accept().unwrap(), talk));
        let (_, asked, connection) = ask(&address, talk).expect("it is answered");
        drop(connection);
        let answered = server.join().unwrap().expect("it answers");
        assert_eq!((asked.len(), answered.len()), (50, 50));
        assert!(asked.iter().flatten().is_sorted());
        assert!(answered.iter().flatten().is_sorted());
        assert_eq!(of_bytes(&bytes(&asked)), asked);
    }
}
