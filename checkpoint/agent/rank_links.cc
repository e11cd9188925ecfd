// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/rank_links.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace bellows {
namespace {

bool same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

void RankLinks::add_descriptors(std::vector<int>* out) const {
  for (const auto& [fd, link] : links_) {
    if (!link->gone) out->push_back(fd);
  }
  // Last, so that a rank's end is seen before its successor's beginning.
  if (!no_descriptors_) out->push_back(listener_.get());
}

void RankLinks::accept_from(const std::set<int>& readable) {
  no_descriptors_ = false;
  if (readable.contains(listener_.get())) accept();
}

void RankLinks::accept() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // The rank continues to wait there, and would otherwise be reported again and again.
  no_descriptors_ = !socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
  if (socket && same_user(socket.get())) add(std::move(socket));
}

RankLink& RankLinks::add(Fd socket) {
  auto link = std::make_unique<RankLink>();
  link->id = next_++;
  const int fd = socket.get();
  link->socket = std::move(socket);
  return *(links_[fd] = std::move(link));
}

RankLink* RankLinks::find(std::uint64_t id) const {
  for (const auto& [fd, link] : links_) {
    if (link->id == id) return link.get();
  }
  return nullptr;
}

RankLink* RankLinks::at(int fd) const {
  const auto found = links_.find(fd);
  return found == links_.end() ? nullptr : found->second.get();
}

bool RankLinks::has(std::int64_t rank) const {
  return std::any_of(links_.begin(), links_.end(), [rank](const auto& entry) {
    return entry.second->page && !entry.second->gone && entry.second->rank == rank;
  });
}

void RankLinks::drop_gone() {
  std::erase_if(links_, [](const auto& entry) { return entry.second->gone; });
}

std::vector<int> RankLinks::dead() const {
  std::vector<int> dead;
  for (const auto& [fd, link] : links_) {
    if (link->gone && link->saves.unwritten() == 0) dead.push_back(fd);
  }
  return dead;
}

std::unique_ptr<RankLink> RankLinks::remove(int fd) {
  auto entry = links_.extract(fd);
  return entry ? std::move(entry.mapped()) : nullptr;
}

std::optional<std::uint64_t> RankLinks::newest_step() const {
  std::optional<std::uint64_t> newest;
  each_joined([&](const RankLink& link) {
    const std::uint64_t step = link.page->step();
    if (step != wire::kNoStep) newest = std::max(newest.value_or(0), step);
  });
  return newest;
}

}  // namespace bellows
