// SPDX-License-Identifier: Apache-2.0
#include "launcher/model/node_store.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/text.h"
#include "launcher/base/exit_status.h"

namespace bellows {
namespace {

Error no_daemon(const std::string& socket, const std::string& why) {
  return Error{ErrorKind::unavailable,
               fmt::format("no bellows-modeld answers on this node: {}: {}; 'systemctl start "
                           "bellows-modeld' starts it, and --run names another folder of its own",
                           socket, why)};
}

Error denied(const std::string& socket) {
  return Error{ErrorKind::denied,
               fmt::format("{} is for root and the user of bellows-modeld only", socket)};
}

std::string times(std::uint64_t count) {
  return count == 1 ? "once" : count == 2 ? "twice" : fmt::format("{} times", count);
}

}  // namespace

std::string job_socket(const std::string& run) {
  if (!run.empty()) return "";
  if (const char* socket = std::getenv("BELLOWS_MODEL_SOCKET"); socket && *socket) return socket;
  struct stat s;
  const bool is_there = stat(modelwire::kSocket, &s) == 0 && S_ISSOCK(s.st_mode);
  return is_there ? modelwire::kSocket : "";
}

std::string control_socket(const std::string& run) {
  return (run.empty() ? std::string(kRunFolder) : run) + "/control";
}

Result<ControlClient> connect_to_store(const std::string& run, std::chrono::seconds limit) {
  const std::string socket = control_socket(run);
  struct stat s;
  if (stat(socket.c_str(), &s) < 0)
    return errno == EACCES ? denied(socket) : no_daemon(socket, std::strerror(errno));
  if (geteuid() != 0 && geteuid() != s.st_uid) return denied(socket);
  auto daemon = ControlClient::connect(socket, ControlClient::Clock::now() + limit);
  if (!daemon) return no_daemon(socket, daemon.error().text);
  return daemon;
}

Result<StoredModel> find_model(ControlClient& daemon, const std::string& tenant,
                               const std::string& name) {
  if (!tenant.empty()) return read_model(daemon, tenant, name);
  const auto store = read_store(daemon);
  if (!store) return store.error();
  std::vector<std::string> tenants;
  const StoredModel* found = nullptr;
  for (const StoredModel& model : store->models) {
    if (model.name != name) continue;
    tenants.push_back(model.tenant);
    found = &model;
  }
  if (!found)
    return Error{ErrorKind::not_found,
                 fmt::format("there is no model {} on this node; 'bellows model list' shows "
                             "those that there are",
                             one_line(name))};
  if (tenants.size() > 1)
    return Error{ErrorKind::invalid,
                 fmt::format("the tenants {} each have a model {}: say whose with --tenant",
                             fmt::join(tenants, ", "), name)};
  return *found;
}

const char* place_word(modelwire::Place place) {
  return place == modelwire::Place::memory    ? "memory"
         : place == modelwire::Place::loading ? "loading"
                                              : "absent";
}

std::string place_text(modelwire::Place place, std::uint64_t read_bytes, std::uint64_t bytes) {
  if (place == modelwire::Place::memory) return "in memory";
  if (place == modelwire::Place::absent) return "absent";
  if (bytes == 0) return "loading";
  return fmt::format("loading, {} %", static_cast<int>(100.0 * static_cast<double>(read_bytes) /
                                                       static_cast<double>(bytes)));
}

std::string state_text(const StoredModel& model) {
  std::string text = place_text(model.place, model.read_bytes, model.bytes);
  if (model.pinned) text += ", pinned";
  if (model.trouble) text += "; its last load failed";
  return text;
}

std::string holders_text(ControlClient& daemon, const StoredModel& model) {
  const auto holders = read_holders(daemon, model.tenant, model.name);
  // Who asks for it is told the rest anyway.
  if (!holders) return "";
  std::vector<std::string> parts;
  for (const ModelHolder& holder : *holders) {
    const std::string who =
        holder.job.starts_with('/') ? "programs at " + holder.job : "job " + holder.job;
    parts.push_back(fmt::format("{} of tenant {} {} it {}", one_line(who), holder.tenant,
                                model.place == modelwire::Place::memory ? "has" : "wants",
                                times(holder.count)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

int model_failed(const char* what, const Error& error) {
  fmt::print(stderr, "bellows model {}: {}\n", what, one_line(error.text));
  if (error.kind == ErrorKind::invalid) return kUsage;
  return error.kind == ErrorKind::busy ? kRefused : exit_status_of(error);
}

}  // namespace bellows
