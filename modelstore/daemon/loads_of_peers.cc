// SPDX-License-Identifier: Apache-2.0
// What loads have to do with other nodes.
#include <fmt/core.h>

#include "modelstore/daemon/loads.h"

namespace bellows {

std::string Loads::peers_task(const Load& load) const {
  PeersTask task;
  task.nodes = peers_->whom_to_ask(*load.loaded.source, EventLoop::Clock::now());
  if (task.nodes.empty()) return "";
  task.self = peers_->option().self;
  task.munge_socket = peers_->option().munge_socket;
  task.first_ms = static_cast<std::uint64_t>(peers_->option().first.count());
  // Before the loader is taken for one that hangs.
  task.patience_ms = static_cast<std::uint64_t>(options_.stall.count()) / 2;
  task.tenant = load.tenant_name;
  task.model = load.of_peers.name;
  task.digest = load.digest;
  return task.to_text();
}

void Loads::note_failed_peer(Load& load, const std::string& why) {
  constexpr unsigned kMost = 3;
  peers_->failed(load.loaded.peer, *load.loaded.source, why, EventLoop::Clock::now());
  if (++load.of_peers.failed >= kMost) load.of_peers.tries = false;
}

Status Loads::leave_peer(Load& load, const std::string& why) {
  note_failed_peer(load, why);
  let_go(load);
  load.attempts = 0;
  return start_loader(load);
}

void Loads::take_lost(const Load& load, const LoaderMessage& message) {
  const std::string text(message.text_view());
  const auto line = text.find('\n');
  if (!peers_ || !load.has_version || line == std::string::npos) return;
  const std::string node = text.substr(0, line), why = text.substr(line + 1);
  const auto now = EventLoop::Clock::now();
  const ErrorKind kind = message.to_error().kind;
  if (kind == ErrorKind::corrupt)
    peers_->failed(node, *load.loaded.source, why, now);
  else if (kind == ErrorKind::busy)
    peers_->late(node, *load.loaded.source, why, now);
  else
    peers_->lost(node, why, now);
}

Status Loads::tell_where(const Load& load, const std::string& node) {
  const PeerNode* found = peers_ ? peers_->find(node) : nullptr;
  LoaderMessage message;
  message.word = LoaderWord::peer_at;
  if (found) message.set_text(fmt::format("{} {}", found->host, found->port));
  return send_message(load.socket.get(), message);
}

}  // namespace bellows
