/* Two threads of one process exchange numbers in memory: within [NUMBERS].
 *
 *   cc within.c $(pkg-config --cflags --libs crosslane) -pthread -o within */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <crosslane.h>

/* It is a stream: a call may take or give a part of a number. */
static int send_number(crosslane_connection *connection, uint64_t number)
{
  const char *from = (const char *)&number;
  for (size_t at = 0; at < sizeof number;) {
    ssize_t sent = crosslane_send(connection, from + at, sizeof number - at, 0);
    if (sent < 0)
      return -1;
    at += (size_t)sent;
  }
  return 0;
}

/* Returns 1, 0 at the end of the stream, or -1. */
static int receive_number(crosslane_connection *connection, uint64_t *number)
{
  char *to = (char *)number;
  for (size_t at = 0; at < sizeof *number;) {
    ssize_t received = crosslane_recv(connection, to + at, sizeof *number - at, 0);
    if (received <= 0)
      return (int)received;
    at += (size_t)received;
  }
  return 1;
}

/* Send every number back, doubled. */
static void *doubled(void *argument)
{
  crosslane_connection *connection = argument;
  uint64_t number;
  while (receive_number(connection, &number) > 0 && !send_number(connection, 2 * number))
    ;
  crosslane_close(connection);
  return NULL;
}

int main(int count, char **arguments)
{
  uint64_t numbers = count > 1 ? strtoull(arguments[1], NULL, 10) : 100000;
  crosslane_connection *ends[2];
  pthread_t thread;
  if (crosslane_pair(ends) || pthread_create(&thread, NULL, doubled, ends[1])) {
    perror("within");
    return 1;
  }
  for (uint64_t number = 0; number < numbers; number++) {
    uint64_t answer = 0;
    if (send_number(ends[0], number) || receive_number(ends[0], &answer) <= 0) {
      perror("within");
      return 1;
    }
    if (answer != 2 * number) {
      fprintf(stderr, "number %ju came back as %ju\n", (uintmax_t)number, (uintmax_t)answer);
      return 1;
    }
  }
  static const char *const paths[] = {
    [CROSSLANE_PATH_TCP] = "Tcp", [CROSSLANE_PATH_PARTLY] = "Partly", [CROSSLANE_PATH_MEMORY] = "Memory"};
  const char *path = paths[crosslane_path(ends[0], NULL, 0)];
  printf("%ju numbers came back by %s\n", (uintmax_t)numbers, path);
  crosslane_close(ends[0]);
  pthread_join(thread, NULL);
  return 0;
}
