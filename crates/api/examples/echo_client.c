/* Sends messages and checks that they come back: echo_client ADDRESS [MESSAGES]. Each is 64 bytes,
 * built in place; 16 are sent at once, so that their number is rounded up to a multiple of 16.
 *
 *   cc echo_client.c $(pkg-config --cflags --libs crosslane) -o echo_client */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <crosslane.h>

#define BYTES 64
#define BATCH 16

static void build(char *message, uint64_t number)
{
  memset(message, (int)(number & 0xff), BYTES);
  memcpy(message, &number, sizeof number);
}

/* Build messages where they travel, and show them to the peer at once. */
static int send_batch(crosslane_connection *connection, uint64_t number)
{
  crosslane_span room[2];
  int spans = crosslane_reserve(connection, BATCH * BYTES, room, 2, 0);
  if (spans < 0)
    return -1;
  char message[BYTES];
  size_t at = 0;
  for (int span = 0; span < spans; span++) {
    char *to = room[span].start;
    for (size_t byte = 0; byte < room[span].bytes; byte++, at++) {
      if (at % BYTES == 0)
        build(message, number + at / BYTES);
      to[byte] = message[at % BYTES];
    }
  }
  return crosslane_commit(connection, BATCH * BYTES);
}

static int receive_batch(crosslane_connection *connection, uint64_t number)
{
  char message[BYTES];
  size_t at = 0;
  while (at < BATCH * BYTES) {
    crosslane_watch watch = {connection, POLLIN, 0};
    crosslane_span came[4];
    if (crosslane_wait(&watch, 1, -1) != 1)
      return -1;
    int pieces = crosslane_peek(connection, came, 4, CROSSLANE_DONTWAIT);
    if (pieces <= 0)
      return -1;
    size_t shown = 0;
    for (int piece = 0; piece < pieces; piece++) {
      const char *from = came[piece].start;
      for (size_t byte = 0; byte < came[piece].bytes; byte++, at++) {
        if (at % BYTES == 0)
          build(message, number + at / BYTES);
        if (at == BATCH * BYTES || from[byte] != message[at % BYTES]) {
          fprintf(stderr, "message %ju differs\n", (uintmax_t)(number + at / BYTES));
          exit(1);
        }
      }
      shown += came[piece].bytes;
    }
    if (crosslane_consume(connection, shown) < 0)
      return -1;
  }
  return 0;
}

int main(int count, char **arguments)
{
  if (count < 2) {
    fprintf(stderr, "usage: echo_client ADDRESS [MESSAGES]\n");
    return 2;
  }
  uint64_t messages = count > 2 ? strtoull(arguments[2], NULL, 10) : 16000;
  messages = (messages + BATCH - 1) / BATCH * BATCH;
  crosslane_connection *connection = crosslane_connect(arguments[1]);
  if (connection == NULL) {
    perror(arguments[1]);
    return 1;
  }
  for (uint64_t number = 0; number < messages; number += BATCH) {
    if (send_batch(connection, number) < 0 || receive_batch(connection, number) < 0) {
      perror("echo_client");
      return 1;
    }
  }
  char reason[CROSSLANE_REASON_BYTES];
  int path = crosslane_path(connection, reason, sizeof reason);
  static const char *const paths[] = {
    [CROSSLANE_PATH_TCP] = "Tcp", [CROSSLANE_PATH_PARTLY] = "Partly", [CROSSLANE_PATH_MEMORY] = "Memory"};
  printf("%ju messages came back by %s %s\n", (uintmax_t)messages, paths[path], reason);
  crosslane_close(connection);
  return 0;
}
