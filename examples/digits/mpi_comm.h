// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "examples/digits/comm.h"

namespace digits {

/// Begins and ends MPI: one object at the top of main. Not thread-safe.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;

  /// Ends all ranks at once: otherwise the others would wait for this one forever.
  [[noreturn]] void abort(int status);
};

/// Exchange over MPI, from and to the memory of the host. Needs a living MpiSession.
class MpiComm : public Comm {
 public:
  MpiComm();

  void exchange(std::span<const float> send, std::span<const int> send_counts,
                std::span<float> receive, std::span<const int> receive_counts) override;
  void gather(std::span<float> values, std::span<const int> counts) override;
  void settle() override;
  double sum(double value) override;
  int from_first(int value) override;
  const char* name() const override { return "MPI"; }
};

/// Where each part begins.
std::vector<int> offsets(std::span<const int> counts);

/// NCCL where this program was built with it and every rank has a GPU of its own, else MPI.
std::unique_ptr<Comm> make_comm();

/// Exchange over NCCL; null, on every rank, when a rank has no GPU of its own.
std::unique_ptr<Comm> make_nccl_comm();

}  // namespace digits
