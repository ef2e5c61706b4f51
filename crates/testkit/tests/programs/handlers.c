/* Handlers that use the very connection whose call they have interrupted, or leave that call by a long jump. The signals come all the
 * time. A child is the far end; every byte is looked at. With an argument the connection is a pair of AF_UNIX. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 2000, BYTES = 64 << 20, APART = 150, MARK = 255, CYCLE = 251 };

static int near, far, set;
static char block[65536];
static unsigned char room[65536];
/* What handlers have sent, and what they have received, byte by byte. */
static volatile long handled, sent, taken, sum_taken;
static volatile sig_atomic_t may_leave;
static sigjmp_buf out;

static void sends(int number)
{
  unsigned char mark = MARK;
  int saved = errno;
  handled += number == SIGALRM;
  sent += send(near, &mark, 1, MSG_DONTWAIT) == 1;
  errno = saved;
}

/* As of old: the kernel forgets a handler that it runs, until that has set itself again. */
static void sends_once(int number)
{
  struct sigaction action = { .sa_handler = sends_once, .sa_flags = SA_RESETHAND | SA_RESTART }, told;
  struct itimerval soon = { { 0, 0 }, { 0, APART } };
  assert(sigaction(number, &action, &told) == 0);
  assert(told.sa_handler == SIG_DFL && (told.sa_flags & (SA_SIGINFO | SA_RESETHAND)) == (handled ? SA_RESETHAND : 0));
  sends(number);
  assert(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void receives(int number)
{
  unsigned char byte;
  int saved = errno;
  handled += number == SIGALRM;
  if (recv(near, &byte, 1, MSG_DONTWAIT) == 1) {
    taken++;
    sum_taken += byte;
  }
  errno = saved;
}

static void waits(int number)
{
  struct epoll_event event = { .events = EPOLLIN };
  int saved = errno;
  epoll_wait(set, &event, 1, 0);
  epoll_ctl(set, EPOLL_CTL_MOD, near, &event);
  receives(number);
  sends(number);
  errno = saved;
}

/* On behalf of a program that it may have interrupted in malloc. */
static void selects(int number)
{
  struct timeval none = { 0, 0 };
  struct pollfd asked = { .fd = near, .events = POLLIN };
  fd_set fds;
  int saved = errno;
  handled += number == SIGALRM;
  FD_ZERO(&fds);
  FD_SET(near, &fds);
  select(near + 1, &fds, NULL, NULL, &none);
  poll(&asked, 1, 0);
  errno = saved;
}

/* Of real-time signals each is handled, of one number in their order, with what it was sent with. */
static void counts(int number, siginfo_t *told, void *unused)
{
  static int counted[2];
  int *count = &counted[number - SIGRTMIN];
  (void)unused;
  assert(told->si_value.sival_int == *count && told->si_code == SI_QUEUE && told->si_errno == 0);
  *count = (*count + 1) % (5 * ROUNDS);
  handled++;
}

static void leaves(int number)
{
  handled += number == SIGALRM;
  if (may_leave) {
    may_leave = 0;
    siglongjmp(out, 1);
  }
}

static void alarms(void (*handler)(int))
{
  struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, told;
  struct itimerval apart = { { 0, handler ? APART : 0 }, { 0, handler ? APART : 0 } };
  if (handler) {
    handled = 0;
    assert(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGALRM, NULL, &told) == 0);
    assert(told.sa_handler == handler && (told.sa_flags & (SA_SIGINFO | SA_RESTART)) == SA_RESTART);
    assert(signal(SIGALRM, handler) == handler);
  }
  assert(setitimer(ITIMER_REAL, &apart, NULL) == 0);
}

static void connect_both(int is_unix)
{
  int pair[2] = { socket(AF_INET, SOCK_STREAM, 0), -1 }, listener;
  struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
  socklen_t bytes = sizeof name;
  if (is_unix) {
    close(pair[0]);
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  } else {
    listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(bind(listener, (struct sockaddr *)&name, bytes) == 0 && listen(listener, 1) == 0);
    assert(getsockname(listener, (struct sockaddr *)&name, &bytes) == 0);
    assert(connect(pair[0], (struct sockaddr *)&name, bytes) == 0);
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
  }
  near = pair[0], far = pair[1];
}

/* Talk until the connection is accelerated, or could be. */
static void talk(void)
{
  struct timespec start, now;
  char word = 'a';
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int round = 0; word != 'z'; round++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (round >= ROUNDS && (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 > 300)
      word = 'z';
    assert(send(near, &word, 1, 0) == 1 && recv(near, room, 1, 0) == 1);
  }
}

static void answer(void)
{
  for (char word = 'a'; word != 'z';)
    assert(recv(far, &word, 1, 0) == 1 && send(far, &word, 1, 0) == 1);
}

/* The far end, in a child. It takes its share of the stream, and says what is wrong with it by its status. */
static void begin(int (*other)(void))
{
  pid_t child = fork();
  assert(child >= 0);
  if (child == 0) {
    close(near);
    answer();
    _exit(other());
  }
  close(far);
  talk();
}

static void end(const char *name)
{
  int status;
  alarms(NULL);
  shutdown(near, SHUT_WR);
  while (recv(near, room, sizeof room, 0) > 0)
    ;
  close(near);
  assert(wait(&status) > 0);
  printf("%s: %s, %d\n", name, handled > 100 ? "interrupted" : "not interrupted", WEXITSTATUS(status));
}

/* Bytes in their order, marks between them. A block may be cut short where a call was left. */
static int takes(void)
{
  long marks = 0, bytes = 0;
  int last = CYCLE - 1;
  for (ssize_t got; (got = recv(far, room, sizeof room, 0)) > 0;)
    for (ssize_t at = 0; at < got; at++, bytes++)
      if (room[at] == MARK)
        marks++;
      else if (room[at] != (last + 1) % CYCLE && room[at] != 0)
        return 2;
      else
        last = room[at];
  return bytes < BYTES || marks > bytes ? 3 : 0;
}

static int gives(void)
{
  for (long bytes = 0; bytes < BYTES; bytes += sizeof block)
    if (send(far, block, sizeof block, 0) != sizeof block)
      return 2;
  shutdown(far, SHUT_WR);
  return recv(far, room, 1, 0) == 0 ? 0 : 3;
}

static int gives_little(void)
{
  for (int round = 0; round < 100 * ROUNDS; round++) {
    if (send(far, block, 100, 0) != 100)
      return 2;
    while (recv(far, room, sizeof room, MSG_DONTWAIT) > 0)
      ;
  }
  shutdown(far, SHUT_WR);
  while (recv(far, room, sizeof room, 0) > 0)
    ;
  return 0;
}

static void send_all(void)
{
  for (long bytes = 0; bytes < BYTES; bytes += sizeof block)
    for (ssize_t at = 0, moved; at < sizeof block; at += moved)
      assert((moved = send(near, block + at, sizeof block - at, 0)) > 0);
}

static void sending(void)
{
  begin(takes);
  alarms(sends);
  send_all();
  end("sending");
}

static void sending_once(void)
{
  begin(takes);
  signal(SIGALRM, SIG_DFL);
  handled = 0;
  sends_once(SIGALRM);
  send_all();
  end("sending once");
}

static long sum_of(ssize_t bytes)
{
  long sum = 0;
  for (ssize_t at = 0; at < bytes; at++)
    sum += room[at];
  return sum;
}

static void receiving(void)
{
  long bytes = 0, sum = 0, sum_of_block = 0;
  for (size_t at = 0; at < sizeof block; at++)
    sum_of_block += (unsigned char)block[at];
  taken = sum_taken = 0;
  begin(gives);
  alarms(receives);
  for (ssize_t got; (got = recv(near, room, sizeof room, 0)) > 0; bytes += got)
    sum += sum_of(got);
  alarms(NULL);
  assert(bytes + taken == BYTES && sum + sum_taken == BYTES / sizeof block * sum_of_block);
  end("receiving");
}

static void waiting(void)
{
  struct epoll_event event = { .events = EPOLLIN };
  long bytes = 0;
  taken = 0;
  begin(gives_little);
  set = epoll_create1(0);
  assert(epoll_ctl(set, EPOLL_CTL_ADD, near, &event) == 0);
  alarms(waits);
  for (ssize_t got = -1; got != 0;)
    if (epoll_wait(set, &event, 1, 1000) == 1 && (got = recv(near, room, sizeof room, MSG_DONTWAIT)) > 0)
      bytes += got;
  alarms(NULL);
  assert(bytes + taken == 100 * 100 * ROUNDS);
  close(set);
  end("waiting");
}

static void allocating(void)
{
  static void *some[64];
  unsigned round = 0;
  begin(takes);
  alarms(selects);
  for (long at = 0; at < 20000000 || handled < 1000; at++, round = round * 1103515245 + 12345) {
    void **one = &some[round >> 16 & 63];
    free(*one);
    *one = malloc(1 + (round >> 8) % 4000);
  }
  alarms(NULL);
  send_all();
  end("allocating");
}

static void *queues(void *to)
{
  for (int sent = 0; sent < 10 * ROUNDS;) {
    union sigval value = { .sival_int = sent / 2 };
    if (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN + sent % 2, value) == 0)
      sent++;
    else
      usleep(APART);
  }
  return NULL;
}

