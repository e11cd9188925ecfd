// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/etcd_command.h"

#include <fmt/core.h>

namespace bellows::pool {
namespace {

/// How long a change stays in the history of a field: callers look there for what became of a lost
/// answer, and watches for what they have missed.
constexpr const char* kHistory = "10m";
constexpr const char* kMostBytes = "268435456";

std::string peer_url(const SeatPlan& plan, unsigned index) {
  return fmt::format("https://127.0.0.1:{}", plan.ports[index]);
}

std::string all_peers(const SeatPlan& plan) {
  std::string text;
  for (unsigned index = 0; index < plan.ports.size(); ++index)
    text += fmt::format("{}m{}={}", index ? "," : "", index, peer_url(plan, index));
  return text;
}

}  // namespace

std::vector<std::string> etcd_command(const SeatFiles& files, const SeatPlan& plan, unsigned index,
                                      const SeatAddress& address, bool joins) {
  const std::string key = files.pool() + "/key.pem";
  const std::string certificate = files.pool() + "/cert.pem";
  return {"etcd", fmt::format("--name=m{}", index), "--data-dir=" + files.data(index),
          fmt::format("--listen-client-urls=https://0.0.0.0:{}", address.client),
          fmt::format("--advertise-client-urls=https://{}:{}", address.host, address.client),
          fmt::format("--listen-peer-urls=https://0.0.0.0:{}", address.peer),
          "--initial-advertise-peer-urls=" + peer_url(plan, index),
          "--initial-cluster=" + all_peers(plan), "--initial-cluster-token=" + plan.token,
          fmt::format("--initial-cluster-state={}", joins ? "existing" : "new"),
          "--client-cert-auth", "--cert-file=" + certificate, "--key-file=" + key,
          "--trusted-ca-file=" + certificate, "--peer-client-cert-auth",
          "--peer-cert-file=" + certificate, "--peer-key-file=" + key,
          "--peer-trusted-ca-file=" + certificate,
          // Relays, and so peers, come from another address than the certificate's.
          "--experimental-peer-skip-client-san-verification",
          // Its data may be on a file system of the whole cluster.
          "--heartbeat-interval=200", "--election-timeout=2000", "--auto-compaction-mode=periodic",
          fmt::format("--auto-compaction-retention={}", kHistory),
          fmt::format("--quota-backend-bytes={}", kMostBytes), "--logger=zap",
          // It warns of each request to its gateway.
          "--log-level=error", "--log-outputs=stderr"};
}

std::vector<std::string> snapshot_command(const SeatFiles& files, const SeatAddress& address,
                                          const std::string& path) {
  return {"etcdctl",
          fmt::format("--endpoints=https://127.0.0.1:{}", address.client),
          "--cacert=" + files.pool() + "/cert.pem",
          "--cert=" + files.pool() + "/cert.pem",
          "--key=" + files.pool() + "/key.pem",
          "snapshot",
          "save",
          path};
}

std::vector<std::string> restore_command(const SeatFiles& files, const SeatPlan& plan,
                                         unsigned index, const std::string& path) {
  return {"etcdctl",
          "snapshot",
          "restore",
          path,
          fmt::format("--name=m{}", index),
          "--data-dir=" + files.data(index),
          "--initial-cluster=" + all_peers(plan),
          "--initial-cluster-token=" + plan.token,
          "--initial-advertise-peer-urls=" + peer_url(plan, index)};
}

}  // namespace bellows::pool
