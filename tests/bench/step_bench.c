/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a training without its data: a fixed piece of arithmetic on each rank, a sum over all of
 * them, and in a job of Bellows the question whether to stop. Rank 0 prints the
 * median step, and the mean, which contains also what comes between only few of them.
 *
 *   step_bench STEPS
 */
#include <bellows.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWork = 2000000, kFloats = 4096, kWarmUp = 40 };

static int fail(const char* what) {
  fprintf(stderr, "step_bench: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

/* What the compiler can neither shorten nor spread over a vector unit. */
static float work(float x) {
  for (int i = 0; i < kWork; i++) x = x * 0.999f + 0.001f;
  return x;
}

static int by_size(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int steps = argc == 2 ? atoi(argv[1]) : 0;
  double* took = calloc(steps > 0 ? (size_t)steps : 1, sizeof *took);
  static float gradient[kFloats];
  bellows_t* b = NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (steps < 1 || !took) return fail("usage: step_bench STEPS");
  if (getenv("BELLOWS_SOCKET") && bellows_init(NULL, &b) != BELLOWS_OK) return fail("bellows_init");
  double first = 0;
  for (int step = -kWarmUp; step < steps; step++) {
    const double begin = MPI_Wtime();
    if (step == 0) first = begin;
    if (b && bellows_should_stop(b, (uint64_t)(step + kWarmUp)) != 0) return fail("should_stop");
    gradient[0] = work(gradient[0]);
    MPI_Allreduce(MPI_IN_PLACE, gradient, kFloats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (step >= 0) took[step] = MPI_Wtime() - begin;
  }
  const double mean = (MPI_Wtime() - first) / steps;
  qsort(took, (size_t)steps, sizeof *took, by_size);
  if (rank == 0) printf("step %.3f us mean %.3f us\n", 1e6 * took[steps / 2], 1e6 * mean);
  if (b) bellows_finalize(b, 1);
  free(took);
  MPI_Finalize();
  return 0;
}
