// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace digits {

/// What one rank trained on, in a file of its own: DIR/ledger-ATTEMPT-RANK.txt. A header with the
/// step that was restored, then a line "step epoch id id id..." for each step. It is written when
/// the gradient has been applied, from the ids that came with it, so it tells what was done and not
/// what was meant. tests/lib/check-ledger reads it. Errors throw std::runtime_error.
class Ledger {
 public:
  /// What the checker has to know.
  struct Header {
    int attempt;
    int rank;
    int ranks;
    std::uint64_t restored;
    std::uint64_t steps_per_epoch;
    std::uint64_t epochs;
  };

  /// One more than the newest attempt in `dir`, from 1. Makes the directory.
  static int next_attempt(const std::string& dir);

  /// Writes DIR/samples.txt: all that an epoch has to use.
  static void write_samples(const std::string& dir, std::span<const std::uint32_t> ids);

  Ledger(const std::string& dir, const Header& header);

  /// In the file when it returns, even if this process is killed after.
  void record(std::uint64_t step, std::uint64_t epoch, std::span<const std::uint32_t> ids);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace digits
