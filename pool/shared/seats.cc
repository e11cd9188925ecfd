// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/seats.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>

namespace bellows::pool {
namespace {

using nlohmann::json;

constexpr std::size_t kMostFile = 64 * 1024;
constexpr unsigned kMostServers = 7;
/// Below those that the kernel gives to outgoing connections.
constexpr std::uint16_t kLowestPort = 20000;
constexpr std::uint16_t kHighestPort = 31999;

Status make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("make", path);
  return {};
}

Result<json> read_object(const std::string& path) {
  auto text = read_file(path, kMostFile);
  if (!text) return text.error();
  auto found = json::parse(*text, nullptr, false);
  if (!found.is_object()) return Error{ErrorKind::corrupt, path + ": it is not an object of JSON"};
  return found;
}

/// 0: it is not there, or no port.
std::uint16_t port_in(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number_unsigned() || at->get<std::uint64_t>() > 65535) return 0;
  return at->get<std::uint16_t>();
}

bool is_there(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0;
}

}  // namespace

Status SeatFiles::make(unsigned servers) const {
  if (servers % 2 == 0 || servers > kMostServers)
    return Error{ErrorKind::invalid,
                 fmt::format("an etcd of {} servers: an odd number up to 7 is useful", servers)};
  const std::string path = dir() + "/plan.json";
  if (is_there(path)) return Error{ErrorKind::busy, path + " is there already"};
  auto status = make_directory(dir());
  std::random_device random;
  json ports = json::array();
  while (ports.size() < servers) {
    const std::uint16_t port = kLowestPort + random() % (kHighestPort - kLowestPort + 1);
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  }
  for (unsigned index = 0; status && index < servers; ++index) status = make_directory(seat(index));
  const json plan = {{"token", fmt::format("{:08x}{:08x}", random(), random())}, {"ports", ports}};
  return status ? replace_file(path, plan.dump() + "\n", 0600) : status;
}

Result<SeatPlan> SeatFiles::plan() const {
  const std::string path = dir() + "/plan.json";
  const auto object = read_object(path);
  if (!object) return object.error();
  SeatPlan plan;
  if (const auto token = object->find("token"); token != object->end() && token->is_string())
    plan.token = token->get<std::string>();
  if (const auto ports = object->find("ports"); ports != object->end() && ports->is_array())
    for (const auto& port : *ports) plan.ports.push_back(port_in({{"port", port}}, "port"));
  const bool has_zero = std::count(plan.ports.begin(), plan.ports.end(), 0) > 0;
  if (plan.token.empty() || plan.ports.empty() || plan.ports.size() > kMostServers || has_zero)
    return Error{ErrorKind::corrupt, path + ": it has no token and ports"};
  return plan;
}

Result<SeatAddress> SeatFiles::address(unsigned index) const {
  const std::string path = seat(index) + "/address.json";
  const auto object = read_object(path);
  if (!object) return object.error();
  SeatAddress address;
  address.peer = port_in(*object, "peer");
  address.client = port_in(*object, "client");
  if (const auto host = object->find("host"); host != object->end() && host->is_string())
    address.host = host->get<std::string>();
  if (address.host.empty() || !address.peer || !address.client)
    return Error{ErrorKind::corrupt, path + ": it has no host and ports"};
  return address;
}

Status SeatFiles::write_address(unsigned index, const SeatAddress& address) const {
  const json object = {{"host", address.host}, {"peer", address.peer}, {"client", address.client}};
  return replace_file(seat(index) + "/address.json", object.dump() + "\n", 0600);
}

Result<std::pair<unsigned, Fd>> SeatFiles::claim(const SeatPlan& plan) const {
  for (unsigned index = 0; index < plan.ports.size(); ++index) {
    const std::string path = seat(index) + "/lock";
    auto fd = open_file(path, O_RDWR | O_CREAT, 0600);
    if (!fd) return fd.error();
    if (flock(fd->get(), LOCK_EX | LOCK_NB) == 0)
      return std::pair<unsigned, Fd>(index, std::move(*fd));
    if (errno != EWOULDBLOCK) return errno_error("lock", path);
  }
  return Error{ErrorKind::busy, dir() + ": each server of the pool's etcd runs already"};
}

bool SeatFiles::has_data(unsigned index) const { return is_there(data(index) + "/member/wal"); }

bool SeatFiles::is_born() const { return is_there(dir() + "/born"); }

Status SeatFiles::be_born() const { return replace_file(dir() + "/born", "", 0600); }

bool SeatFiles::is_restoring() const { return is_there(dir() + "/restoring"); }

Status SeatFiles::begin_restore() const { return replace_file(dir() + "/restoring", "", 0600); }

void SeatFiles::end_restore() const { unlink((dir() + "/restoring").c_str()); }

Status SeatFiles::publish(const SeatPlan& plan) const {
  json endpoints = json::array();
  for (unsigned index = 0; index < plan.ports.size(); ++index)
    if (const auto at = address(index))
      endpoints.push_back(fmt::format("{}:{}", at->host, at->client));
  const std::string text = json{{"endpoints", endpoints}}.dump() + "\n";
  const std::string path = pool_ + "/shared.json";
  const auto before = read_file(path, kMostFile);
  if (before && *before == text) return {};
  return replace_file(path, text, 0640);
}

}  // namespace bellows::pool
