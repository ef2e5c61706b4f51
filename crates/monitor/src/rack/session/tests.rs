use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

const WATCHDOG: Duration = Duration::from_secs(20);

fn identity(name: &str) -> Identity {
    let folder = tempfile::tempdir().unwrap();
    let [crt, key] = ["crt", "key"].map(|file| folder.path().join(file));
    Identity::create(name, &crt, &key).unwrap();
    Identity::read(&crt, &key).unwrap()
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    (a, b)
}

/// Alpha's and beta's sessions, where beta believes in `expected`.
fn sessions(connects: Identity, believes: Fingerprint) -> (Session, Session) {
    let beta = identity("beta");
    let beta_print = beta.fingerprint();
    let (a, b) = sockets();
    let server = Tls::new(beta, vec![believes]).unwrap();
    let client = Tls::new(connects, vec![]).unwrap();
    (
        client.connect(a, beta_print).unwrap(),
        server.accept(b).unwrap(),
    )
}

type Heard = Result<Vec<HostMessage>, SessionError>;

/// Let both go on until `done` or one of them has ended.
fn drive(
    a: &mut Session,
    b: &mut Session,
    mut done: impl FnMut(&Session, &Session, &[HostMessage]) -> bool,
) -> (Heard, Heard) {
    let end = Instant::now() + WATCHDOG;
    let mut all = Vec::new();
    loop {
        let _ = (a.flush(), b.flush());
        let (at_a, at_b) = (a.receive(), b.receive());
        if at_a.is_err() || at_b.is_err() {
            return (at_a, at_b);
        }
        all.extend(at_b.unwrap_or_default());
        if done(a, b, &all) {
            return (at_a, Ok(all));
        }
        assert!(Instant::now() < end, "the handshake hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hosts_that_know_each_other_talk() {
    let alpha = identity("alpha");
    let print = alpha.fingerprint();
    let (mut a, mut b) = sessions(alpha, print);
    let (at_a, _) = drive(&mut a, &mut b, |a, b, _| a.is_proved() && b.is_proved());
    assert!(at_a.is_ok());
    assert_eq!(b.fingerprint(), Some(print));
    for arena in 0..100 {
        a.say(&HostMessage::Retire { arena }).unwrap();
    }
    let (_, heard) = drive(&mut a, &mut b, |_, _, heard| heard.len() == 100);
    assert_eq!(heard.unwrap()[99], HostMessage::Retire { arena: 99 });
}

#[test]
fn a_host_with_another_key_than_expected_is_refused() {
    let (alpha, other) = (identity("alpha"), identity("alpha"));
    let (mut a, mut b) = sessions(alpha, other.fingerprint());
    let (_, at_b) = drive(&mut a, &mut b, |_, b, _| b.is_proved());
    assert!(matches!(at_b, Err(SessionError::Tls(_))), "{at_b:?}");
    assert_eq!(b.fingerprint(), None);
}

#[test]
fn a_server_with_another_key_than_expected_is_refused() {
    let (alpha, beta) = (identity("alpha"), identity("beta"));
    let (a, b) = sockets();
    let server = Tls::new(beta, vec![alpha.fingerprint()]).unwrap();
    let client = Tls::new(alpha, vec![]).unwrap();
    let mut a = client.connect(a, identity("beta").fingerprint()).unwrap();
    let mut b = server.accept(b).unwrap();
    let (at_a, _) = drive(&mut a, &mut b, |a, _, _| a.is_proved());
    assert!(matches!(at_a, Err(SessionError::Tls(_))), "{at_a:?}");
}

#[test]
fn who_copies_a_certificate_without_its_key_is_refused() {
    let (alpha, thief) = (identity("alpha"), identity("thief"));
    let print = alpha.fingerprint();
    let forged = Identity {
        certificate: alpha.certificate,
        key: thief.key,
    };
    // rustls itself refuses to present a certificate with another key.
    assert!(Tls::new(forged, vec![print]).is_err());
}

#[test]
fn garbage_ends_the_session_and_nothing_else() {
    let (mut a, b) = sockets();
    let beta = identity("beta");
    let print = beta.fingerprint();
    let mut session = Tls::new(beta, vec![print]).unwrap().accept(b).unwrap();
    a.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let end = Instant::now() + WATCHDOG;
    loop {
        match session.receive() {
            Err(SessionError::Tls(_)) => return,
            Err(other) => panic!("{other}"),
            Ok(_) => assert!(Instant::now() < end, "garbage is not noticed"),
        }
    }
}

#[test]
fn a_host_that_does_not_read_is_cut_off() {
    let alpha = identity("alpha");
    let print = alpha.fingerprint();
    let (mut a, mut b) = sessions(alpha, print);
    drive(&mut a, &mut b, |a, b, _| a.is_proved() && b.is_proved())
        .0
        .unwrap();
    let probe = HostMessage::InUse {
        beat: 1,
        epoch: 0,
        parts: vec![0; 512],
    };
    let cut_off = (0..200_000).any(|_| matches!(a.say(&probe), Err(SessionError::Deaf)));
    assert!(cut_off, "the backlog has no limit");
}
