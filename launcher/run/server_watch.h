// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/access.h"

namespace bellows {

/// Asks bellows-ps every few seconds how the training goes, and records it for `bellows status`: in
/// a thread of its own, since the file system may hang. What fails is tried again the next time.
class ServerWatch {
 public:
  struct Place {
    std::string socket;
    std::string checkpoint_dir;
    Access access = Access::owner;
    std::uint32_t job = 0;
    std::uint32_t restart = 0;
  };

  explicit ServerWatch(Place place);
  ServerWatch(const ServerWatch&) = delete;
  ServerWatch& operator=(const ServerWatch&) = delete;
  ~ServerWatch();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace bellows
