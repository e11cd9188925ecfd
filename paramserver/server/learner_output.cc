// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/learner_output.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace bellows::ps {
namespace {

/// With a label it fits into what one write to a pipe takes.
constexpr std::size_t kLongestLine = PIPE_BUF - 64;

bool takes(int fd) {
  pollfd p = {fd, POLLOUT, 0};
  return poll(&p, 1, 0) == 1;
}

}  // namespace

LearnerOutput::LearnerOutput(EventLoop& loop, Fd from, int to, std::string label)
    : loop_(loop), from_(std::move(from)), to_(to), label_(std::move(label)) {
  watch();
}

void LearnerOutput::watch() {
  auto made = loop_.watch(from_.get(), EPOLLIN, [this](std::uint32_t) { on_data(); });
  if (made) watch_ = std::move(*made);
}

void LearnerOutput::on_data() {
  if (!read_some()) return finish();
  if (!flush()) return;
  // Until this is taken, the learner's pipe holds what follows.
  held_ = true;
  watch_.end();
}

/// False: it has no more.
bool LearnerOutput::read_some() {
  char chunk[4096];
  const ssize_t got = read(from_.get(), chunk, sizeof chunk);
  if (got > 0) add(chunk, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void LearnerOutput::add(const char* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] != '\n') line_ += data[i];
    if (data[i] == '\n' || line_.size() >= kLongestLine) end_line();
  }
}

void LearnerOutput::end_line() {
  waiting_ += label_ + line_ + "\n";
  line_.clear();
}

bool LearnerOutput::flush() {
  // A pipe that can be written to has room for PIPE_BUF bytes.
  while (!waiting_.empty() && takes(to_)) {
    std::size_t end = std::min<std::size_t>(waiting_.size(), PIPE_BUF);
    end = waiting_.rfind('\n', end - 1) + 1;
    const ssize_t wrote = write(to_, waiting_.data(), end);
    // Nobody reads it any more, or there is no room on the disk.
    if (wrote < 0 && errno != EINTR && errno != EAGAIN) waiting_.clear();
    if (wrote > 0) waiting_.erase(0, static_cast<std::size_t>(wrote));
  }
  if (!waiting_.empty()) return true;
  if (std::exchange(held_, false) && from_) watch();
  return false;
}

void LearnerOutput::finish() {
  watch_.end();
  if (!from_) return;
  // No more than a pipe holds: who still has its other end may go on writing.
  for (int i = 0; i < 64; ++i) {
    char chunk[4096];
    const ssize_t got = read(from_.get(), chunk, sizeof chunk);
    if (got <= 0) break;
    add(chunk, static_cast<std::size_t>(got));
  }
  from_.reset();
  if (!line_.empty()) end_line();
  flush();
}

}  // namespace bellows::ps
