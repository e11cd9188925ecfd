// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/keeper_link.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/plain/packet.h"
#include "modelstore/daemon/listen_at.h"

namespace bellows {
namespace {

constexpr timeval kSlowest = {1, 0};
constexpr std::chrono::seconds kPause{1};

Error keeper_error(int failure) {
  const bool is_absent = failure == ENOENT || failure == ECONNREFUSED;
  return Error{is_absent ? ErrorKind::not_found : ErrorKind::unavailable,
               fmt::format("the keeper of models does not answer: {}", std::strerror(failure))};
}

}  // namespace

Result<std::vector<KeptItem>> KeeperLink::start(std::function<void()> put_all) {
  put_all_ = std::move(put_all);
  const auto connected = connect();
  // Where one may be there, a new one would leave it with all that it has.
  if (!connected && connected.error().kind != ErrorKind::not_found) return connected.error();
  if (connected) {
    auto items = get_all();
    if (items) return items;
    say_(items.error().text + "; a new one takes its place");
  }
  if (auto started = start_keeper(); !started) return started.error();
  return std::vector<KeptItem>();
}

Status KeeperLink::connect() {
  plain::Handle socket;
  if (const int failure = plain::connect_to(socket_path_.c_str(), &socket, kSlowest.tv_sec * 1000))
    return keeper_error(failure);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (setsockopt(socket.get(), SOL_SOCKET, option, &kSlowest, sizeof kSlowest) < 0)
      return errno_error("prepare", socket_path_);
  socket_.reset(socket.release());
  // It never speaks by itself: whatever comes is its end.
  auto watch = loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) {
    say_("the keeper of models has ended; a new one takes its place");
    let_go();
  });
  if (!watch) return watch.error();
  watch_ = std::move(*watch);
  return {};
}

Status KeeperLink::start_keeper() {
  watch_.end();
  socket_.reset();
  started_ = EventLoop::Clock::now();
  const auto listener = listen_at(socket_path_, 0600);
  if (!listener) return listener.error();
  ChildOptions options;
  options.command = command_;
  options.in_fd = listener->get();
  auto child = Child::start(options);
  if (!child) return child.error();
  child_.emplace(std::move(*child));
  return connect();
}

Result<std::vector<KeptItem>> KeeperLink::get_all() {
  KeeperMessage message;
  const iovec part = {&message, sizeof message};
  if (const int failure = plain::send_packet(socket_.get(), &part, 1, -1, 0))
    return keeper_error(failure);
  std::vector<KeptItem> items;
  for (;;) {
    plain::Handle fd;
    std::size_t got = 0;
    if (const int failure = plain::receive_packet(socket_.get(), &part, 1, &got, &fd, 0))
      return keeper_error(failure);
    if (!message.is_sound(got)) return keeper_error(EPROTO);
    if (message.word == KeeperWord::end) return items;
    auto record = parse_kept({message.record, message.length});
    if (record) {
      items.push_back({message.key, std::move(*record), Fd(fd.release())});
    } else {
      say_(record.error().text);
    }
  }
}

void KeeperLink::let_go() {
  watch_.end();
  socket_.reset();
  start_at_ = started_ + kPause;
}

KeeperLink::Time KeeperLink::tick(Time now) {
  if (now < start_at_) return start_at_;
  start_at_ = Time::max();
  if (auto started = start_keeper(); !started) {
    say_(started.error().text);
    let_go();
  } else {
    put_all_();
  }
  return start_at_;
}

void KeeperLink::put(std::uint64_t key, const KeptRecord& record, int fd) {
  const auto text = text_of(record);
  if (!text) {
    say_("a model's name, path and tenants are too long to be kept over a restart");
    return drop(key);
  }
  KeeperMessage message;
  message.word = KeeperWord::put;
  message.key = key;
  message.length = static_cast<std::uint32_t>(text->size());
  std::memcpy(message.record, text->data(), text->size());
  send(message, fd);
}

void KeeperLink::drop(std::uint64_t key) {
  KeeperMessage message;
  message.word = KeeperWord::drop;
  message.key = key;
  send(message, -1);
}

Status KeeperLink::sync() {
  KeeperMessage message;
  message.word = KeeperWord::sync;
  send(message, -1);
  if (!socket_) return Error{ErrorKind::unavailable, "there is no keeper of models to ask"};
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  int failure = plain::receive_packet(socket_.get(), &part, 1, &got, nullptr, 0);
  if (failure == 0 && (!message.is_sound(got) || message.word != KeeperWord::end)) failure = EPROTO;
  if (failure == 0) return {};
  const Error error = keeper_error(failure);
  say_(error.text + "; a new one takes its place");
  let_go();
  return error;
}

void KeeperLink::send(const KeeperMessage& message, int fd) {
  if (!socket_) return;
  const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
  const int failure = plain::send_packet(socket_.get(), &part, 1, fd, 0);
  if (failure == 0) return;
  // It lacks this now, and to wait for it again and again would stop all. A new one gets all.
  say_(keeper_error(failure).text + "; a new one takes its place");
  let_go();
}

}  // namespace bellows
