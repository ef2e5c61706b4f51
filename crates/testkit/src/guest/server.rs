//! What an ivshmem-server does for machines with a doorbell each: it tells each its number, passes the memory that they
//! share, and the descriptors by which they would interrupt each other (QEMU's docs/specs/ivshmem-spec.txt).

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Of the protocol.
const VERSION: i64 = 0;
/// What comes with the memory.
const MEMORY: i64 = -1;

/// A machine, known by its place among them.
struct Peer {
    stream: UnixStream,
    /// It is interrupted by this; one vector is all that a machine has.
    bell: OwnedFd,
}

/// Serve the first so many machines that come to `socket`, until the first of them ends.
pub fn serve(socket: &Path, memory: File, machines: usize) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    std::thread::spawn(move || {
        // A machine that is not served says so, and does not come up.
        let _ = serve_all(&listener, &memory, machines);
    });
    Ok(())
}

fn serve_all(listener: &UnixListener, memory: &File, machines: usize) -> io::Result<()> {
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..machines {
        let stream = listener.accept()?.0;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        welcome(&peers, Peer { stream, bell }, memory).map(|peer| peers.push(peer))?;
    }
    // They say nothing; a connection that ends would tell the others that the machine is gone.
    peers[0].stream.read(&mut [0]).map(|_| ())
}

/// Tell a machine what it needs, and the others of it.
fn welcome(others: &[Peer], peer: Peer, memory: &File) -> io::Result<Peer> {
    let number = number_of(others.len());
    say(&peer.stream, VERSION, None)?;
    say(&peer.stream, number, None)?;
    say(&peer.stream, MEMORY, Some(memory.as_fd()))?;
    for (at, other) in others.iter().enumerate() {
        say(&peer.stream, number_of(at), Some(other.bell.as_fd()))?;
        say(&other.stream, number, Some(peer.bell.as_fd()))?;
    }
    say(&peer.stream, number, Some(peer.bell.as_fd()))?;
    Ok(peer)
}

fn number_of(at: usize) -> i64 {
    i64::try_from(at).expect("there are two machines")
}

fn say(to: &UnixStream, word: i64, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let descriptors: Vec<_> = with.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let word = word.to_le_bytes();
    sendmsg(
        to,
        &[IoSlice::new(&word)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::IoSliceMut;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn heard(from: &UnixStream) -> (i64, Option<OwnedFd>) {
        let mut word = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut word)];
        let received = recvmsg(from, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_eq!(received.bytes, 8);
        let descriptors = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        (i64::from_le_bytes(word), descriptors)
    }

    #[test]
    fn each_machine_is_told_its_number_the_memory_and_all_bells() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let memory = tempfile::tempfile().unwrap();
        let inode = memory.metadata().unwrap().ino();
        serve(&socket, memory, 2).unwrap();
        let mut bells = Vec::new();
        let mut machines = Vec::new();
        for number in [0, 1] {
            let machine = UnixStream::connect(&socket).unwrap();
            let words = [heard(&machine), heard(&machine)].map(|(word, _)| word);
            assert_eq!(words, [VERSION, number]);
            let (word, memory) = heard(&machine);
            let found = File::from(memory.unwrap()).metadata().unwrap().ino();
            assert_eq!((word, found), (MEMORY, inode));
            for other in 0..=number {
                let (word, bell) = heard(&machine);
                assert_eq!(word, other);
                bells.push(bell.unwrap());
            }
            machines.push(machine);
        }
        let (word, bell) = heard(&machines[0]);
        assert!(word == 1 && bell.is_some());
        // The first machine's own, and what the second one was told of it.
        rustix::io::write(&bells[1], &1_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&bells[0], &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
