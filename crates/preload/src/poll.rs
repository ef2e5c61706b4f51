//! poll and ppoll over rings and kernel descriptors at once.

use core::ffi::c_int;
use core::time::Duration;
use std::time::Instant;

use crosslane_stream::interrupt::{self, Since, Spinning};
use crosslane_stream::send::STANDSTILL;
use crosslane_stream::stir::Sleep;
use crosslane_stream::{End, lost, place, ready, wait};
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, cancel, kernel, process, real};
use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::kernel_looks::{KernelLooks, Overdue, Told, is_kernels_turn, tell_kept_errors};
use crate::kernels_sleep::Asleep;
use crate::progress::is_granted;
use crate::strays::{Kept, Stray};
use crate::{c, epoll};

/// Spinning looks at every ring in turn; with many more than these a few looks take as long as the time that tells a
/// spin that it has been preempted.
const MOST_TO_SPIN: usize = 128;

/// Looks in vain after which the caller rests a little between kernel calls.
const PATIENT_ROUNDS: u32 = 4;

/// The time between two looks at a connection whose window is lost, while it is not known what stood there.
const UNSETTLED_SLICE: Duration = Duration::from_millis(1);

/// The time between two looks at a connection whose number names something else, and which has been ready.
const STRAY_SLICE: Duration = Duration::from_millis(1);

/// Whether the kernel takes this for a time that is left.
pub fn is_legal(time: &timespec) -> bool {
    time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec)
}

/// A timespec as a duration; negative ones are the kernel's to refuse.
pub fn duration(time: &timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A duration as a timespec.
pub fn as_timespec(duration: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// The ends among the descriptors that have rings, with their places.
pub fn granted(fds: &[pollfd]) -> impl Iterator<Item = (usize, End)> {
    fds.iter().enumerate().filter_map(|(place, one)| {
        let end = End::of(one.fd)?;
        is_granted(&end).then_some((place, end))
    })
}

/// Whether the kernel alone can answer.
pub fn is_kernels(fds: &[pollfd]) -> bool {
    for one in fds {
        // A set that is polled must show its readiness in the kernel.
        epoll::leave_nested(one.fd);
    }
    granted(fds).next().is_none()
}

/// Wait for any of the descriptors, some of which have rings, as ppoll(2) does. Tells, too, whether it has found
/// nothing at first.
pub fn wait_any(
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    mask: *const sigset_t,
    (since, has_waited): (Since, &mut bool),
) -> Result<usize, Errno> {
    cancel::test();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (mut rounds, mut held) = (0, None);
    let (mut kept, mut woken) = (Kept::default(), Woken::ByTheKernel);
    loop {
        let strays = kept.strays(fds);
        let found = look_but_for(&strays, fds, rounds > 0 || is_kernels_turn(fds))?;
        if found > 0 && (woken == Woken::ByTheKernel || !is_only_closed(&strays, fds)) {
            return Ok(found);
        }
        *has_waited = true;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return match look(fds, true)? {
                0 => let_signals_in(mask).map(|()| 0),
                found => Ok(found),
            };
        }
        // SAFETY: the program's mask, by the manual of its call.
        if rounds == 0 && !unsafe { SignalsHeld::would_come(mask) } {
            // SAFETY: as before.
            let spinning = unsafe { Spinning::new(&mut held, mask, since) };
            if spin(fds, Overdue::after(deadline), spinning) {
                rounds += 1;
                continue;
            }
        }
        interrupt::hold_for_sleep(&mut held, rounds > 0 || !mask.is_null());
        kept.begin_once(fds);
        let slept = since.check().and_then(|()| {
            cancel::guarded(&held, || {
                cancel::guarded(&kept, || {
                    sleep(fds, (&kept, &strays), left, mask, (rounds, held.as_ref()))
                })
            })
        });
        match slept {
            // The kernel, too, looks once more at what the descriptors name now.
            Err(Errno::INTR) => {
                // SAFETY: the program's mask, by the manual of its call.
                let is_opened = |held: &SignalsHeld| unsafe { held.is_opened_by(mask) };
                // The handler of a signal that only the mask lets in may have run, which natively it does where nothing has come.
                let is_by_mask = held.as_ref().is_some_and(is_opened);
                let lost = kept.strays(fds);
                let is_lost = |place| lost.iter().any(|stray| stray.place == place);
                let is_known = |fd| epoll::is_known(fd) || End::of(fd).is_some();
                let is_ours = |place, one: &pollfd| {
                    is_closed(one)
                        || is_lost(place)
                        || !is_by_mask && (kept.has(place) || is_known(one.fd))
                };
                return match look_at_ours(fds, is_ours)? {
                    0 => Err(Errno::INTR),
                    found => Ok(found),
                };
            }
            slept => woken = slept?,
        }
        wait::woke();
        rounds += 1;
    }
}

/// What has ended a sleep, where nothing has gone wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// As the kernel would end the program's own: by a descriptor, a signal, or because time is up.
    ByTheKernel,
    /// A doorbell, or a slice of time: the program's own might sleep on.
    ByUs,
}

