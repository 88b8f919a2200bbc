// Performs a scripted mix of calls over processes and threads and writes down what each did, from its own knowledge:
// scripted DIRECTORY LOG PROCESSES THREADS OPERATIONS. A log row: tid, operation, offset, count, result (5 int64).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *directory;
static char log_name[4096];
static long operations;
static int shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *log_file;

// numbers of rust/assay-trace/src/model.rs
enum { READ = 1, WRITE, PREAD, PWRITE, READV, WRITEV, PREADV, PWRITEV, LSEEK, FSYNC, FDATASYNC, SYNC_RANGE, FTRUNCATE,
       FALLOCATE, CLOSE, DUP, OPEN = 19, TRUNCATE, RENAME, UNLINK, MKDIR, RMDIR, LINK, SYMLINK, COPY };

typedef struct { int64_t tid, op, offset, count, result; } Row;

static void *work(void *argument)
{
    long me = (long)argument;
    int64_t tid = gettid();
    Row *rows = malloc(sizeof(Row) * (operations + 16));
    long n = 0;
    char name[4200], other[4200], buffer[8192];
    unsigned long state = me * 7919 + getpid();
    memset(buffer, 'x', sizeof buffer);
    snprintf(name, sizeof name, "%s/f-%d-%ld", directory, getpid(), me);
    snprintf(other, sizeof other, "%s/g-%d-%ld", directory, getpid(), me);
#define NOTE(o, off, cnt, call) do { long r = (call); rows[n++] = (Row){tid, o, off, cnt, r < 0 ? -errno : r}; } while (0)
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    rows[n++] = (Row){tid, OPEN, 0, 0, fd};
    long position = 0, size = 0;
    while (n < operations) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        unsigned long pick = (state >> 33) % 100, length = 1 + (state >> 40) % 4096, at = (state >> 20) % 100000;
        struct iovec parts[2] = {{buffer, length}, {buffer, 100}};
        if (pick < 15) {
            long left = size - position, got = left < 0 ? 0 : left < (long)length ? left : (long)length;
            NOTE(READ, position, length, read(fd, buffer, length));
            position += got;
        } else if (pick < 30) {
            NOTE(WRITE, position, length, write(fd, buffer, length));
            position += length;
            if (position > size) size = position;
        } else if (pick < 45) NOTE(PREAD, at, length, pread(fd, buffer, length, at));
        else if (pick < 55) {
            NOTE(PWRITE, at, length, pwrite(fd, buffer, length, at));
            if ((long)(at + length) > size) size = at + length;
        } else if (pick < 65) NOTE(PREAD, at, length, pread(shared, buffer, length, at));
        else if (pick < 70) NOTE(PWRITE, at, length, pwrite(shared, buffer, length, at));
        else if (pick < 74) {
            NOTE(WRITEV, position, length + 100, writev(fd, parts, 2));
            position += length + 100;
            if (position > size) size = position;
        } else if (pick < 77) NOTE(PREADV, at, length + 100, preadv(fd, parts, 2, at));
        else if (pick < 79) {
            NOTE(PWRITEV, at, length + 100, pwritev2(fd, parts, 2, at, 0));
            if ((long)(at + length + 100) > size) size = at + length + 100;
        } else if (pick < 87) {
            position = at;
            rows[n++] = (Row){tid, LSEEK, at, SEEK_SET, lseek(fd, at, SEEK_SET) < 0 ? -errno : 0};
        } else if (pick < 88) NOTE(FDATASYNC, 0, 0, fdatasync(fd));
        else if (pick < 89) {
            size = at;
            NOTE(FTRUNCATE, at, 0, ftruncate(fd, at));
        } else if (pick < 90) NOTE(FALLOCATE, at, length, fallocate(fd, FALLOC_FL_KEEP_SIZE, at, length));
        else if (pick < 92) {
            int copy;
            NOTE(DUP, 0, 0, copy = dup(fd));
            NOTE(CLOSE, 0, 0, close(copy));
        } else if (pick < 94) {
            int again = open(name, O_RDONLY);
            rows[n++] = (Row){tid, OPEN, 0, 0, again};
            NOTE(CLOSE, 0, 0, close(again));
        } else if (pick < 95) {
            NOTE(RENAME, 0, 0, rename(name, other));
            NOTE(RENAME, 0, 0, rename(other, name));
        } else if (pick < 96) {
            NOTE(LINK, 0, 0, link(name, other));
            NOTE(UNLINK, 0, 0, unlink(other));
        } else if (pick < 97) {
            NOTE(MKDIR, 0, 0, mkdir(other, 0700));
            NOTE(RMDIR, 0, 0, rmdir(other));
        } else if (pick < 98) {
            NOTE(SYMLINK, 0, 0, symlink(name, other));
            NOTE(UNLINK, 0, 0, unlink(other));
        } else if (pick < 99) NOTE(UNLINK, 0, 0, unlink(other)); // fails: not there
        else {
            off_t from = at, to = 200000;
            long r = copy_file_range(shared, &from, fd, &to, length, 0);
            rows[n++] = (Row){tid, COPY, at, length, r < 0 ? -errno : r};
            if (r > 0 && 200000 + r > size) size = 200000 + r;
        }
    }
    NOTE(CLOSE, 0, 0, close(fd));
    pthread_mutex_lock(&mutex);
    fwrite(rows, sizeof(Row), n, log_file);
    pthread_mutex_unlock(&mutex);
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    directory = argv[1];
    int processes = atoi(argv[3]), threads = atoi(argv[4]);
    operations = atol(argv[5]) / (processes * threads);
    for (int p = 0; p < processes; p++) {
        if (fork())
            continue;
        char name[4200];
        snprintf(name, sizeof name, "%s/shared-%d", directory, p);
        shared = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (ftruncate(shared, 200000)) return 1;
        snprintf(log_name, sizeof log_name, "%s.%d", argv[2], p);
        log_file = fopen(log_name, "w");
        pthread_t all[256];
        for (long t = 0; t < threads; t++) pthread_create(&all[t], 0, work, (void *)t);
        for (int t = 0; t < threads; t++) pthread_join(all[t], 0);
        fclose(log_file);
        _exit(0);
    }
    while (wait(0) > 0) {}
    return 0;
}
