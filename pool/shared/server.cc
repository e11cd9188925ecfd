// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/program_output.h"
#include "pool/shared/etcd_command.h"

namespace bellows::pool {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr seconds kAnswersWithin{3};
constexpr seconds kPause{2};
constexpr seconds kLooksEach{2};
constexpr seconds kEarly{20};
constexpr unsigned kMostEarlyEnds = 5;
constexpr seconds kCopiesWithin{60};
constexpr seconds kEndsWithin{10};
constexpr std::size_t kMostSaid = 64 * 1024;
constexpr std::size_t kMostShown = 300;
constexpr int kKeptCopies = 3;
/// A read that only a server which hears of a majority answers.
constexpr const char* kQuestion = R"({"key":"AA=="})";

std::vector<std::string> environment() {
  std::vector<std::string> all = {"ETCDCTL_API=3"};
  if (const char* const path = std::getenv("PATH")) all.push_back(std::string("PATH=") + path);
  return all;
}

Result<std::uint16_t> free_port() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return errno_error("find", "a free port");
  return ntohs(address.sin_port);
}

Status run(const std::vector<std::string>& command) {
  const auto output = output_of(command, kCopiesWithin, kMostSaid, environment());
  if (!output) return output.error();
  if (output->exit.ok()) return {};
  return Error{ErrorKind::unavailable,
               fmt::format("{}: {}", command[0], one_line(trim(output->err), kMostShown))};
}

std::string copy_path(const SeatFiles& files, int age) {
  return fmt::format("{}/snapshot{}.db", files.dir(), age ? fmt::format("-{}", age) : "");
}

Status sync_file(const std::string& path) {
  const auto fd = open_file(path, O_RDONLY);
  if (!fd) return fd.error();
  if (fsync(fd->get()) != 0) return errno_error("sync", path);
  return {};
}

}  // namespace

SharedServer::SharedServer(SharedServerOptions options, SeatPlan plan, unsigned seat, Fd lock)
    : options_(std::move(options)),
      files_(options_.pool),
      plan_(std::move(plan)),
      seat_(seat),
      lock_(std::move(lock)),
      gateway_(options_.pool) {}

Result<std::unique_ptr<SharedServer>> SharedServer::claim(SharedServerOptions options) {
  const SeatFiles files(options.pool);
  auto plan = files.plan();
  if (!plan) return plan.error();
  auto seat = files.claim(*plan);
  if (!seat) return seat.error();
  std::unique_ptr<SharedServer> server(new SharedServer(std::move(options), std::move(*plan),
                                                        seat.operator*().first,
                                                        std::move(seat.operator*().second)));
  if (const auto status = server->start_relay(); !status) return status.error();
  return server;
}

SharedServer::~SharedServer() { stop(); }

Status SharedServer::start_relay() {
  std::vector<RelayPort> ports;
  for (unsigned index = 0; index < plan_.ports.size(); ++index) {
    if (index == seat_) continue;
    auto target = [files = files_, index]() -> Result<std::pair<std::string, std::uint16_t>> {
      const auto address = files.address(index);
      if (!address) return address.error();
      return std::pair(address->host, address->peer);
    };
    ports.push_back({plan_.ports[index], std::move(target)});
  }
  auto relay = Relay::start(std::move(ports));
  if (!relay) return relay.error();
  relay_ = std::move(*relay);
  return {};
}

void SharedServer::tick(Clock::time_point now) {
  if (etcd_ && etcd_->poll_exit()) {
    early_ends_ = now - started_ < kEarly ? early_ends_ + 1 : 0;
    options_.say(
        fmt::format("server {} of the pool's etcd {}", seat_, etcd_->poll_exit()->to_string()));
    etcd_.reset();
    next_start_ = now + kPause;
  }
  if (!etcd_ && now >= next_start_) {
    next_start_ = now + kPause;
    complain(start(now));
  }
  if (etcd_ && now >= next_look_) look(now);
}

void SharedServer::look(Clock::time_point now) {
  next_look_ = now + kLooksEach;
  complain(files_.publish(plan_));
  if (!answers(fmt::format("127.0.0.1:{}", address_.client))) return;
  early_ends_ = 0;
  if (!files_.is_born()) complain(files_.be_born());
  files_.end_restore();
  if (now < next_snapshot_) return;
  next_snapshot_ = now + options_.snapshot_each;
  complain(snapshot());
}

bool SharedServer::answers(const std::string& endpoint) {
  return gateway_.post(endpoint, "/v3/kv/range", kQuestion, kAnswersWithin).kind ==
         GatewayReply::Kind::done;
}

SeatFacts SharedServer::facts() {
  SeatFacts facts{.born = files_.is_born(),
                  .has_data = files_.has_data(seat_),
                  .refuses_it = early_ends_ >= kMostEarlyEnds};
  for (unsigned index = 0; index < plan_.ports.size(); ++index)
    facts.others_data = facts.others_data || (index != seat_ && files_.has_data(index));
  facts.restoring = files_.is_restoring();
  facts.snapshot = access(copy_path(files_, 0).c_str(), R_OK) == 0;
  if (facts.born && (!facts.has_data || facts.refuses_it))
    facts.quorum = ask_others("/v3/kv/range", kQuestion).ok();
  return facts;
}

