//! Streams of the C library on connections.

use std::ffi::CStr;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    close, dup, dup2, fcntl, pipe, read, set_nonblocking, shutdown, write,
};
use libc::{F_GETFL, FILE, SHUT_WR};

use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, hears, pattern, says};

unsafe extern "C" {
    /// dprintf(3), which the libc crate lacks.
    pub(super) fn dprintf(fd: i32, format: *const libc::c_char, ...) -> i32;
}

/// A stream on a connection; the connection closes with it.
pub(super) struct Stream(*mut FILE);

impl Stream {
    pub(super) fn open(fd: i32, mode: &CStr) -> Self {
        // SAFETY: the mode is a C string.
        let file = unsafe { libc::fdopen(fd, mode.as_ptr()) };
        assert!(!file.is_null(), "fdopen failed: {}", Errno::last());
        Self(file)
    }

    fn put(&mut self, line: &CStr) -> bool {
        // SAFETY: the stream is open and the line a C string.
        unsafe { libc::fputs(line.as_ptr(), self.0) >= 0 }
    }

    fn print_number(&mut self, number: i32) -> i32 {
        // SAFETY: the stream is open and the format takes one int.
        unsafe { libc::fprintf(self.0, c"number %d\n".as_ptr(), number) }
    }

    pub(super) fn flush(&mut self) -> i32 {
        // SAFETY: the stream is open.
        unsafe { libc::fflush(self.0) }
    }

    fn line(&mut self) -> String {
        let mut line = [0u8; 100];
        self.line_into(&mut line)
            .map_or("none".into(), |got| digest(&line[..got]))
    }

    /// fgets(3): how long the line is, without the null that ends it.
    pub(super) fn line_into(&mut self, line: &mut [u8]) -> Option<usize> {
        let room = i32::try_from(line.len()).expect("it is short");
        // SAFETY: the buffer has the room that is claimed.
        let got = unsafe { libc::fgets(line.as_mut_ptr().cast(), room, self.0) };
        let line = CStr::from_bytes_until_nul(line);
        (!got.is_null()).then(|| line.expect("fgets ends with a null").to_bytes().len())
    }

    fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let got = self.read_into(&mut bytes);
        bytes.truncate(got);
        bytes
    }

    pub(super) fn read_into(&mut self, bytes: &mut [u8]) -> usize {
        // SAFETY: the buffer has the room that is claimed.
        unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), self.0) }
    }

    /// clearerr(3).
    pub(super) fn forget_error(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::clearerr(self.0) };
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        // SAFETY: the bytes are readable for their whole length.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.0) }
    }

    pub(super) fn unbuffered(&mut self) -> i32 {
        // SAFETY: the stream is open, and needs no buffer.
        unsafe { libc::setvbuf(self.0, std::ptr::null_mut(), libc::_IONBF, 0) }
    }

    pub(super) fn close(self) -> i32 {
        // SAFETY: the stream is open, and nobody uses it any more.
        unsafe { libc::fclose(self.0) }
    }
}

/// Far: tell how much came until the end.
fn count(s: &mut Stage) {
    s.wait();
    let heard = drain(s.fd).expect("there is an end").len();
    s.say("told", says(s.fd, &heard.to_ne_bytes()));
}

/// Near: what a stream without a buffer says that it has written where there is no room for all of it. The far side hears as much.
fn write_too_much(s: &mut Stage) {
    let mut stream = Stream::open(s.fd, c"r+");
    s.say("buffer", stream.unbuffered());
    set_nonblocking(s.fd, true).expect("a flag can be set");
    let much = vec![7; 32 << 20];
    let written = stream.write(&much);
    s.say("some", written > 0 && written < much.len());
    s.say("error", Errno::last().0 == libc::EAGAIN);
    s.go();
    s.say("shutdown", shutdown(s.fd, SHUT_WR));
    // The far side says what it has heard.
    let mut heard = [0; 8];
    while read(s.fd, &mut heard) != Ok(8) {
        std::thread::yield_now();
    }
    s.say("as much", usize::from_ne_bytes(heard) == written);
}

fn listen(s: &mut Stage) {
    s.say("heard", drain(s.fd).map(|bytes| digest(&bytes)));
}

