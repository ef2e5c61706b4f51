//! What goes between a host and the model.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors of a message at most.
const MOST_FDS: usize = 4;

pub const READ: u64 = 0;
pub const WRITE: u64 = 1;

/// Numbers of a message.
pub type Words = [u64; 4];

/// Send numbers, and descriptors beside them.
pub fn send(to: &UnixStream, words: Words, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = words.map(u64::to_le_bytes).concat();
    if fds.is_empty() {
        return (&*to).write_all(&bytes);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(
        to,
        &[IoSlice::new(&bytes)],
        &mut beside,
        SendFlags::NOSIGNAL,
    )?;
    (&*to).write_all(&bytes[sent..])
}

/// Receive numbers, and descriptors if there are any.
pub fn receive(from: &UnixStream) -> io::Result<(Words, Vec<OwnedFd>)> {
    let mut bytes = [0; size_of::<Words>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let found = recvmsg(from, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if found.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let fds = beside.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    (&*from).read_exact(&mut bytes[found.bytes..])?;
    let mut words = [0; 4];
    for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(part.try_into().expect("chunks of eight"));
    }
    Ok((words, fds))
}
