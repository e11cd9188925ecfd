// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/model/commands.h"
#include "launcher/model/node_store.h"

namespace bellows {

int model_verify(const ModelOptions& options) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  auto daemon = connect_to_store(options.run, std::chrono::seconds(options.seconds));
  if (!daemon) return model_failed("verify", daemon.error());
  const auto model = find_model(*daemon, options.tenant, options.name);
  if (!model) return model_failed("verify", model.error());
  if (Status verified = daemon->verify(model->tenant, model->name); !verified) {
    const bool is_late = verified.error().kind == ErrorKind::unavailable &&
                         std::chrono::steady_clock::now() >= deadline;
    if (!is_late) return model_failed("verify", verified.error());
    fmt::print(stderr, "bellows model verify: {} is not read after {}; bellows-modeld goes on\n",
               model->name, counted(options.seconds, "second"));
    return kTimedOut;
  }
  fmt::print("{} of tenant {} has its digest in memory: {}\n", model->name, model->tenant,
             model->digest);
  return kOk;
}

}  // namespace bellows
