/* Crosslane's native interface for C: TCP connections whose messages are built and read where they
 * travel. docs/api.md is a tutorial; `pkg-config --cflags --libs crosslane` tells how to link.
 *
 * Made by `cargo xtask header` from crates/api/src/c.rs and what is below it; do not edit. */

#ifndef CROSSLANE_H
#define CROSSLANE_H

#include <stddef.h>
#include <sys/types.h>

// The version of this header.
#define CROSSLANE_VERSION "0.1.0"

// Fail with EAGAIN rather than wait, also where the connection waits otherwise. It is the only flag
// there is: a call with another one, such as those of send(2) and recv(2), fails with EINVAL.
#define CROSSLANE_DONTWAIT 1

// The longest reservation that is always whole. A longer one may turn out shorter, down to this.
#define CROSSLANE_WHOLE_BYTES 8184

// Both directions go through the kernel.
#define CROSSLANE_PATH_TCP 0

// One direction is in memory. The other follows when its sender sends, or stays for the reason that
// crosslane_path() tells.
#define CROSSLANE_PATH_PARTLY 1

// Both directions are in memory.
#define CROSSLANE_PATH_MEMORY 2

// Room for any reason of crosslane_path(), with its final NUL.
#define CROSSLANE_REASON_BYTES 32

// A connection. What a function does that is given NULL for one, or for a crosslane_listener, is
// undefined, but where NULL is said to be allowed.
//
// One thread at a time may use each direction: crosslane_reserve(), crosslane_commit(),
// crosslane_cancel(), crosslane_send(), crosslane_flush() and crosslane_shutdown() one,
// crosslane_peek(), crosslane_consume() and crosslane_recv() the other. Any thread may call
// crosslane_interrupt(), and crosslane_shutdown() with SHUT_RD, at any time before crosslane_close().
// All else is for when neither direction is in use.
typedef struct crosslane_connection crosslane_connection;

// A listening socket.
typedef struct crosslane_listener crosslane_listener;

// Bytes that lie together; laid out as struct iovec.
//
// Those of crosslane_peek() may be changed by the peer until they are consumed: copy a value out
// once, check the copy, and use the copy.
typedef struct crosslane_span {
  // The first.
  void *start;
  // How many.
  size_t bytes;
} crosslane_span;

// One of those that crosslane_wait() waits for, in the manner of struct pollfd.
typedef struct crosslane_watch {
  // Which; each in one watch only.
  struct crosslane_connection *connection;
  // For what: POLLIN, POLLOUT or both.
  short events;
  // What of it is ready, and POLLERR and POLLHUP as poll(2) gives them, whatever `events` are.
  short revents;
} crosslane_watch;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library that the program runs with, as CROSSLANE_VERSION is that of the header
// by which it was compiled.
const char *crosslane_version(void);

// Connect to a TCP server at "host:port", or "[address]:port" for IPv6. Waits until it has answered.
// Returns NULL and sets errno where that fails: EINVAL if it is no such text, or NULL; EADDRNOTAVAIL
// if the name cannot be resolved; or as socket(2) and connect(2) do for the last of its addresses.
struct crosslane_connection *crosslane_connect(const char *address);

// Both ends of a connection in this process, for two of its threads: in memory from the first byte on,
// and without a monitor. They are written to `ends`, which has room for two. Returns 0, or -1 and
// errno: EINVAL if `ends` is NULL, or as socket(2), listen(2), connect(2) and accept(2) do.
int crosslane_pair(struct crosslane_connection **ends);

// Listen at "host:port"; port 0 is any free one. Returns NULL and sets errno where that fails: EINVAL
// and EADDRNOTAVAIL as crosslane_connect(), or as socket(2), bind(2) and listen(2) do for the last
// address.
struct crosslane_listener *crosslane_listen(const char *address);

// Wait for the next connection; the peer's address is what getpeername(2) tells of crosslane_fd().
// It waits itself, also where the listener does not. Returns NULL and sets errno where that fails, as
// accept(2) does: EAGAIN if nobody has come and the listener does not wait, EINTR after a signal,
// ECONNABORTED if who had come is gone again, EMFILE and ENFILE without descriptors.
struct crosslane_connection *crosslane_accept(const struct crosslane_listener *listener);

