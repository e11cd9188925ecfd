// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "examples/digits/comm.h"

namespace digits {

/// The ranks of this program, brought together: by MPI in `digits`, by PMIx in `digits-nccl`. One
/// object at the top of main, which outlives all else. Not thread-safe.
class Session {
 public:
  static std::unique_ptr<Session> begin(int* argc, char*** argv);
  virtual ~Session() = default;

  virtual int rank() const = 0;
  /// Throws when the ranks cannot exchange numbers, as without a GPU for each.
  virtual std::unique_ptr<Comm> make_comm() = 0;
  /// Ends all ranks at once: otherwise the others would wait for this one forever.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace digits
