// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/allow_list.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/text.h"

namespace bellows {
namespace {

constexpr unsigned kBits = 128;
constexpr unsigned kIpv4At = 96;
constexpr unsigned char kIpv4Begin[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/// What has been given out to the world, and the parts of it that are for something else: IANA's
/// registries of special-purpose addresses (RFC 6890). What carries an IPv4 address inside (6to4,
/// Teredo, NAT64) could lead to a private one.
constexpr const char* kGlobal[] = {"0.0.0.0/0", "2000::/3"};
constexpr const char* kSpecial[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
    "2001::/23",     "2001:db8::/32",   "2002::/16",      "3fff::/20",
};

/// As names are compared: a dot at the end only says that nothing follows.
std::string plain_name(std::string_view host) {
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  return to_lower(host);
}

std::optional<std::array<unsigned char, 16>> bytes_of(const sockaddr& address) {
  std::array<unsigned char, 16> bytes{};
  if (address.sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    std::memcpy(bytes.data(), kIpv4Begin, sizeof kIpv4Begin);
    std::memcpy(bytes.data() + sizeof kIpv4Begin, &in.sin_addr, sizeof in.sin_addr);
    return bytes;
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in;
  std::memcpy(&in, &address, sizeof in);
  std::memcpy(bytes.data(), &in.sin6_addr, sizeof in.sin6_addr);
  return bytes;
}

}  // namespace

bool AllowList::Range::contains(const Bytes& address) const {
  const unsigned whole = prefix / 8, rest = prefix % 8;
  if (std::memcmp(bytes.data(), address.data(), whole) != 0) return false;
  return rest == 0 || ((bytes[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

Result<AllowList::Range> AllowList::parse_range(std::string_view text) {
  const Error wrong{ErrorKind::invalid,
                    fmt::format("\"{}\" is no range of addresses: write one as 10.1.0.0/16, "
                                "fd00::/8, a single address, or public",
                                one_line(text, 60))};
  const auto slash = text.find('/');
  const std::string address(text.substr(0, slash));
  Range range;
  unsigned most = kBits, base = 0;
  if (inet_pton(AF_INET, address.c_str(), range.bytes.data() + sizeof kIpv4Begin) == 1) {
    std::memcpy(range.bytes.data(), kIpv4Begin, sizeof kIpv4Begin);
    most = kBits - kIpv4At;
    base = kIpv4At;
  } else if (inet_pton(AF_INET6, address.c_str(), range.bytes.data()) != 1) {
    return wrong;
  }
  const auto bits = slash == std::string_view::npos ? std::optional<std::uint64_t>(most)
                                                    : parse_uint(text.substr(slash + 1));
  if (!bits || *bits > most) return wrong;
  range.prefix = base + static_cast<unsigned>(*bits);
  for (unsigned bit = range.prefix; bit < kBits; ++bit)
    if (range.bytes[bit / 8] & (0x80 >> bit % 8))
      return Error{
          ErrorKind::invalid,
          fmt::format("\"{}\" names an address inside of its range: write the range's first "
                      "address, or leave out what follows the slash",
                      one_line(text, 60))};
  return range;
}

Result<AllowList> AllowList::make(const std::vector<std::string>& hosts,
                                  const std::vector<std::string>& addresses) {
  AllowList list;
  for (const std::string& host : hosts) {
    const std::string_view name =
        host.rfind("*.", 0) == 0 ? std::string_view(host).substr(2) : host;
    if (name.empty() || name.find_first_of("*/@ ") != std::string_view::npos)
      return Error{
          ErrorKind::invalid,
          fmt::format("\"{}\" is no host: write its name, or *.example.org for all below one",
                      one_line(host, 60))};
    list.hosts_.push_back(plain_name(host));
  }
  for (const std::string& text : addresses) {
    if (text == "public") {
      list.public_ = true;
      continue;
    }
    const auto range = parse_range(text);
    if (!range) return range.error();
    list.ranges_.push_back(*range);
  }
  for (const char* text : kGlobal) list.global_.push_back(*parse_range(text));
  for (const char* text : kSpecial) list.special_.push_back(*parse_range(text));
  return list;
}

bool AllowList::allows_host(std::string_view host) const {
  const std::string name = plain_name(host);
  const auto is_meant = [&name](const std::string& allowed) {
    if (allowed.rfind("*.", 0) != 0) return name == allowed;
    const std::string_view end = std::string_view(allowed).substr(1);
    return name.size() > end.size() &&
           std::string_view(name).substr(name.size() - end.size()) == end;
  };
  return hosts_.empty() || std::any_of(hosts_.begin(), hosts_.end(), is_meant);
}

bool AllowList::contains_any(const std::vector<Range>& ranges, const Bytes& address) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&address](const Range& range) { return range.contains(address); });
}

bool AllowList::is_public(const Bytes& address) const {
  return contains_any(global_, address) && !contains_any(special_, address);
}

bool AllowList::allows_address(const sockaddr& address) const {
  const auto bytes = bytes_of(address);
  return bytes && (contains_any(ranges_, *bytes) || (public_ && is_public(*bytes)));
}

}  // namespace bellows
