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
  refuses_what_it_cannot_wait_for();
  tells_of_a_reset_whatever_is_waited_for();
  shuts_down_under_a_reservation();
  is_interrupted_by_another_thread();
  goes_on_after_signals_that_begin_calls_again();
  puts("all is as the header says");
  return 0;
}
