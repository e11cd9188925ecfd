// SPDX-License-Identifier: Apache-2.0
#include "pool/member/program_lines.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/listen_at.h"
#include "pool/wire/local_line.h"

namespace bellows::pool {
namespace {

/// Each statement has a connection of its own, so few are open at once.
constexpr std::size_t kMostSpeakers = 256;

}  // namespace

ProgramLines::ProgramLines(EventLoop& loop, MemberNotes& notes, Fd listener)
    : loop_(loop), notes_(notes), listener_(std::move(listener)) {}

Result<std::unique_ptr<ProgramLines>> ProgramLines::open(EventLoop& loop, MemberNotes& notes,
                                                         const std::string& path) {
  auto listener = listen_at(path, 0600);
  if (!listener) return listener.error();
  std::unique_ptr<ProgramLines> lines(new ProgramLines(loop, notes, std::move(*listener)));
  auto watch = loop.watch(lines->listener_.get(), EPOLLIN,
                          [made = lines.get()](std::uint32_t) { made->accept_all(); });
  if (!watch) return watch.error();
  lines->listening_ = std::move(*watch);
  return lines;
}

void ProgramLines::accept_all() {
  while (speakers_.size() < kMostSpeakers) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    const auto speaker = speakers_.emplace(speakers_.end());
    speaker->socket = std::move(socket);
    auto watch = loop_.watch(speaker->socket.get(), EPOLLIN,
                             [this, speaker](std::uint32_t) { read_from(speaker); });
    if (!watch) {
      speakers_.erase(speaker);
      return;
    }
    speaker->watch = std::move(*watch);
  }
}

void ProgramLines::read_from(std::list<Speaker>::iterator speaker) {
  std::array<char, kLongestLine> line;
  const ssize_t bytes = recv(speaker->socket.get(), line.data(), line.size(), MSG_TRUNC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes <= 0) {
    speakers_.erase(speaker);
    accept_all();
    return;
  }
  // What is longer is cut, and no line of ours.
  if (static_cast<std::size_t>(bytes) > line.size()) return;
  const std::string_view said(line.data(), static_cast<std::size_t>(bytes));
  if (said != "watch") {
    (void)notes_.take(said, std::chrono::steady_clock::now());
    return;
  }
  speaker->watches = true;
  for (const std::string& told : {size_, drain_})
    if (!told.empty()) (void)send(speaker->socket.get(), told.data(), told.size(), MSG_NOSIGNAL);
}

/// One that does not read loses lines, and holds up nobody.
void ProgramLines::tell(std::string_view line) {
  for (const Speaker& speaker : speakers_)
    if (speaker.watches)
      (void)send(speaker.socket.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ProgramLines::tell_drain(std::uint32_t seconds) {
  if (!drain_.empty()) return;
  drain_ = fmt::format("drain {}", seconds);
  tell(drain_);
}

void ProgramLines::tell_size(std::uint32_t members) {
  std::string line = fmt::format("size {}", members);
  if (line == size_) return;
  size_ = std::move(line);
  tell(size_);
}

bool ProgramLines::watched() const {
  return std::any_of(speakers_.begin(), speakers_.end(),
                     [](const Speaker& speaker) { return speaker.watches; });
}

}  // namespace bellows::pool
