// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/size_text.h"
#include "launcher/model/commands.h"
#include "launcher/model/node_store.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{100};

/// Those that are in use or pinned take the room that is missing.
void print_who_has_the_room(ControlClient& daemon) {
  const auto store = read_store(daemon);
  if (!store) return;
  for (const StoredModel& model : store->models) {
    if (model.place == modelwire::Place::absent || (model.references == 0 && !model.pinned))
      continue;
    const std::string holders = holders_text(daemon, model);
    fmt::print(stderr, "  {} of tenant {}, {}: {}{}{}\n", model.name, model.tenant,
               size_text(model.bytes), holders, !holders.empty() && model.pinned ? ", and " : "",
               model.pinned ? "it is pinned" : "");
  }
}

int ended_absent(ControlClient& daemon, const StoredModel& model) {
  if (!model.trouble)
    return model_failed("prefetch", Error{ErrorKind::busy,
                                          "the model was loaded, and evicted "
                                          "again to make room for others"});
  const int status = model_failed("prefetch", *model.trouble);
  if (model.trouble->kind == ErrorKind::busy) print_who_has_the_room(daemon);
  return status;
}

/// Until it is loaded or not. Each look has a connection of its own, whose deadline is short.
int wait_for(const ModelOptions& options, const StoredModel& which) {
  const auto deadline = Clock::now() + std::chrono::seconds(options.seconds);
  for (;;) {
    auto daemon = connect_to_store(options.run);
    if (!daemon) return model_failed("prefetch", daemon.error());
    const auto model = read_model(*daemon, which.tenant, which.name);
    if (!model) return model_failed("prefetch", model.error());
    if (model->place == modelwire::Place::memory) {
      fmt::print("{} of tenant {} is in memory: {}, digest {}\n", model->name, model->tenant,
                 size_text(model->bytes), model->digest);
      return kOk;
    }
    if (model->place == modelwire::Place::absent) return ended_absent(*daemon, *model);
    if (Clock::now() >= deadline) {
      fmt::print(stderr, "bellows model prefetch: {} is not in memory after {}: {}\n", model->name,
                 counted(options.seconds, "second"), state_text(*model));
      return kTimedOut;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

int model_prefetch(const ModelOptions& options) {
  auto daemon = connect_to_store(options.run);
  if (!daemon) return model_failed("prefetch", daemon.error());
  const auto model = find_model(*daemon, options.tenant, options.name);
  if (!model) return model_failed("prefetch", model.error());
  if (Status begun = daemon->prefetch(model->tenant, model->name); !begun)
    return model_failed("prefetch", begun.error());
  if (!options.begin_only) return wait_for(options, *model);
  fmt::print("{} of tenant {} is {}\n", model->name, model->tenant,
             model->place == modelwire::Place::memory ? "in memory" : "being loaded");
  return kOk;
}

}  // namespace bellows
