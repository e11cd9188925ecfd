// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/fd.h"
#include "paramserver/memory/layout.h"

namespace bellows::ps {

/// What the processes of bellows-ps tell one another of the learners that it has started. In memory
/// that those share which are forked afterwards.
class LearnerBoard {
 public:
  struct Place {
    std::atomic<pid_t> group{0};            ///< the process group of the learner; 0: it has none
    std::atomic<std::uint32_t> trained{0};  ///< 1: a gradient of it was applied
    std::atomic<std::uint32_t> done{0};     ///< 1: it needs no place any more
  };

  static Result<LearnerBoard> make() {
    void* const memory =
        mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno_error("make", "memory for the states of learners");
    return LearnerBoard(new (memory) Memory);
  }

  Place& operator[](std::uint32_t learner) const { return memory_->places[learner]; }
  /// The inode of the socket, once there is one.
  std::atomic<ino_t>& socket() const { return memory_->socket; }
  /// The learner with this process group.
  std::optional<std::uint32_t> learner_of(pid_t group) const {
    for (std::uint32_t l = 0; l < kMostLearners; ++l)
      if (group > 0 && memory_->places[l].group == group) return l;
    return std::nullopt;
  }

 private:
  struct Memory {
    std::array<Place, kMostLearners> places;
    std::atomic<ino_t> socket{0};
  };
  struct Unmap {
    void operator()(Memory* memory) const { munmap(memory, sizeof *memory); }
  };
  explicit LearnerBoard(Memory* memory) : memory_(memory) {}
  std::unique_ptr<Memory, Unmap> memory_;
};

}  // namespace bellows::ps
