// SPDX-License-Identifier: Apache-2.0
#include "pool/proxy/proxy_slots.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows::pool {
namespace {

/// Fields of a line of "show servers state" that this reads, by the names in its second line.
struct Columns {
  std::size_t backend, server, address, port, admin_state;
};

/// Bits of srv_admin_state (HAProxy's management guide): maintenance, forced, inherited, or for a
/// name that can't be looked up; drain. That it began disabled (0x04) stays set when it no longer
/// is.
constexpr std::uint64_t kMaintenance = 0x01 | 0x02 | 0x20 | 0x40;
constexpr std::uint64_t kDrain = 0x08 | 0x10;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words = split(line, ' ');
  std::erase(words, "");
  return words;
}

std::optional<Columns> columns_of(std::string_view header) {
  std::vector<std::string_view> names = words_of(header);
  if (names.empty() || names[0] != "#") return std::nullopt;
  names.erase(names.begin());
  const auto place = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const Columns columns{place("be_name"), place("srv_name"), place("srv_addr"), place("srv_port"),
                        place("srv_admin_state")};
  const bool has_all = std::max({columns.backend, columns.server, columns.address, columns.port,
                                 columns.admin_state}) < names.size();
  return has_all ? std::optional(columns) : std::nullopt;
}

std::string server_name(std::size_t slot) { return fmt::format("{}/m{}", kProxyBackend, slot + 1); }

}  // namespace

Result<ProxySlots> ProxySlots::parse(std::string_view state, std::uint32_t slots) {
  const Error corrupt{ErrorKind::corrupt, "HAProxy does not say which servers it has"};
  const auto lines = split(state, '\n');
  const auto columns = lines.size() > 1 ? columns_of(lines[1]) : std::nullopt;
  if (!columns) return corrupt;
  ProxySlots parsed(slots);
  for (std::size_t i = 2; i < lines.size(); ++i) {
    const auto words = words_of(lines[i]);
    if (words.empty()) continue;
    if (words.size() <= std::max({columns->backend, columns->server, columns->address,
                                  columns->port, columns->admin_state}))
      return corrupt;
    if (words[columns->backend] != kProxyBackend) continue;
    const std::string_view name = words[columns->server];
    const auto slot = parse_uint(name.substr(std::min<std::size_t>(1, name.size())));
    const auto port = parse_uint(words[columns->port]);
    const auto admin = parse_uint(words[columns->admin_state]);
    if (!slot || *slot == 0 || *slot > slots || !port || *port > UINT16_MAX || !admin)
      return corrupt;
    if (*admin & kMaintenance) continue;
    parsed.slots_[*slot - 1] = ProxiedMember{.ip = std::string(words[columns->address]),
                                             .port = static_cast<std::uint16_t>(*port),
                                             .drains = (*admin & kDrain) != 0};
  }
  return parsed;
}

std::vector<std::string> ProxySlots::change_to(const std::vector<ProxiedMember>& members) {
  std::vector<std::string> commands;
  std::vector<const ProxiedMember*> fresh;
  std::vector<const ProxiedMember*> kept(slots_.size(), nullptr);
  for (const ProxiedMember& member : members) {
    const auto place = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot && slot->has_address_of(member);
    });
    if (place == slots_.end())
      fresh.push_back(&member);
    else
      kept[static_cast<std::size_t>(place - slots_.begin())] = &member;
  }
  auto next = fresh.begin();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::string server = server_name(i);
    if (kept[i] && *slots_[i] != *kept[i]) {
      commands.push_back(
          fmt::format("set server {} state {}", server, kept[i]->drains ? "drain" : "ready"));
      slots_[i] = *kept[i];
    }
    if (kept[i] || (!slots_[i] && next == fresh.end())) continue;
    // Its connections end with it.
    if (slots_[i]) commands.push_back(fmt::format("set server {} state maint", server));
    slots_[i].reset();
    if (next == fresh.end()) continue;
    slots_[i] = **next++;
    commands.push_back(
        fmt::format("set server {} addr {} port {}", server, slots_[i]->ip, slots_[i]->port));
    commands.push_back(
        fmt::format("set server {} state {}", server, slots_[i]->drains ? "drain" : "ready"));
    // Until the first check it would count as down.
    commands.push_back(fmt::format("set server {} health up", server));
  }
  return commands;
}

}  // namespace bellows::pool
