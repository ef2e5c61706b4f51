//! Calls that take bytes in.

use std::ffi::CStr;
use std::io::IoSliceMut;
use std::os::fd::RawFd;

use crosslane_exercise::calls::{
    close, dup, pipe, poll_one, pread, preadv, preadv2, raw_read, read, read_into_nowhere, readv,
    recv, recvfrom, recvfrom_into, recvmmsg, recvmsg, recvmsg_beside, splice,
};
use crosslane_exercise::content::Content;
use crosslane_exercise::{Answer, Errno};

use super::{Matter, Outcome, digest, fd, shown};
use crate::call::Call;

/// More than anything takes to arrive on one machine.
const PATIENCE_MS: i32 = 5_000;

pub fn act(call: &Call, matter: Matter) -> Option<Outcome> {
    Some(match *call {
        Call::Read { fd: from, count } => one(count, |buffer| read(fd(from), buffer)),
        Call::Recv {
            fd: from,
            count,
            flags,
        } => one(count, |buffer| recv(fd(from), buffer, flags.0)),
        Call::RawRead { fd: from, count } => one(count, |buffer| raw_read(fd(from), buffer)),
        Call::Pread { fd: from, count } => one(count, |buffer| pread(fd(from), buffer, 0)),
        Call::ReadNowhere { fd: from, count } => Outcome::moved(read_into_nowhere(fd(from), count)),
        Call::Readv {
            fd: from,
            first,
            second,
        } => two(first, second, |buffers| readv(fd(from), buffers)),
        Call::Preadv { fd: from, count } => two(count, 0, |buffers| preadv(fd(from), buffers, 0)),
        Call::Preadv2 { fd: from, count } => {
            two(count, 0, |buffers| preadv2(fd(from), buffers, -1, 0))
        }
        Call::Recvmsg {
            fd: from,
            first,
            second,
            flags,
        } => message(fd(from), first, second, flags.0),
        Call::Recvfrom {
            fd: from,
            count,
            flags,
        } => {
            let mut buffer = vec![0; count];
            let received = recvfrom(fd(from), &mut buffer, flags.0);
            let name = received.as_ref().map_or(0, |received| received.name_length);
            let mut outcome = taken(&buffer, received.map(|received| received.bytes));
            outcome.text.push_str(&format!(" name {name}"));
            outcome
        }
        Call::Recvmmsg {
            fd: from,
            count,
            messages,
            flags,
        } => several(fd(from), count, messages, flags.0),
        Call::RecvBeside {
            fd: from,
            count,
            room,
            flags,
        } => beside(fd(from), count, room, flags.0),
        Call::SpliceIn { fd: from, count } => through_pipe(fd(from), count),
        Call::StdioRead { fd: from, count } => by_stream(fd(from), count),
        Call::Drain { fd: from, count } => drain(fd(from), count, matter),
        _ => return act_with_less(call),
    })
}

/// With pieces of nothing, or with too little room for a name.
fn act_with_less(call: &Call) -> Option<Outcome> {
    Some(match *call {
        Call::ReadvEmpty {
            fd: from,
            first,
            second,
        } => {
            let mut buffer = vec![0; first + second];
            let (head, tail) = buffer.split_at_mut(first);
            let pieces = [&mut [], head, &mut [], tail, &mut []];
            let answer = readv(fd(from), &mut pieces.map(IoSliceMut::new));
            taken(&buffer, answer)
        }
        Call::RecvfromShort {
            fd: from,
            count,
            room,
            flags,
        } => {
            let mut buffer = vec![0; count];
            let received = recvfrom_into(fd(from), &mut buffer, flags.0, room);
            let said = received
                .as_ref()
                .map_or(String::new(), |(_, length, kept)| {
                    format!(" name {length} kept {kept}")
                });
            let mut outcome = taken(&buffer, received.map(|(bytes, ..)| bytes));
            outcome.text.push_str(&said);
            outcome
        }
        _ => return None,
    })
}

fn one(count: usize, call: impl FnOnce(&mut [u8]) -> Answer) -> Outcome {
    let mut buffer = vec![0; count];
    let answer = call(&mut buffer);
    taken(&buffer, answer)
}

fn two(first: usize, second: usize, call: impl FnOnce(&mut [IoSliceMut]) -> Answer) -> Outcome {
    let mut buffer = vec![0; first + second];
    let (head, tail) = buffer.split_at_mut(first);
    let answer = call(&mut [IoSliceMut::new(head), IoSliceMut::new(tail)]);
    taken(&buffer, answer)
}

/// With MSG_TRUNC a socket tells of bytes that it did not store.
fn taken(buffer: &[u8], answer: Answer) -> Outcome {
    Outcome {
        text: shown(&answer.map(|count| digest(&buffer[..count.min(buffer.len())]))),
        bytes: answer.unwrap_or(0),
        fd: None,
    }
}

fn message(from: RawFd, first: usize, second: usize, flags: i32) -> Outcome {
    let mut buffer = vec![0; first + second];
    let (head, tail) = buffer.split_at_mut(first);
    let mut buffers = [IoSliceMut::new(head), IoSliceMut::new(tail)];
    let received = recvmsg(from, &mut buffers, flags);
    let said = received.as_ref().map_or(String::new(), |received| {
        format!(" flags {:#x} name {}", received.flags, received.name_length)
    });
    let mut outcome = taken(&buffer, received.map(|received| received.bytes));
    outcome.text.push_str(&said);
    outcome
}

