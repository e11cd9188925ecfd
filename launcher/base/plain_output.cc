// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/plain_output.h"

#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace bellows {

PlainOutput::PlainOutput(int fd, int patience_ms) : fd_(fd), patience_ms_(patience_ms) {
  struct stat info;
  is_file_ = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool PlainOutput::ready(int limit_ms) const {
  if (is_file_) return true;
  pollfd fd{fd_, POLLOUT, 0};
  return poll(&fd, 1, limit_ms) == 1 && (fd.revents & POLLOUT) != 0;
}

// A blocking pipe that is ready is certain to take PIPE_BUF bytes without blocking, but no more.
bool PlainOutput::write_some(std::string_view text) {
  // If nothing could be written, do not wait a second time.
  int patience = lost_ > 0 ? 0 : patience_ms_;
  while (!text.empty()) {
    if (!ready(patience)) break;
    const std::size_t most = is_file_ ? text.size() : std::min<std::size_t>(text.size(), PIPE_BUF);
    const ssize_t wrote = ::write(fd_, text.data(), most);
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (wrote <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(wrote));
    patience = patience_ms_;
  }
  lost_ += text.size();
  return text.empty();
}

void PlainOutput::write(std::string_view text) {
  if (lost_ > 0) {
    const std::string note =
        fmt::format("\nbellows run: {} bytes are missing here: nobody read them\n", lost_);
    if (!ready(0) || ::write(fd_, note.data(), note.size()) < 0) {
      lost_ += text.size();
      return;
    }
    lost_ = 0;
  }
  write_some(text);
}

}  // namespace bellows
