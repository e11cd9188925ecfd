// SPDX-License-Identifier: Apache-2.0
// How long the elastic optimizer takes, in one thread: optimize_bench REPEATS. Prints one line of
// JSON, with lists of milliseconds.
//
// A pool of 10,000 GPUs and ten tenants, whose limits sum to twice that; each job may have any size
// from 1 to 64. Tenants are shared by weight.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "elastic/optimizer/places.h"
#include "elastic/optimizer/plan.h"
#include "tests/bench/timed.h"

using namespace bellows;

namespace {

constexpr std::uint32_t kGpus = 10000;
constexpr std::uint32_t kTenants = 10;
constexpr std::uint32_t kLimit = 2 * kGpus / kTenants;
constexpr std::uint32_t kLargestJob = 64;
constexpr std::uint32_t kGpusOfNode = 4;

using Jobs = std::vector<ElasticJob>;

// Of its size to a power between 0.5 and 1, which is what the speed of real jobs looks like.
ElasticJob random_job(std::mt19937& random) {
  ElasticJob job;
  const double power = 0.5 + 0.5 * static_cast<double>(random() % 1000) / 1000;
  for (std::uint32_t g = 1; g <= kLargestJob; ++g)
    job.sizes.push_back({g, 32 * g, static_cast<std::int32_t>(200 * std::pow(g, power))});
  job.now = static_cast<std::uint32_t>(random() % (kLargestJob + 1));
  job.move_price = 50;
  return job;
}

std::vector<Jobs> random_tenants(std::mt19937& random, std::uint32_t jobs) {
  std::vector<Jobs> tenants(kTenants);
  for (std::uint32_t j = 0; j < jobs; ++j) tenants[j % kTenants].push_back(random_job(random));
  return tenants;
}

TenantShare share_of(const Jobs& jobs, Kernel kernel) {
  auto curve = TenantCurve::of(jobs, kLimit, kernel);
  if (!curve) {
    fmt::print(stderr, "optimize_bench: {}\n", curve.error().text);
    std::exit(1);
  }
  return {std::move(*curve), kLimit / 4, 1};
}

void plan(const std::vector<TenantShare>& shares) {
  if (!plan_pool(shares, kGpus, Surplus::by_weight)) std::exit(1);
}

// All of it, from what is known of the jobs to the size of each.
double whole(const std::vector<Jobs>& tenants, Kernel kernel) {
  return 1000 * timed([&] {
           std::vector<TenantShare> shares;
           for (const Jobs& jobs : tenants) shares.push_back(share_of(jobs, kernel));
           plan(shares);
         });
}

// The next GPUs in a row of nodes that have not been given.
GpuPlace next_place(std::uint32_t gpus, std::uint32_t& given) {
  GpuPlace place;
  for (const std::uint32_t end = given + gpus; given < end;) {
    const std::uint32_t here = std::min(kGpusOfNode - given % kGpusOfNode, end - given);
    place.push_back({given / kGpusOfNode, here});
    given += here;
  }
  return place;
}

// The whole of it, and where the GPUs are. Jobs that would hold what is not there hold nothing.
double placed(std::vector<Jobs> tenants) {
  std::vector<std::vector<KnownPlace>> at;
  std::uint32_t given = 0;
  for (Jobs& jobs : tenants) {
    auto& of_tenant = at.emplace_back();
    for (ElasticJob& job : jobs) {
      if (given + job.now > kGpus) job.now = 0;
      of_tenant.push_back({next_place(job.now, given)});
    }
  }
  PoolNodes nodes{std::vector<std::uint32_t>(kGpus / kGpusOfNode, kGpusOfNode)};
  for (std::uint32_t gpu = 0; gpu < given; ++gpu) --nodes.free[gpu / kGpusOfNode];
  return 1000 * timed([&] {
           std::vector<TenantShare> shares;
           for (const Jobs& jobs : tenants) shares.push_back(share_of(jobs, fastest_kernel()));
           if (!plan_places(std::move(shares), at, nodes, kGpus, Surplus::by_weight)) std::exit(1);
         });
}

// One job comes, ends or turns out to be faster or slower: its tenant's curve is made again.
std::vector<double> changes(std::mt19937& random, std::vector<Jobs> tenants, int count) {
  std::vector<TenantShare> shares;
  for (const Jobs& jobs : tenants) shares.push_back(share_of(jobs, fastest_kernel()));
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    const std::size_t t = random() % kTenants;
    Jobs& jobs = tenants[t];
    const std::size_t j = random() % jobs.size();
    switch (random() % 3) {
      case 0:
        jobs.push_back(random_job(random));
        break;
      case 1:
        if (jobs.size() > 1) jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(j));
        break;
      default:
        jobs[j] = random_job(random);
    }
    took.push_back(1000 * timed([&] {
                     shares[t] = share_of(jobs, fastest_kernel());
                     plan(shares);
                   }));
  }
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 0;
  if (repeats <= 0) {
    fmt::print(stderr, "usage: optimize_bench REPEATS\n");
    return 2;
  }
  std::mt19937 random(1);
  const auto thousand = random_tenants(random, 1000), many = random_tenants(random, 10000);
  std::vector<double> fast, scalar, ten_thousand, places;
  for (int i = 0; i < repeats; ++i) {
    fast.push_back(whole(thousand, fastest_kernel()));
    scalar.push_back(whole(thousand, Kernel::scalar));
    ten_thousand.push_back(whole(many, fastest_kernel()));
    places.push_back(placed(thousand));
  }
  const auto replans = changes(random, thousand, 50 * repeats);
  fmt::print(
      "{{\"optimize\": [{}], \"scalar\": [{}], \"ten_thousand\": [{}], \"places\": [{}], "
      "\"replan\": [{}]}}\n",
      fmt::join(fast, ", "), fmt::join(scalar, ", "), fmt::join(ten_thousand, ", "),
      fmt::join(places, ", "), fmt::join(replans, ", "));
}