fn beside(from: RawFd, count: usize, room: u32, flags: i32) -> Outcome {
    let mut buffer = vec![0; count];
    let room = match room {
        0 => 0,
        // SAFETY: a length is computed, nothing is touched.
        descriptors => unsafe { libc::CMSG_SPACE(4 * descriptors) },
    };
    let room = usize::try_from(room).expect("it is short");
    let received = recvmsg_beside(from, &mut buffer, room, flags);
    let said = received.as_ref().map_or(String::new(), |received| {
        for descriptor in &received.descriptors {
            close(*descriptor).expect("it was received");
        }
        let (flags, passed) = (received.flags, received.descriptors.len());
        format!(" flags {flags:#x} with {passed}")
    });
    let mut outcome = taken(&buffer, received.map(|received| received.bytes));
    outcome.text.push_str(&said);
    outcome
}

fn several(from: RawFd, count: usize, messages: u32, flags: i32) -> Outcome {
    let mut all = vec![vec![0; count]; usize::try_from(messages).unwrap_or(1)];
    let mut buffers: Vec<_> = all.iter_mut().map(|one| IoSliceMut::new(one)).collect();
    match recvmmsg(from, &mut buffers, flags) {
        Err(errno) => Outcome::text(errno.to_string()),
        Ok(lengths) => {
            let lengths: Vec<usize> = lengths
                .iter()
                .map(|&length| usize::try_from(length).expect("it fits"))
                .collect();
            let bytes: Vec<u8> = all
                .iter()
                .zip(&lengths)
                .flat_map(|(one, &length)| one[..length.min(one.len())].to_vec())
                .collect();
            Outcome {
                text: format!("{lengths:?} {}", digest(&bytes)),
                bytes: lengths.iter().sum(),
                fd: None,
            }
        }
    }
}

/// How many bytes one splice takes depends on segments: it is repeated while there are more.
fn through_pipe(from: RawFd, count: usize) -> Outcome {
    let [out, into] = pipe().expect("a pipe can be made");
    let mut bytes = Vec::new();
    let mut last = Ok(0);
    while bytes.len() < count {
        // It would wait, whatever its flags, where the socket does.
        if !bytes.is_empty() && poll_one(from, libc::POLLIN, Some(0)) != Ok(libc::POLLIN) {
            break;
        }
        last = splice(from, into, count - bytes.len(), 0);
        let Ok(more @ 1..) = last else { break };
        let mut portion = vec![0; more];
        let read = read(out, &mut portion);
        assert_eq!(read, Ok(more), "a pipe gives what it was given");
        bytes.extend(portion);
    }
    close(out).expect("a pipe can be closed");
    close(into).expect("a pipe can be closed");
    let result = if bytes.is_empty() {
        last
    } else {
        Ok(bytes.len())
    };
    taken(&bytes, result)
}

fn by_stream(from: RawFd, count: usize) -> Outcome {
    let copy = match dup(from) {
        Ok(copy) => copy,
        Err(errno) => return Outcome::text(errno.to_string()),
    };
    const MODE: &CStr = c"r";
    // SAFETY: the mode is a C string.
    let file = unsafe { libc::fdopen(copy, MODE.as_ptr()) };
    assert!(!file.is_null(), "a stream can be made: {}", Errno::last());
    // A buffer would take more than it is asked for, once a part has come.
    // SAFETY: the stream is open.
    unsafe { libc::setvbuf(file, core::ptr::null_mut(), libc::_IONBF, 0) };
    let mut buffer = vec![0; count];
    // SAFETY: the buffer has the room that is claimed.
    let got = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, count, file) };
    let errno = Errno::last();
    // SAFETY: the stream is open.
    let ended = unsafe { libc::feof(file) } != 0;
    // SAFETY: the stream is open.
    let failed = unsafe { libc::ferror(file) } != 0;
    // SAFETY: the stream is not used any more.
    unsafe { libc::fclose(file) };
    let mut outcome = taken(&buffer, Ok(got));
    if ended {
        outcome.text.push_str(" end");
    }
    if failed {
        outcome.text.push_str(&format!(" {errno}"));
    }
    outcome
}

fn drain(from: RawFd, count: usize, matter: Matter) -> Outcome {
    let content = Content::new(matter.key);
    let mut buffer = vec![0; 65536];
    let mut total = 0;
    while total < count {
        let most = buffer.len().min(count - total);
        match recv(from, &mut buffer[..most], 0) {
            Ok(0) => {
                return Outcome {
                    bytes: total,
                    ..Outcome::text(format!("end after {total}"))
                };
            }
            Ok(more) => {
                let offset = matter.offset + total as u64;
                if let Err(mismatch) = content.check(offset, &buffer[..more]) {
                    return Outcome::text(mismatch.to_string());
                }
                total += more;
            }
            Err(Errno(libc::EAGAIN)) => {
                if poll_one(from, libc::POLLIN, Some(PATIENCE_MS)) == Ok(0) {
                    return Outcome::text(format!("nothing more after {total}"));
                }
            }
            Err(errno) => return Outcome::text(format!("{errno} after {total}")),
        }
    }
    Outcome {
        text: "all".into(),
        bytes: total,
        fd: None,
    }
}
