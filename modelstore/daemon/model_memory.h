// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/event_loop.h"
#include "common/fd.h"
#include "common/plain/file_identity.h"
#include "common/result.h"
#include "modelstore/daemon/last_close.h"
#include "modelstore/digest/model_digest.h"

namespace bellows {

/// What a model of so many bytes takes at most: in huge pages, or in small ones.
std::uint64_t room_for(std::uint64_t bytes);

/// Memory for a loader to fill.
struct WritableMemory {
  Fd fd;              ///< a memfd that nobody can run, of at least so many bytes
  bool huge = false;  ///< its pages are huge, or are made so where it is mapped and there are some
};

/// With huge pages where they are wanted and the node has enough of them.
Result<WritableMemory> make_model_memory(std::uint64_t bytes, bool huge);

/// A model that can be lent: sealed, so that nobody can write to it or change its size, not even
/// its owner, and a descriptor that is open for reading only. The daemon never maps it.
struct ModelMemory {
  Fd reader;
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  ModelDigest digest;
  std::vector<plain::FileIdentity> files;  ///< that it was read from

  /// Takes what a loader filled. internal: it is still mapped for writing, or too small.
  Status seal(Fd writable);
  /// Whether `reader` is such memory. corrupt: it is not.
  Status check_sealed() const;
};

/// Tells when memory that the daemon has given up is free, which is when the last process has
/// closed and unmapped it: a client may go on to use what it was lent.
class FreedMemory {
 public:
  /// `freed` gets the number that `give_up` was called with.
  static Result<std::unique_ptr<FreedMemory>> make(EventLoop& loop,
                                                   std::function<void(std::uint64_t)> freed);

  /// Closes it. Where the kernel can't tell who has it still, it counts as free then.
  void give_up(ModelMemory memory, std::uint64_t number);
  /// Closes memory that nobody waits for.
  void discard(Fd memory) { last_close_->close(std::move(memory), 0); }

 private:
  /// What holds the memory until its pages are freed, elsewhere than in the daemon's thread.
  struct GivenUp {
    std::uint64_t number = 0;
    Fd path;
  };

  FreedMemory() = default;
  void read_events();

  std::unique_ptr<LastClose> last_close_;
  Fd inotify_;
  EventLoop::Watch watch_;
  std::map<int, GivenUp> given_up_;  ///< by the number of inotify's watch
};

}  // namespace bellows
