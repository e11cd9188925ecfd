// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peerwire/peer_nodes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "common/text.h"
#include "modelstore/digest/tree_digest.h"

namespace bellows {
namespace {

constexpr std::size_t kMostDigits = 9;

Error wrong(std::string_view word, std::string_view why) {
  return Error{ErrorKind::invalid,
               fmt::format("\"{}\" names no nodes: {}", one_line(word, 2 * kMostPeerName), why)};
}

/// At the commas that stand in no brackets.
std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    if (at < list.size() && list[at] == '[') inside = true;
    if (at < list.size() && list[at] == ']') inside = false;
    if (at < list.size() && (inside || list[at] != ',')) continue;
    words.push_back(list.substr(begin, at - begin));
    begin = at + 1;
  }
  return words;
}

/// Of "1-3" or "07"; as many digits as the first has.
Status add_range(std::vector<std::string>& names, std::string_view word, std::string_view before,
                 std::string_view range, std::string_view behind) {
  const auto dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const auto first = parse_uint(low), last = parse_uint(high);
  if (low.size() > kMostDigits || high.size() > kMostDigits || !first || !last || *first > *last)
    return wrong(word, "the brackets have numbers and ranges such as 1-3");
  if (*last - *first >= kMostPeers - std::min(kMostPeers, names.size()))
    return wrong(word, "there are too many");
  for (std::uint64_t number = *first; number <= *last; ++number)
    names.push_back(fmt::format("{}{:0{}}{}", before, number, low.size(), behind));
  return {};
}

Result<std::vector<std::string>> names_of(std::string_view word) {
  const auto open = word.find('[');
  if (open == std::string_view::npos) return std::vector<std::string>{std::string(word)};
  const auto close = word.find(']', open);
  if (close == std::string_view::npos) return wrong(word, "a bracket has no end");
  std::vector<std::string> names;
  for (const std::string_view range : split(word.substr(open + 1, close - open - 1), ','))
    if (auto added = add_range(names, word, word.substr(0, open), range, word.substr(close + 1));
        !added)
      return added.error();
  return names;
}

/// "HOST" or "HOST:PORT"; an IPv6 address in brackets.
Result<PeerNode> with_address(std::string_view word, std::string_view name, std::string_view at,
                              std::uint16_t port) {
  PeerNode node{std::string(name), std::string(at), port};
  const auto colon = at.rfind(':');
  const bool in_brackets = at.starts_with('[');
  const auto bracket = at.find(']');
  if (colon != std::string_view::npos && (!in_brackets || (bracket + 1 == colon))) {
    const auto number = parse_uint(at.substr(colon + 1));
    if (!number || *number == 0 || *number > UINT16_MAX)
      return wrong(word, "a port is a number up to 65535");
    node.port = static_cast<std::uint16_t>(*number);
    node.host = at.substr(0, colon);
  }
  if (in_brackets && node.host.ends_with(']'))
    node.host = node.host.substr(1, node.host.size() - 2);
  const bool possible = std::all_of(node.host.begin(), node.host.end(), [](char c) {
    return is_alphanumeric(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (node.host.empty() || node.host.size() > 255 || !possible)
    return wrong(word, "an address is NAME=HOST or NAME=HOST:PORT");
  return node;
}

}  // namespace

bool is_peer_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostPeerName &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

Result<std::vector<PeerNode>> parse_peer_nodes(std::string_view list, std::uint16_t port) {
  std::vector<PeerNode> nodes;
  std::set<std::string> known;
  for (const std::string_view word : words_of(list)) {
    const auto sign = word.find('=');
    auto names = sign == std::string_view::npos
                     ? names_of(word)
                     : Result<std::vector<std::string>>({std::string(word.substr(0, sign))});
    if (!names) return names.error();
    for (const std::string& name : *names) {
      if (!is_peer_name(name)) return wrong(word, "a name has letters, digits, - _ and dots");
      if (!known.insert(name).second) return wrong(word, "it is there twice");
      if (known.size() > kMostPeers) return wrong(word, "there are too many");
      auto node = sign == std::string_view::npos
                      ? Result<PeerNode>({name, name, port})
                      : with_address(word, name, word.substr(sign + 1), port);
      if (!node) return node.error();
      nodes.push_back(std::move(*node));
    }
  }
  return nodes;
}

Result<std::uint64_t> peer_weight(const ModelDigest& source, std::string_view name) {
  auto hasher = TreeHasher::make();
  if (!hasher) return hasher.error();
  std::string text(reinterpret_cast<const char*>(source.bytes.data()), source.bytes.size());
  const auto digest = hasher->leaf(text.append(name));
  if (!digest) return digest.error();
  std::uint64_t weight = 0;
  for (std::size_t i = 0; i < sizeof weight; ++i) weight = weight << 8 | digest->bytes[i];
  return weight;
}

Result<std::vector<PeerNode>> best_homes(const std::vector<PeerNode>& nodes,
                                         const ModelDigest& source, std::size_t most) {
  std::vector<std::pair<std::uint64_t, const PeerNode*>> by_weight;
  for (const PeerNode& node : nodes) {
    const auto weight = peer_weight(source, node.name);
    if (!weight) return weight.error();
    by_weight.emplace_back(*weight, &node);
  }
  std::sort(by_weight.begin(), by_weight.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->name < b.second->name;
  });
  std::vector<PeerNode> best;
  for (std::size_t i = 0; i < std::min(most, by_weight.size()); ++i)
    best.push_back(*by_weight[i].second);
  return best;
}

Result<bool> is_better_home(const ModelDigest& source, std::string_view one,
                            std::string_view other) {
  const auto a = peer_weight(source, one), b = peer_weight(source, other);
  if (!a) return a.error();
  if (!b) return b.error();
  return *a != *b ? *a > *b : one < other;
}

}  // namespace bellows
