// SPDX-License-Identifier: Apache-2.0
// What the policy and the optimizer make of jobs together, against brute force that adds up the
// objective itself, in floating point. ELASTIC_INSTANCES: how many.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "elastic/optimizer/plan.h"
#include "elastic/policy/objective.h"
#include "tests/unit/elastic/dice.h"

using namespace bellows;

TestSuite(best_division, .timeout = 600);

namespace {

constexpr double kLeast = -std::numeric_limits<double>::infinity();

struct Tenant {
  std::vector<JobState> jobs;
  std::uint32_t guarantee, limit, weight;
};

struct Instance {
  std::uint32_t gpus;
  ObjectiveTerms terms;
  std::vector<Tenant> tenants;
};

/// Speeds need not grow with the size, and samples say something else than progress.
JobState random_job(Dice& dice) {
  JobState job;
  for (const std::uint32_t gpus : {1u, 2u, 4u, 8u})
    if (dice.up_to(2) > 0)
      job.sizes.push_back({gpus, 32 * gpus, 0.5 + dice.up_to(20), 0.5 + dice.up_to(20)});
  job.now = dice.up_to(1) == 0 || job.sizes.empty()
                ? 0
                : job.sizes[dice.up_to(static_cast<std::uint32_t>(job.sizes.size()) - 1)].gpus;
  job.age_s = dice.up_to(1000);
  job.restarts = dice.up_to(3);
  job.waited_s = job.now > 0 ? 0 : dice.up_to(9000);
  job.weight = 0.5 + dice.up_to(3);
  return job;
}

Instance random_instance(Dice& dice) {
  constexpr Objective kObjectives[] = {Objective::throughput, Objective::goodput, Objective::fair};
  constexpr double kRestarts[] = {0, 2.3, 30, 250};
  Instance instance{.gpus = dice.up_to(16), .terms = {}, .tenants = {}};
  instance.terms.objective = kObjectives[dice.up_to(2)];
  instance.terms.restart_s = kRestarts[dice.up_to(3)];
  for (std::uint32_t t = dice.up_to(2) + 1; t > 0; --t) {
    Tenant tenant{{}, dice.up_to(6), dice.up_to(16), dice.up_to(2) + 1};
    for (std::uint32_t j = dice.up_to(3); j > 0; --j) tenant.jobs.push_back(random_job(dice));
    instance.tenants.push_back(std::move(tenant));
  }
  return instance;
}

/// What a job adds to the objective with so many GPUs, after the description in objective.h.
double gain(const JobState& job, std::uint32_t gpus, const ObjectiveTerms& terms) {
  const bool is_fair = terms.objective == Objective::fair;
  if (gpus == 0)
    return is_fair ? -job.weight - 20 * (1 + std::floor(job.waited_s / terms.patience_s)) : 0;
  const auto speed = [&](const SizeSpeed& size) {
    return terms.objective == Objective::throughput ? size.samples_per_s : size.progress_per_s;
  };
  const auto size = std::find_if(job.sizes.begin(), job.sizes.end(),
                                 [gpus](const SizeSpeed& s) { return s.gpus == gpus; });
  double times = speed(*size) / speed(job.sizes.front());
  if (job.now > 0 && job.now != gpus) {
    const double computed_s = std::max(job.age_s - (job.restarts + 1) * terms.restart_s, 0.0);
    const double lasts = std::min(computed_s + 60, std::max(terms.horizon_s, 3 * terms.restart_s));
    times *= lasts / (lasts + terms.restart_s);
  }
  return job.weight * (is_fair ? -1 / std::sqrt(times) : times);
}

/// The best sum of a tenant's jobs for each number of GPUs up to the pool, by trying all.
std::vector<double> best_of(const Tenant& tenant, const Instance& instance) {
  std::vector<double> best(instance.gpus + 1, kLeast);
  const std::function<void(std::size_t, std::uint32_t, double)> go =
      [&](std::size_t j, std::uint32_t used, double sum) {
        if (used > instance.gpus) return;
        if (j == tenant.jobs.size()) {
          best[used] = std::max(best[used], sum);
          return;
        }
        const JobState& job = tenant.jobs[j];
        go(j + 1, used, sum + gain(job, 0, instance.terms));
        for (const SizeSpeed& size : job.sizes)
          go(j + 1, used + size.gpus, sum + gain(job, size.gpus, instance.terms));
      };
  go(0, 0, 0);
  for (std::size_t c = 1; c < best.size(); ++c) best[c] = std::max(best[c], best[c - 1]);
  return best;
}

/// The best sum over all tenants, each within its limit.
double best_total(const Instance& instance, const std::vector<std::vector<double>>& best) {
  std::vector<double> total(instance.gpus + 1, 0);
  for (std::size_t t = 0; t < best.size(); ++t) {
    std::vector<double> with(total.size(), kLeast);
    for (std::uint32_t c = 0; c < total.size(); ++c)
      for (std::uint32_t g = 0; g <= std::min(c, instance.tenants[t].limit); ++g)
        with[c] = std::max(with[c], total[c - g] + best[t][g]);
    total = std::move(with);
  }
  return total.back();
}

std::vector<TenantDivision> divide(const Instance& instance, Surplus surplus, bool guaranteed) {
  // In one fixed point for all tenants, so that their values can be compared.
  std::vector<JobState> states;
  for (const Tenant& tenant : instance.tenants)
    states.insert(states.end(), tenant.jobs.begin(), tenant.jobs.end());
  const auto values = value_jobs(states, instance.terms);
  std::vector<TenantShare> shares;
  auto next = values.begin();
  for (const Tenant& tenant : instance.tenants) {
    const auto end = next + static_cast<std::ptrdiff_t>(tenant.jobs.size());
    auto curve = TenantCurve::of({next, end}, tenant.limit);
    cr_assert(curve.ok());
    shares.push_back({std::move(*curve), guaranteed ? tenant.guarantee : 0, tenant.weight});
    next = end;
  }
  auto plans = plan_pool(shares, instance.gpus, surplus);
  cr_assert(plans.ok());
  return *plans;
}

double sum_of(const Tenant& tenant, const TenantDivision& plan, const ObjectiveTerms& terms) {
  double sum = 0;
  for (std::size_t j = 0; j < tenant.jobs.size(); ++j)
    sum += gain(tenant.jobs[j], plan.jobs[j].gpus, terms);
  return sum;
}

std::uint32_t used(const TenantDivision& plan) {
  return std::accumulate(plan.jobs.begin(), plan.jobs.end(), 0u,
                         [](std::uint32_t sum, const JobPlan& job) { return sum + job.gpus; });
}

// Values are rounded to a fixed point, and a change costs one unit of it.
constexpr double kRounding = 1e-4;

void check_by_value(const Instance& instance, const std::vector<std::vector<double>>& best,
                    std::uint32_t seed) {
  const auto plans = divide(instance, Surplus::by_value, false);
  double total = 0;
  std::uint32_t gpus = 0;
  for (std::size_t t = 0; t < plans.size(); ++t) {
    cr_assert(used(plans[t]) <= instance.tenants[t].limit, "seed %u: over a limit", seed);
    gpus += used(plans[t]);
    total += sum_of(instance.tenants[t], plans[t], instance.terms);
  }
  cr_assert(gpus <= instance.gpus, "seed %u: over capacity", seed);
  const double wanted = best_total(instance, best);
  cr_assert(std::abs(total - wanted) < kRounding, "seed %u: %g and not %g", seed, total, wanted);
}

void check_by_weight(const Instance& instance, const std::vector<std::vector<double>>& best,
                     std::uint32_t seed) {
  const auto plans = divide(instance, Surplus::by_weight, true);
  std::uint32_t guaranteed = 0, gpus = 0;
  for (const Tenant& tenant : instance.tenants)
    guaranteed += std::min(tenant.guarantee, tenant.limit);
  for (std::size_t t = 0; t < plans.size(); ++t) {
    const Tenant& tenant = instance.tenants[t];
    const double sum = sum_of(tenant, plans[t], instance.terms);
    gpus += plans[t].gpus;
    cr_assert(used(plans[t]) == plans[t].gpus && plans[t].gpus <= tenant.limit, "seed %u", seed);
    cr_assert(std::abs(sum - best[t][plans[t].gpus]) < kRounding,
              "seed %u, tenant %zu: not the best of its share", seed, t);
    if (guaranteed <= instance.gpus)
      cr_assert(sum > best[t][std::min(tenant.guarantee, tenant.limit)] - kRounding,
                "seed %u, tenant %zu: less than its guarantee is worth", seed, t);
  }
  cr_assert(gpus <= instance.gpus, "seed %u: over capacity", seed);
}

}  // namespace

Test(best_division, equals_brute_force_with_each_objective) {
  const char* said = std::getenv("ELASTIC_INSTANCES");
  const auto instances = said ? static_cast<std::uint32_t>(std::strtoul(said, nullptr, 10)) : 3000;
  for (std::uint32_t seed = 0; seed < instances; ++seed) {
    Dice dice(seed);
    const Instance instance = random_instance(dice);
    std::vector<std::vector<double>> best;
    for (const Tenant& tenant : instance.tenants) best.push_back(best_of(tenant, instance));
    check_by_value(instance, best, seed);
    check_by_weight(instance, best, seed);
  }
}
