//! Calls that send bytes.

use std::ffi::CStr;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;

use crosslane_exercise::calls::{
    close, copy_file_range, dup, file_of, pipe, print, pwrite, pwritev, pwritev2, raw_write, recv,
    send, sendfile, sendmmsg, sendmsg, sendmsg_beside, sendto, splice, tee, vmsplice, write,
    write_from_nowhere, writev,
};
use crosslane_exercise::content::Content;
use crosslane_exercise::{Answer, Errno};

use super::{Matter, Outcome, fd, shown};
use crate::call::Call;

/// A socket that takes more has no bound.
pub const FILL_LIMIT: usize = 64 << 20;

/// Where sendto(2) is told to send to: nobody is there.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

pub fn act(call: &Call, matter: Matter) -> Option<Outcome> {
    let bytes = |count| content(matter, count);
    Some(match *call {
        Call::Write { fd: to, count } => Outcome::moved(write(fd(to), &bytes(count))),
        Call::Send {
            fd: to,
            count,
            flags,
        } => Outcome::moved(send(fd(to), &bytes(count), flags.0)),
        Call::Print { fd: to, count } => Outcome::moved(print(fd(to), &bytes(count))),
        Call::RawWrite { fd: to, count } => Outcome::moved(raw_write(fd(to), &bytes(count))),
        Call::WriteNowhere { fd: to, count } => Outcome::moved(write_from_nowhere(fd(to), count)),
        Call::Writev {
            fd: to,
            first,
            second,
        } => two(&bytes(first + second), first, |slices| {
            writev(fd(to), slices)
        }),
        Call::Pwritev2 { fd: to, count } => two(&bytes(count), count, |slices| {
            pwritev2(fd(to), slices, -1, 0)
        }),
        Call::Sendmsg {
            fd: to,
            first,
            second,
            flags,
        } => two(&bytes(first + second), first, |slices| {
            sendmsg(fd(to), slices, flags.0)
        }),
        Call::Sendmmsg {
            fd: to,
            count,
            messages,
            flags,
        } => several(fd(to), count, messages, flags.0, matter),
        Call::SendBeside {
            fd: to,
            count,
            files,
            flags,
        } => beside(fd(to), &bytes(count), files, flags.0),
        Call::Sendfile { fd: to, count } => from_file(fd(to), &bytes(count)),
        Call::SpliceOut { fd: to, count } => through_pipe(fd(to), &bytes(count)),
        Call::StdioWrite { fd: to, count } => by_stream(fd(to), &bytes(count)),
        Call::Fill { fd: to } => fill(fd(to), matter),
        Call::Talk { fd: with, count } => talk(count, || {
            send(fd(with), b"?", 0)?;
            recv(fd(with), &mut [0], 0)
        }),
        Call::Echo { fd: with, count } => talk(count, || {
            recv(fd(with), &mut [0], 0)?;
            send(fd(with), b"!", 0)
        }),
        Call::Chat {
            fd: one,
            other,
            count,
        } => talk(count, || {
            send(fd(one), b"?", 0)?;
            recv(fd(other), &mut [0], 0)?;
            send(fd(other), b"!", 0)?;
            recv(fd(one), &mut [0], 0)
        }),
        _ => return act_in_vain(call, matter),
    })
}

/// With an address or pieces of nothing, or what no socket takes.
fn act_in_vain(call: &Call, matter: Matter) -> Option<Outcome> {
    let bytes = |count| content(matter, count);
    Some(match *call {
        Call::Sendto {
            fd: to,
            count,
            flags,
        } => Outcome::moved(sendto(fd(to), &bytes(count), flags.0, ELSEWHERE)),
        Call::WritevEmpty {
            fd: to,
            first,
            second,
        } => {
            let bytes = bytes(first + second);
            let (head, tail) = bytes.split_at(first);
            let pieces = [&[], head, &[], tail, &[]];
            Outcome::moved(writev(fd(to), &pieces.map(IoSlice::new)))
        }
        Call::Pwrite { fd: to, count } => Outcome::moved(pwrite(fd(to), &bytes(count), 0)),
        Call::Pwritev { fd: to, count } => {
            two(&bytes(count), count, |slices| pwritev(fd(to), slices, 0))
        }
        Call::Tee { fd: on, count } => by_both(pipe(), |[out, into]| {
            [tee(fd(on), into, count, 0), tee(out, fd(on), count, 0)]
        }),
        Call::Vmsplice { fd: to } => Outcome::of(vmsplice(fd(to), b"not for a socket", 0)),
        Call::CopyRange { fd: on, count } => {
            let file = file_of(b"not for a socket");
            by_both(file.map(|file| [file]), |[file]| {
                [
                    copy_file_range(fd(on), file, count),
                    copy_file_range(file, fd(on), count),
                ]
            })
        }
        _ => return None,
    })
}

