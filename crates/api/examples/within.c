/* Two threads of one process exchange numbers in memory: within [NUMBERS]. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <crosslane.h>

/* Send every number back, doubled. */
static void *doubled(void *argument)
{
  crosslane_connection *connection = argument;
  uint64_t number;
  while (crosslane_recv(connection, &number, sizeof number, 0) == sizeof number) {
    number *= 2;
    if (crosslane_send(connection, &number, sizeof number, 0) != sizeof number)
      break;
  }
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
    if (crosslane_send(ends[0], &number, sizeof number, 0) != sizeof number ||
        crosslane_recv(ends[0], &answer, sizeof answer, 0) != sizeof answer ||
        answer != 2 * number) {
      fprintf(stderr, "number %ju came back as %ju\n", (uintmax_t)number, (uintmax_t)answer);
      return 1;
    }
  }
  static const char *const paths[] = {"Tcp", "Partly", "Memory"};
  const char *path = paths[crosslane_path(ends[0], NULL, 0)];
  printf("%ju numbers came back by %s\n", (uintmax_t)numbers, path);
  crosslane_close(ends[0]);
  pthread_join(thread, NULL);
  return 0;
}
