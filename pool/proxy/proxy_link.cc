// SPDX-License-Identifier: Apache-2.0
#include "pool/proxy/proxy_link.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

constexpr timeval kAnswersWithin{1, 0};
constexpr std::size_t kMostAnswer = 4 << 20;
/// HAProxy's own limit of a command line is 16 KiB.
constexpr std::size_t kMostCommands = 100;

Result<Fd> connect_to_proxy(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{ErrorKind::invalid, "the socket's path is too long: " + path};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("make", "a socket");
  for (const int limit : {SO_RCVTIMEO, SO_SNDTIMEO})
    setsockopt(fd.get(), SOL_SOCKET, limit, &kAnswersWithin, sizeof kAnswersWithin);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("HAProxy does not listen at {}: {}", path, std::strerror(errno))};
  return fd;
}

}  // namespace

Result<std::string> ask_proxy(const std::string& socket, std::string_view command) {
  auto fd = connect_to_proxy(socket);
  if (!fd) return fd.error();
  const std::string line = std::string(command) + "\n";
  if (send(fd->get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return Error{ErrorKind::unavailable, "HAProxy takes no command"};
  std::string answer;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t bytes = recv(fd->get(), piece.data(), piece.size(), 0);
    if (bytes == 0) return answer;
    if (bytes < 0 || answer.size() > kMostAnswer)
      return Error{ErrorKind::unavailable, "HAProxy does not answer in time"};
    answer.append(piece.data(), static_cast<std::size_t>(bytes));
  }
}

Status ProxyLink::begin() const {
  return replace_file(config_, proxy_config(options_, slots_), 0600);
}

Status ProxyLink::learn() {
  const auto state =
      ask_proxy(options_.runtime_socket, std::string("show servers state ") + kProxyBackend);
  if (!state) return state.error();
  auto slots = ProxySlots::parse(*state, static_cast<std::uint32_t>(slots_.slots().size()));
  if (!slots) return slots.error();
  slots_ = std::move(*slots);
  return {};
}

Status ProxyLink::write_config() {
  if (written_ == slots_) return {};
  const Status written = replace_file(config_, proxy_config(options_, slots_), 0600);
  if (written) written_ = slots_;
  return written;
}

/// HAProxy may have been started again since: it is asked each time, which costs less than a
/// millisecond, and what it has is what is changed.
Status ProxyLink::set(const std::vector<ProxiedMember>& members) {
  if (const Status learned = learn(); !learned) return learned;
  const std::vector<std::string> commands = slots_.change_to(members);
  if (commands.empty()) return write_config();
  const ProxySlots wanted = slots_;
  for (std::size_t i = 0; i < commands.size(); i += kMostCommands) {
    std::string line;
    for (std::size_t k = i; k < std::min(commands.size(), i + kMostCommands); ++k)
      line += (line.empty() ? "" : ";") + commands[k];
    const auto answer = ask_proxy(options_.runtime_socket, line);
    if (!answer) return answer.error();
  }
  // A command that it refuses is answered in words; what came of it is plain.
  if (const Status learned = learn(); !learned) return learned;
  if (slots_ == wanted) return write_config();
  return Error{ErrorKind::unavailable, "HAProxy has other servers than it was told"};
}

}  // namespace bellows::pool