fn content(matter: Matter, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    Content::new(matter.key).fill(matter.offset, &mut bytes);
    bytes
}

fn two(bytes: &[u8], first: usize, call: impl FnOnce(&[IoSlice]) -> Answer) -> Outcome {
    let (head, tail) = bytes.split_at(first);
    Outcome::moved(call(&[IoSlice::new(head), IoSlice::new(tail)]))
}

/// What two calls say that need descriptors of another kind.
fn by_both<const N: usize>(
    made: Result<[RawFd; N], Errno>,
    calls: impl FnOnce([RawFd; N]) -> [Answer; 2],
) -> Outcome {
    let made = made.expect("a pipe or file can be made");
    let said = calls(made).map(|answer| shown(&answer));
    for descriptor in made {
        close(descriptor).expect("it is open");
    }
    Outcome::text(said.join(" "))
}

fn several(to: RawFd, count: usize, messages: u32, flags: i32, matter: Matter) -> Outcome {
    let bytes = content(matter, count * usize::try_from(messages).unwrap_or(1));
    let slices: Vec<_> = bytes.chunks(count.max(1)).map(IoSlice::new).collect();
    let answer = sendmmsg(to, &slices, flags);
    let mut outcome = Outcome::of(answer);
    outcome.bytes = answer.unwrap_or(0) * count;
    outcome
}

/// What is passed does not matter: it is closed by whoever gets it.
fn beside(to: RawFd, bytes: &[u8], files: u32, flags: i32) -> Outcome {
    let [out, into] = pipe().expect("a pipe can be made");
    let passed: Vec<RawFd> = (0..files).map(|_| out).collect();
    let sent = sendmsg_beside(to, bytes, &passed, flags);
    for end in [out, into] {
        close(end).expect("it is open");
    }
    Outcome::moved(sent)
}

fn from_file(to: RawFd, bytes: &[u8]) -> Outcome {
    let file = file_of(bytes).expect("a file in memory can be made");
    let outcome = Outcome::moved(sendfile(to, file, None, bytes.len()));
    close(file).expect("a file can be closed");
    outcome
}

fn through_pipe(to: RawFd, bytes: &[u8]) -> Outcome {
    let [out, into] = pipe().expect("a pipe can be made");
    assert_eq!(
        write(into, bytes),
        Ok(bytes.len()),
        "a pipe has room for it"
    );
    let outcome = Outcome::moved(splice(out, to, bytes.len(), 0));
    close(out).expect("a pipe can be closed");
    close(into).expect("a pipe can be closed");
    outcome
}

fn by_stream(to: RawFd, bytes: &[u8]) -> Outcome {
    let copy = match dup(to) {
        Ok(copy) => copy,
        Err(errno) => return Outcome::text(errno.to_string()),
    };
    const MODE: &CStr = c"w";
    // SAFETY: the mode is a C string.
    let file = unsafe { libc::fdopen(copy, MODE.as_ptr()) };
    assert!(!file.is_null(), "a stream can be made: {}", Errno::last());
    // SAFETY: the bytes are readable and the stream is open.
    let put = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file) };
    // SAFETY: the stream is open.
    let flushed = unsafe { libc::fflush(file) };
    let errno = Errno::last();
    // SAFETY: the stream is not used any more; what it could not write it forgets.
    unsafe { libc::fclose(file) };
    if flushed == 0 {
        return Outcome::moved(Ok(put));
    }
    Outcome::text(errno.to_string())
}

fn fill(to: RawFd, matter: Matter) -> Outcome {
    const PORTION: usize = 65536;
    let mut total = 0;
    let last = loop {
        let from_here = Matter {
            offset: matter.offset + total as u64,
            ..matter
        };
        let bytes = content(from_here, PORTION);
        match send(to, &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
            Ok(more) => total += more,
            Err(errno) => break errno.to_string(),
        }
        if total >= FILL_LIMIT {
            break "no end".into();
        }
    };
    Outcome {
        text: last,
        bytes: total,
        fd: None,
    }
}

fn talk(rounds: usize, mut round: impl FnMut() -> Answer) -> Outcome {
    for _ in 0..rounds {
        match round() {
            Ok(1) => {}
            other => return Outcome::of(other),
        }
    }
    Outcome::text("ok")
}
