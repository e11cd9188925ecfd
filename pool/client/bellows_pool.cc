// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/plain/handle.h"
#include "common/plain/packet.h"
#include "pool/include/bellows_pool.h"
#include "pool/wire/local_line.h"

namespace {

using bellows::plain::Handle;
using bellows::pool::kAgentWaitMs;
using bellows::pool::kLongestLine;

int say(const char* line, Handle* socket) {
  const char* const path = std::getenv("BELLOWS_POOL_SOCKET");
  if (!path || !*path || bellows::plain::connect_to(path, socket, kAgentWaitMs) != 0)
    return BELLOWS_POOL_ERR_UNAVAILABLE;
  const iovec part{const_cast<char*>(line), std::strlen(line)};
  if (bellows::plain::send_packet(socket->get(), &part, 1, -1, 0) != 0)
    return BELLOWS_POOL_ERR_UNAVAILABLE;
  return BELLOWS_POOL_OK;
}

int say_once(const char* line) {
  Handle socket;
  return say(line, &socket);
}

bool is_name(const char* name) {
  if (!name || !*name || std::strlen(name) > BELLOWS_POOL_NAME_MAX) return false;
  constexpr const char* kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.";
  return std::strspn(name, kLetters) == std::strlen(name);
}

}  // namespace

int bellows_pool_metric(const char* name, double value) {
  if (!is_name(name) || !std::isfinite(value)) return BELLOWS_POOL_ERR_INVALID;
  char line[kLongestLine];
  std::snprintf(line, sizeof line, "metric %s %.17g", name, value);
  return say_once(line);
}

int bellows_pool_vote(int change) {
  char line[32];
  std::snprintf(line, sizeof line, "vote %d", change);
  return say_once(line);
}

int bellows_pool_listen(std::uint16_t port) {
  if (port == 0) return BELLOWS_POOL_ERR_INVALID;
  char line[32];
  std::snprintf(line, sizeof line, "listen %u", unsigned{port});
  return say_once(line);
}

int bellows_pool_ready(void) { return say_once("ready"); }

int bellows_pool_watch(void) {
  Handle socket;
  const int said = say("watch", &socket);
  return said == BELLOWS_POOL_OK ? socket.release() : said;
}

int bellows_pool_next_order(int watch, int wait_ms, bellows_pool_order* order) {
  if (watch < 0 || !order) return BELLOWS_POOL_ERR_INVALID;
  pollfd waiting{watch, POLLIN, 0};
  const int ready = ::poll(&waiting, 1, wait_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return BELLOWS_POOL_ERR_TIMEOUT;
  char line[kLongestLine + 1] = {};
  std::size_t bytes = 0;
  const iovec part{line, kLongestLine};
  if (ready < 0 || bellows::plain::receive_packet(watch, &part, 1, &bytes, nullptr, 0) != 0)
    return BELLOWS_POOL_ERR_UNAVAILABLE;
  *order = {};
  if (std::sscanf(line, "drain %u", &order->seconds) == 1)
    order->drain = 1;
  else if (std::sscanf(line, "size %u", &order->size) != 1)
    return BELLOWS_POOL_ERR_UNAVAILABLE;
  return BELLOWS_POOL_OK;
}
