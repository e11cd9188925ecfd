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

#include "common/keeper/kept.h"

namespace bellows {
namespace {

constexpr int kListener = 0;
constexpr int kQueue = 1024;
constexpr int kDefaultAloneMs = 300000;
/// To take one message, of which the daemon has room for many.
constexpr timeval kSlowest = {5, 0};

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
        if (!kept_.serve(daemon_.get())) daemon_.reset(-1);
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

  plain::Handle daemon_;
  KeptDescriptors kept_;
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
