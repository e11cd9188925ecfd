// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// A process that kills its maker when one phase of a set-up takes too long: a system call stuck in
/// a dead file server ends only by a deadly signal, and whoever waits in it can say nothing. It
/// writes the sentence to standard error first, and kills with SIGALRM, or SIGKILL if the maker
/// does not end by that. A resource: the process ends with it.
class Watchdog {
 public:
  /// `seconds`: of a phase for which begin() names none.
  static Result<Watchdog> start(std::uint32_t seconds);
  Watchdog(Watchdog&& other) noexcept;
  Watchdog& operator=(Watchdog&&) = delete;
  ~Watchdog();

  /// A phase begins, and with it its time; `name` is a literal. `seconds`: for a phase that has a
  /// limit of its own; 0: start()'s.
  void begin(const char* name, std::uint32_t seconds = 0);

 private:
  /// What the process is told, by descriptors that it has copies of, and its stack.
  struct Told {
    int socket;
    int maker;
    std::uint32_t seconds;
    alignas(16) std::array<std::byte, 65536> stack;
  };

  static int watch(void* told);
  Watchdog(std::unique_ptr<Told> told, Fd socket, pid_t pid)
      : told_(std::move(told)), socket_(std::move(socket)), pid_(pid) {}

  std::unique_ptr<Told> told_;  ///< the process lives in it until it is waited for
  Fd socket_;
  pid_t pid_;
};

}  // namespace bellows::container