impl Woken {
    /// By what the kernel has found, or in a slice of the time that was left.
    fn after(wishes: &[pollfd], is_sliced: bool) -> Self {
        let has_more = wishes.iter().any(|one| one.revents & !libc::POLLNVAL != 0);
        match has_more || is_sliced {
            true => Self::ByUs,
            false => Self::ByTheKernel,
        }
    }
}

/// Whether a number has been closed, as the last look has it.
fn is_closed(one: &pollfd) -> bool {
    one.revents == libc::POLLNVAL
}

/// Whether all that has been found is numbers that were closed under the sleep, in which the kernel sleeps on.
fn is_only_closed(strays: &[Stray], fds: &[pollfd]) -> bool {
    let mut found = fds.iter().filter(|one| one.revents != 0);
    !strays.iter().any(|stray| stray.wakes) && found.all(is_closed)
}

/// Have the signals come that only the mask of a call lets in, which has found nothing and has no time left.
fn let_signals_in(mask: *const sigset_t) -> Result<(), Errno> {
    if mask.is_null() {
        return Ok(());
    }
    poll_now(&mut [], Some(Duration::ZERO), mask)
}

/// What is ready of what the descriptors name by now, sets of connections among them.
fn look_anew(fds: &mut [pollfd]) -> Result<usize, Errno> {
    fds.iter().for_each(|one| epoll::leave_nested(one.fd));
    look(fds, true)
}

/// What is ready now, if anything that the call sleeps on is: of `strays` their numbers tell nothing.
fn look_but_for(strays: &[Stray], fds: &mut [pollfd], ask_kernel: bool) -> Result<usize, Errno> {
    if !strays.is_empty() && !strays.iter().any(|stray| stray.wakes) {
        let mut others = fds.to_vec();
        for stray in strays {
            others[stray.place].fd = -1;
        }
        if look(&mut others, ask_kernel)? == 0 {
            fds.iter_mut().for_each(|one| one.revents = 0);
            return Ok(0);
        }
    }
    // A number may name a set by now.
    strays
        .iter()
        .for_each(|stray| epoll::leave_nested(fds[stray.place].fd));
    look(fds, ask_kernel)
}

/// What is ready now. The kernel is asked for descriptors without rings, and with `ask_kernel`
/// for the ends of streams.
fn look(fds: &mut [pollfd], ask_kernel: bool) -> Result<usize, Errno> {
    let mut others = 0;
    let told = ask_kernel.then(|| Told::of(fds));
    for (place, one) in fds.iter_mut().enumerate() {
        one.revents = 0;
        match End::of(one.fd).filter(|end| !ready::is_kernels(end)) {
            Some(end)
                if ask_kernel || ready::glance(&end, one.events) || !ready::is_in_rings(&end) =>
            {
                let may_be_told = told.as_ref().is_some_and(|told| told.may_have(place, &end));
                one.revents = ready::look(&end, one.events, may_be_told);
            }
            Some(_) => {}
            None => {
                one.revents = TO_BE_ASKED;
                others += 1;
            }
        }
    }
    let looked = if others > 0 {
        look_at_others(fds)
    } else {
        Ok(())
    };
    let found = fds.iter().filter(|one| one.revents != 0).count();
    // A signal ends a call that has found nothing.
    match looked {
        Err(Errno::INTR) if found > 0 => Ok(found),
        looked => looked.map(|()| found),
    }
}

/// What the kernel is to be asked for, whatever another thread is granted meanwhile: no event of poll(2).
const TO_BE_ASKED: i16 = i16::MIN;

