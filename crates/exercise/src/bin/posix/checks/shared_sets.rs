//! One epoll set of several living processes: parent and children, or whoever it was passed to.

use std::os::fd::RawFd;
use std::time::Duration;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    close, dup2, epoll_create, epoll_ctl, epoll_delete, epoll_wait, exit_now, fork, pipe, read,
    receive_fd, recv, send_fd, socketpair, wait_for,
};
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT,
    MSG_DONTWAIT,
};

use super::processes::{echo, in_child};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{Other, data, epoll_text, hears, limit_to_seconds, says};

const IN: u32 = EPOLLIN.cast_unsigned();

/// What the far side says in a check, a word at each [`Stage::go`].
const WORDS: usize = 3;

/// Words, and their answers, that bring a connection into rings.
const LONG_TALK: usize = 400;
const PATIENCE_MS: Option<i32> = Some(5000);

/// Long enough for whoever has been told to sleep to be asleep.
const PAUSE: Duration = Duration::from_millis(60);

/// A set and a connection, as one process has them.
#[derive(Clone, Copy)]
struct Hand {
    epoll: RawFd,
    fd: RawFd,
}

impl Hand {
    /// What comes of a line such as `add IN|ET 7`, `wait 100` or `read`.
    fn act(self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().expect("it is a number");
        let change = |operation| {
            let events = words[1].split('|').map(event).sum();
            let answer = epoll_ctl(self.epoll, operation, self.fd, events, number(2).into());
            told(answer)
        };
        match words[0] {
            "add" => change(EPOLL_CTL_ADD),
            "mod" => change(EPOLL_CTL_MOD),
            "del" => told(epoll_delete(self.epoll, self.fd)),
            "wait" => {
                let limit = number(1).cast_signed();
                let events = epoll_wait(self.epoll, 8, Some(limit));
                events.map_or_else(|errno| errno.to_string(), |events| epoll_text(&events))
            }
            "read" => {
                let mut buffer = [0; 100];
                let answer = recv(self.fd, &mut buffer, MSG_DONTWAIT);
                data(&buffer, answer).unwrap_or_else(|errno| errno.to_string())
            }
            "talk" => {
                let heard = (0..LONG_TALK).take_while(|_| {
                    epoll_wait(self.epoll, 2, PATIENCE_MS).is_ok_and(|events| !events.is_empty())
                        && hears(self.fd, b"word")
                        && says(self.fd, b"word")
                });
                heard.count().to_string()
            }
            "replace" => {
                let [from, _to] = pipe().expect("a pipe can be made");
                told(dup2(from, self.fd).map(|_| 0))
            }
            "copy" => told(dup2(self.epoll, self.epoll + 100).map(|_| 0)),
            "close-set" => told(close(self.epoll)),
            "close" => told(close(self.fd)),
            other => panic!("nobody knows how to {other}"),
        }
    }
}

fn event(name: &str) -> u32 {
    let event = match name {
        "IN" => EPOLLIN,
        "OUT" => EPOLLOUT,
        "ET" => EPOLLET,
        "ONCE" => EPOLLONESHOT,
        "EXCLUSIVE" => EPOLLEXCLUSIVE,
        _ => 0,
    };
    event.cast_unsigned()
}

fn told(answer: Result<usize, Errno>) -> String {
    answer.map_or_else(|errno| errno.to_string(), |value| value.to_string())
}

/// A child that does what its parent asks for.
struct Relative {
    pid: libc::pid_t,
    line: Other,
}

impl Relative {
    fn new(hand: Hand) -> Self {
        Self::taught(|| hand)
    }

