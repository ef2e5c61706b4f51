/* Crosslane's native interface for C: TCP connections whose messages are built and read where they
 * travel. docs/api.md is a tutorial; `pkg-config --cflags --libs crosslane` tells how to link.
 *
 * Made by `cargo xtask header` from crates/api/src/c.rs and what is below it; do not edit. */

#ifndef CROSSLANE_H
#define CROSSLANE_H

#include <stddef.h>
#include <sys/types.h>

// Fail with EAGAIN rather than wait, also where the connection waits otherwise.
#define CROSSLANE_DONTWAIT 1

// The longest reservation that is always whole. A longer one may turn out shorter, down to this.
#define CROSSLANE_WHOLE_BYTES 8184

// A connection. One thread at a time may use each direction: crosslane_reserve(),
// crosslane_commit(), crosslane_cancel(), crosslane_send(), crosslane_flush() and
// crosslane_shutdown() one, crosslane_peek(), crosslane_consume() and crosslane_recv() the other.
// Any thread may call crosslane_interrupt(), and crosslane_shutdown() with SHUT_RD, at any time
// before crosslane_close(). All else is for when neither direction is in use.
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

// Connect to a TCP server at "host:port", or "[address]:port" for IPv6. Returns NULL and sets
// errno where that fails; EADDRNOTAVAIL if the name is unknown.
struct crosslane_connection *crosslane_connect(const char *address);

// Both ends of a connection in this process, for two of its threads: in memory from the first byte on,
// and without a monitor. Returns 0, or -1 and sets errno.
int crosslane_pair(struct crosslane_connection **ends);

// Listen at "host:port"; port 0 is any free one. Returns NULL and sets errno where that fails.
struct crosslane_listener *crosslane_listen(const char *address);

// Wait for the next connection. Returns NULL and sets errno where that fails.
struct crosslane_connection *crosslane_accept(const struct crosslane_listener *listener);

// The port at which it listens, or -1.
int crosslane_listener_port(const struct crosslane_listener *listener);

// Its descriptor, for poll: readable when a connection can be accepted.
int crosslane_listener_fd(const struct crosslane_listener *listener);

// Stop listening. NULL is allowed.
void crosslane_listener_close(struct crosslane_listener *listener);

// The connection's TCP socket, for getsockopt and the like, and for poll after crosslane_arm().
// Do not read, write or close it.
int crosslane_fd(const struct crosslane_connection *connection);

// Have calls fail with EAGAIN rather than wait (1), or wait (0). Returns 0, or -1 and errno.
int crosslane_set_nonblocking(struct crosslane_connection *connection, int nonblocking);

// Where the bytes travel: 2 both directions in memory, 1 one of them, 0 neither. A word for why
// not both, as `crosslane ss` shows it, or "" if both, is written to `reason`, cut to `bytes`
// with its final NUL; NULL is allowed.
int crosslane_path(const struct crosslane_connection *connection, char *reason, size_t bytes);

// Shut down SHUT_RD, SHUT_WR or SHUT_RDWR, as shutdown(2). Returns 0, or -1 and errno; EINVAL for
// anything else.
//
// With SHUT_RD any thread may call this, and a crosslane_peek() or crosslane_recv() that waits
// finds the end of the stream. With SHUT_WR and SHUT_RDWR it is a call of the sending direction: a
// reservation is cancelled, and what is kept back is sent first; EAGAIN, with nothing shut down,
// if that has no room on a connection that does not wait.
int crosslane_shutdown(struct crosslane_connection *connection, int how);

// End what other threads wait for on the connection, as shutdown(2) with SHUT_RDWR: receives find
// the end of the stream, sends and reservations fail with EPIPE. What is kept back is not sent. Any
// thread may call this, at any time before crosslane_close(). Returns 0, or -1 and errno.
int crosslane_interrupt(const struct crosslane_connection *connection);

