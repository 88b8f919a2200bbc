// trace_loop MODE CALLS FILE: mode 1 pread of 1 byte, 2 pread of 4 KiB at random offsets, 3 getppid (not recorded). Prints
// ns per call: the best and the median of slices of 40 calls, short enough to fit between two time slices.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int by_value(const void *a, const void *b) { double x = *(double *)a - *(double *)b; return x < 0 ? -1 : x > 0; }
int main(int argc, char **argv)
{
    int mode = atoi(argv[1]), fd = open(argv[3], O_RDONLY);
    long slices = atol(argv[2]) / 40;
    double *ns = malloc(slices * sizeof *ns);
    char buffer[4096];
    if (argc != 4 || fd < 0) return 1;
    for (long k = 0; k < slices; k++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < 40; i++) {
            if (mode == 1) { if (pread(fd, buffer, 1, 0) != 1) return 1; }
            else if (mode == 2) { if (pread(fd, buffer, 4096, (random() % 16384) * 4096L) != 4096) return 1; }
            else syscall(SYS_getppid);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        ns[k] = ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / 40;
    }
    qsort(ns, slices, sizeof *ns, by_value);
    printf("{\"best\": %.1f, \"p10\": %.1f, \"median\": %.1f}\n", ns[0], ns[slices / 10], ns[slices / 2]);
    return 0;
}