// Have crosslane_accept() fail with EAGAIN rather than wait (1), or wait (0). Returns 0, or -1 and
// errno, as ioctl(2).
int crosslane_listener_set_nonblocking(const struct crosslane_listener *listener, int nonblocking);

// The port at which it listens, or -1 and errno, as getsockname(2).
int crosslane_listener_port(const struct crosslane_listener *listener);

// Its descriptor, for poll: readable when a connection has come. It may be gone again when it is
// accepted, so that an event loop wants crosslane_listener_set_nonblocking(). Do not close it.
int crosslane_listener_fd(const struct crosslane_listener *listener);

// Stop listening. NULL is allowed.
void crosslane_listener_close(struct crosslane_listener *listener);

// The connection's TCP socket, for getsockopt and the like, and for poll after crosslane_arm().
// Do not read, write or close it.
int crosslane_fd(const struct crosslane_connection *connection);

// Have calls fail with EAGAIN rather than wait (1), or wait (0). Returns 0, or -1 and errno, as
// ioctl(2).
int crosslane_set_nonblocking(struct crosslane_connection *connection, int nonblocking);

// Where the bytes travel now: CROSSLANE_PATH_MEMORY, CROSSLANE_PATH_PARTLY or CROSSLANE_PATH_TCP. A
// word for why not both directions are in memory, as `crosslane ss` shows it, or "" if they are, is
// written to `reason`, cut to `bytes` with its final NUL: CROSSLANE_REASON_BYTES are enough for
// each. A `reason` of NULL is allowed.
int crosslane_path(const struct crosslane_connection *connection, char *reason, size_t bytes);

// Shut down SHUT_RD, SHUT_WR or SHUT_RDWR, as shutdown(2). Returns 0, or -1 and errno: EINVAL for
// anything else, ENOTCONN if the connection has been reset, or as crosslane_flush().
//
// With SHUT_RD any thread may call this, and a crosslane_peek() or crosslane_recv() that waits
// finds the end of the stream. With SHUT_WR and SHUT_RDWR it is a call of the sending direction: a
// reservation is cancelled, and what is kept back is sent first; EAGAIN, with nothing shut down,
// if that has no room on a connection that does not wait.
int crosslane_shutdown(struct crosslane_connection *connection, int how);

// End what other threads wait for on the connection, as shutdown(2) with SHUT_RDWR: receives find
// the end of the stream, sends and reservations fail with EPIPE. What is kept back is not sent. Any
// thread may call this, at any time before crosslane_close(). Returns 0, or -1 and errno, as
// shutdown(2): ENOTCONN if the connection has been reset.
int crosslane_interrupt(const struct crosslane_connection *connection);

// Send what is kept back, and close. What the kernel has no room for then, on a connection that
// does not wait, is lost: see crosslane_flush(). On one that waits, this waits for that room;
// crosslane_interrupt() before it gives the rest up. NULL is allowed. No other thread may be in a
// call on the connection: crosslane_interrupt() ends those.
void crosslane_close(struct crosslane_connection *connection);

// Reserve room for `bytes`, and wait for it unless told not to. Up to CROSSLANE_WHOLE_BYTES you get
// all of it. Of more you get what there is room for now, and CROSSLANE_WHOLE_BYTES at least: add up
// the spans. Returns how many of the `count` spans are filled in, one or two.
//
// Fill the room in order and call crosslane_commit(); until then the peer sees nothing. It holds
// whatever was there. An earlier reservation is cancelled, also where this fails.
//
// Or returns -1 and errno: EINVAL if `bytes` is 0, `count` less than 2, `spans` NULL or a flag
// unknown; EAGAIN if it was not to wait and there is no room; EINTR after a signal whose handler
// begins no call again; EPIPE if this side has shut down or the peer is gone; ECONNRESET if the
// peer has reset the connection or broken the rules of the memory; others as send(2).
int crosslane_reserve(struct crosslane_connection *connection,
                      size_t bytes,
                      struct crosslane_span *spans,
                      int count,
                      int flags);

