// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/controller_query.h"

#include <chrono>
#include <utility>

#include "elastic/wire/client.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kAnswersWithin{5};

}  // namespace

Result<nlohmann::ordered_json> ask_plan(const SlurmClient& slurm,
                                        const ControllerAddress& address) {
  const Munge munge(munge_socket_of(slurm.auth_info()));
  auto answer =
      ask_controller(address, slurm.slurm_user(), munge, Call::plan, "{}", kAnswersWithin);
  if (!answer) return answer.error();
  auto plan = nlohmann::ordered_json::parse(answer->body, nullptr, false);
  if (!plan.is_object()) return Error{ErrorKind::invalid, "bellowsd's answer is not a JSON object"};
  return plan;
}

}  // namespace bellows
