// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/bellows.h"
#include "examples/digits/sampler.h"

namespace digits {

/// libbellows for this program: owns the handle, and throws std::runtime_error with the library's
/// sentence. Arrays that are registered must outlive it.
class Checkpoint {
 public:
  /// An empty directory means the one that Bellows says.
  Checkpoint(const std::string& dir, int rank, int world);
  /// Leaves as unfinished, unless finish() was called.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// An array that is the same on every rank.
  void replicated(const char* name, std::span<float> values);
  void replicated(const char* name, std::span<std::int64_t> values);

  /// An array of `total` floats, of which this rank holds `slice`.
  void sharded(const char* name, std::span<float> values, Range slice, std::size_t total);

  /// Fills the arrays from the newest checkpoint. Nothing when there is none.
  std::optional<std::uint64_t> restore();

  /// Whether to save this step and exit. Like save, it may wait for the other ranks: see
  /// Comm::settle.
  bool should_stop(std::uint64_t step);

  /// True when the step is committed. A full disk is no reason to stop training: false, and the
  /// sentence on standard error from rank 0.
  bool save(std::uint64_t step);

  /// Training is complete.
  void finish();

 private:
  void check(int code) const;
  void add(const char* name, int type, std::uint64_t total, int layout, Range slice, void* data);

  bellows_t* handle_ = nullptr;
};

}  // namespace digits
