/* SPDX-License-Identifier: Apache-2.0 */
/* A training program without training, for tests of what surrounds it: it counts. At step S the
 * replicated counter holds S and row i of the sharded array holds S * (i + 1); whatever a restart
 * brings back is held against that. Rank 0 writes a log of starts and the end, with their times.
 *
 *   counter --steps N --sleep-us U --save-every K --rows R --log FILE [--exit STATUS] [--async]
 *           [--die-at STEP] [--keep-going] [--eat MIB] [--until FILE] [--work-us U] [--batch B]
 *           [--tell FILE]
 *
 * A step takes U of --sleep-us on every rank, and of --work-us what all ranks share.
 * With --until it counts to the number in the file, once that is there. With --async it goes on
 * while it saves; with --die-at it kills itself once, right after the save of that step has
 * returned; with --keep-going a save that fails does not end it; with --eat the first run takes so
 * much memory after its first save. With --batch it says that a step has so many samples. With
 * --tell rank 0 writes how many steps are done over the number in the file, of eight bytes.
 */
#include <bellows.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
  uint64_t steps, sleep_us, save_every, rows;
  const char *log, *until, *tell;
  int exit_status, async, keep_going;
  uint64_t die_at, eat, work_us, batch;
};

static struct options parse(int argc, char** argv) {
  static const struct option names[] = {{"steps", required_argument, 0, 's'},
                                        {"sleep-us", required_argument, 0, 'u'},
                                        {"save-every", required_argument, 0, 'k'},
                                        {"rows", required_argument, 0, 'r'},
                                        {"log", required_argument, 0, 'l'},
                                        {"exit", required_argument, 0, 'e'},
                                        {"async", no_argument, 0, 'a'},
                                        {"die-at", required_argument, 0, 'd'},
                                        {"keep-going", no_argument, 0, 'g'},
                                        {"eat", required_argument, 0, 'm'},
                                        {"until", required_argument, 0, 't'},
                                        {"work-us", required_argument, 0, 'w'},
                                        {"batch", required_argument, 0, 'b'},
                                        {"tell", required_argument, 0, 'p'},
                                        {0, 0, 0, 0}};
  struct options o = {1000, 10000, 50, 64, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    switch (c) {
      case 's':
        o.steps = strtoull(optarg, NULL, 10);
        break;
      case 'u':
        o.sleep_us = strtoull(optarg, NULL, 10);
        break;
      case 'k':
        o.save_every = strtoull(optarg, NULL, 10);
        break;
      case 'r':
        o.rows = strtoull(optarg, NULL, 10);
        break;
      case 'l':
        o.log = optarg;
        break;
      case 'e':
        o.exit_status = atoi(optarg);
        break;
      case 'a':
        o.async = 1;
        break;
      case 'b':
        o.batch = strtoull(optarg, NULL, 10);
        break;
      case 'd':
        o.die_at = strtoull(optarg, NULL, 10);
        break;
      case 'g':
        o.keep_going = 1;
        break;
      case 'm':
        o.eat = strtoull(optarg, NULL, 10);
        break;
      case 'p':
        o.tell = optarg;
        break;
      case 'w':
        o.work_us = strtoull(optarg, NULL, 10);
        break;
      case 't':
        o.until = optarg;
        break;
      default:
        exit(2);
    }
  }
  return o;
}

static void note(const struct options* o, const char* what, uint64_t step, int world) {
  char line[256], host[64] = "?";
  struct timespec now;
  if (!o->log) return;
  gethostname(host, sizeof host - 1);
  clock_gettime(CLOCK_REALTIME, &now);
  int length = snprintf(line, sizeof line,
                        "%s step=%" PRIu64 " world=%d pid=%d host=%s gpus=%s time=%lld.%06ld\n",
                        what, step, world, (int)getpid(), host, getenv("CUDA_VISIBLE_DEVICES"),
                        (long long)now.tv_sec, now.tv_nsec / 1000);
  FILE* log = fopen(o->log, "a");
  if (!log || fwrite(line, 1, (size_t)length, log) != (size_t)length || fclose(log) != 0) {
    perror(o->log);
    exit(1);
  }
}

