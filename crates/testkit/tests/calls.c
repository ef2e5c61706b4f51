/* What the header promises of calls: refusals, a reservation under a shutdown, another thread's end of what waits, and
 * signals. calls.c is compiled by api.rs. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <crosslane.h>

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%d: not so (errno %d): %s\n", __LINE__, errno, #what); \
      _exit(1); \
    } \
  } while (0)

static crosslane_connection *near, *far;

static void connect_both(void)
{
  crosslane_connection *ends[2];
  CHECK(!crosslane_pair(ends));
  near = ends[0];
  far = ends[1];
}

static void close_both(void)
{
  crosslane_close(near);
  crosslane_close(far);
}

static void refuses_what_it_cannot_wait_for(void)
{
  connect_both();
  crosslane_watch watches[3] = {{near, POLLIN, 0}, {far, POLLIN, 0}, {near, POLLOUT, 0}};
  CHECK(crosslane_wait(watches, 3, 0) == -1 && errno == EINVAL);
  watches[2].connection = NULL;
  CHECK(crosslane_wait(watches, 3, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_wait(watches, 0, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_wait(watches, 2, 0) == 0);
  watches[1].events = POLLOUT;
  CHECK(crosslane_wait(watches, 2, -1) == 1 && !watches[0].revents && watches[1].revents == POLLOUT);
  close_both();
}

static void refuses_flags_that_mean_nothing_here(void)
{
  connect_both();
  char byte = 1;
  crosslane_span spans[2];
  /* MSG_OOB has the number of the only flag that there is. */
  int others[] = {MSG_PEEK, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, CROSSLANE_DONTWAIT | MSG_PEEK, -1};
  for (size_t at = 0; at < sizeof others / sizeof *others; at++) {
    int flags = others[at];
    CHECK(crosslane_send(far, &byte, 1, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_send(far, &byte, 0, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_recv(near, &byte, 1, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_recv(near, &byte, 0, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_peek(near, spans, 2, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_reserve(far, 8, spans, 2, flags) == -1 && errno == EINVAL);
    CHECK(crosslane_flush(far, flags) == -1 && errno == EINVAL);
  }
  CHECK(crosslane_recv(near, &byte, 1, CROSSLANE_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(crosslane_send(far, &byte, 1, 0) == 1);
  CHECK(crosslane_recv(near, &byte, 1, MSG_PEEK) == -1 && errno == EINVAL);
  CHECK(crosslane_recv(near, &byte, 1, 0) == 1);
  close_both();
}

static void refuses_numbers_that_mean_nothing(void)
{
  connect_both();
  crosslane_span spans[2];
  CHECK(crosslane_reserve(near, 0, spans, 2, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_reserve(near, 8, spans, 1, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_reserve(near, 8, NULL, 2, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_commit(near, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_peek(near, spans, 0, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_peek(near, NULL, 1, 0) == -1 && errno == EINVAL);
  CHECK(crosslane_consume(near, 1) == -1 && errno == EINVAL);
  CHECK(crosslane_pair(NULL) == -1 && errno == EINVAL);
  CHECK(!crosslane_connect(NULL) && errno == EINVAL);
  CHECK(!crosslane_connect("127.0.0.1") && errno == EINVAL);
  /* No resolver asks anybody for a label of more than 63 characters. */
  char name[100];
  snprintf(name, sizeof name, "%070d.invalid:1", 0);
  CHECK(!crosslane_listen(name) && errno == EADDRNOTAVAIL);
  close_both();
}

static void gives_a_whole_reservation_up_to_what_it_promises(void)
{
  connect_both();
  crosslane_span room[2];
  size_t sizes[] = {1, 1024, 1025, CROSSLANE_WHOLE_BYTES, CROSSLANE_WHOLE_BYTES + 1, 64 << 20};
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
    size_t bytes = 0;
    int spans = crosslane_reserve(near, sizes[at], room, 2, 0);
    CHECK(spans == 1 || spans == 2);
    for (int span = 0; span < spans; span++)
      bytes += room[span].bytes;
    CHECK(bytes <= sizes[at]);
    CHECK(bytes >= (sizes[at] < CROSSLANE_WHOLE_BYTES ? sizes[at] : CROSSLANE_WHOLE_BYTES));
    CHECK(crosslane_commit(near, bytes + 1) == -1 && errno == EINVAL);
    CHECK(!crosslane_commit(near, 0));
    CHECK(crosslane_commit(near, 0) == -1 && errno == EINVAL);
  }
  close_both();
}

static void tells_where_the_bytes_travel(void)
{
  connect_both();
  char reason[CROSSLANE_REASON_BYTES] = "?", byte = 1;
  CHECK(crosslane_send(far, &byte, 1, 0) == 1 && crosslane_recv(near, &byte, 1, 0) == 1);
  CHECK(crosslane_send(near, &byte, 1, 0) == 1 && crosslane_recv(far, &byte, 1, 0) == 1);
  CHECK(crosslane_path(near, reason, sizeof reason) == CROSSLANE_PATH_MEMORY && !*reason);
  close_both();
}

static void accepts_without_waiting_if_told_so(void)
{
  crosslane_listener *listener = crosslane_listen("127.0.0.1:0");
  CHECK(listener && !crosslane_listener_set_nonblocking(listener, 1));
  CHECK(!crosslane_accept(listener) && errno == EAGAIN);
  char address[32];
  snprintf(address, sizeof address, "127.0.0.1:%d", crosslane_listener_port(listener));
  near = crosslane_connect(address);
  struct pollfd come = {crosslane_listener_fd(listener), POLLIN, 0};
  CHECK(near && poll(&come, 1, -1) == 1);
  far = crosslane_accept(listener);
  CHECK(far);
  /* What has been accepted waits. */
  CHECK(crosslane_recv(far, address, 1, CROSSLANE_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(!crosslane_shutdown(near, SHUT_WR) && crosslane_recv(far, address, 1, 0) == 0);
  CHECK(!crosslane_listener_set_nonblocking(listener, 0));
  crosslane_listener_close(listener);
  close_both();
}

static void is_of_the_headers_version(void)
{
  CHECK(!strcmp(crosslane_version(), CROSSLANE_VERSION));
}

static void tells_of_a_reset_whatever_is_waited_for(void)
{
  connect_both();
  char byte = 1;
  CHECK(crosslane_send(far, &byte, 1, 0) == 1);
  CHECK(crosslane_recv(near, &byte, 1, 0) == 1);
  CHECK(crosslane_send(near, &byte, 1, 0) == 1);
  crosslane_close(far);
  crosslane_watch watch = {near, 0, 0};
  CHECK(crosslane_wait(&watch, 1, -1) == 1);
  CHECK(watch.revents & (POLLERR | POLLHUP) && !(watch.revents & (POLLIN | POLLOUT)));
  crosslane_close(near);
}

static void shuts_down_under_a_reservation(void)
{
  connect_both();
  crosslane_span room[2];
  char first[4] = "all";
  CHECK(crosslane_reserve(near, 3000, room, 2, 0) > 0);
  CHECK(crosslane_shutdown(near, 17) == -1 && errno == EINVAL);
  CHECK(crosslane_send(near, first, 3, 0) == -1 && errno == EBUSY);
  CHECK(!crosslane_shutdown(near, SHUT_RD));
  memcpy(room[0].start, first, 3);
  CHECK(!crosslane_commit(near, 3));
  CHECK(crosslane_reserve(near, 3000, room, 2, 0) > 0);
  CHECK(!crosslane_shutdown(near, SHUT_WR));
  CHECK(crosslane_commit(near, 1) == -1 && errno == EINVAL);
  char found[10];
  CHECK(crosslane_recv(far, found, sizeof found, 0) == 3 && !memcmp(found, first, 3));
  CHECK(crosslane_recv(far, found, sizeof found, 0) == 0);
  close_both();
}

static void *looks(void *expected)
{
  crosslane_span span;
  CHECK(crosslane_peek(near, &span, 1, 0) == 0);
  return expected;
}

static void *sends(void *expected)
{
  static char bytes[1 << 16];
  while (crosslane_send(near, bytes, sizeof bytes, 0) > 0)
    ;
  CHECK(errno == EPIPE);
  return expected;
}

static void is_interrupted_by_another_thread(void)
{
  connect_both();
  pthread_t threads[2];
  CHECK(!pthread_create(&threads[0], NULL, looks, NULL));
  CHECK(!pthread_create(&threads[1], NULL, sends, NULL));
  usleep(200000);
  CHECK(!crosslane_interrupt(near));
  CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL));
  close_both();
}

static void note(int signal)
{
  (void)signal;
}

#define ROUNDS 2000

/* Slowly, so that its peer has to wait for room. */
static void *receives(void *rounds)
{
  static char bytes[CROSSLANE_WHOLE_BYTES];
  size_t got = 0;
  for (ssize_t now; (now = crosslane_recv(far, bytes, sizeof bytes, 0)) > 0;) {
    got += (size_t)now;
    usleep(50);
  }
  *(size_t *)rounds = got / sizeof bytes;
  return NULL;
}

static volatile sig_atomic_t is_over;

static void *signals(void *whom)
{
  while (!is_over) {
    CHECK(!pthread_kill(*(pthread_t *)whom, SIGUSR1));
    usleep(300);
  }
  return NULL;
}

static void goes_on_after_signals_that_begin_calls_again(void)
{
  connect_both();
  struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
  CHECK(!sigaction(SIGUSR1, &action, NULL));
  pthread_t threads[2], own = pthread_self();
  size_t rounds;
  CHECK(!pthread_create(&threads[0], NULL, receives, &rounds));
  CHECK(!pthread_create(&threads[1], NULL, signals, &own));
  for (int round = 0; round < ROUNDS; round++) {
    crosslane_span room[2];
    CHECK(crosslane_reserve(near, CROSSLANE_WHOLE_BYTES, room, 2, 0) > 0);
    CHECK(!crosslane_commit(near, CROSSLANE_WHOLE_BYTES));
  }
  is_over = 1;
  CHECK(!crosslane_shutdown(near, SHUT_WR));
  CHECK(!pthread_join(threads[0], NULL) && rounds == ROUNDS);
  CHECK(!pthread_join(threads[1], NULL));
  close_both();
}

int main(void)
{
  alarm(60);
  is_of_the_headers_version();
  refuses_flags_that_mean_nothing_here();
  refuses_numbers_that_mean_nothing();
  gives_a_whole_reservation_up_to_what_it_promises();
  tells_where_the_bytes_travel();
  accepts_without_waiting_if_told_so();
  refuses_what_it_cannot_wait_for();
  tells_of_a_reset_whatever_is_waited_for();
  shuts_down_under_a_reservation();
  is_interrupted_by_another_thread();
  goes_on_after_signals_that_begin_calls_again();
  puts("all is as the header says");
  return 0;
}