// Send what is kept back, and close. What the kernel has no room for then, on a connection that
// does not wait, is lost: see crosslane_flush(). On one that waits, this waits for that room;
// crosslane_interrupt() before it gives the rest up. NULL is allowed. No other thread may be in a
// call on the connection: crosslane_interrupt() ends those.
void crosslane_close(struct crosslane_connection *connection);

// Room for `bytes`, or for as many as there is room for now if these are CROSSLANE_WHOLE_BYTES or
// more, in at most `count` spans, of which there must be two. Waits for it, unless told not to.
// Returns how many spans there are, or -1 and errno.
//
// Fill the spans in order and call crosslane_commit(); until then the peer sees nothing. They hold
// whatever was there. An earlier reservation is cancelled.
int crosslane_reserve(struct crosslane_connection *connection,
                      size_t bytes,
                      struct crosslane_span *spans,
                      int count,
                      int flags);

// Send the first `bytes` of the reservation. All messages in it appear at the peer at once.
// Returns 0, or -1 and errno; EINVAL if there is no reservation of so many.
//
// Where the peer is reached by TCP, and the connection does not wait or the reservation was made
// with CROSSLANE_DONTWAIT, what the kernel has no room for is kept back and sent by later calls:
// see crosslane_flush().
int crosslane_commit(struct crosslane_connection *connection, size_t bytes);

// Give the reservation up, if there is one.
void crosslane_cancel(struct crosslane_connection *connection);

// Send a copy of `bytes` from `from`, as send(2) with MSG_NOSIGNAL. Returns how many were taken,
// or -1 and errno; EBUSY while there is a reservation.
ssize_t crosslane_send(struct crosslane_connection *connection,
                       const void *from,
                       size_t bytes,
                       int flags);

// Send what earlier commits have kept back. Returns 0 when nothing is left, or -1 and errno.
int crosslane_flush(struct crosslane_connection *connection, int flags);

// Look at the next bytes, in at most `count` spans, and wait for them unless told not to. Returns
// how many spans there are, 0 at the end of the stream, or -1 and errno.
//
// They stay until they are consumed: the next look begins with the first byte that has not been.
// The spans must not be used after the next call for this direction, nor written to.
int crosslane_peek(struct crosslane_connection *connection,
                   struct crosslane_span *spans,
                   int count,
                   int flags);

// Take the first `bytes` that the last crosslane_peek() has shown away; the peer may use their
// place again. Once for each look. Returns 0, or -1 and errno; EINVAL if not so many were shown.
int crosslane_consume(struct crosslane_connection *connection, size_t bytes);

// Receive a copy of at most `bytes` into `to`, as recv(2). Returns how many, 0 at the end of the
// stream, or -1 and errno.
ssize_t crosslane_recv(struct crosslane_connection *connection, void *to, size_t bytes, int flags);

// Prepare for sleeping in poll, select or epoll on the connection's descriptor, for POLLIN,
// POLLOUT or both. Must be called each time before, because what is in memory wakes nobody who has
// not asked for it. Returns 1 if the caller may sleep, 0 if something is there already.
//
// The caller shall poll for `*poll_for`, which is not what one would think: the wake-up of a sender
// that waits for room comes as POLLIN. And for no longer than `*at_most_ms`, unless that is -1. When
// the sleep is over, whatever ended it, any call on the connection goes on.
int crosslane_arm(struct crosslane_connection *connection,
                  short events,
                  short *poll_for,
                  int *at_most_ms);

// Wait until something is ready, spinning first as a call that waits does, for at most
// `timeout_ms`, or for ever if that is negative. Returns how many are ready, 0 when the time is
// up, or -1 and errno; EINVAL if there is none, or if one is NULL or stands there twice.
//
// It uses both directions of all of them, whatever is waited for: no other thread may be in a call
// on one meanwhile, but for those that any thread may make. A reservation stays as it is.
int crosslane_wait(struct crosslane_watch *watches, size_t count, int timeout_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CROSSLANE_H */
