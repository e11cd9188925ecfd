/* SPDX-License-Identifier: Apache-2.0 */
/* Heat in a rod, written like many MPI programs: nothing here knows about Bellows or Slurm. Each
 * rank has a part of the cells and exchanges their ends with its neighbours. The program saves to a
 * file every few steps, and on SIGUSR1 it saves and ends. Started again, on any number of ranks, it
 * continues from that file. The result does not depend on the number of ranks.
 *
 *   heat FILE STEPS SAVE-EVERY [MICROSECONDS-A-STEP]
 */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kCells = 10000 };

static volatile sig_atomic_t asked;
static int rank, ranks;
static int counts[4096], starts[4096];
static double rod[kCells]; /* the whole, on rank 0 while it saves or loads */

static void note_signal(int number) {
  (void)number;
  asked = 1;
}

static void fail(const char* what) {
  fprintf(stderr, "heat: %s: %s\n", what, strerror(errno));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void share_out(void) {
  if (ranks > 4096) fail("more ranks than it is made for");
  for (int r = 0; r < ranks; r++) {
    starts[r] = (int)((long)kCells * r / ranks);
    counts[r] = (int)((long)kCells * (r + 1) / ranks) - starts[r];
  }
}

static void save(const char* path, long step, const double* mine) {
  char fresh[4096];
  MPI_Gatherv(mine, counts[rank], MPI_DOUBLE, rod, counts, starts, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE* file = fopen(fresh, "wb");
  if (!file || fwrite(&step, sizeof step, 1, file) != 1 || fwrite(rod, sizeof rod, 1, file) != 1 ||
      fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0 ||
      rename(fresh, path) != 0)
    fail(path);
}

static long load(const char* path, double* mine) {
  long step = 0;
  if (rank == 0) {
    FILE* file = fopen(path, "rb");
    if (!file && errno != ENOENT) fail(path);
    if (!file) rod[kCells / 2] = 1e6;
    if (file && (fread(&step, sizeof step, 1, file) != 1 || fread(rod, sizeof rod, 1, file) != 1))
      fail(path);
    if (file) fclose(file);
  }
  MPI_Bcast(&step, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  MPI_Scatterv(rod, counts, starts, MPI_DOUBLE, mine, counts[rank], MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return step;
}

/* cells[0] and cells[n + 1] are the neighbours', or the cold ends of the rod. */
static void advance(double* cells, double* next, int n) {
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int right = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
  MPI_Sendrecv(&cells[1], 1, MPI_DOUBLE, left, 0, &cells[n + 1], 1, MPI_DOUBLE, right, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(&cells[n], 1, MPI_DOUBLE, right, 1, &cells[0], 1, MPI_DOUBLE, left, 1,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 1; i <= n; i++)
    next[i] = cells[i] + 0.25 * (cells[i - 1] - 2 * cells[i] + cells[i + 1]);
  memcpy(&cells[1], &next[1], (size_t)n * sizeof *cells);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  signal(SIGUSR1, note_signal);
  if (argc < 4) fail("usage: heat FILE STEPS SAVE-EVERY [MICROSECONDS-A-STEP]");
  const long steps = atol(argv[2]), every = atol(argv[3]);
  share_out();
  const int n = counts[rank];
  double* cells = calloc((size_t)n + 2, sizeof *cells);
  double* next = calloc((size_t)n + 2, sizeof *next);
  if (!cells || !next || every < 1) fail("memory");
  long step = load(argv[1], &cells[1]);
  if (rank == 0) printf("start step %ld ranks %d\n", step, ranks), fflush(stdout);
  for (int stop = 0; step < steps && !stop;) {
    advance(cells, next, n);
    if (argc > 4) usleep((useconds_t)atoi(argv[4]));
    step++;
    stop = asked;
    MPI_Allreduce(MPI_IN_PLACE, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (stop || step % every == 0 || step == steps) save(argv[1], step, &cells[1]);
  }
  if (rank == 0 && step < steps) printf("stop step %ld\n", step);
  if (rank == 0 && step >= steps) printf("end step %ld middle %.17g\n", step, rod[kCells / 2]);
  free(cells);
  free(next);
  MPI_Finalize();
  return 0;
}