static void die(bellows_t* b, const char* what) {
  fprintf(stderr, "counter: %s: %s\n", what, b ? bellows_error(b) : "no memory");
  exit(1);
}

static uint64_t last_step(const struct options* o) {
  uint64_t last;
  FILE* file = o->until ? fopen(o->until, "r") : NULL;
  if (!file) return o->steps;
  if (fscanf(file, "%" SCNu64, &last) != 1) last = o->steps;
  fclose(file);
  return last;
}

static void tell(int told, uint64_t steps) {
  if (told < 0 || pwrite(told, &steps, sizeof steps, 0) == (ssize_t)sizeof steps) return;
  perror("counter: --tell");
  exit(1);
}

static int open_told(const struct options* o, uint64_t steps) {
  if (!o->tell) return -1;
  int told = open(o->tell, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (told < 0) {
    perror(o->tell);
    exit(1);
  }
  tell(told, steps);
  return told;
}

static void eat(uint64_t mib) {
  char* memory = malloc(mib << 20);
  if (memory) memset(memory, 1, mib << 20);
  /* Not reached where the limit is lower; nor may the compiler leave the memory out. */
  fprintf(stderr, "counter: ate %" PRIu64 " MiB: %d\n", mib, memory ? memory[mib] : 0);
}

int main(int argc, char** argv) {
  struct options o = parse(argc, argv);
  bellows_t* b = NULL;
  if (bellows_init(NULL, &b) != BELLOWS_OK) die(b, "init");
  int rank = bellows_rank(b), world = bellows_world(b);
  uint64_t first = o.rows * (uint64_t)rank / (uint64_t)world;
  uint64_t rows = o.rows * ((uint64_t)rank + 1) / (uint64_t)world - first;
  uint64_t* data = calloc(rows ? rows : 1, sizeof *data);
  uint64_t counter = 0, step = 0, one = 1, batch;
  if (!data) return 1;
  if (bellows_register(b, "counter", BELLOWS_U64, 1, &one, BELLOWS_REPLICATED, 0, 0, &counter) ||
      bellows_register(b, "rows", BELLOWS_U64, 1, &o.rows, BELLOWS_SHARDED, first, rows, data))
    die(b, "register");
  if (o.batch && bellows_batch(b, o.batch, &batch) != BELLOWS_OK) die(b, "batch");
  int restored = bellows_restore(b, &step);
  if (restored < 0) die(b, "restore");
  const uint64_t begin = step;
  if (counter != step) die(b, "the counter is not what it was");
  for (uint64_t i = 0; i < rows; i++)
    if (data[i] != step * (first + i + 1)) die(b, "a row is not what it was");
  const int told = rank == 0 ? open_told(&o, step) : -1;
  if (rank == 0) note(&o, "start", step, world);
  if (o.exit_status) {
    fprintf(stderr, "counter: told to end with status %d\n", o.exit_status);
    return o.exit_status;
  }

  for (; step < last_step(&o); step++) {
    int stop = bellows_should_stop(b, step);
    if (stop < 0) die(b, "should_stop");
    if (stop || (step > 0 && step % o.save_every == 0)) {
      int saved = o.async ? bellows_save_async(b, step) : bellows_save(b, step);
      if (saved != BELLOWS_OK && !(o.keep_going && saved == BELLOWS_ERR_IO)) die(b, "save");
      if (o.eat && begin == 0 && rank == 0) eat(o.eat);
      if (o.die_at == step && begin < step) raise(SIGKILL);
    }
    if (stop) {
      if (rank == 0) note(&o, "stop", step, world);
      if (bellows_finalize(b, 0) != BELLOWS_OK) return 1;
      return 0;
    }
    usleep((useconds_t)(o.sleep_us + o.work_us / (uint64_t)world));
    counter++;
    for (uint64_t i = 0; i < rows; i++) data[i] += first + i + 1;
    tell(told, counter);
  }
  if (rank == 0) note(&o, "finish", counter, world);
  bellows_finalize(b, 1);
  free(data);
  return 0;
}