fn look_at_others(fds: &mut [pollfd]) -> Result<(), Errno> {
    let mut copy: Vec<pollfd> = fds.to_vec();
    for one in &mut copy {
        if one.revents != TO_BE_ASKED {
            one.fd = -1;
        }
        one.revents = 0;
    }
    let asked = kernel::poll(&mut copy, Some(as_timespec(Duration::ZERO)));
    for (one, found) in fds.iter_mut().zip(&copy) {
        if one.revents == TO_BE_ASKED {
            one.revents = found.revents;
        }
    }
    asked.map(|_| ())
}

/// Whether there is something to look at: news, that time is up, or that a signal has come.
fn spin(fds: &[pollfd], mut overdue: Overdue, mut spinning: Spinning<'_>) -> bool {
    if fds.len() > MOST_TO_SPIN {
        return false;
    }
    let ends = fds.iter().filter_map(|one| End::of(one.fd));
    let peers = place::peers(ends, || spinning.hold());
    spinning.hold_if(wait::gives_way());
    let in_rings = |one: &pollfd| End::of(one.fd).filter(|end| !ready::is_kernels(end));
    let others = fds.iter().filter(|one| in_rings(one).is_none());
    let (mut others, mut looks): (Vec<pollfd>, _) =
        (others.copied().collect(), KernelLooks::default());
    wait::look(peers, || {
        let has_news = |one| in_rings(one).is_some_and(|end| ready::glance(&end, one.events));
        fds.iter().any(has_news)
            || overdue.is_due()
            || spinning.is_interrupted()
            || !others.is_empty() && looks.is_due() && has_any(&mut others)
    })
}

/// Whether the kernel has something to tell of any.
fn has_any(fds: &mut [pollfd]) -> bool {
    kernel::poll(fds, Some(as_timespec(Duration::ZERO))).is_ok_and(|found| found > 0)
}

/// Sleep in the kernel until something may be ready.
fn sleep(
    fds: &[pollfd],
    (kept, strays): (&Kept, &[Stray]),
    left: Option<Duration>,
    mask: *const sigset_t,
    (rounds, held): (u32, Option<&SignalsHeld>),
) -> Result<Woken, Errno> {
    let mut wishes: Vec<pollfd> = fds.to_vec();
    let closed = wishes.iter_mut().filter(|one| is_closed(one));
    closed.for_each(|one| one.fd = -1);
    let ends = sleepers(fds, strays, &mut wishes);
    let is_interrupted = |held: &SignalsHeld| held.nap_under(mask, Duration::from_micros(100));
    // Doorbells wake the call, or it looks again after a moment.
    let rung = ends.iter().map(|(place, _)| *place);
    let looked_at = strays.iter().filter(|stray| stray.has_woken);
    let seen_to = rung.chain(looked_at.map(|stray| stray.place));
    let Some(asleep) = Asleep::beside(seen_to, (kept, strays), fds) else {
        let rests = rounds > PATIENT_ROUNDS;
        return match rests && held.is_some_and(is_interrupted) {
            true => Err(Errno::INTR),
            false => Ok(Woken::ByUs),
        };
    };
    let mut quiet = true;
    for (place, end) in &ends {
        quiet &= ready::prepare_sleep(end, fds[*place].events);
        // Behind that, which may move a direction.
        wishes[*place].events = ready::kernel_wish(end, fds[*place].events);
    }
    // Room that has to wait until a START has been found is looked for, too.
    let is_unsettled = |(place, end): &(usize, End)| {
        let waits_for_room = fds[*place].events & libc::POLLOUT != 0;
        lost::is_unsettled(end) || waits_for_room && lost::is_entering(end)
    };
    let unsettled = ends.iter().any(is_unsettled);
    if rounds > PATIENT_ROUNDS && held.is_some_and(is_interrupted) {
        ends.iter().for_each(|(_, end)| ready::after_sleep(end));
        return Err(Errno::INTR);
    }
    let waits_for_room =
        |(place, end): &(usize, End)| ready::waits_for_room(end, fds[*place].events);
    let least = |slice| Some(left.map_or(slice, |left| left.min(slice)));
    let limit = match quiet {
        true if strays.iter().any(|stray| stray.has_woken) => least(STRAY_SLICE),
        true if ends.iter().any(waits_for_room) => least(STANDSTILL),
        true => left,
        false if unsettled => least(UNSETTLED_SLICE),
        false => Some(Duration::ZERO),
    };
    let own = held.filter(|_| mask.is_null()).map(SignalsHeld::mask);
    let mask = own.as_ref().map_or(mask, core::ptr::from_ref);
    let wake = || ends.iter().for_each(|(_, end)| ready::after_sleep(end));
    let slept = cancel::guarded(&asleep, || {
        cancel::undone(wake, || {
            poll_by_name(&mut wishes, (&ends, kept, strays), limit, mask)
        })
    });
    for (place, end) in &ends {
        ready::after_sleep(end);
        let found = wishes[*place].revents;
        if found & libc::POLLIN != 0 {
            ready::note_bell(end);
            if !ready::glance(end, libc::POLLIN) {
                ready::take_bells(end);
            }
        }
    }
    slept.map(|()| Woken::after(&wishes, limit != left))
}

