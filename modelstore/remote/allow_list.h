// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// Which hosts and addresses may be asked for files. A name says nothing about where it leads, so
/// addresses are checked where a connection is made.
class AllowList {
 public:
  /// `hosts`: names, or "*.example.org" for all below one; none: every name. `addresses`: ranges
  /// such as "10.1.0.0/16" or "fd00::/8", single addresses, and "public" for what is no special
  /// network of anybody: not the machine itself, not private or link-local ones.
  static Result<AllowList> make(const std::vector<std::string>& hosts,
                                const std::vector<std::string>& addresses);

  bool allows_host(std::string_view host) const;
  bool allows_address(const sockaddr& address) const;

 private:
  /// IPv4 lies in IPv6, at ::ffff:0:0/96.
  using Bytes = std::array<unsigned char, 16>;
  struct Range {
    Bytes bytes{};
    unsigned prefix = 0;  ///< bits

    bool contains(const Bytes& address) const;
  };

  static Result<Range> parse_range(std::string_view text);
  static bool contains_any(const std::vector<Range>& ranges, const Bytes& address);
  bool is_public(const Bytes& address) const;

  std::vector<std::string> hosts_;
  std::vector<Range> ranges_;
  bool public_ = false;
  std::vector<Range> global_;
  std::vector<Range> special_;
};

}  // namespace bellows
