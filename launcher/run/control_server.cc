// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/control_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>

namespace bellows {
namespace {

constexpr std::size_t kMostClients = 16;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{ErrorKind::invalid, "the path " + path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool trusted(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == getuid() || peer.uid == 0;
}

}  // namespace

Result<ControlServer> ControlServer::listen(const std::string& path) {
  auto address = address_of(path);
  if (!address) return address.error();
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("make a socket for", path);
  unlink(path.c_str());
  mode_t mask = umask(0177);
  int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address);
  umask(mask);
  if (bound != 0) return errno_error("bind", path);
  if (::listen(fd.get(), 8) != 0) return errno_error("listen on", path);
  return ControlServer(std::move(fd), path);
}

ControlServer::~ControlServer() {
  if (fd_) unlink(path_.c_str());
}

void ControlServer::add_poll(std::vector<pollfd>& fds) const {
  fds.push_back({fd_.get(), POLLIN, 0});
  for (const Client& client : clients_) {
    short events = POLLIN;
    if (!client.writer.empty()) events |= POLLOUT;
    fds.push_back({client.fd.get(), events, 0});
  }
}

void ControlServer::accept_clients() {
  while (true) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (clients_.size() >= kMostClients || !trusted(fd.get())) continue;
    clients_.push_back({next_++, std::move(fd), {}, {}});
  }
}

std::vector<ControlServer::Request> ControlServer::serve() {
  accept_clients();
  std::vector<Request> requests;
  std::erase_if(clients_, [&requests](Client& client) {
    bool open = client.reader.fill(client.fd.get());
    while (auto line = client.reader.next()) requests.push_back({client.id, std::move(*line)});
    return !client.writer.flush(client.fd.get()) || !open;
  });
  return requests;
}

void ControlServer::send(std::uint64_t id, const std::string& line) {
  for (Client& client : clients_) {
    if (client.id != id) continue;
    client.writer.add(line);
    client.writer.flush(client.fd.get());
  }
}

Result<Fd> connect_control(const std::string& path) {
  auto address = address_of(path);
  if (!address) return address.error();
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("make a socket for", path);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&*address), sizeof *address) != 0)
    return errno_error("connect to", path);
  return fd;
}

}  // namespace bellows
