use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crosslane_ctl::slab::EndPhase;
use crosslane_sys::errno;

use super::*;
use crate::due::CALLS_BEFORE_REGISTERING;

/// A young connection, as to a thread that is alone, and its peer.
fn young() -> (Young, TcpStream, TcpStream) {
    let process = process::start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    assert!(begin(near.as_raw_fd(), false));
    (Young::at(process, near.as_raw_fd()).unwrap(), near, far)
}

fn bytes(result: std::io::Result<usize>) -> isize {
    result.map_or(-1, usize::cast_signed)
}

#[test]
fn one_of_which_more_is_asked_becomes_an_end_with_what_it_has_moved() {
    static KEPT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    on_registered(|end, registration| {
        if registration.epoll == 7 {
            KEPT[0].store(registration.data, Ordering::Relaxed);
            KEPT[1].store(end.token(), Ordering::Relaxed);
        }
    });
    let (young, mut near, mut far) = young();
    let fd = near.as_raw_fd();
    assert_eq!(young.send(|| bytes(near.write(b"question"))), Some(8));
    far.read_exact(&mut [0; 8]).unwrap();
    far.write_all(b"answer").unwrap();
    assert_eq!(young.receive(|| bytes(near.read(&mut [0; 9]))), Some(6));
    let registration = Registration {
        epoll: 7,
        events: 1,
        data: 42,
    };
    assert_eq!(young.register(Some(registration), || -1), Some(-1));
    assert_eq!(young.registration(), None);
    assert_eq!(young.register(Some(registration), || 0), Some(0));
    assert!(End::known(fd).is_none());
    let end = End::of(fd).unwrap();
    assert!(!young.is_still() && !young.leave());
    assert_eq!(young.register(None, || unreachable!("it is an end")), None);
    assert_eq!(young.send(|| unreachable!("it is an end")), None);
    assert_eq!(end.phase(), EndPhase::Plain);
    assert_eq!(end.entry.id.calls.load(Ordering::Relaxed), 2);
    for (total, moved) in [
        (&end.entry.tx.tcp_data, 8),
        (&end.entry.tx.tcp_bytes, 8),
        (&end.entry.rx.tcp_data, 6),
        (&end.entry.rx.tcp_bytes, 6),
    ] {
        assert_eq!(total.load(Ordering::Relaxed), moved);
    }
    let kept = KEPT.each_ref().map(|word| word.load(Ordering::Relaxed));
    assert_eq!(kept, [42, end.token()]);
    crate::both::name_nothing(fd);
}

#[test]
fn one_that_lasts_is_not_the_kernels_alone() {
    let (young, mut near, mut far) = young();
    far.write_all(&[0; 100]).unwrap();
    for _ in 1..CALLS_BEFORE_REGISTERING {
        assert_eq!(young.receive(|| bytes(near.read(&mut [0; 1]))), Some(1));
    }
    assert_eq!(young.receive(|| unreachable!("it asks for rings")), None);
    assert!(young.leave());
}

#[test]
fn one_that_goes_on_with_a_conversation_becomes_an_end_when_it_sends() {
    let (young, mut near, mut far) = young();
    assert_eq!(young.send(|| bytes(near.write(&[0; 1000]))), Some(1000));
    assert_eq!(young.send(|| bytes(near.write(&[0; 1000]))), Some(1000));
    far.write_all(&[0; 100]).unwrap();
    assert_eq!(young.receive(|| bytes(near.read(&mut [0; 100]))), Some(100));
    assert_eq!(young.send(|| unreachable!("it asks for rings")), None);
    assert!(young.leave());
}

#[test]
fn what_another_connection_of_its_number_moves_is_not_its() {
    let (young, mut near, _far) = young();
    let fd = near.as_raw_fd();
    let sent = young.send(|| {
        // A handler closes it, and opens another.
        assert!(young.leave());
        assert!(begin(fd, true));
        bytes(near.write(b"the former's"))
    });
    assert_eq!(sent, Some(12));
    let other = Young::at(young.process, fd).unwrap();
    assert!(other.is_still() && !young.is_still());
    assert_eq!((other.moved(), other.past().calls), (0, 0));
    assert!(other.leave());
    assert!(!other.is_still() && End::of(fd).is_none());
}

#[test]
fn what_is_no_stream_by_then_is_forgotten() {
    let (young, near, _far) = young();
    let fd = near.as_raw_fd();
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: numbers only; the socket's owner closes what it names now.
    let result = unsafe { libc::dup2(file.as_raw_fd(), fd) };
    assert!(errno::check(result as isize).is_ok());
    assert!(End::of(fd).is_none() && !young.is_still());
}

#[test]
fn several_threads_that_ask_get_one_end() {
    let (_young, near, _far) = young();
    let fd = near.as_raw_fd();
    let first = AtomicU32::new(u32::MAX);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let end = End::of(fd).unwrap();
                first.fetch_min(end.index, Ordering::Relaxed);
            });
        }
    });
    let end = End::known(fd).unwrap();
    assert_eq!(end.index, first.load(Ordering::Relaxed));
    crate::both::name_nothing(fd);
}
