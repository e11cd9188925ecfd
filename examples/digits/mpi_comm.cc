// SPDX-License-Identifier: Apache-2.0
// Exchange over MPI, from and to the memory of the host.
#include <mpi.h>

#include <cstdlib>

#include "examples/digits/session.h"

namespace digits {
namespace {

int world(int (*question)(MPI_Comm, int*)) {
  int answer = 0;
  question(MPI_COMM_WORLD, &answer);
  return answer;
}

class MpiComm : public Comm {
 public:
  MpiComm() : Comm(world(MPI_Comm_rank), world(MPI_Comm_size)) {}

  void exchange(std::span<const float> send, std::span<const int> send_counts,
                std::span<float> receive, std::span<const int> receive_counts) override {
    MPI_Alltoallv(send.data(), send_counts.data(), offsets(send_counts).data(), MPI_FLOAT,
                  receive.data(), receive_counts.data(), offsets(receive_counts).data(), MPI_FLOAT,
                  MPI_COMM_WORLD);
  }

  void gather(std::span<float> values, std::span<const int> counts) override {
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), counts.data(),
                   offsets(counts).data(), MPI_FLOAT, MPI_COMM_WORLD);
  }

  void settle() override { MPI_Barrier(MPI_COMM_WORLD); }

  double sum(double value) override {
    double total = 0;
    MPI_Allreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
  }

  int from_first(int value) override {
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
  }

  const char* name() const override { return "MPI"; }
};

class MpiSession : public Session {
 public:
  MpiSession(int* argc, char*** argv) { MPI_Init(argc, argv); }
  ~MpiSession() override { MPI_Finalize(); }

  int rank() const override { return world(MPI_Comm_rank); }
  std::unique_ptr<Comm> make_comm() override { return std::make_unique<MpiComm>(); }

  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
  }
};

}  // namespace

std::unique_ptr<Session> Session::begin(int* argc, char*** argv) {
  return std::make_unique<MpiSession>(argc, argv);
}

}  // namespace digits
