// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/active_marker.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "common/fd.h"

namespace bellows {

Status ActiveMarker::write() const {
  return replace_file(path_, fmt::format("{}\n", getpid()), 0600);
}

// A link that leads nowhere: root reads its text without opening what a user has made.
void ActiveMarker::plan(std::optional<std::uint32_t> gpus) const {
  unlink(plan_.c_str());
  if (gpus && symlink(std::to_string(*gpus).c_str(), plan_.c_str()) != 0)
    fmt::print(stderr,
               "bellows run: {}; if the launcher is killed, the job restarts at the old size\n",
               errno_error("make", plan_).text);
}

void ActiveMarker::remove() const {
  unlink(path_.c_str());
  unlink(plan_.c_str());
}

}  // namespace bellows
