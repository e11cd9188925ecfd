/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce of Open MPI: KIB COUNT. Rank 0 prints the microseconds of each, one a line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  enum { kWarm = 8 };
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const size_t floats = argc > 2 ? strtoull(argv[1], NULL, 10) * 256 : 0;
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  float* in = malloc(floats * sizeof(float));
  float* out = malloc(floats * sizeof(float));
  if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(in, 0, floats * sizeof(float));
  memset(out, 0, floats * sizeof(float));
  for (int i = 0; i < count + kWarm; i++) {
    const double begin = MPI_Wtime();
    MPI_Allreduce(in, out, (int)floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && i >= kWarm) printf("%.3f\n", (MPI_Wtime() - begin) * 1e6);
  }
  free(in);
  free(out);
  MPI_Finalize();
  return 0;
}
