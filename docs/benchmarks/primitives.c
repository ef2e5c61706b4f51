// What the steps of a send and a receive cost alone: cc -O2 primitives.c && ./a.out
// Each figure is the least mean of 400 batches, so that what else runs hardly matters.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define LEAST(name, calls, ...)                          \
    do {                                                 \
        double least = 1e18;                             \
        for (int batch = 0; batch < 400; batch++) {      \
            double start = now_ns();                     \
            for (int i = 0; i < (calls); i++) {          \
                __VA_ARGS__;                             \
                __asm__ volatile("" ::: "memory");       \
            }                                            \
            double each = (now_ns() - start) / (calls);  \
            if (each < least) least = each;              \
        }                                                \
        printf("%-36s %8.1f ns\n", name, least);         \
    } while (0)

int main(void) {
    static uint32_t word;
    static char from[4096] __attribute__((aligned(64))), to[4096] __attribute__((aligned(64)));
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    bind(listener, (struct sockaddr *)&name, bytes);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&name, &bytes);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(near, (struct sockaddr *)&name, bytes) != 0) return perror("connect"), 1;
    int far = accept(listener, NULL, NULL);
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct pollfd look = {.fd = far, .events = POLLIN};

    LEAST("exchange, line in own cache", 1000, __atomic_exchange_n(&word, 1, __ATOMIC_SEQ_CST));
    LEAST("copy 64 B, in cache", 1000, memcpy(to + 8, from, 64));
    LEAST("sched_getcpu", 1000, sched_getcpu());
    LEAST("fcntl(F_GETFL)", 200, syscall(SYS_fcntl, near, F_GETFL, 0));
    LEAST("recv, nothing there", 200, recv(far, to, 1, MSG_DONTWAIT));
    LEAST("poll one, no wait", 200, poll(&look, 1, 0));
    LEAST("send 1 B and recv it, nobody sleeps", 200, send(near, from, 1, 0); recv(far, to, 64, 0));
    return 0;
}
