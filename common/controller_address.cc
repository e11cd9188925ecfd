// SPDX-License-Identifier: Apache-2.0
#include "common/controller_address.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostHost = 253;

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > kMostHost) return false;
  if (text.starts_with('['))
    return text.size() > 2 && text.ends_with(']') &&
           text.find_first_not_of("0123456789abcdefABCDEF:.", 1) == text.size() - 1;
  return text[0] != '-' && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  const Error wrong{
      ErrorKind::invalid,
      fmt::format("\"{}\" is not HOST:PORT with a port from 1 to 65535", one_line(text, 300))};
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || !is_host(text.substr(0, colon))) return wrong;
  const auto port = parse_uint(text.substr(colon + 1)).value_or(0);
  if (port == 0 || port > UINT16_MAX) return wrong;
  return HostPort{std::string(text.substr(0, colon)), static_cast<std::uint16_t>(port)};
}

Result<ControllerAddress> ControllerAddress::parse(std::string_view text) {
  const auto at = text.find('@');
  if (at == std::string_view::npos)
    return Error{ErrorKind::invalid, "a controller's address is [UID]@HOST:PORT[,HOST:PORT]"};
  ControllerAddress address;
  if (at > 0) {
    const auto uid = parse_uint(text.substr(0, at));
    if (!uid || *uid >= UINT32_MAX)
      return Error{ErrorKind::invalid, "a controller's address begins with what is no uid"};
    address.uid = static_cast<uid_t>(*uid);
  }
  for (std::string_view part : split(text.substr(at + 1), ',')) {
    auto host = parse_host_port(part);
    if (!host) return host.error();
    address.hosts.push_back(std::move(*host));
  }
  return address;
}

std::string ControllerAddress::to_string() const {
  std::string text = uid ? fmt::format("{}@", *uid) : "@";
  for (std::size_t i = 0; i < hosts.size(); ++i)
    text += fmt::format("{}{}:{}", i == 0 ? "" : ",", hosts[i].host, hosts[i].port);
  return text;
}

}  // namespace bellows
