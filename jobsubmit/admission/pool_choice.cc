// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "common/pool_option.h"
#include "common/text.h"
#include "jobsubmit/admission/rules.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

/// A keeper only submits and watches, and Slurm must be able to bring it back.
bool check_keeper(Review& review, const std::string& option) {
  const Request& request = review.request;
  if (request.framework || request.gpus_range || request.batch_range || request.job_class)
    return review.refuse(
        Refusal::option,
        fmt::format("{} is for the keeper of a pool, which has no GPUs; leave out --framework, "
                    "--gpus-range, --batch-range and --job-class",
                    option));
  if (!request.batch)
    return review.refuse(Refusal::option,
                         fmt::format("{} is for the keeper of a pool, which is requeued when it "
                                     "loses its node; submit it with sbatch",
                                     option));
  if (request.requeue_off)
    return review.refuse(Refusal::option,
                         fmt::format("--no-requeue contradicts {}: the keeper of a pool is "
                                     "requeued when it loses its node; leave out --no-requeue",
                                     option));
  const auto asked = count_gpus(request.sizes);
  if (!asked) return review.refuse(Refusal::gpus, shown(asked.error().text, 512));
  if (*asked || request.sizes.tasks_per_gpu)
    return review.refuse(
        Refusal::gpus,
        fmt::format("{} is for the keeper of a pool, which has no GPUs; leave out {}", option,
                    *asked ? shown((*asked)->option) : "--ntasks-per-gpu"));
  return true;
}

}  // namespace

bool choose_pool(Review& review) {
  if (!review.request.pool) return true;
  const auto pool = PoolOption::parse(*review.request.pool);
  if (!pool) return review.refuse(Refusal::option, "--pool: " + shown(pool.error().text, 512));
  if (review.request.array)
    return review.refuse(Refusal::option,
                         "a job array cannot have --pool, which is for one job; leave out --array");
  const Tenant& tenant = *review.tenant;
  if (tenant.pool_members == 0)
    return review.refuse(Refusal::policy, fmt::format("tenant {} may have no pools; leave out "
                                                      "--pool",
                                                      tenant.name));
  const std::string option = "--pool=" + pool->to_string();
  if (pool->max > tenant.pool_members)
    return review.refuse(
        Refusal::policy,
        fmt::format("{} is for {}, but a pool of tenant {} may have {} at most; ask for no more",
                    option, counted(pool->max, "member"), tenant.name, tenant.pool_members));
  if (pool->is_keeper() && !check_keeper(review, option)) return false;
  auto& extra = review.decision.contract.extra;
  extra.emplace_back(Contract::kPoolKey, pool->to_string());
  // It asks there how many members its pool may have.
  if (const auto& controller = review.policy.controller; controller && pool->is_keeper())
    extra.emplace_back(Contract::kControllerKey, controller->address.to_string());
  return true;
}

}  // namespace bellows
