// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "elastic/daemon/connections.h"
#include "elastic/daemon/server.h"

using namespace bellows;
using namespace std::chrono_literals;

namespace {

/// A server and a client of it, on a port of their own.
struct World {
  Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Fd client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Fd accepted;
  std::uint16_t port = 0;

  World() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    cr_assert(bind(listener.get(), any, length) == 0 && listen(listener.get(), 8) == 0);
    cr_assert(getsockname(listener.get(), any, &length) == 0);
    port = ntohs(address.sin_port);
    cr_assert(connect(client.get(), any, length) == 0);
    accepted = Fd(accept(listener.get(), nullptr, nullptr));
    cr_assert(accepted.get() >= 0);
  }
  /// Whether the server has ended the connection.
  bool ended() const {
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
};

}  // namespace

Test(connections, end_when_they_are_old_and_are_counted_once, .timeout = 10) {
  const World world;
  Connections connections(world.port, 5s);
  const Connections::Clock::time_point start{1000s};
  cr_expect(connections.end_old(start) == 0);
  cr_expect(connections.end_old(start + 5s) == 0 && !world.ended());
  cr_expect(connections.end_old(start + 6s) == 1 && world.ended());
  cr_expect(connections.end_old(start + 7s) == 0);
  const int flags = fcntl(world.listener.get(), F_GETFL);
  cr_assert(fcntl(world.listener.get(), F_SETFL, flags | O_NONBLOCK) == 0);
  const Fd later(accept(world.listener.get(), nullptr, nullptr));
  cr_expect(later.get() < 0 && errno == EAGAIN, "the listener still listens");
}

Test(connections, of_other_ports_are_left_alone, .timeout = 10) {
  const World world;
  Connections connections(static_cast<std::uint16_t>(world.port + 1), 5s);
  const Connections::Clock::time_point start{1000s};
  cr_expect(connections.end_old(start) == 0 && connections.end_old(start + 60s) == 0);
  cr_expect(!world.ended());
}

Test(connections, end_where_no_descriptor_is_left, .timeout = 10) {
  const World world;
  Connections connections(world.port, 5s);
  const rlimit few = {64, 64};
  cr_assert(setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<Fd> all;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) all.emplace_back(fd);
  const Connections::Clock::time_point start{1000s};
  cr_expect(connections.end_old(start) == 0);
  cr_expect(connections.end_old(start + 6s) == 1 && world.ended());
}

Test(connections, nothing_is_done_while_nobody_connects) {
  JobBook book;
  ServiceBook services;
  PlanBoard board;
  Metrics metrics;
  ControllerServer server(Munge(""), {book, services, board, metrics});
  const World world;  // whose port is taken
  std::uint16_t port = world.port;
  while (!server.listen({"127.0.0.1", ++port})) cr_assert(port < world.port + 100);
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(400ms);
  // Far less than what it would get on a machine with much else to do.
  cr_assert(std::clock() - before < CLOCKS_PER_SEC / 50);
}