Status SharedServer::start(Clock::time_point now) {
  Status status;
  switch (choose_start(facts())) {
    case SeatStart::go_on:
    case SeatStart::found:
      return start_etcd(false, now);
    case SeatStart::rejoin:
      if (status = rejoin(); !status) return status;
      early_ends_ = 0;
      return start_etcd(true, now);
    case SeatStart::restore:
      if (status = restore(); !status) return status;
      return start_etcd(false, now);
    case SeatStart::wait:
      break;
  }
  return Error{ErrorKind::unavailable,
               fmt::format("server {} of the pool's etcd has lost its data, {}, and waits until "
                           "enough others run",
                           seat_, files_.data(seat_))};
}

Status SharedServer::start_etcd(bool joins, Clock::time_point now) {
  const auto peer = free_port();
  if (!peer) return peer.error();
  const auto client = free_port();
  if (!client) return client.error();
  address_ = {.host = options_.host, .peer = *peer, .client = *client};
  if (auto status = files_.write_address(seat_, address_); !status) return status;
  ChildOptions options{.command = etcd_command(files_, plan_, seat_, address_, joins),
                       .environment = environment(),
                       .death_signal = SIGKILL};
  auto child = Child::start(options);
  if (!child) return child.error();
  etcd_ = std::move(*child);
  started_ = now;
  // One after another, so that one makes the copy for all.
  next_snapshot_ = now + options_.snapshot_each * (seat_ + 1) / 4;
  return {};
}

Result<std::string> SharedServer::ask_others(const std::string& path, const std::string& body) {
  std::string said = "no other server has an address";
  for (unsigned index = 0; index < plan_.ports.size(); ++index) {
    const auto at = files_.address(index);
    if (index == seat_ || !at) continue;
    auto reply =
        gateway_.post(fmt::format("{}:{}", at->host, at->client), path, body, kAnswersWithin);
    if (reply.kind == GatewayReply::Kind::done) return std::move(reply.text);
    said = reply.text;
  }
  return Error{ErrorKind::unavailable, "the other servers of the pool's etcd: " + said};
}

/// What it has had is forgotten by the others before it comes without: it must not vote twice.
Status SharedServer::rejoin() {
  const std::string url = fmt::format("https://127.0.0.1:{}", plan_.ports[seat_]);
  const auto list = ask_others("/v3/cluster/member/list", "{}");
  if (!list) return list.error();
  const auto members = json::parse(*list, nullptr, false).value("members", json::array());
  for (const auto& member : members) {
    const auto urls = member.value("peerURLs", json::array());
    if (std::find(urls.begin(), urls.end(), url) == urls.end()) continue;
    const json body = {{"ID", member.value("ID", "")}};
    const auto removed = ask_others("/v3/cluster/member/remove", body.dump());
    if (!removed) return removed.error();
  }
  if (auto status = set_aside(); !status) return status;
  const auto added =
      ask_others("/v3/cluster/member/add", json{{"peerURLs", json::array({url})}}.dump());
  if (!added) return added.error();
  options_.say(
      fmt::format("server {} of the pool's etcd begins anew with what the others have", seat_));
  return {};
}

/// Damaged data is kept once, for people.
Status SharedServer::set_aside() {
  const std::string old = files_.seat(seat_) + "/damaged";
  std::error_code error;
  if (!std::filesystem::exists(files_.data(seat_), error)) return {};
  std::filesystem::remove_all(old, error);
  if (rename(files_.data(seat_).c_str(), old.c_str()) != 0)
    return errno_error("rename", files_.data(seat_));
  return sync_directory(files_.seat(seat_));
}

Status SharedServer::restore() {
  options_.say(fmt::format("server {} of the pool's etcd begins with the copy {}", seat_,
                           copy_path(files_, 0)));
  if (auto status = files_.begin_restore(); !status) return status;
  if (auto status = set_aside(); !status) return status;
  return run(restore_command(files_, plan_, seat_, copy_path(files_, 0)));
}

/// Of three servers the first that gets to it makes the copy of a minute.
Status SharedServer::snapshot() {
  struct stat found;
  const auto age = options_.snapshot_each.count() / 1000;
  if (stat(copy_path(files_, 0).c_str(), &found) == 0 && time(nullptr) - found.st_mtime < age / 2)
    return {};
  const std::string path = fmt::format("{}/snapshot.m{}", files_.dir(), seat_);
  if (auto status = run(snapshot_command(files_, address_, path)); !status) return status;
  if (auto status = sync_file(path); !status) return status;
  for (int kept = kKeptCopies - 1; kept > 0; --kept)
    ::rename(copy_path(files_, kept - 1).c_str(), copy_path(files_, kept).c_str());
  if (::rename(path.c_str(), copy_path(files_, 0).c_str()) != 0) return errno_error("rename", path);
  return sync_directory(files_.dir());
}

void SharedServer::stop() {
  if (!etcd_) return;
  if (!etcd_->poll_exit() && answers(fmt::format("127.0.0.1:{}", address_.client)))
    complain(snapshot());
  etcd_->signal(SIGTERM);
  const auto until = Clock::now() + kEndsWithin;
  while (!etcd_->poll_exit() && Clock::now() < until) usleep(20'000);
  etcd_.reset();
}

void SharedServer::complain(const Status& status) {
  if (status || status.error().text == said_) return;
  said_ = status.error().text;
  options_.say(said_);
}

}  // namespace bellows::pool
