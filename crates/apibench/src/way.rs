//! The ways to send and receive the stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crosslane_api::{Connection, Listener, Path, WHOLE_BYTES};

use crate::stream::{Position, WORD};

/// Which calls carry the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// `send` and `recv` on a socket, from and into a buffer of the program
    Sockets,
    /// Reads and writes of the native interface, from and into a buffer of the program
    Copy,
    /// Built and read where it travels
    Direct,
}

/// Both ends of a way are used through this. Sizes are whole words.
pub trait Wire: Read + Write + Send {
    /// Build the next `bytes` of the stream and send them, at once as far as the way can.
    ///
    /// # Errors
    /// As the system gives them.
    fn send(&mut self, position: &mut Position, bytes: usize) -> io::Result<()>;

    /// Receive and check at least one word and at most `bytes`. Returns how many bytes; 0 at the
    /// end of the stream.
    ///
    /// # Errors
    /// As the system gives them; `InvalidData` where the stream is not what it should be.
    fn receive(&mut self, position: &mut Position, bytes: usize) -> io::Result<usize>;

    /// Send the next message back, of which some bytes may have been sent already. Returns how
    /// many bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// As the system gives them.
    fn echo(&mut self, bytes: usize) -> io::Result<usize>;

    /// The addresses of this end and the other.
    ///
    /// # Errors
    /// As the system gives them.
    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Whether the bytes travel in memory, in one direction at least, as far as this end knows.
    fn is_in_memory(&self) -> bool;
}

/// A listener of either kind.
pub enum Listening {
    /// Of sockets.
    Sockets(TcpListener),
    /// Of the native interface, and whether its connections build in place.
    Native(Listener, bool),
}

impl Listening {
    /// Listen on the loopback device.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn open(way: Way) -> io::Result<Self> {
        let any = "127.0.0.1:0";
        Ok(match way {
            Way::Sockets => Self::Sockets(TcpListener::bind(any)?),
            Way::Copy => Self::Native(Listener::bind(any)?, false),
            Way::Direct => Self::Native(Listener::bind(any)?, true),
        })
    }

    /// Where.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Sockets(listener) => listener.local_addr(),
            Self::Native(listener, _) => listener.local_addr(),
        }
    }

    /// Wait for the next connection.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn accept(&self) -> io::Result<Box<dyn Wire>> {
        Ok(match self {
            Self::Sockets(listener) => socket(listener.accept()?.0)?,
            Self::Native(listener, true) => Box::new(Direct(listener.accept()?.0)),
            Self::Native(listener, false) => Box::new(Copying::new(listener.accept()?.0)),
        })
    }
}

/// Connect to a server.
///
/// # Errors
/// As the system gives them.
pub fn connect(way: Way, address: SocketAddr) -> io::Result<Box<dyn Wire>> {
    Ok(match way {
        Way::Sockets => socket(TcpStream::connect(address)?)?,
        Way::Copy => Box::new(Copying::new(Connection::connect(address)?)),
        Way::Direct => Box::new(Direct(Connection::connect(address)?)),
    })
}

/// Both ends of a connection in this process.
///
/// # Errors
/// As the system gives them.
pub fn pair(way: Way) -> io::Result<[Box<dyn Wire>; 2]> {
    Ok(match way {
        Way::Sockets => {
            let listening = Listening::open(way)?;
            let near = connect(way, listening.address()?)?;
            [near, listening.accept()?]
        }
        Way::Copy => {
            let (near, far) = Connection::pair()?;
            [Box::new(Copying::new(near)), Box::new(Copying::new(far))]
        }
        Way::Direct => {
            let (near, far) = Connection::pair()?;
            [Box::new(Direct(near)), Box::new(Direct(far))]
        }
    })
}

fn socket(stream: TcpStream) -> io::Result<Box<dyn Wire>> {
    stream.set_nodelay(true)?;
    Ok(Box::new(Copying::new(stream)))
}

/// What both kinds of connections tell.
pub trait Ends {
    /// The addresses of this end and the other.
    ///
    /// # Errors
    /// As the system gives them.
    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Whether the bytes travel in memory, as far as the connection itself can tell.
    fn is_in_memory(&self) -> bool;
}

impl Ends for TcpStream {
    fn is_in_memory(&self) -> bool {
        false
    }

    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.local_addr()?, self.peer_addr()?))
    }
}

impl Ends for Connection {
    fn is_in_memory(&self) -> bool {
        !matches!(self.path(), Path::Tcp(_))
    }

    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.local_addr()?, self.peer_addr()?))
    }
}

/// Through a buffer: one write for a message, or for a batch of them.
struct Copying<C> {
    connection: C,
    buffer: Vec<u8>,
}

impl<C: Read + Write + Ends> Copying<C> {
    fn new(connection: C) -> Self {
        Self {
            connection,
            buffer: Vec::new(),
        }
    }

