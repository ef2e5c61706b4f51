//! Sends everything back, from the lane in which it came into the one in which it goes:
//! `echo_server [ADDRESS]`. Its clients may be `echo_client`, or any TCP program.
#![forbid(unsafe_code)]

use std::io;
use std::thread;

use crosslane_api::{Connection, Listener};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = Listener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (connection, peer) = listener.accept()?;
        thread::spawn(move || match echo(connection) {
            Ok(bytes) => eprintln!("{peer}: {bytes} bytes"),
            Err(error) => eprintln!("{peer}: {error}"),
        });
    }
}

fn echo(connection: Connection) -> io::Result<u64> {
    let (mut sender, mut receiver) = connection.split();
    let mut total = 0;
    loop {
        let received = receiver.peek()?;
        if received.is_empty() {
            return Ok(total);
        }
        let mut room = sender.reserve(received.len())?;
        for piece in received.pieces() {
            if room.put_bytes(piece) < piece.len() {
                break;
            }
        }
        let echoed = room.filled();
        room.commit()?;
        received.consume(echoed)?;
        total += echoed as u64;
    }
}
