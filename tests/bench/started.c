// SPDX-License-Identifier: Apache-2.0
// Says when its main() began and which job it is in. Linked statically, so that it runs in an image
// that has nothing else, and so that the time is that of the container and not of a dynamic linker.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  struct timespec date;
  clock_gettime(CLOCK_REALTIME, &date);
  const char* job = getenv("SLURM_JOB_ID");
  char line[128];
  const int n =
      snprintf(line, sizeof line, "started %lld.%09ld %lld.%09ld %s\n", (long long)now.tv_sec,
               now.tv_nsec, (long long)date.tv_sec, date.tv_nsec, job ? job : "0");
  return write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : 1;
}