    /// What is there, at most `bytes`, and the rest of a word that has come in part.
    fn take_words(&mut self, bytes: usize) -> io::Result<usize> {
        self.buffer.resize(bytes, 0);
        let mut filled = self.connection.read(&mut self.buffer)?;
        let torn = filled.next_multiple_of(WORD);
        if filled < torn {
            self.connection.read_exact(&mut self.buffer[filled..torn])?;
            filled = torn;
        }
        Ok(filled)
    }

    /// Fill the front of the buffer up to `bytes`, or to the end of the stream.
    fn fill(&mut self, bytes: usize) -> io::Result<usize> {
        self.buffer.resize(bytes, 0);
        let mut filled = self.connection.read(&mut self.buffer)?;
        while filled > 0 && filled < bytes {
            match self.connection.read(&mut self.buffer[filled..])? {
                0 => break,
                more => filled += more,
            }
        }
        Ok(filled)
    }
}

impl<C: Read + Write + Ends + Send> Wire for Copying<C> {
    fn send(&mut self, position: &mut Position, bytes: usize) -> io::Result<()> {
        self.buffer.resize(bytes, 0);
        let buffer = &mut self.buffer;
        position.build(bytes, |at, piece| {
            buffer[at..at + piece.len()].copy_from_slice(piece);
        });
        self.connection.write_all(&self.buffer)
    }

    fn receive(&mut self, position: &mut Position, bytes: usize) -> io::Result<usize> {
        let filled = self.take_words(bytes)?;
        match position.check_slice(&self.buffer[..filled]) {
            true => Ok(filled),
            false => Err(differs(position)),
        }
    }

    fn echo(&mut self, bytes: usize) -> io::Result<usize> {
        let filled = self.fill(bytes)?;
        self.connection.write_all(&self.buffer[..filled])?;
        Ok(filled)
    }

    fn is_in_memory(&self) -> bool {
        self.connection.is_in_memory()
    }

    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.connection.names()
    }
}

impl<C: Read> Read for Copying<C> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.connection.read(bytes)
    }
}

impl<C: Write> Write for Copying<C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush()
    }
}

/// In place.
struct Direct(Connection);

impl Direct {
    /// A word that came in pieces, as it may by TCP before the lanes are there.
    #[cold]
    fn receive_torn(&mut self, position: &mut Position) -> io::Result<usize> {
        let mut word = [0; WORD];
        self.0.read_exact(&mut word)?;
        match position.check_slice(&word) {
            true => Ok(WORD),
            false => Err(differs(position)),
        }
    }
}

impl Wire for Direct {
    fn send(&mut self, position: &mut Position, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            // The receiver reads one record while the next one is built.
            let mut room = self.0.sender.reserve(left.min(WHOLE_BYTES))?;
            while room.filled() < room.capacity() {
                let mut spare = room.spare();
                // Pieces of the lane are whole words.
                let bytes = spare.len();
                position.build(bytes, |at, piece| spare.copy_from(at, piece));
                room.advance(bytes);
            }
            left -= room.filled();
            room.commit()?;
        }
        Ok(())
    }

    fn receive(&mut self, position: &mut Position, bytes: usize) -> io::Result<usize> {
        let received = self.0.receiver.peek()?;
        let mut taken = 0;
        for piece in received.pieces() {
            let bytes = piece.len().min(bytes - taken) / WORD * WORD;
            let good = position.check(
                bytes,
                |at| piece.get(at).unwrap_or([0; 64]),
                |at| piece.get(at).unwrap_or([0; 8]),
            );
            if !good {
                return Err(differs(position));
            }
            taken += bytes;
            if bytes < piece.len() {
                break;
            }
        }
        if taken == 0 && !received.is_empty() {
            return self.receive_torn(position);
        }
        received.consume(taken)?;
        Ok(taken)
    }

    fn echo(&mut self, bytes: usize) -> io::Result<usize> {
        let Connection { sender, receiver } = &mut self.0;
        let received = receiver.peek()?;
        if received.is_empty() {
            return Ok(0);
        }
        let mut room = sender.reserve(received.len().min(bytes))?;
        for piece in received.pieces() {
            if room.put_bytes(piece) < piece.len() {
                break;
            }
        }
        let echoed = room.filled();
        room.commit()?;
        received.consume(echoed)?;
        Ok(echoed)
    }

    fn is_in_memory(&self) -> bool {
        self.0.is_in_memory()
    }

    fn names(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.0.names()
    }
}

impl Read for Direct {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Direct {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cold]
fn differs(position: &Position) -> io::Error {
    let at = position.bytes();
    io::Error::new(
        ErrorKind::InvalidData,
        format!("the stream differs before byte {at}"),
    )
}
