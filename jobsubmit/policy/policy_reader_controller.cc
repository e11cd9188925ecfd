// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <array>

#include "jobsubmit/policy/policy_reader.h"

namespace bellows {
namespace {

constexpr std::uint32_t kMostSeconds = 7 * 86400;
constexpr std::uint32_t kMostRestarts = 3600;
constexpr std::size_t kMostAddresses = 256;

void read_addresses(ValueReader& in, const YamlNode& node, ControllerSettings& settings) {
  (void)in.some_texts(node, "addresses", "an address");
  for (const YamlNode& item : node.items) {
    auto host = parse_host_port(item.scalar);
    if (!host) return in.fail(item, host.error().text);
    settings.address.hosts.push_back(*std::move(host));
  }
  // The contract of each job has them, and the answer to `bellows status --cluster`.
  if (settings.address.to_string().size() > kMostAddresses)
    in.fail(node, fmt::format("the addresses are longer than {} characters", kMostAddresses));
}

void read_make_room(ValueReader& in, const YamlNode& node, ControllerSettings& settings) {
  settings.make_room_s.reset();
  if (node.kind == YamlNode::Kind::scalar && node.scalar == "never") return;
  settings.make_room_s = in.number(node, "make_room", 0, kMostSeconds);
}

}  // namespace

ControllerSettings read_controller(ValueReader& in, const YamlNode& node) {
  using Objective = ControllerSettings::Objective;
  ControllerSettings settings;
  if (!in.mapping(node, "controller",
                  {"addresses", "uid", "objective", "share", "dwell", "restarts_per_hour", "last",
                   "user_wins", "make_room"}))
    return settings;
  if (const YamlNode* list = node.find("addresses"))
    read_addresses(in, *list, settings);
  else
    in.fail(node, "controller needs addresses, a list of HOST:PORT where bellowsd listens");
  if (const YamlNode* uid = node.find("uid"))
    settings.address.uid = in.number(*uid, "uid", 1, UINT32_MAX - 2);
  if (const YamlNode* objective = node.find("objective"))
    settings.objective =
        std::array{Objective::fair, Objective::goodput, Objective::throughput}[in.choice(
            *objective, "objective", {"fair", "goodput", "throughput"})];
  if (const YamlNode* share = node.find("share"))
    settings.share_by_value = in.choice(*share, "share", {"weight", "value"}) == 1;
  const auto number = [&](const char* key, std::uint32_t least, std::uint32_t most,
                          std::uint32_t& value) {
    if (const YamlNode* found = node.find(key)) value = in.number(*found, key, least, most);
  };
  number("dwell", 0, kMostSeconds, settings.dwell_s);
  number("restarts_per_hour", 1, kMostRestarts, settings.restarts_per_hour);
  number("last", 0, kMostSeconds, settings.last_s);
  number("user_wins", 0, kMostSeconds, settings.user_wins_s);
  if (const YamlNode* room = node.find("make_room")) read_make_room(in, *room, settings);
  return settings;
}

}  // namespace bellows
