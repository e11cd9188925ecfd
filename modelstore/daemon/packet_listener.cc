// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/packet_listener.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace bellows {
namespace {

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

Status PacketListener::listen(EventLoop& loop, Fd socket, std::function<void()> ready) {
  int type = 0, listens = 0;
  socklen_t size = sizeof type;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET ||
      getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens)
    return Error{ErrorKind::invalid, "it takes a SOCK_SEQPACKET socket that listens"};
  // Where somebody connects and goes again, accept must not wait for the next.
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  loop_ = &loop;
  ready_ = std::move(ready);
  socket_ = std::move(socket);
  return watch();
}

Status PacketListener::watch() {
  auto watch = loop_->watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { ready_(); });
  if (!watch) return watch.error();
  watch_ = std::move(*watch);
  return {};
}

Fd PacketListener::accept() {
  Fd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer) return peer;
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    watch_.end();
    paused_until_ = EventLoop::Clock::now() + kPause;
  }
  return {};
}

PacketListener::Time PacketListener::tick(Time now) {
  if (now >= paused_until_) paused_until_ = watch() ? Time::max() : now + kPause;
  return paused_until_;
}

}  // namespace bellows
