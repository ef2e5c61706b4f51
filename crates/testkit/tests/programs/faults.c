/* What a program sees of its own faults, while a connection is in use, and bad pointers are given to calls on it. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int near, far;
static char *bad;
static char stack[65536];
static sigjmp_buf out;

static void say(const char *format, ...)
{
  char text[200];
  va_list words;
  va_start(words, format);
  int length = vsnprintf(text, sizeof text, format, words);
  va_end(words);
  if (write(1, text, length) != length)
    _exit(1);
}

/* A connection with this process itself, which has long been in use. */
static void join(void)
{
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof name;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *)&name, length);
  listen(listener, 1);
  getsockname(listener, (struct sockaddr *)&name, &length);
  near = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(near, (struct sockaddr *)&name, length))
    _exit(1);
  far = accept(listener, NULL, NULL);
  for (int round = 0; round < 3000; round++) {
    char byte;
    send(near, "a", 1, 0);
    recv(far, &byte, 1, 0);
    send(far, "b", 1, 0);
    recv(near, &byte, 1, 0);
    if (round > 2000)
      usleep(100);
  }
}

/* Bad pointers, and what stands in the connection afterwards. */
static void talk(void)
{
  char bytes[9] = "";
  send(near, "word", 4, 0);
  long got = recv(far, bad, 4, 0);
  say("recv %ld %d, ", got, got < 0 ? errno : 0);
  got = send(near, bad, 4, 0);
  say("send %ld %d, ", got, got < 0 ? errno : 0);
  got = recv(far, bytes, 8, 0);
  say("then %ld %s\n", got, bytes);
}

static void ask(void)
{
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  const char *handler = now.sa_handler == SIG_DFL ? "none" : now.sa_handler == SIG_IGN ? "ignored" : "its own";
  int restorer = 0x04000000;
  say("handler %s, flags %x, mask %d\n", handler, now.sa_flags & ~restorer, sigismember(&now.sa_mask, SIGUSR1));
}

static void tell(int number, siginfo_t *info, void *context)
{
  char here;
  sigset_t held;
  sigprocmask(SIG_SETMASK, NULL, &held);
  say("signal %d code %d at %d, on the other stack %d, held %d %d\n", number, info->si_code, info->si_addr == bad,
      &here >= stack && &here < stack + sizeof stack, sigismember(&held, number), sigismember(&held, SIGUSR1));
  if (!context)
    _exit(1);
  siglongjmp(out, 1);
}

static void leave(int number)
{
  say("left %d\n", number);
  siglongjmp(out, 1);
}

static void once(int number)
{
  say("once %d\n", number);
}

static void fault(void)
{
  if (!sigsetjmp(out, 1))
    *(volatile char *)bad = 1;
}

static void become_another(void)
{
  execl("/proc/self/exe", "faults", "ask", (char *)NULL);
}

static void ignore_and_become_another(void)
{
  signal(SIGSEGV, SIG_IGN);
  become_another();
}

static void handle_and_become_another(void)
{
  signal(SIGSEGV, leave);
  become_another();
}

static void write_there(void)
{
  *(volatile char *)bad = 1;
}

static void write_nowhere_at_all(void)
{
  *(volatile char *)0xdead000000000000 = 1;
}

static void send_itself(void)
{
  kill(getpid(), SIGSEGV);
  sleep(1);
}

static void raise_the_other(void)
{
  raise(SIGBUS);
}

static void ignore_and_write(void)
{
  signal(SIGSEGV, SIG_IGN);
  kill(getpid(), SIGSEGV);
  ask();
  write_there();
}

static void hold_and_write(void)
{
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  signal(SIGSEGV, leave);
  write_there();
}

static int sink(int depth)
{
  volatile char room[4096];
  room[0] = depth;
  return depth < 0 ? 0 : sink(depth + 1) + room[0];
}

static void overflow(void)
{
  _exit(sink(0));
}

static void handle_once(void)
{
  struct sigaction action = {.sa_handler = once, .sa_flags = SA_RESETHAND};
  sigaction(SIGSEGV, &action, NULL);
  talk();
  ask();
  write_there();
}

static void handle_by_sysv(void)
{
  sysv_signal(SIGSEGV, once);
  talk();
  ask();
  write_there();
}

static void in_a_child(const char *name, void (*act)(void))
{
  pid_t child = fork();
  if (!child) {
    act();
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  say("%s: %d, %d\n", name, status & 0x7f, WIFSIGNALED(status) ? 0 : WEXITSTATUS(status));
}

static void handle(int flags)
{
  struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | flags}, before;
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, &before);
  say("before: flags %x\n", before.sa_flags & ~0x04000000);
  ask();
  fault();
  talk();
  fault();
  if (!sigsetjmp(out, 1))
    raise(SIGSEGV);
}

int main(int words, char **word)
{
  if (words > 1 && !strcmp(word[1], "ask")) {
    ask();
    return 0;
  }
  bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ask();
  join();
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&other, NULL);
  for (int round = 0; round < 2; round++) {
    ask();
    talk();
    in_a_child("writes there", write_there);
    in_a_child("writes nowhere at all", write_nowhere_at_all);
    in_a_child("sinks", overflow);
    in_a_child("sends itself", send_itself);
    in_a_child("raises the other", raise_the_other);
    in_a_child("ignores and writes", ignore_and_write);
    in_a_child("holds and writes", hold_and_write);
    in_a_child("becomes another", become_another);
    in_a_child("ignores and becomes another", ignore_and_become_another);
    in_a_child("handles and becomes another", handle_and_become_another);
    in_a_child("handles once", handle_once);
    in_a_child("handles by sysv_signal", handle_by_sysv);
    handle(0);
    handle(SA_ONSTACK);
    handle(SA_ONSTACK | SA_NODEFER);
    say("was its own: %d\n", signal(SIGSEGV, leave) == (sighandler_t)(void *)tell);
    ask();
    fault();
    talk();
    say("was its own: %d\n", signal(SIGSEGV, SIG_DFL) == leave);
  }
  return 0;
}
