/* Sends everything back to many clients at once, by epoll: epoll_server [ADDRESS]. A client may be any
 * TCP program.
 *
 * What is in memory wakes nobody who has not asked: before the loop sleeps, crosslane_arm() is called for
 * each client that has been served since, and says for what to poll, and for how long at most.
 *
 *   cc epoll_server.c $(pkg-config --cflags --libs crosslane) -o epoll_server */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <crosslane.h>

#define SPANS 8
#define EVENTS 64

struct client {
  crosslane_connection *connection;
  struct client *next;
  /* POLLIN or POLLOUT, for what crosslane_arm() is asked. */
  short waits_for;
  /* To be served before the loop sleeps. */
  int is_ready;
  /* How long the loop may sleep for it, -1 without limit. */
  int at_most_ms;
};

static int epoll;
static struct client *clients;

/* Put what fits of `from` into the room, whose first span begins at `*skipped`. Returns how much. */
static size_t put(const crosslane_span *from, crosslane_span *room, int spans, int *span,
                  size_t *skipped)
{
  const char *start = from->start;
  size_t done = 0;
  while (done < from->bytes && *span < spans) {
    size_t free = room[*span].bytes - *skipped;
    size_t bytes = from->bytes - done < free ? from->bytes - done : free;
    memcpy((char *)room[*span].start + *skipped, start + done, bytes);
    done += bytes;
    *skipped += bytes;
    if (*skipped == room[*span].bytes) {
      *span += 1;
      *skipped = 0;
    }
  }
  return done;
}

/* Send back what is shown in `came`, as much as there is room for. Returns 0, or -1 and errno. */
static int send_back(crosslane_connection *connection, const crosslane_span *came, int pieces)
{
  size_t bytes = 0;
  for (int piece = 0; piece < pieces; piece++)
    bytes += came[piece].bytes;
  crosslane_span room[2];
  int spans = crosslane_reserve(connection, bytes, room, 2, 0);
  if (spans < 0)
    return -1;
  int span = 0;
  size_t skipped = 0, echoed = 0;
  for (int piece = 0; piece < pieces; piece++)
    echoed += put(&came[piece], room, spans, &span, &skipped);
  if (crosslane_commit(connection, echoed) < 0)
    return -1;
  return crosslane_consume(connection, echoed);
}

/* Serve a client once. Returns 1 if there may be more to do at once, 0 if it has to wait for
 * `waits_for`, or -1 if it is over. */
static int serve(struct client *client)
{
  /* Where the peer is reached by TCP, the kernel may have had no room for what was committed. */
  client->waits_for = POLLOUT;
  if (crosslane_flush(client->connection, 0) < 0)
    return errno == EAGAIN ? 0 : -1;
  client->waits_for = POLLIN;
  crosslane_span came[SPANS];
  int pieces = crosslane_peek(client->connection, came, SPANS, 0);
  if (pieces < 0)
    return errno == EAGAIN ? 0 : -1;
  if (pieces == 0)
    return -1;
  client->waits_for = POLLOUT;
  if (send_back(client->connection, came, pieces) < 0)
    return errno == EAGAIN ? 0 : -1;
  return 1;
}

/* Serve a client that is ready, and arm it if it has to wait. Returns -1 if it is over. */
static int attend(struct client *client)
{
  int outcome = serve(client);
  if (outcome != 0)
    return outcome;
  short poll_for;
  if (!crosslane_arm(client->connection, client->waits_for, &poll_for, &client->at_most_ms))
    return 1;
  client->is_ready = 0;
  struct epoll_event event = {.events = (uint32_t)poll_for, .data.ptr = client};
  return epoll_ctl(epoll, EPOLL_CTL_MOD, crosslane_fd(client->connection), &event);
}

static void welcome(crosslane_connection *connection)
{
  struct client *client = calloc(1, sizeof *client);
  struct epoll_event event = {.data.ptr = client};
  if (client == NULL || crosslane_set_nonblocking(connection, 1) < 0 ||
      epoll_ctl(epoll, EPOLL_CTL_ADD, crosslane_fd(connection), &event) < 0) {
    perror("a client");
    crosslane_close(connection);
    free(client);
    return;
  }
  client->connection = connection;
  client->is_ready = 1;
  client->next = clients;
  clients = client;
}

/* Serve all that are ready, once. Returns how long the loop may sleep then. */
static int attend_all(void)
{
  int limit = -1;
  /* A server of thousands would keep those that are ready, and those with a limit, in lists of their own. */
  for (struct client **at = &clients; *at != NULL;) {
    struct client *client = *at;
    if (client->is_ready && attend(client) < 0) {
      *at = client->next;
      /* Closing it takes it out of the epoll set. */
      crosslane_close(client->connection);
      free(client);
      continue;
    }
    int own = client->is_ready ? 0 : client->at_most_ms;
    if (own >= 0 && (limit < 0 || own < limit))
      limit = own;
    at = &client->next;
  }
  return limit;
}

int main(int count, char **arguments)
{
  const char *address = count > 1 ? arguments[1] : "127.0.0.1:0";
  crosslane_listener *listener = crosslane_listen(address);
  struct epoll_event door = {.events = EPOLLIN, .data.ptr = NULL};
  epoll = epoll_create1(EPOLL_CLOEXEC);
  /* Who has knocked may be gone when it is let in. */
  if (listener == NULL || epoll < 0 || crosslane_listener_set_nonblocking(listener, 1) < 0 ||
      epoll_ctl(epoll, EPOLL_CTL_ADD, crosslane_listener_fd(listener), &door) < 0) {
    perror(address);
    return 1;
  }
  int host = (int)(strrchr(address, ':') - address);
  printf("listening on %.*s:%d\n", host, address, crosslane_listener_port(listener));
  fflush(stdout);
  for (;;) {
    struct epoll_event events[EVENTS];
    int happened = epoll_wait(epoll, events, EVENTS, attend_all());
    if (happened < 0 && errno != EINTR) {
      perror("epoll_wait");
      return 1;
    }
    for (int event = 0; event < happened; event++) {
      struct client *client = events[event].data.ptr;
      if (client != NULL)
        client->is_ready = 1;
      else
        for (crosslane_connection *next; (next = crosslane_accept(listener)) != NULL;)
          welcome(next);
    }
    /* The time of those that have a limit may be up. */
    for (struct client *client = clients; client != NULL; client = client->next)
      if (client->at_most_ms >= 0)
        client->is_ready = 1;
  }
}
