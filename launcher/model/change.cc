// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/command_line.h"
#include "launcher/model/commands.h"
#include "launcher/model/node_store.h"

namespace bellows {
namespace {

bool is_url(const std::string& place) { return place.find("://") != std::string::npos; }

/// That of the daemon, unless the options say another.
Result<uid_t> reader_of(const ModelOptions& options) {
  if (!options.uid.empty()) {
    const auto uid = parse_uint(options.uid);
    // The last one means "no user" to the kernel.
    if (!uid || *uid >= UINT32_MAX)
      return Error{ErrorKind::invalid, fmt::format("--uid {} is no uid", one_line(options.uid))};
    return static_cast<uid_t>(*uid);
  }
  struct stat s;
  if (stat(control_socket(options.run).c_str(), &s) < 0)
    return Error{ErrorKind::unavailable, "bellows-modeld has ended"};
  return s.st_uid;
}

/// What the daemon does not say: who is in the way.
Error with_holders(ControlClient& daemon, const StoredModel& model, Error error) {
  if (error.kind != ErrorKind::busy) return error;
  const std::string holders = holders_text(daemon, model);
  if (!holders.empty()) error.text += ": " + holders;
  if (model.pinned) error.text += fmt::format(": 'bellows model unpin {}' first", model.name);
  return error;
}

void say_done(modelwire::ControlOp op, const StoredModel& model) {
  switch (op) {
    case modelwire::ControlOp::remove:
      fmt::print("removed {} of tenant {}; programs that have it keep it\n", model.name,
                 model.tenant);
      if (model.configured)
        fmt::print(
            "it comes back when bellows-modeld is started again or reads its bellows.yaml: "
            "remove it there, too\n");
      return;
    case modelwire::ControlOp::pin:
      fmt::print("{} of tenant {} stays in memory until it is unpinned or bellows-modeld ends{}\n",
                 model.name, model.tenant,
                 model.place == modelwire::Place::memory ? "" : "; it is being loaded");
      return;
    case modelwire::ControlOp::unpin:
      fmt::print("{} of tenant {} may be evicted\n", model.name, model.tenant);
      return;
    default:
      fmt::print("{} of tenant {} is not in memory any more\n", model.name, model.tenant);
  }
}

}  // namespace

int model_change(const ModelOptions& options, const char* command, modelwire::ControlOp op) {
  auto daemon = connect_to_store(options.run);
  if (!daemon) return model_failed(command, daemon.error());
  const auto model = find_model(*daemon, options.tenant, options.name);
  if (!model) return model_failed(command, model.error());
  if (Status done = daemon->change(op, model->tenant, model->name); !done)
    return model_failed(command, with_holders(*daemon, *model, done.error()));
  say_done(op, *model);
  return kOk;
}

int model_add(const ModelOptions& options) {
  std::string place = options.place;
  if (is_url(place)) {
    if (!options.uid.empty()) throw WrongUsage{"a URL is read without a --uid"};
  } else {
    std::error_code failed;
    place = std::filesystem::absolute(place, failed).lexically_normal();
  }
  auto daemon = connect_to_store(options.run);
  if (!daemon) return model_failed("add", daemon.error());
  const auto uid = reader_of(options);
  if (!uid) return model_failed("add", uid.error());
  if (Status added = daemon->add(options.tenant, options.name, place, *uid, options.visible);
      !added)
    return model_failed("add", added.error());
  fmt::print(
      "added {} of tenant {}; it is read when a program first opens it, or by 'bellows model "
      "prefetch'\n",
      options.name, options.tenant);
  return kOk;
}

}  // namespace bellows
