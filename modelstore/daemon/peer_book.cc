// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/peer_book.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

/// A home, and two for when it is away.
constexpr std::size_t kHomes = 3;
constexpr std::chrono::seconds kLost{30};
constexpr std::chrono::minutes kFailed{10};

}  // namespace

void PeerBook::forget_old(Time now) {
  std::erase_if(lost_, [now](const auto& entry) { return entry.second <= now; });
  std::erase_if(failed_, [now](const auto& entry) { return entry.second <= now; });
}

std::vector<std::pair<PeerMode, PeerNode>> PeerBook::whom_to_ask(const ModelDigest& source,
                                                                 Time now) {
  forget_old(now);
  std::vector<std::pair<PeerMode, PeerNode>> asked;
  const auto homes = best_homes(option_.nodes, source, kHomes);
  if (!homes) return asked;
  PeerMode mode = PeerMode::load;
  for (const PeerNode& node : *homes) {
    if (node.name == option_.self) {
      // Those behind may have it from before a restart of this one.
      mode = PeerMode::have;
    } else if (!lost_.contains(node.name) && !failed_.contains({node.name, source})) {
      asked.emplace_back(mode, node);
    }
  }
  return asked;
}

const PeerNode* PeerBook::find(const std::string& name) const {
  const auto found = std::find_if(option_.nodes.begin(), option_.nodes.end(),
                                  [&](const PeerNode& node) { return node.name == name; });
  return found == option_.nodes.end() ? nullptr : &*found;
}

void PeerBook::say(const std::string& name, const std::string& text) {
  if (!find(name) || said_[name] == text) return;
  said_[name] = text;
  say_(text);
}

void PeerBook::lost(const std::string& name, const std::string& why, Time now) {
  if (!find(name)) return;
  lost_[name] = now + kLost;
  say(name, fmt::format("node {} is asked for no models for {} s: {}", name, kLost.count(),
                        one_line(why)));
}

void PeerBook::failed(const std::string& name, const ModelDigest& source, const std::string& why,
                      Time now) {
  if (!find(name)) return;
  failed_[{name, source}] = now + kFailed;
  say(name, fmt::format("node {} is not asked for a model that it gave: {}", name, one_line(why)));
}

void PeerBook::late(const std::string& name, const ModelDigest& source, const std::string& why,
                    Time now) {
  if (!find(name)) return;
  failed_[{name, source}] = now + kLost;
  say(name, fmt::format("node {} is not asked for a model for {} s: {}", name, kLost.count(),
                        one_line(why)));
}

}  // namespace bellows
