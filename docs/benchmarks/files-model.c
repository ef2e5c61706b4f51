/*
 * A file on its way into a ring of cache lines that a thread on another processor copies out of:
 *   cache   read(2) into a buffer, copied into the ring through the cache
 *   around  the same, copied by streaming stores
 *   direct  read(2) into the ring itself
 * A record is 8 KiB, as a lane's: 8 bytes that announce it, then payload.
 *
 *   cc -O2 -pthread files-model.c && ./a.out FILE RING_KIB
 *
 * With HUGE in the environment the ring is in huge pages, of which vm.nr_hugepages must have some.
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 8192, PAYLOAD = RECORD - 8, MOST = 8, ROUNDS = 101, TARGET = 128 * 1024 };
enum way { CACHE, AROUND, DIRECT };

static char *ring;
static uint64_t slots;
static _Alignas(64) _Atomic uint64_t consumed;
static _Alignas(64) _Atomic int over;
static _Alignas(64) char buffer[MOST * PAYLOAD];

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static char *slot(uint64_t record) { return ring + record % slots * RECORD; }
static _Atomic uint64_t *header(uint64_t record) { return (_Atomic uint64_t *)slot(record); }

static void *receive(void *unused) {
    static char target[TARGET];
    size_t at = 0;
    uint64_t next = 0;
    run_on(1);
    while (!over) {
        if (atomic_load_explicit(header(next), memory_order_acquire) != next + 1) {
            _mm_pause();
            continue;
        }
        memcpy(target + at, slot(next) + 8, PAYLOAD);
        at = at + 2 * PAYLOAD <= TARGET ? at + PAYLOAD : 0;
        atomic_store_explicit(&consumed, ++next, memory_order_release);
    }
    return unused;
}

static void copy_around(char *to, const char *from, size_t bytes) {
    size_t head = -(uintptr_t)to & 63;
    memcpy(to, from, head);
    for (; head + 16 <= bytes; head += 16)
        _mm_stream_si128((__m128i *)(to + head), _mm_loadu_si128((const __m128i *)(from + head)));
    memcpy(to + head, from + head, bytes - head);
    _mm_sfence();
}

/* Room for `count` records after `next`, and for the header behind them. */
static void wait_for_room(uint64_t next, uint64_t count) {
    while (next + count - atomic_load_explicit(&consumed, memory_order_acquire) > slots - 1)
        _mm_pause();
}

/* The first header last: the receiver sees all records at once. */
static void publish(uint64_t next, int count) {
    atomic_store_explicit(header(next + count), 0, memory_order_relaxed);
    for (int i = count - 1; i > 0; i--)
        atomic_store_explicit(header(next + i), next + i + 1, memory_order_relaxed);
    atomic_store(header(next), next + 1);
}

static uint64_t send_file(int file, off_t bytes, enum way way, int records, uint64_t next) {
    for (off_t at = 0; at < bytes; at += (off_t)records * PAYLOAD) {
        struct iovec pieces[MOST];
        if (way == DIRECT) {
            wait_for_room(next, records);
            for (int i = 0; i < records; i++)
                pieces[i] = (struct iovec){slot(next + i) + 8, PAYLOAD};
            if (preadv(file, pieces, records, at) < 0) abort();
            publish(next, records);
            next += records;
            continue;
        }
        if (pread(file, buffer, (size_t)records * PAYLOAD, at) < 0) abort();
        for (int i = 0; i < records; i++, next++) {
            wait_for_room(next, 1);
            if (way == CACHE) memcpy(slot(next) + 8, buffer + i * PAYLOAD, PAYLOAD);
            else copy_around(slot(next) + 8, buffer + i * PAYLOAD, PAYLOAD);
            publish(next, 1);
        }
    }
    while (consumed != next) _mm_pause();
    return next;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "usage: %s FILE RING_KIB\n", words[0]), 2;
    struct stat stat;
    int file = open(words[1], O_RDONLY);
    if (file < 0 || fstat(file, &stat) < 0) return perror(words[1]), 1;
    slots = strtoul(words[2], NULL, 10) * 1024 / RECORD;
    ring = mmap(NULL, slots * RECORD, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | (getenv("HUGE") ? MAP_HUGETLB : 0), -1, 0);
    pthread_t receiver;
    if (slots < 2 * MOST || ring == MAP_FAILED || pthread_create(&receiver, NULL, receive, NULL))
        return fprintf(stderr, "no such ring\n"), 1;
    run_on(0);
    const char *names[] = {"cache", "around", "direct"};
    uint64_t next = 0;
    for (int records = 4; records <= MOST; records *= 2)
        for (enum way way = CACHE; way <= DIRECT; way++) {
            double us[ROUNDS];
            for (int i = 0; i < ROUNDS; i++) {
                double start = now_us();
                next = send_file(file, stat.st_size, way, records, next);
                us[i] = now_us() - start;
            }
            qsort(us, ROUNDS, sizeof *us, compare);
            printf("%6s KiB ring, %d records a read, %-6s median %6.1f us, %5.1f Gb/s\n", words[2], records,
                   names[way], us[ROUNDS / 2], stat.st_size * 8e-3 / us[ROUNDS / 2]);
        }
    over = 1;
    pthread_join(receiver, NULL);
    return 0;
}
