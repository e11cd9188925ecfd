// SPDX-License-Identifier: Apache-2.0
#include "launcher/model/node_store.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

Result<ControlClient> connect_to_store(const std::string& run, std::chrono::seconds limit) {
  const std::string socket = run + "/control";
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

std::string state_text(const StoredModel& model) {
  std::string text = model.place == modelwire::Place::memory ? "in memory" : "absent";
  if (model.place == modelwire::Place::loading)
    text = model.bytes == 0
               ? "loading"
               : fmt::format("loading, {} %",
                             static_cast<int>(100.0 * static_cast<double>(model.read_bytes) /
                                              static_cast<double>(model.bytes)));
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
  if (error.kind == ErrorKind::unavailable) return kUnreachable;
  return error.kind == ErrorKind::busy || error.kind == ErrorKind::denied ? kRefused : kFailed;
}

}  // namespace bellows