/// The connections in rings to be woken by, with their places: of those whose numbers name something else what they were.
fn sleepers(fds: &[pollfd], strays: &[Stray], wishes: &mut [pollfd]) -> Vec<(usize, End)> {
    let mut ends: Vec<(usize, End)> = granted(fds).collect();
    for stray in strays {
        ends.retain(|(place, _)| *place != stray.place);
        // For what has been there the kernel would not wake the call again.
        wishes[stray.place].fd = match stray.has_woken {
            true => -1,
            false => stray.end.fd(),
        };
        if !stray.has_woken && !ready::is_kernels(&stray.end) {
            ends.push((stray.place, stray.end));
        }
    }
    ends
}

/// As ppoll(2), but woken, too, when another thread takes the number of one of `ends` away, or shuts a stray down.
fn poll_by_name(
    wishes: &mut Vec<pollfd>,
    (ends, kept, strays): (&[(usize, End)], &Kept, &[Stray]),
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<(), Errno> {
    let sleeps = ends.iter().filter_map(|(_, end)| Sleep::begin(end));
    let lost = strays
        .iter()
        .filter_map(|stray| Sleep::begin_kept(&stray.end));
    let sleeps: Vec<Sleep> = sleeps.chain(lost).collect();
    let event = sleeps.first().map(|sleep| pollfd {
        fd: sleep.event,
        events: libc::POLLIN,
        revents: 0,
    });
    wishes.extend(event);
    let is_taken = |(place, end): &(usize, End)| wishes[*place].fd == end.fd && end.fd() != end.fd;
    let is_shut = !strays.is_empty() && kept.is_shut();
    let limit = match is_shut || ends.iter().any(is_taken) {
        true => Some(Duration::ZERO),
        false => limit,
    };
    match cancel::guarded(&sleeps, || poll_now(wishes, limit, mask)) {
        Err(Errno::INVAL) if event.is_some() => {
            // With the event there are more than may be polled (RLIMIT_NOFILE).
            wishes.pop();
            let slice = limit.map_or(STRAY_SLICE, |limit| limit.min(STRAY_SLICE));
            cancel::guarded(&sleeps, || poll_now(wishes, Some(slice), mask))
        }
        polled => polled,
    }
}

/// ppoll(2). The mask is ours or the program's.
fn poll_now(
    fds: &mut [pollfd],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Result<(), Errno> {
    let limit = limit.map(as_timespec);
    let time = limit
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    let (start, count) = (fds.as_mut_ptr(), fds.len() as nfds_t);
    // SAFETY: the array and the time outlive the call; the mask is ours or the program's.
    let result = unsafe { real::ppoll(start, count, time, mask) };
    crosslane_sys::errno::check(result as isize).map(|_| ())
}

/// The descriptors of a program.
///
/// # Safety
/// As poll(2) demands.
unsafe fn slice<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    // Of more than may be polled (RLIMIT_NOFILE), which are many, the kernel looks at none.
    let is_legal = |count: &usize| *count < 1 << 16 || *count <= process::most_descriptors();
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count > 0 && is_legal(count))?;
    if !c::may_be(fds, count) {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { core::slice::from_raw_parts_mut(fds, count) })
}

/// Whether what is found can be told.
fn has_room(fds: &mut [pollfd]) -> bool {
    let bytes = size_of_val(fds);
    c::room(fds.as_mut_ptr(), bytes) == bytes
}

