// SPDX-License-Identifier: Apache-2.0
#include "pool/proxy/proxy_config.h"

#include <fmt/core.h>

namespace bellows::pool {

std::string proxy_config(const ProxyOptions& options, const ProxySlots& slots) {
  std::string servers;
  std::size_t number = 0;
  for (const auto& slot : slots.slots())
    // What drains has no calls left when HAProxy starts.
    servers += slot && !slot->drains
                   ? fmt::format("  server m{} {}:{}\n", ++number, slot->ip, slot->port)
                   : fmt::format("  server m{} 0.0.0.0:1 disabled\n", ++number);
  return fmt::format(
      R"(# Written by the pool's keeper at each change of members.
global
  stats socket {socket} mode 600 level admin
  stats timeout 1m

defaults
  mode http
  option redispatch 1
  retries 4
  timeout connect 2s
  timeout client {limit}s
  timeout server {limit}s
  timeout queue {limit}s

frontend callers
  bind fd@0
  # RFC 9110, 9.2.2. Anything else is sent once: the lost member may have done it.
  http-request disable-l7-retry unless {{ method GET HEAD OPTIONS TRACE PUT DELETE }}
  default_backend {backend}

backend {backend}
  balance leastconn
  retry-on conn-failure empty-response junk-response
  # A member that is lost is noticed here before the keeper knows.
  default-server check inter 2s fastinter 300ms rise 1 fall 2
{servers})",
      fmt::arg("socket", options.runtime_socket), fmt::arg("limit", options.request_limit.count()),
      fmt::arg("backend", kProxyBackend), fmt::arg("servers", servers));
}

}  // namespace bellows::pool
