//! Datagrams and descriptors on a control connection, never waiting.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use crosslane_ctl::message::MESSAGE_BYTES;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// One more byte than a message has, to notice longer ones.
const BUFFER_BYTES: usize = MESSAGE_BYTES + 1;

/// What a look at a control connection brought.
#[derive(Debug)]
pub enum Received {
    /// A datagram.
    Datagram {
        /// The bytes; more than [`MESSAGE_BYTES`] if it was longer than any message.
        bytes: Vec<u8>,
        /// Descriptors that came with it.
        fds: Vec<OwnedFd>,
        /// More descriptors came than were taken or than we have room for.
        fds_lost: bool,
    },
    /// Nothing at the moment.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// Take the next datagram, if there is one.
pub fn receive(socket: BorrowedFd<'_>) -> Received {
    let mut bytes = [0; BUFFER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut may_be_reset = true;
    let outcome = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, &mut slices, &mut control, flags) {
            Err(Errno::INTR) => {}
            // A client that has ended without reading all: the kernel says so first, and once. What it has said before
            // can still be read.
            Err(Errno::CONNRESET) if may_be_reset => may_be_reset = false,
            outcome => break outcome,
        }
    };
    match outcome {
        Ok(message) => {
            let fds = rights(&mut control);
            if message.bytes == 0 && fds.is_empty() {
                // No message of the protocol is empty, so this is the end.
                return Received::Closed;
            }
            Received::Datagram {
                bytes: bytes[..message.bytes.min(BUFFER_BYTES)].to_vec(),
                fds,
                fds_lost: message.flags.contains(ReturnFlags::CTRUNC),
            }
        }
        Err(Errno::AGAIN) => Received::Nothing,
        Err(_) => Received::Closed,
    }
}

fn rights(control: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    fds
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// On its way.
    Yes,
    /// The other side must read first.
    Full,
    /// The other side is gone.
    Closed,
}

/// Send a datagram, with a descriptor or without.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Sent {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = fd.map(|fd| [fd]);
    if let Some(passed) = &passed {
        control.push(SendAncillaryMessage::ScmRights(passed));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Sent::Yes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Sent::Full,
            Err(_) => return Sent::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn send_fds(socket: &OwnedFd, passed: &OwnedFd, count: usize) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = vec![passed.as_fd(); count];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(b"x")];
        sendmsg(socket, &bytes, &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn a_descriptor_travels_beside_its_datagram() {
        let (a, b) = pair();
        assert_eq!(send(a.as_fd(), b"hello", Some(a.as_fd())), Sent::Yes);
        let Received::Datagram {
            bytes,
            fds,
            fds_lost,
        } = receive(b.as_fd())
        else {
            panic!("nothing received");
        };
        assert_eq!(
            (bytes.as_slice(), fds.len(), fds_lost),
            (&b"hello"[..], 1, false)
        );
        assert!(matches!(receive(b.as_fd()), Received::Nothing));
    }

    #[test]
    fn the_last_words_of_who_has_not_read_all_are_heard() {
        let (a, b) = pair();
        assert_eq!(send(a.as_fd(), b"unread", None), Sent::Yes);
        assert_eq!(send(b.as_fd(), b"last words", Some(a.as_fd())), Sent::Yes);
        drop(b);
        let Received::Datagram { bytes, fds, .. } = receive(a.as_fd()) else {
            panic!("nothing received");
        };
        assert_eq!((bytes.as_slice(), fds.len()), (&b"last words"[..], 1));
        assert!(matches!(receive(a.as_fd()), Received::Closed));
    }

    #[test]
    fn too_many_descriptors_are_noticed_and_none_stays_open() {
        let (a, b) = pair();
        let (passed, other) = pair();
        send_fds(&a, &passed, 8);
        drop(passed);
        let Received::Datagram { fds, fds_lost, .. } = receive(b.as_fd()) else {
            panic!("nothing received");
        };
        assert!(fds_lost || fds.len() > 1);
        assert!(matches!(receive(other.as_fd()), Received::Nothing));
        drop(fds);
        assert!(matches!(receive(other.as_fd()), Received::Closed));
    }

    #[test]
    fn a_datagram_longer_than_any_message_is_noticed() {
        let (a, b) = pair();
        assert_eq!(send(a.as_fd(), &[7; 5000], None), Sent::Yes);
        let Received::Datagram { bytes, .. } = receive(b.as_fd()) else {
            panic!("nothing received");
        };
        assert!(bytes.len() > MESSAGE_BYTES);
    }

    #[test]
    fn a_full_and_a_closed_connection_are_told_apart() {
        let (a, b) = pair();
        while send(a.as_fd(), &[0; 1000], None) == Sent::Yes {}
        assert_eq!(send(a.as_fd(), &[0; 1000], None), Sent::Full);
        drop(b);
        assert_eq!(send(a.as_fd(), &[0; 1000], None), Sent::Closed);
    }
}