static void queueing(void)
{
  struct sigaction action = { .sa_sigaction = counts, .sa_flags = SA_SIGINFO | SA_RESTART };
  pthread_t own = pthread_self(), other;
  begin(takes);
  handled = 0;
  assert(sigaction(SIGRTMIN, &action, NULL) == 0 && sigaction(SIGRTMIN + 1, &action, NULL) == 0);
  assert(pthread_create(&other, NULL, queues, &own) == 0);
  send_all();
  while (handled < 10 * ROUNDS)
    usleep(APART);
  pthread_join(other, NULL);
  end("queueing");
}

static void leaving(void)
{
  volatile long bytes = 0, left = 0;
  begin(takes);
  alarms(leaves);
  while (bytes < BYTES) {
    if (sigsetjmp(out, 1) != 0)
      left++;
    may_leave = 1;
    while (bytes < BYTES && send(near, block, sizeof block - sizeof block % CYCLE, 0) > 0)
      bytes += sizeof block - sizeof block % CYCLE;
    may_leave = 0;
  }
  assert(left > 0);
  end("leaving");
}

static void *sleeps(void *nothing)
{
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (;;)
    pause();
  return nothing;
}

int main(int arguments, char **unused)
{
  void (*const scenes[])(void) = { sending, sending_once, receiving, waiting, allocating, queueing, leaving };
  pthread_t other;
  (void)unused;
  for (size_t at = 0; at < sizeof block; at++)
    block[at] = at % CYCLE;
  /* Alone, and beside another thread: a lock that nobody else can want is taken in another way. */
  for (int threads = 1; threads <= 2; threads++) {
    if (threads == 2)
      assert(pthread_create(&other, NULL, sleeps, NULL) == 0);
    for (size_t scene = 0; scene < sizeof scenes / sizeof *scenes; scene++) {
      connect_both(arguments > 1);
      scenes[scene]();
    }
  }
  return 0;
}
