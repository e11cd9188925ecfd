// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/line_buffer.h"

#include <unistd.h>

#include <cerrno>

namespace bellows {

bool LineReader::fill(int fd) {
  char chunk[65536];
  for (int rounds = 0; rounds < 16; ++rounds) {
    ssize_t got = read(fd, chunk, sizeof chunk);
    if (got > 0) {
      feed(chunk, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return true;
}

void LineReader::feed(const char* data, std::size_t size) {
  data_.append(data, size);
  if (data_.size() - begin_ <= kMostBytes) return;
  if (data_.find('\n', begin_) != std::string::npos) return;
  if (!dropping_) ++dropped_;
  dropping_ = true;
  data_.clear();
  begin_ = 0;
}

std::optional<std::string> LineReader::next() {
  while (true) {
    std::size_t end = data_.find('\n', begin_);
    if (end == std::string::npos) {
      data_.erase(0, begin_);
      begin_ = 0;
      return std::nullopt;
    }
    std::string line = data_.substr(begin_, end - begin_);
    begin_ = end + 1;
    if (!dropping_) return line;
    dropping_ = false;  // the rest of the dropped line
  }
}

bool LineWriter::flush(int fd) {
  while (!data_.empty()) {
    ssize_t wrote = write(fd, data_.data(), data_.size());
    if (wrote > 0) {
      data_.erase(0, static_cast<std::size_t>(wrote));
      continue;
    }
    if (wrote < 0 && errno == EINTR) continue;
    return wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  return true;
}

}  // namespace bellows