    /// One that finds its set out by itself.
    fn taught(learn: impl FnOnce() -> Hand) -> Self {
        let [from_child, to_parent] = pipe().expect("a pipe can be made");
        let [from_parent, to_child] = pipe().expect("a pipe can be made");
        let all = |fds: [RawFd; 2]| fds.map(|fd| close(fd).expect("it is open"));
        match fork().expect("a process can be made") {
            Some(pid) => {
                all([to_parent, from_parent]);
                let line = Other::pipes(from_child, to_child);
                Self { pid, line }
            }
            None => {
                all([from_child, to_child]);
                limit_to_seconds(15);
                let mut parent = Other::pipes(from_parent, to_parent);
                let hand = learn();
                loop {
                    let line = parent.line();
                    if line.is_empty() {
                        exit_now(0);
                    }
                    parent.say(&hand.act(&line));
                }
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.line.say(line);
        self.line.line()
    }

    /// Others may have its pipes, too.
    fn end(mut self) -> bool {
        self.line.say("");
        wait_for(self.pid) == Ok(0)
    }
}

/// Play lines such as `1 wait 100`, where 0 is the parent. `go` lets the far side say a word, which is there when it is over,
/// `1 begin 100` has a child wait until `1 over`, `fork` makes the next child, and `1 end` lets one end.
fn play(s: &mut Stage, lines: &str) {
    let epoll = epoll_create().expect("an epoll set can be made");
    let hand = Hand { epoll, fd: s.fd };
    play_with(s, hand, Vec::new(), lines);
}

fn play_with(s: &mut Stage, hand: Hand, mut children: Vec<Option<Relative>>, lines: &str) {
    let mut said = 0;
    for line in lines.split("; ") {
        let (who, act) = line.split_once(' ').unwrap_or((line, ""));
        match (who, act) {
            ("go", _) => {
                s.go();
                s.until(libc::POLLIN);
                said += 1;
            }
            ("later", _) => {
                s.go();
                said += 1;
            }
            ("fork", _) => children.push(Some(Relative::new(hand))),
            ("pause", _) => std::thread::sleep(PAUSE),
            ("0", act) => s.say(line, hand.act(act)),
            (child, act) => {
                let at = child.parse::<usize>().expect("it is a number") - 1;
                let one = children[at].as_mut().expect("it lives");
                match act.split_once(' ').unwrap_or((act, "")) {
                    ("begin", rest) => {
                        one.line.say(&format!("wait {rest}"));
                        std::thread::sleep(PAUSE);
                    }
                    ("over", _) => {
                        let told = one.line.line();
                        s.say(line, told);
                    }
                    ("end", _) => {
                        let ended = children[at].take().is_some_and(Relative::end);
                        s.say(line, ended);
                    }
                    _ => {
                        let told = one.ask(act);
                        s.say(line, told);
                    }
                }
            }
        }
    }
    let ended = children.into_iter().flatten().map(Relative::end);
    s.say("ended", ended.filter(|well| *well).count());
    (said..WORDS).for_each(|_| s.go());
    s.say("close", close(s.fd));
}

/// Far: a word and its answer, many times.
fn talk_on(s: &mut Stage) {
    s.wait();
    for _ in 0..LONG_TALK {
        if !says(s.fd, b"word") || !hears(s.fd, b"word") {
            break;
        }
    }
    (1..WORDS).for_each(|_| s.wait());
}

/// Far: a word whenever it is wanted, and no call on the connection in between. The last ones may meet a close.
fn say_words(s: &mut Stage) {
    for _ in 0..WORDS {
        s.wait();
        says(s.fd, b"word");
    }
}

/// The same by a program that sleeps in a receive all the time, and a little later.
fn say_words_and_listen(s: &mut Stage) {
    let fd = s.fd;
    let listener = std::thread::spawn(move || recv(fd, &mut [0; 10], 0));
    for _ in 0..WORDS {
        s.wait();
        std::thread::sleep(PAUSE * 2);
        says(s.fd, b"word");
    }
    let heard = listener.join().expect("it does not panic");
    s.say("heard", heard.unwrap_or(0));
}

/// Both serve one connection in turns, each when the set tells it so.
fn both_serve(s: &mut Stage) {
    let epoll = epoll_create().expect("an epoll set can be made");
    let fd = s.fd;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, IN, 1).expect("a connection can be added");
    let serve = move || {
        says(fd, b"word") && epoll_wait(epoll, 8, None) == Ok(vec![(IN, 1)]) && hears(fd, b"WORD")
    };
    let [its_turn, give_it] = pipe().expect("a pipe can be made");
    let [my_turn, give_me] = pipe().expect("a pipe can be made");
    let next = |turn| read(turn, &mut [0]) == Ok(1);
    let give = |to| crosslane_exercise::calls::write(to, b".") == Ok(1);
    let child = in_child(|| (0..50).all(|_| next(its_turn) && serve() && give(give_me)));
    let well = (0..50).all(|_| serve() && give(give_it) && next(my_turn));
    s.say("parent", well);
    s.say("child", wait_for(child));
    s.say("alone", (0..20).all(|_| serve()));
    s.say("close", close(fd));
}

/// A child of a child goes on when that has ended.
fn goes_on_alone(s: &mut Stage) {
    let epoll = epoll_create().expect("an epoll set can be made");
    let fd = s.fd;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, IN, 1).expect("a connection can be added");
    let [ended, ends] = pipe().expect("a pipe can be made");
    let serve = move || {
        says(fd, b"word") && epoll_wait(epoll, 8, None) == Ok(vec![(IN, 1)]) && hears(fd, b"WORD")
    };
    let child = in_child(|| {
        let mine = (0..10).all(|_| serve());
        in_child(move || {
            std::thread::sleep(PAUSE);
            let well = (0..50).all(|_| serve());
            crosslane_exercise::calls::write(ends, if well { b"+" } else { b"-" }).is_ok()
        });
        mine
    });
    s.say(
        "close",
        (close(fd), close(epoll), close(ends)) == (Ok(0), Ok(0), Ok(0)),
    );
    s.say("child", wait_for(child));
    let mut how = [0];
    s.say("grandchild", read(ended, &mut how).map(|_| how[0]));
}

