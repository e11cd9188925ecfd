/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that save an array to one file with parallel HDF5: parallel_hdf5 DIR BYTES, under mpirun.
 * For each line of rank 0's input they save once and answer with a line of JSON: how long it took
 * until the file was durable. */
#include <fcntl.h>
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void write_file(const char* path, const float* data, hsize_t first, hsize_t count,
                       hsize_t total) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hid_t whole = H5Screate_simple(1, &total, NULL), part = H5Screate_simple(1, &count, NULL);
  hid_t dataset =
      H5Dcreate2(file, "data", H5T_NATIVE_FLOAT, whole, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Sselect_hyperslab(whole, H5S_SELECT_SET, &first, NULL, &count, NULL);
  hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
  H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
  if (H5Dwrite(dataset, H5T_NATIVE_FLOAT, part, whole, transfer, data) < 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  H5Pclose(transfer);
  H5Dclose(dataset);
  H5Sclose(part);
  H5Sclose(whole);
  H5Fclose(file);
  H5Pclose(access);
}

static double save(const char* path, const float* data, hsize_t first, hsize_t count, hsize_t total,
                   int rank) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  write_file(path, data, first, count, total);
  if (rank == 0) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fsync(fd) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

int main(int argc, char** argv) {
  int rank = 0, world = 1;
  MPI_Init(&argc, &argv);
  if (argc != 3) return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const hsize_t count = strtoull(argv[2], NULL, 10) / sizeof(float) / (hsize_t)world;
  float* data = malloc(count * sizeof *data);
  for (hsize_t i = 0; i < count; ++i) data[i] = (float)i;
  char path[4096], line[16];
  if (rank == 0) printf("ready\n");
  fflush(stdout);
  for (int number = 0;; ++number) {
    int go = rank == 0 && fgets(line, sizeof line, stdin) != NULL;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!go) break;
    snprintf(path, sizeof path, "%s/%d.h5", argv[1], number);
    const double took =
        save(path, data, count * (hsize_t)rank, count, count * (hsize_t)world, rank);
    if (rank > 0) continue;
    printf("{\"stall\": %.6f, \"durable\": %.6f}\n", took, took);
    fflush(stdout);
    unlink(path);
  }
  MPI_Finalize();
  return 0;
}
