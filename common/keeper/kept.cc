// SPDX-License-Identifier: Apache-2.0
#include "common/keeper/kept.h"

#include <sys/socket.h>

#include "common/plain/packet.h"

namespace bellows {
namespace {

bool send(int socket, const KeeperMessage& message, int fd) {
  const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
  return plain::send_packet(socket, &part, 1, fd, 0) == 0;
}

bool send_end(int socket) {
  KeeperMessage end;
  end.word = KeeperWord::end;
  return send(socket, end, -1);
}

}  // namespace

bool KeptDescriptors::serve(int socket) {
  KeeperMessage message;
  plain::Handle fd;
  const iovec part = {&message, sizeof message};
  std::size_t got = 0;
  if (plain::receive_packet(socket, &part, 1, &got, &fd, MSG_DONTWAIT) != 0) return false;
  if (!message.is_sound(got)) return false;
  switch (message.word) {
    case KeeperWord::get:
      return give_all(socket);
    case KeeperWord::drop:
      kept_.erase(message.key);
      return true;
    case KeeperWord::put:
      return put(message, fd);
    case KeeperWord::sync:
      return send_end(socket);
    case KeeperWord::item:
    case KeeperWord::end:
      break;
  }
  return false;
}

bool KeptDescriptors::put(const KeeperMessage& message, plain::Handle& fd) {
  if (kept_.size() >= kMost && kept_.count(message.key) == 0) return false;
  Kept& kept = kept_[message.key];
  kept.message = message;
  kept.fd.reset(fd.release());
  return true;
}

bool KeptDescriptors::give_all(int socket) {
  for (auto& [key, kept] : kept_) {
    kept.message.word = KeeperWord::item;
    if (!send(socket, kept.message, kept.fd.get())) return false;
  }
  return send_end(socket);
}

}  // namespace bellows
