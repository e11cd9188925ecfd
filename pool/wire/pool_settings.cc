// SPDX-License-Identifier: Apache-2.0
#include "pool/wire/pool_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/fd.h"
#include "common/pool_option.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostBytes = 64 * 1024;
constexpr std::uint64_t kLongestSeconds = 7 * 24 * 3600;

std::string settings_file(const std::string& dir) { return dir + "/pool.json"; }

std::string orders_file(const std::string& dir) { return dir + "/orders.json"; }

std::optional<std::uint64_t> number(const nlohmann::json& json, const char* key) {
  const auto place = json.find(key);
  if (place == json.end() || !place->is_number_unsigned()) return std::nullopt;
  return place->get<std::uint64_t>();
}

}  // namespace

std::string settings_complaint(const PoolSettings& settings) {
  if (std::string complaint = pool_name_complaint(settings.name); !complaint.empty())
    return complaint;
  if (settings.max == 0 || settings.max > kMostPoolMembers)
    return fmt::format("a pool has from 1 to {} members at most, not {}", kMostPoolMembers,
                       settings.max);
  if (settings.min > settings.max)
    return fmt::format("the least number of members, {}, is above the most, {}", settings.min,
                       settings.max);
  return "";
}

Result<PoolSettings> read_settings(const std::string& dir) {
  const auto text = read_file(settings_file(dir), kMostBytes);
  if (!text) return text.error();
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const Error corrupt{ErrorKind::corrupt, settings_file(dir) +
                                              " is not what `bellows pool create` writes; delete "
                                              "the pool and create it again"};
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return corrupt;
  const auto min = number(json, "min"), max = number(json, "max");
  const auto burst = number(json, "burst_seconds"), drain = number(json, "drain_seconds");
  if (!min || !max || !burst || !drain || *min > kMostPoolMembers || *max > kMostPoolMembers ||
      *burst > kLongestSeconds || *drain > kLongestSeconds)
    return corrupt;
  const auto port = number(json, "http_port");
  const auto options = json.find("keeper_options");
  if (!port || *port > UINT16_MAX || options == json.end() || !options->is_array() ||
      !std::all_of(options->begin(), options->end(), [](const auto& o) { return o.is_string(); }))
    return corrupt;
  PoolSettings settings{.name = json["name"].get<std::string>(),
                        .min = static_cast<std::uint32_t>(*min),
                        .max = static_cast<std::uint32_t>(*max),
                        .burst_interval = std::chrono::seconds(*burst),
                        .drain = std::chrono::seconds(*drain),
                        .http_port = static_cast<std::uint16_t>(*port),
                        .keeper_options = options->get<std::vector<std::string>>()};
  if (!settings_complaint(settings).empty()) return corrupt;
  return settings;
}

Status write_settings(const std::string& dir, const PoolSettings& settings) {
  const nlohmann::json json = {{"name", settings.name},
                               {"min", settings.min},
                               {"max", settings.max},
                               {"burst_seconds", settings.burst_interval.count()},
                               {"drain_seconds", settings.drain.count()},
                               {"http_port", settings.http_port},
                               {"keeper_options", settings.keeper_options}};
  return replace_file(settings_file(dir), json.dump(2) + "\n", 0600);
}

Result<PoolOrders> read_orders(const std::string& dir) {
  const auto text = read_file(orders_file(dir), kMostBytes);
  if (!text && text.error().kind == ErrorKind::not_found) return PoolOrders{};
  if (!text) return text.error();
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto size = json.is_object() ? number(json, "size") : std::nullopt;
  if (!size || *size > kMostPoolMembers || !json.contains("ends") || !json["ends"].is_boolean())
    return Error{ErrorKind::corrupt, orders_file(dir) +
                                         " is not what a keeper writes; without it "
                                         "the policy decides again"};
  return PoolOrders{.size = static_cast<std::uint32_t>(*size), .ends = json["ends"].get<bool>()};
}

Status write_orders(const std::string& dir, const PoolOrders& orders) {
  const nlohmann::json json = {{"size", orders.size}, {"ends", orders.ends}};
  return replace_file(orders_file(dir), json.dump() + "\n", 0600);
}

}  // namespace bellows::pool
