// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/mpi_comm.h"

#include <mpi.h>

#include <cstdlib>

namespace digits {
namespace {

int world(int (*question)(MPI_Comm, int*)) {
  int answer = 0;
  question(MPI_COMM_WORLD, &answer);
  return answer;
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) { MPI_Init(argc, argv); }

MpiSession::~MpiSession() { MPI_Finalize(); }

int MpiSession::rank() const { return world(MPI_Comm_rank); }

void MpiSession::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

std::vector<int> offsets(std::span<const int> counts) {
  std::vector<int> result;
  int offset = 0;
  for (int count : counts) {
    result.push_back(offset);
    offset += count;
  }
  return result;
}

MpiComm::MpiComm() : Comm(world(MPI_Comm_rank), world(MPI_Comm_size)) {}

void MpiComm::exchange(std::span<const float> send, std::span<const int> send_counts,
                       std::span<float> receive, std::span<const int> receive_counts) {
  MPI_Alltoallv(send.data(), send_counts.data(), offsets(send_counts).data(), MPI_FLOAT,
                receive.data(), receive_counts.data(), offsets(receive_counts).data(), MPI_FLOAT,
                MPI_COMM_WORLD);
}

void MpiComm::gather(std::span<float> values, std::span<const int> counts) {
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), counts.data(),
                 offsets(counts).data(), MPI_FLOAT, MPI_COMM_WORLD);
}

void MpiComm::settle() { MPI_Barrier(MPI_COMM_WORLD); }

double MpiComm::sum(double value) {
  double total = 0;
  MPI_Allreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return total;
}

int MpiComm::from_first(int value) {
  MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return value;
}

std::unique_ptr<Comm> make_comm() {
#ifdef HAVE_NCCL
  if (auto comm = make_nccl_comm()) return comm;
#endif
  return std::make_unique<MpiComm>();
}

}  // namespace digits
