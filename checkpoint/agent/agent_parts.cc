// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/agent_parts.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace bellows {
namespace {

std::size_t shard_threads() { return std::clamp(std::thread::hardware_concurrency(), 2u, 8u); }

}  // namespace

AgentParts::AgentParts(std::string node, Fd listener, FileOps& file_ops,
                       std::unique_ptr<Completions> completions, Voice::Emit emit)
    : voice(std::move(node), std::move(emit)),
      ops(file_ops),
      jobs(std::move(completions)),
      links(std::move(listener)),
      store(voice, jobs),
      shards(shard_threads(), jobs.completions()) {}

std::optional<std::uint64_t> AgentParts::newest_step() const {
  return session ? std::max(session->newest, links.newest_step()) : links.newest_step();
}

void AgentParts::keep_copies(const RankLink& link) {
  link.saves.each_copy([this](const auto& copy) { kept.keep(copy); });
}

ShardCopies AgentParts::copies_of(std::uint64_t step) const {
  ShardCopies out = kept.of(step);
  links.each([&](const RankLink& link) {
    link.saves.each_copy([&](const auto& copy) {
      if (copy->step == step) out[copy->file.rank] = copy;
    });
  });
  return out;
}

}  // namespace bellows
