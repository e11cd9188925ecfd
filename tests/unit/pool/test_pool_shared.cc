// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/fd.h"
#include "pool/shared/etcd_command.h"
#include "pool/shared/gateway.h"
#include "pool/shared/relay.h"
#include "pool/shared/seats.h"
#include "pool/shared/start_choice.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;
using namespace bellows::pool;

namespace {

constexpr timeval kPatience{.tv_sec = 20, .tv_usec = 0};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Listener {
  Fd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port = 0;
  Listener() {
    auto address = loopback(0);
    socklen_t size = sizeof address;
    cr_assert_eq(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    cr_assert_eq(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    cr_assert_eq(listen(fd.get(), 8), 0);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    port = ntohs(address.sin_port);
  }
};

Fd connect_to(std::uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = loopback(port);
  cr_assert_eq(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  return fd;
}

/// All until the other side ends.
std::string read_all(int fd) {
  std::string all;
  char bytes[4096];
  for (ssize_t count; (count = read(fd, bytes, sizeof bytes)) > 0;)
    all.append(bytes, static_cast<std::size_t>(count));
  return all;
}

std::uint16_t unused_port() { return Listener().port; }

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

Test(start_choice, every_case, .timeout = 10) {
  // Whoever has data that etcd takes goes on with it, and only then is it of no matter what else
  // is.
  for (unsigned bits = 0; bits < 128; ++bits) {
    const SeatFacts facts{.born = (bits & 1) != 0,
                          .has_data = (bits & 2) != 0,
                          .refuses_it = (bits & 4) != 0,
                          .others_data = (bits & 8) != 0,
                          .quorum = (bits & 16) != 0,
                          .restoring = (bits & 32) != 0,
                          .snapshot = (bits & 64) != 0};
    const auto choice = choose_start(facts);
    if (facts.has_data && !facts.refuses_it) cr_expect(choice == SeatStart::go_on, "%u", bits);
    // An empty server in the place of one that may have voted is never one of the first.
    if (facts.born) cr_expect(choice != SeatStart::found, "%u", bits);
    if (choice == SeatStart::rejoin) cr_expect(facts.quorum, "%u", bits);
    // A copy is older than any data.
    if (choice == SeatStart::restore)
      cr_expect(facts.snapshot && !facts.has_data && !facts.quorum &&
                    (!facts.others_data || facts.restoring),
                "%u", bits);
  }
  cr_expect(choose_start({}) == SeatStart::found);
  cr_expect(choose_start({.born = true}) == SeatStart::wait);
  cr_expect(choose_start({.born = true, .others_data = true, .snapshot = true}) == SeatStart::wait);
  cr_expect(choose_start({.born = true, .quorum = true}) == SeatStart::rejoin);
  cr_expect(choose_start({.born = true, .snapshot = true}) == SeatStart::restore);
  cr_expect(choose_start({.born = true, .has_data = true, .refuses_it = true, .quorum = true}) ==
            SeatStart::rejoin);
}

Test(seats, plan_and_claims, .timeout = 10) {
  const ScratchDir dir;
  const SeatFiles files(dir.path());
  cr_expect(!files.plan().ok());
  cr_expect(!files.make(2).ok());
  cr_assert(files.make(3).ok());
  cr_expect(files.make(3).error().kind == ErrorKind::busy);
  const auto plan = files.plan();
  cr_assert(plan.ok());
  cr_expect_eq(plan->ports.size(), 3);
  {
    const auto first = files.claim(*plan);
    const auto second = files.claim(*plan);
    const auto third = files.claim(*plan);
    cr_assert(first.ok() && second.ok() && third.ok());
    cr_expect_eq(first.operator*().first + second.operator*().first + third.operator*().first, 3);
    cr_expect(files.claim(*plan).error().kind == ErrorKind::busy);
  }
  cr_expect(files.claim(*plan).ok());
  cr_expect(!files.address(1).ok());
  cr_assert(files.write_address(1, {.host = "n1", .peer = 5, .client = 6}).ok());
  cr_assert(files.publish(*plan).ok());
  cr_expect(*read_file(dir.path() + "/shared.json", 1000) == "{\"endpoints\":[\"n1:6\"]}\n");
}

Test(seats, damaged_files, .timeout = 10) {
  const ScratchDir dir;
  const SeatFiles files(dir.path());
  cr_assert(files.make(1).ok());
  for (const char* const text :
       {"", "[]", "{}", "{\"token\":1,\"ports\":[1]}", "{\"token\":\"a\",\"ports\":[]}",
        "{\"token\":\"a\",\"ports\":[0]}", "{\"token\":\"a\",\"ports\":[-1]}",
        "{\"token\":\"a\",\"ports\":[70000]}", "{\"token\":\"a\",\"ports\":[1,2,3,4,5,6,7,8]}"}) {
    cr_assert(replace_file(files.dir() + "/plan.json", text, 0600).ok());
    cr_expect(!files.plan().ok(), "%s", text);
    cr_assert(replace_file(files.seat(0) + "/address.json", text, 0600).ok());
    cr_expect(!files.address(0).ok(), "%s", text);
  }
}

Test(etcd_command, safety, .timeout = 10) {
  const SeatFiles files("/p");
  const SeatPlan plan{.token = "t", .ports = {21, 22, 23}};
  const SeatAddress address{.host = "n1", .peer = 5, .client = 6};
  const auto words = etcd_command(files, plan, 1, address, false);
  for (const char* const word :
       {"--client-cert-auth", "--peer-client-cert-auth", "--trusted-ca-file=/p/cert.pem",
        "--peer-trusted-ca-file=/p/cert.pem", "--data-dir=/p/shared/m1/data",
        "--initial-cluster=m0=https://127.0.0.1:21,m1=https://127.0.0.1:22,m2=https://127.0.0.1:23",
        "--initial-cluster-state=new", "--listen-client-urls=https://0.0.0.0:6"})
    cr_expect(has(words, word), "%s", word);
  cr_expect(has(etcd_command(files, plan, 1, address, true), "--initial-cluster-state=existing"));
}

Test(relay, passes_on, .timeout = 60) {
  const Listener target;
  const std::uint16_t port = unused_port();
  auto relay =
      Relay::start({{port, [&]() -> Result<std::pair<std::string, std::uint16_t>> {
                       return std::pair<std::string, std::uint16_t>("127.0.0.1", target.port);
                     }}});
  cr_assert(relay.ok(), "%s", relay ? "" : relay.error().text.c_str());
  const Fd near = connect_to(port);
  const Fd far(accept(target.fd.get(), nullptr, nullptr));
  cr_assert(static_cast<bool>(far));
  setsockopt(far.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  // More than all buffers hold, both ways at once; each end is passed on by itself.
  std::string much(8 << 20, 'x');
  for (std::size_t i = 0; i < much.size(); ++i) much[i] = static_cast<char>(i * 7 % 251);
  std::thread there([&] {
    (void)write_all(near.get(), much, "near");
    shutdown(near.get(), SHUT_WR);
  });
  std::thread back([&] {
    (void)write_all(far.get(), much, "far");
    shutdown(far.get(), SHUT_WR);
  });
  std::string at_far;
  std::thread reader([&] { at_far = read_all(far.get()); });
  const std::string at_near = read_all(near.get());
  for (auto* thread : {&there, &back, &reader}) thread->join();
  cr_expect(at_near == much);
  cr_expect(at_far == much);
}

Test(relay, nobody_there, .timeout = 60) {
  const std::uint16_t port = unused_port();
  const std::uint16_t closed = unused_port();
  auto relay = Relay::start({{port, [&]() -> Result<std::pair<std::string, std::uint16_t>> {
                                return std::pair<std::string, std::uint16_t>("127.0.0.1", closed);
                              }}});
  cr_assert(relay.ok());
  cr_expect_eq(read_all(connect_to(port).get()).size(), 0);
  // Two of one user may be there, as where two servers run on one node.
  cr_expect(Relay::start({{port, [] { return Error{ErrorKind::not_found, ""}; }}}).ok());
  const Listener other;
  cr_expect(Relay::start({{other.port,
                           [] {
                             return Error{ErrorKind::not_found, ""};
                           }}})
                .error()
                .kind == ErrorKind::unavailable);
}

Test(gateway, no_server, .timeout = 60) {
  Gateway gateway("/nonexistent");
  const auto reply = gateway.post("127.0.0.1:" + std::to_string(unused_port()), "/v3/kv/range",
                                  "{}", std::chrono::seconds(5));
  cr_expect(reply.kind == GatewayReply::Kind::not_sent);
  cr_expect(gateway.post("x", "/", "{}", std::chrono::seconds(5)).kind ==
            GatewayReply::Kind::not_sent);
}
