// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/loader_wire.h"

#include <fmt/core.h>

#include <string>

namespace bellows {

Error LoaderMessage::to_error() const {
  const auto kind = error <= static_cast<std::uint32_t>(ErrorKind::internal)
                        ? static_cast<ErrorKind>(error)
                        : ErrorKind::internal;
  return Error{kind, length > 0 ? one_line(text_view()) : "the loader does not say why"};
}

std::string PeersTask::to_text() const {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", self, munge_socket, first_ms,
                                 patience_ms, tenant, model, digest ? digest->to_string() : "");
  for (const auto& [mode, node] : nodes)
    text += fmt::format("\n{} {} {} {}", static_cast<int>(mode), node.name, node.host, node.port);
  return text;
}

Result<PeersTask> PeersTask::parse(std::string_view text) {
  constexpr std::size_t kFirst = 7;
  const Error nonsense{ErrorKind::internal, "bellows-modeld names nodes in no way that there is"};
  const auto lines = split(text, '\n');
  if (lines.size() < kFirst) return nonsense;
  PeersTask task;
  task.self = lines[0];
  task.munge_socket = lines[1];
  task.first_ms = parse_uint(lines[2]).value_or(0);
  task.patience_ms = parse_uint(lines[3]).value_or(0);
  task.tenant = lines[4];
  task.model = lines[5];
  task.digest = ModelDigest::parse(lines[6]);
  for (std::size_t i = kFirst; i < lines.size(); ++i) {
    const auto words = split(lines[i], ' ');
    const auto mode = parse_uint(words[0]);
    const std::uint64_t port = words.size() == 4 ? parse_uint(words[3]).value_or(0) : 0;
    if (!mode || *mode > static_cast<unsigned>(PeerMode::have) || port == 0 || port > UINT16_MAX)
      return nonsense;
    task.nodes.emplace_back(
        static_cast<PeerMode>(*mode),
        PeerNode{std::string(words[1]), std::string(words[2]), static_cast<std::uint16_t>(port)});
  }
  return task;
}

}  // namespace bellows
