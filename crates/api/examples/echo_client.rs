//! Sends messages and checks that they come back: `echo_client ADDRESS [MESSAGES [BYTES]]`. Each
//! is a number and that many bytes of it, built and checked in place.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind};

use crosslane_api::{Connection, WHOLE_BYTES};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| usage());
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse().unwrap_or_else(|_| usage()),
        None => default,
    };
    let (messages, bytes) = (number(10_000), number(64));
    if !(8..=WHOLE_BYTES as u64).contains(&bytes) {
        usage();
    }
    let bytes = usize::try_from(bytes).unwrap_or(WHOLE_BYTES);

    let mut connection = Connection::connect(address)?;
    for message in 0..messages {
        send(&mut connection, message, bytes)?;
        receive(&mut connection, message, bytes)?;
    }
    println!(
        "{messages} messages of {bytes} bytes came back by {:?}",
        connection.path()
    );
    Ok(())
}

fn usage() -> ! {
    eprintln!("usage: echo_client ADDRESS [MESSAGES [BYTES]], 8 to {WHOLE_BYTES} bytes");
    std::process::exit(2)
}

fn filling(message: u64) -> u8 {
    message.to_le_bytes()[0]
}

fn send(connection: &mut Connection, message: u64, bytes: usize) -> io::Result<()> {
    // So long a reservation is always whole.
    let mut room = connection.sender.reserve(bytes)?;
    room.put(&message.to_le_bytes());
    while room.filled() < room.capacity() {
        let mut spare = room.spare();
        spare.fill(filling(message));
        let filled = spare.len();
        room.advance(filled);
    }
    room.commit()
}

fn receive(connection: &mut Connection, message: u64, bytes: usize) -> io::Result<()> {
    let expected = |at: usize| match at {
        0..8 => message.to_le_bytes()[at],
        _ => filling(message),
    };
    let mut at = 0;
    while at < bytes {
        let received = connection.receiver.peek()?;
        if received.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for byte in received.pieces().flat_map(|piece| piece.iter()) {
            if at == bytes || byte != expected(at) {
                let wrong = format!("message {message} differs at byte {at}");
                return Err(io::Error::new(ErrorKind::InvalidData, wrong));
            }
            at += 1;
        }
        received.consume_all()?;
    }
    Ok(())
}
