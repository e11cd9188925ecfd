// SPDX-License-Identifier: Apache-2.0
#include "common/say_line.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <climits>

#include "common/text.h"

namespace bellows {

// A pipe that can be written to has room for PIPE_BUF bytes.
void say_line(std::string_view program, const std::string& text) {
  const std::string line =
      fmt::format("{}: {}\n", program, one_line(text, PIPE_BUF - program.size() - 3));
  pollfd p = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&p, 1, 0) == 1) (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace bellows