/// Whether a mask is for the kernel to refuse.
pub fn is_bad_mask(mask: *const sigset_t) -> bool {
    !mask.is_null() && !c::may_be(mask.cast::<u64>(), 1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let (mask, since) = (core::ptr::null(), Since::now(core::ptr::null()));
    // SAFETY: the program's promise.
    if let Some(all) = unsafe { slice(fds, count) }
        && !is_kernels(all)
    {
        if !has_room(all) {
            return c::fail(Errno::FAULT);
        }
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        return answer(wait_any(all, timeout, mask, (since, &mut false)));
    }
    // SAFETY: the program's promise.
    let Some(asleep) = Asleep::new(unsafe { slice(fds, count) }.unwrap_or_default()) else {
        // SAFETY: as before; one has got rings meanwhile.
        return unsafe { poll(fds, count, timeout) };
    };
    // SAFETY: passed on.
    let found = cancel::guarded(&asleep, || unsafe { real::poll(fds, count, timeout) });
    // SAFETY: the program's promise.
    unsafe { look_again(found, fds, count, &asleep) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let since = Since::now(mask);
    let is_bad = !timeout.is_null() && !c::may_be(timeout, 1);
    let time = match is_bad {
        true => None,
        // SAFETY: the program's promise; null means no limit.
        false => unsafe { timeout.as_ref() },
    };
    if is_bad || !time.is_none_or(is_legal) || is_bad_mask(mask) {
        // SAFETY: passed on, for the kernel to refuse.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    }
    // SAFETY: the program's promise.
    if let Some(all) = unsafe { slice(fds, count) }
        && !is_kernels(all)
    {
        if !has_room(all) {
            return c::fail(Errno::FAULT);
        }
        return answer(wait_any(all, time.map(duration), mask, (since, &mut false)));
    }
    // SAFETY: the program's promise.
    let Some(asleep) = Asleep::new(unsafe { slice(fds, count) }.unwrap_or_default()) else {
        // SAFETY: as before; one has got rings meanwhile.
        return unsafe { ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: passed on.
    let found = cancel::guarded(&asleep, || unsafe {
        real::ppoll(fds, count, timeout, mask)
    });
    // SAFETY: the program's promise.
    unsafe { look_again(found, fds, count, &asleep) }
}

/// The kernel's last look, before its poll ends without news, is at what the descriptors name by then: another
/// thread may have made one name a connection that is in its rings.
///
/// # Safety
/// As poll(2) demands.
unsafe fn look_again(found: c_int, fds: *mut pollfd, count: nfds_t, asleep: &Asleep) -> c_int {
    let errno = Errno::last();
    if found > 0 {
        // SAFETY: the caller's promise.
        tell_kept_errors(unsafe { slice(fds, count) }.unwrap_or_default());
    }
    if found > 0 || found < 0 && errno != Errno::INTR {
        return found;
    }
    // The phase first: to look through all that sleep for each of them takes long.
    let is_news = |end: &End| !ready::is_kernels(end) && !asleep.has(end) && is_granted(end);
    let is_ours =
        |one: &pollfd| epoll::is_known(one.fd) || End::of(one.fd).is_some_and(|end| is_news(&end));
    // SAFETY: the caller's promise.
    let all = unsafe { slice(fds, count) }.filter(|fds| fds.iter().any(is_ours));
    match all.map(|fds| look_at_ours(fds, |_, one| is_ours(one))) {
        Some(Ok(news @ 1..)) => answer(Ok(news)),
        _ => {
            errno.set();
            found
        }
    }
}

/// As [`look_anew`], without what the kernel has looked at: the end of its poll may have closed a socket since, and a handler
/// have made ready what was not.
fn look_at_ours(
    fds: &mut [pollfd],
    is_ours: impl Fn(usize, &pollfd) -> bool,
) -> Result<usize, Errno> {
    let mut ours = fds.to_vec();
    for (place, one) in ours.iter_mut().enumerate() {
        if !is_ours(place, one) {
            one.fd = -1;
        }
    }
    let news = look_anew(&mut ours)?;
    for (one, look) in fds.iter_mut().zip(&ours) {
        one.revents = look.revents;
    }
    Ok(news)
}

fn answer(found: Result<usize, Errno>) -> c_int {
    match found {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => c::fail(errno),
    }
}

fn entries(count: nfds_t) -> size_t {
    size_t::try_from(count).unwrap_or(size_t::MAX)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    c::check_room(entries(count), room / size_of::<pollfd>());
    // SAFETY: passed on.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    c::check_room(entries(count), room / size_of::<pollfd>());
    // SAFETY: passed on.
    unsafe { ppoll(fds, count, timeout, mask) }
}
