/* The wall clock of the processes that load this (LD_PRELOAD) is off by what a shared file says: two int64, nanoseconds and the one process
 * that it is for (0: all). Monotonic clocks are left alone, as by a clock that is set. Written since libfaketime is not everywhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static volatile int64_t *off;

__attribute__((constructor)) static void load(void) {
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) off = at;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  if (!real) load(); /* asked before we were set up */
  int failed = real(clock, to);
  if (failed || !off || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t by = off[0], only = off[1];
  if (!by || (only && only != getpid())) return 0;
  int64_t now = (int64_t)to->tv_sec * 1000000000 + to->tv_nsec + by;
  to->tv_sec = now / 1000000000;
  to->tv_nsec = now % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *to, void *zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  to->tv_sec = now.tv_sec;
  to->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
