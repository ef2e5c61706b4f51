/* Sends everything back, from the lane in which it came into the one in which it goes:
 * echo_server [ADDRESS]. A client may be any TCP program. One is served after the other: one that is
 * silent has all others wait. epoll_server.c serves them at once.
 *
 *   cc echo_server.c $(pkg-config --cflags --libs crosslane) -o echo_server */

#include <stdio.h>
#include <string.h>

#include <crosslane.h>

#define SPANS 8

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

static int echo(crosslane_connection *connection)
{
  for (;;) {
    crosslane_span came[SPANS], room[SPANS];
    int pieces = crosslane_peek(connection, came, SPANS, 0);
    if (pieces <= 0)
      return pieces;
    size_t bytes = 0;
    for (int piece = 0; piece < pieces; piece++)
      bytes += came[piece].bytes;
    int spans = crosslane_reserve(connection, bytes, room, SPANS, 0);
    if (spans < 0)
      return -1;
    int span = 0;
    size_t skipped = 0, echoed = 0;
    for (int piece = 0; piece < pieces; piece++)
      echoed += put(&came[piece], room, spans, &span, &skipped);
    if (crosslane_commit(connection, echoed) < 0 || crosslane_consume(connection, echoed) < 0)
      return -1;
  }
}

int main(int count, char **arguments)
{
  const char *address = count > 1 ? arguments[1] : "127.0.0.1:0";
  crosslane_listener *listener = crosslane_listen(address);
  if (listener == NULL) {
    perror("crosslane_listen");
    return 1;
  }
  /* The port may have been chosen by the kernel. */
  int host = (int)(strrchr(address, ':') - address);
  printf("listening on %.*s:%d\n", host, address, crosslane_listener_port(listener));
  fflush(stdout);
  for (;;) {
    crosslane_connection *connection = crosslane_accept(listener);
    if (connection == NULL) {
      perror("crosslane_accept");
      return 1;
    }
    if (echo(connection) < 0)
      perror("echo");
    crosslane_close(connection);
  }
}
