// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "common/own_process.h"
#include "pool/shared/server.h"

/// bellows-pool-shared: a server of a pool's etcd, started by the keeper and by members.

namespace {

using bellows::ErrorKind;
using bellows::pool::SharedServer;

constexpr int kWrongUsage = 2;
constexpr timespec kTick{.tv_sec = 0, .tv_nsec = 500'000'000};

void say(const std::string& text) {
  std::fprintf(stderr, "bellows-pool-shared: %s\n", text.c_str());
}

/// Whether a signal ended the wait.
bool wait_for_signal(const sigset_t& signals) {
  return sigtimedwait(&signals, nullptr, &kTick) > 0;
}

int serve(const bellows::pool::SharedServerOptions& options, const sigset_t& signals) {
  while (true) {
    auto server = SharedServer::claim(options);
    if (!server && server.error().kind != ErrorKind::busy) {
      say(server.error().text);
      return 1;
    }
    if (!server) {
      // Another runs in this one's place, until its job ends.
      if (wait_for_signal(signals)) return 0;
      continue;
    }
    do {
      server.operator*()->tick(SharedServer::Clock::now());
    } while (!wait_for_signal(signals));
    server.operator*()->stop();
    return 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool makes = argc == 4 && std::strcmp(argv[1], "--make") == 0;
  if (!makes && (argc < 2 || argc > 4)) {
    std::fprintf(stderr,
                 "Usage: bellows-pool-shared POOL [HOST [SECONDS BETWEEN COPIES]]\n"
                 "       bellows-pool-shared --make SERVERS POOL\n");
    return kWrongUsage;
  }
  umask(0077);
  if (makes) {
    const auto status = bellows::pool::SeatFiles(argv[3]).make(std::strtoul(argv[2], nullptr, 10));
    if (!status) say(status.error().text);
    return status ? 0 : 1;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  bellows::pool::SharedServerOptions options;
  options.pool = argv[1];
  options.host = argc >= 3 ? argv[2] : bellows::own_host_name();
  if (argc == 4) options.snapshot_each = std::chrono::seconds(std::strtoul(argv[3], nullptr, 10));
  options.say = say;
  return serve(options, signals);
}