/// The set is made by one who knows the other, and passed over a socket.
fn passed(s: &mut Stage, lines: &str) {
    let [ours, theirs] = socketpair().expect("a pair can be made");
    let fd = s.fd;
    let child = Relative::taught(move || Hand {
        epoll: receive_fd(theirs).expect("a set comes"),
        fd,
    });
    let epoll = epoll_create().expect("an epoll set can be made");
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, IN, 1).expect("a connection can be added");
    s.say("before", Hand { epoll, fd }.act("wait 0"));
    s.say("pass", send_fd(ours, epoll).is_ok());
    play_with(s, Hand { epoll, fd }, vec![Some(child)], lines);
}

pub const CHECKS: &[Check] = &[
    pair(
        "set_of_two_by_level",
        |s| {
            play(
                s,
                "0 add IN 1; fork; go; 1 wait 5000; 0 wait 5000; 1 read; 0 wait 0; 1 wait 0; go; 0 wait 5000; 1 wait 5000; 0 read; \
             1 wait 0; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_by_edge",
        |s| {
            play(
                s,
                "0 add IN|ET 1; fork; 1 wait 0; 0 wait 0; go; 1 wait 5000; 0 wait 0; 1 wait 0; go; 0 wait 5000; 1 wait 0; 0 read; \
             go; 1 wait 5000; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_once_and_armed_by_the_other",
        |s| {
            play(
                s,
                "0 add IN|ONCE 1; fork; go; 1 wait 5000; 0 wait 0; 1 wait 0; 0 mod IN|ONCE 2; 1 wait 5000; 0 wait 0; \
             1 mod IN|ONCE 3; 0 wait 5000; 1 wait 0; 0 read; 0 mod IN|ONCE 4; 0 wait 0; go; 1 wait 5000; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_once_spent_before_it_is_shared",
        |s| {
            play(
                s,
                "0 add IN|ONCE 1; go; 0 wait 5000; 0 read; fork; 0 wait 0; go; 1 wait 0; 1 add IN 3; 0 wait 0; \
             0 mod IN|OUT|ONCE 2; 1 wait 5000; 0 wait 0; 1 del; 0 del",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_to_which_a_child_adds",
        |s| {
            play(
                s,
                "fork; 0 wait 0; 1 wait 0; 1 add IN 5; 0 wait 0; go; 0 wait 5000; 1 wait 5000; 0 add IN 6; 1 read; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_to_which_a_child_adds_what_waits",
        |s| {
            play(
                s,
                "fork; 0 wait 0; 1 wait 0; go; 1 add IN|OUT 5; 0 wait 5000; 1 wait 5000; 0 add IN 6; 1 mod IN 7; 0 wait 0; \
             0 read; 1 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_from_which_a_child_deletes",
        |s| {
            play(
                s,
                "0 add IN 1; fork; 0 wait 0; 1 wait 0; 1 del; go; 0 wait 0; 0 mod IN 6; 0 del; 0 add IN 7; 1 wait 5000; \
             0 wait 5000; 0 del; 1 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_deleted_before_the_fork",
        |s| {
            play(
                s,
                "0 add IN 1; 0 wait 0; 0 del; fork; go; 1 wait 0; 0 wait 0; 1 del",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_in_which_a_child_changes_the_data",
        |s| {
            play(
                s,
                "0 add IN 1; fork; 0 wait 0; 1 mod IN|OUT 9; 0 wait 5000; go; 0 wait 5000; 1 wait 5000",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_asleep",
        |s| {
            play(
                s,
                "0 add IN 1; fork; 1 begin 8000; later; 0 wait 8000; 1 over; 0 read; 1 wait 0; 0 wait 0",
            );
        },
        say_words_and_listen,
    ),
    pair(
        "set_of_two_asleep_by_edge",
        |s| {
            play(
                s,
                "0 add IN|ET 1; fork; 1 begin 8000; later; pause; pause; pause; 1 over; 1 read; 0 wait 0; 1 wait 0",
            );
        },
        say_words_and_listen,
    ),
    pair(
        "set_of_two_asleep_and_woken_by_a_change",
        |s| {
            play(
                s,
                "0 add - 1; fork; go; 1 begin 8000; 0 mod IN 4; 1 over; 0 wait 5000; 0 read; 1 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_asleep_to_which_one_adds",
        |s| {
            play(
                s,
                "fork; go; 1 begin 8000; 0 add IN 4; 1 over; 0 wait 5000; 0 read; 1 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_three_asleep",
        |s| {
            play(
                s,
                "0 add IN 1; fork; fork; 1 begin 8000; 2 begin 8000; later; 0 wait 8000; 1 over; 2 over; 2 read; 1 wait 0; \
             0 wait 0; 2 wait 0",
            );
        },
        say_words_and_listen,
    ),
    pair(
        "set_of_children_that_their_parent_leaves_alone",
        |s| {
            play(
                s,
                "0 add IN 1; fork; fork; 1 wait 0; go; 2 wait 5000; 1 wait 5000; 1 read; 2 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_a_child_that_ends",
        |s| {
            play(
                s,
                "0 add IN 1; fork; go; 1 wait 5000; 1 mod IN|ONCE 8; 1 end; 0 wait 5000; 0 wait 0; 0 read; 0 mod IN 3; 0 wait 0; \
             go; 0 wait 5000; fork; 2 wait 5000; 2 read; 2 end; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_a_child_that_closes_it",
        |s| {
            play(
                s,
                "0 add IN 1; fork; go; 1 wait 5000; 1 close-set; 0 wait 5000; 0 read; 1 close; go; 0 wait 5000",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_under_another_name",
        |s| {
            play(
                s,
                "0 add IN 1; 0 copy; fork; 0 close-set; go; 1 wait 5000; 1 read; 1 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_with_an_exclusive_wish",
        |s| {
            play(
                s,
                "0 add IN|EXCLUSIVE 1; fork; 0 wait 0; 1 wait 0; go; 1 wait 5000; 0 wait 5000; 1 mod IN 3; 1 del; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_with_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN 1; 0 wait 0; fork; 1 replace; 1 add IN 2; 1 wait 0; go; 0 wait 5000; 0 read; 1 del; go; 0 wait 5000; 0 read",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_with_other_things_at_one_number_and_a_long_talk",
        |s| {
            play(
                s,
                "0 add IN 1; 0 wait 0; fork; 1 replace; 1 add IN 2; 1 wait 0; 0 wait 0; later; 0 talk; 1 del; 0 wait 0",
            );
        },
        talk_on,
    ),
    pair(
        "set_of_two_once_and_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN|ONCE 1; 0 wait 0; fork; 1 replace; 1 add IN 2; 1 wait 0; go; 0 wait 5000; 0 read; 0 mod IN|ONCE 3; go; 0 wait 5000; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_spent_and_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN|ONCE 1; go; 0 wait 5000; 0 read; fork; 1 wait 0; 0 wait 0; 1 replace; 1 add IN 2; 0 mod IN|ONCE 3; go; 0 wait 5000; 0 wait 0; 0 del",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_spent_before_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN|ONCE 1; go; 0 wait 5000; 0 read; fork; 1 replace; 1 add IN 2; 1 wait 0; 0 wait 0; 0 add IN 3; 0 mod IN|ONCE 3; go; 0 wait 5000; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_changed_with_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN 1; 0 wait 0; fork; 1 replace; 1 add IN 2; 1 wait 0; go; 0 wait 5000; 0 mod IN|OUT 3; 0 wait 5000; 0 mod IN 4; 0 wait 5000; 0 read; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_of_two_with_an_exclusive_wish_and_other_things_at_one_number",
        |s| {
            play(
                s,
                "0 add IN|EXCLUSIVE 1; 0 wait 0; fork; 1 replace; 1 add IN 2; 1 wait 0; 0 wait 0; 0 mod IN 3; go; 0 wait 5000; 0 del; 0 wait 0",
            );
        },
        say_words,
    ),
    pair(
        "set_that_was_passed",
        |s| {
            passed(
                s,
                "go; 1 wait 5000; 0 wait 5000; 1 read; 0 wait 0; 1 wait 0; go; 0 wait 5000; 1 read",
            );
        },
        say_words,
    ),
    pair("set_of_two_that_serve", both_serve, echo),
    pair("set_of_a_child_that_goes_on_alone", goes_on_alone, echo),
];
