/* A program with functions of libc's names, which pass on to the next library's, by the names that libc has besides. Erlang's
 * virtual machine does so with sigaction. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OWN(result, name, next, parameters, arguments)                                                                 \
	static int calls_of_##name;                                                                                    \
	result name parameters                                                                                         \
	{                                                                                                              \
		result(*found) parameters = dlsym(RTLD_NEXT, next);                                                    \
		calls_of_##name++;                                                                                     \
		return found arguments;                                                                                \
	}

OWN(int, sigaction, "__sigaction", (int number, const struct sigaction *new, struct sigaction *old), (number, new, old))
OWN(int, connect, "__connect", (int fd, const struct sockaddr *name, socklen_t bytes), (fd, name, bytes))
OWN(ssize_t, send, "__send", (int fd, const void *buffer, size_t bytes, int flags), (fd, buffer, bytes, flags))
OWN(ssize_t, read, "__read", (int fd, void *buffer, size_t bytes), (fd, buffer, bytes))
OWN(int, poll, "__poll", (struct pollfd *fds, nfds_t count, int timeout), (fds, count, timeout))
OWN(int, close, "__close", (int fd), (fd))

static volatile sig_atomic_t signals;

static void count(int number)
{
	signals += number == SIGUSR1;
}

int main(void)
{
	struct sigaction action = { .sa_handler = count };
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t bytes = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0), far;

	assert(sigaction(SIGUSR1, &action, NULL) == 0);
	assert(bind(listener, (struct sockaddr *)&name, bytes) == 0 && listen(listener, 1) == 0);
	assert(getsockname(listener, (struct sockaddr *)&name, &bytes) == 0);
	assert(connect(near, (struct sockaddr *)&name, bytes) == 0);
	far = accept(listener, NULL, NULL);
	for (int round = 0; round < 2000; round++) {
		char word[5] = "";
		struct pollfd wish = { .fd = far, .events = POLLIN };

		assert(send(near, "word", 4, 0) == 4);
		assert(poll(&wish, 1, -1) == 1 && wish.revents == POLLIN);
		assert(read(far, word, 4) == 4 && strcmp(word, "word") == 0);
		assert(send(far, word, 4, 0) == 4 && read(near, word, 4) == 4);
		assert(raise(SIGUSR1) == 0);
	}
	assert(close(near) == 0 && read(far, &name, 1) == 0 && close(far) == 0);
	printf("%d signals; %d %d %d %d %d %d calls\n", signals, calls_of_sigaction, calls_of_connect, calls_of_send,
	       calls_of_read, calls_of_poll, calls_of_close);
	return 0;
}
