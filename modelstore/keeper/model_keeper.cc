// SPDX-License-Identifier: Apache-2.0
// bellows-model-keeper: holds descriptors for bellows-modeld, which starts it. See README.md.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <map>

#include "common/plain/packet.h"
#include "modelstore/keeper/keeper_wire.h"

namespace bellows {
namespace {

constexpr int kListener = 0;
constexpr int kQueue = 1024;
constexpr int kDefaultAloneMs = 300000;
/// To take one message, of which the daemon has room for many.
constexpr timeval kSlowest = {5, 0};
constexpr std::size_t kMostKept = 65536;

struct Kept {
  KeeperMessage message;
  plain::Handle fd;
};

class Keeper {
 public:
  void run(int alone_ms) {
    for (;;) {
      pollfd fds[] = {{kListener, POLLIN, 0}, {daemon_.get(), POLLIN, 0}};
      const int ready = poll(fds, 2, daemon_.get() < 0 ? alone_ms : -1);
      if (ready == 0) return;
      if (ready < 0) continue;
      // What a daemon said before it was killed counts for the next one.
      if (fds[1].revents) {
        if (!take_message()) daemon_.reset(-1);
      } else if (fds[0].revents) {
        accept_daemon();
      }
    }
  }

 private:
  void accept_daemon() {
    plain::Handle peer(accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC));
    ucred who = {};
    socklen_t size = sizeof who;
    if (peer.get() < 0 || getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 ||
        (who.uid != geteuid() && who.uid != 0))
      return;
    (void)setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &kSlowest, sizeof kSlowest);
    daemon_.reset(peer.release());
  }

  /// False: the daemon is gone, or speaks otherwise.
  bool take_message() {
    KeeperMessage message;
    plain::Handle fd;
    const iovec part = {&message, sizeof message};
    std::size_t got = 0;
    if (plain::receive_packet(daemon_.get(), &part, 1, &got, &fd, MSG_DONTWAIT) != 0) return false;
    if (!message.is_sound(got)) return false;
    switch (message.word) {
      case KeeperWord::get:
        return give_all();
      case KeeperWord::drop:
        kept_.erase(message.key);
        return true;
      case KeeperWord::put: {
        if (kept_.size() >= kMostKept && kept_.count(message.key) == 0) return false;
        Kept& kept = kept_[message.key];
        kept.message = message;
        kept.fd.reset(fd.release());
        return true;
      }
      case KeeperWord::sync:
        return send_end();
      case KeeperWord::item:
      case KeeperWord::end:
        break;
    }
    return false;
  }

  bool give_all() {
    for (auto& [key, kept] : kept_) {
      kept.message.word = KeeperWord::item;
      if (!send(kept.message, kept.fd.get())) return false;
    }
    return send_end();
  }

  bool send_end() {
    KeeperMessage end;
    end.word = KeeperWord::end;
    return send(end, -1);
  }

  bool send(const KeeperMessage& message, int fd) {
    const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
    return plain::send_packet(daemon_.get(), &part, 1, fd, 0) == 0;
  }

  plain::Handle daemon_;
  std::map<std::uint64_t, Kept> kept_;
};

void allow_many_descriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace bellows

/// usage: bellows-model-keeper [MILLISECONDS-ALONE], with a listening socket as standard input
int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  bellows::allow_many_descriptors();
  // Again: from now on who connects is told this process, and not the one that bound the socket.
  (void)listen(bellows::kListener, bellows::kQueue);
  bellows::Keeper().run(argc > 1 ? atoi(argv[1]) : bellows::kDefaultAloneMs);
  return 0;
}