// Send the first `bytes` of the reservation, which ends it. All messages in it appear at the peer at
// once. Returns 0, or -1 and errno: EINVAL if there is no reservation, or a smaller one, which stays;
// EPIPE, ECONNRESET and others as crosslane_reserve(), but not EAGAIN, and the reservation is over.
//
// Where the peer is reached by TCP, and the connection does not wait or the reservation was made
// with CROSSLANE_DONTWAIT, what the kernel has no room for is kept back and sent by later calls:
// see crosslane_flush().
int crosslane_commit(struct crosslane_connection *connection,
                     size_t bytes);

// Give the reservation up, if there is one.
void crosslane_cancel(struct crosslane_connection *connection);

// Send a copy of `bytes` from `from`. Returns how many were taken, which may be fewer where it does
// not wait, or -1 and errno: EBUSY while there is a reservation, EINVAL if a flag is unknown, or
// EAGAIN, EINTR, EPIPE, ECONNRESET and others as crosslane_reserve(). There is no signal.
ssize_t crosslane_send(struct crosslane_connection *connection,
                       const void *from,
                       size_t bytes,
                       int flags);

// Send what earlier commits have kept back. Returns 0 when nothing is left, or -1 and errno: EINVAL if
// a flag is unknown, EAGAIN if something is left for which the kernel has no room, or EPIPE,
// ECONNRESET and others as send(2).
int crosslane_flush(struct crosslane_connection *connection,
                    int flags);

// Look at the next bytes, and wait for them unless told not to. Returns how many of the `count` spans
// are filled in, or 0 at the end of the stream.
//
// They stay until they are consumed: the next look begins with the first byte that has not been.
// The spans must not be used after the next call for this direction, nor written to.
//
// Or returns -1 and errno: EINVAL if `count` is less than 1, `spans` NULL or a flag unknown; EAGAIN if
// it was not to wait and nothing has come; EINTR after a signal whose handler begins no call again;
// ECONNRESET if the peer has reset the connection or broken the rules of the memory; others as
// recv(2).
int crosslane_peek(struct crosslane_connection *connection,
                   struct crosslane_span *spans,
                   int count,
                   int flags);

// Take the first `bytes` that the last crosslane_peek() has shown away; the peer may use their
// place again. Once for each look. Returns 0, or -1 and errno: EINVAL if not so many were shown, or
// nothing since the last call for this direction; ESTALE if another process has received from the
// connection meanwhile, which is not meant.
int crosslane_consume(struct crosslane_connection *connection, size_t bytes);

// Receive a copy of at most `bytes` into `to`. Returns how many, which may be fewer as of any stream,
// or 0 at the end of the stream, or -1 and errno: EINVAL if a flag is unknown, or EAGAIN, EINTR,
// ECONNRESET and others as crosslane_peek().
ssize_t crosslane_recv(struct crosslane_connection *connection,
                       void *to,
                       size_t bytes,
                       int flags);

// Prepare for sleeping in poll, select or epoll on the connection's descriptor, for POLLIN,
// POLLOUT or both. Must be called each time before, because what is in memory wakes nobody who has
// not asked for it. It does not fail. examples/epoll_server.c shows its use.
//
// Returns 1 and sets `*poll_for` and `*at_most_ms` if you may sleep, or 0, and sets nothing, if
// something is ready. Poll for exactly `*poll_for`, even where that differs from `events`: the
// wake-up for a sender that waits for room is POLLIN. Sleep no longer than `*at_most_ms`, unless that
// is -1, which sets no limit. When the sleep is over, whatever has ended it, any call on the
// connection goes on.
int crosslane_arm(struct crosslane_connection *connection,
                  short events,
                  short *poll_for,
                  int *at_most_ms);

// Wait until something is ready, spinning first as a call that waits does, for at most
// `timeout_ms`, or for ever if that is negative. Returns how many are ready, 0 when the time is
// up, or -1 and errno: EINVAL if there is none, or if one is NULL or stands there twice; EINTR after a
// signal; ENOMEM as poll(2).
//
// It uses both directions of all of them, whatever is waited for: no other thread may be in a call
// on one meanwhile, but for those that any thread may make. A reservation stays as it is.
int crosslane_wait(struct crosslane_watch *watches,
                   size_t count,
                   int timeout_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CROSSLANE_H */