/// Near: a connection is copied onto the number of a stream and closed with it; its number is another's then.
fn closed_as_another_stream(s: &mut Stage) {
    // SAFETY: both are C strings.
    let stream = unsafe { libc::fopen(c"/dev/null".as_ptr(), c"r".as_ptr()) };
    assert!(!stream.is_null(), "it can be opened");
    // SAFETY: the stream is open.
    let number = unsafe { libc::fileno(stream) };
    s.say("onto it", dup2(s.fd, number) == Ok(number));
    s.say("close", close(s.fd));
    // SAFETY: the stream is open, and is not used any more.
    s.say("fclose", unsafe { libc::fclose(stream) });
    let pipes = [(); 4].map(|()| pipe().expect("a pipe can be made"));
    let through = |[out, into]: [i32; 2]| write(into, b"word") == Ok(4) && hears(out, b"word");
    s.say(
        "through pipes",
        pipes.into_iter().filter(|one| through(*one)).count(),
    );
}

pub const CHECKS: &[Check] = &[
    pair(
        "stream_that_appends",
        |s| {
            s.say("before", fcntl(s.fd, F_GETFL, 0));
            let mut stream = Stream::open(s.fd, c"a");
            s.say("flags", fcntl(s.fd, F_GETFL, 0));
            s.say("put", stream.put(c"a line\n"));
            s.say("flush", stream.flush());
            s.send(b"and on");
        },
        |s| s.read_exactly(13),
    ),
    pair("closed_as_another_stream", closed_as_another_stream, |s| {
        s.read(10);
        s.read(10);
    }),
    pair(
        "stdio_writes",
        |s| {
            let mut stream = Stream::open(s.fd, c"w");
            s.say("put", stream.put(c"hello\n"));
            s.say("print", stream.print_number(42));
            s.say("flush", stream.flush());
            s.say("close", stream.close());
        },
        listen,
    ),
    pair(
        "stdio_writes_much",
        |s| {
            let mut stream = Stream::open(s.fd, c"w");
            s.say("write", stream.write(&pattern(3_000_000)));
            s.say("close", stream.close());
        },
        listen,
    ),
    pair(
        "stdio_reads",
        |s| {
            let mut stream = Stream::open(s.fd, c"r");
            s.say("line", stream.line());
            s.say("line", stream.line());
            s.say("line", stream.line());
            s.say("close", stream.close());
        },
        |s| {
            s.send(b"hello\nwor");
            s.send(b"ld\n");
            s.say("shutdown", shutdown(s.fd, SHUT_WR));
        },
    ),
    pair(
        "stdio_reads_much",
        |s| {
            let mut stream = Stream::open(s.fd, c"r");
            s.say("read", digest(&stream.read(3_000_000)));
            s.say("close", stream.close());
        },
        |s| s.send(&pattern(3_000_000)),
    ),
    pair(
        "stdio_talks",
        |s| {
            let twin = dup(s.fd).expect("a descriptor is free");
            let mut out = Stream::open(twin, c"w");
            let mut input = Stream::open(s.fd, c"r");
            for number in 0..20 {
                s.say("print", out.print_number(number));
                s.say("flush", out.flush());
                s.say("line", input.line());
            }
            s.say("close", out.close());
            s.say("close", input.close());
        },
        |s| {
            let twin = dup(s.fd).expect("a descriptor is free");
            let mut out = Stream::open(twin, c"w");
            let mut input = Stream::open(s.fd, c"r");
            for number in 0..20 {
                s.say("line", input.line());
                out.print_number(-number);
                out.flush();
            }
            s.say("end", input.line());
        },
    ),
    pair(
        "stdio_after_plain_calls",
        |s| {
            s.send(b"plain ");
            s.read(6);
            let mut stream = Stream::open(s.fd, c"r+");
            s.say("line", stream.line());
            s.say("close", stream.close());
        },
        |s| {
            s.send(b"plain stream\n");
            listen(s);
        },
    ),
    pair(
        "dprintf_writes",
        |s| {
            // SAFETY: the format takes one int.
            let printed = unsafe { dprintf(s.fd, c"number %d\n".as_ptr(), 42) };
            s.say("dprintf", printed);
            s.send(b"plain\n");
            // SAFETY: the format takes one int.
            let printed = unsafe { dprintf(s.fd, c"number %d\n".as_ptr(), 43) };
            s.say("dprintf", printed);
            s.say("close", close(s.fd));
        },
        listen,
    ),
    pair("stdio_without_room_for_all", write_too_much, count),
    pair(
        "stdio_flush_of_what_was_read_ahead",
        |s| {
            let mut stream = Stream::open(s.fd, c"r+");
            s.say("line", stream.line());
            s.say("flush", stream.flush());
            s.say("line", stream.line());
        },
        |s| s.send(b"one\ntwo\n"),
    ),
];
