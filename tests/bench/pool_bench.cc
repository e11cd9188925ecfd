// SPDX-License-Identifier: Apache-2.0
/// Plays loads against autoscalers in simulated time.
///
/// pool_bench SEED PEAK: a line for each load and autoscaler, with agility, calls failed, calls,
/// p99 s, member-hours and starts.
///
/// pool_bench load NAME PEAK TICKS: an hour of a load in so many ticks, a line for each.
///
/// pool_bench again POLICY TICK NOTICE START...: the agility of a pool with this policy under the
/// load at standard input, in members for each tick of so many seconds, of which the keeper hears
/// after NOTICE s, and whose members take START s each.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "pool/simulate/loads.h"
#include "pool/simulate/policy_scaler.h"
#include "pool/simulate/rivals.h"

using namespace bellows::pool;

namespace {

int play_all(std::uint32_t seed, double peak) {
  Service service;
  // Made, not recorded: a start of a job in an idle partition, and of a program that loads a model.
  service.start_s = {4, 5, 5, 6, 7, 8, 8, 9, 11, 15};
  for (const auto& name : load_names()) {
    const auto load = make_load(name, peak, seed);
    for (const auto& scaler : autoscaler_names()) {
      const auto autoscaler = make_autoscaler(scaler, service, load);
      const PoolFigures f = play(service, load, *autoscaler, seed);
      std::printf("%s %s %.6g %.6g %.6g %.6g %.6g %u\n", name.c_str(), scaler.c_str(), f.agility,
                  f.failed, f.calls, f.p99_s, f.member_hours, f.starts);
    }
  }
  return 0;
}

int print_load(const char* name, double peak, std::size_t ticks) {
  const auto load = make_load(name, peak, 0);
  if (load.empty() || ticks == 0) return 2;
  for (std::size_t tick = 0; tick < ticks; ++tick)
    std::printf("%.6g\n", load[tick * load.size() / ticks]);
  return 0;
}

int play_again(const char* file, Service service) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const auto policy = read_pool_policy(text.str(), file);
  if (!policy) {
    std::fprintf(stderr, "%s\n", policy.error().text.c_str());
    return 1;
  }
  const std::vector<double> load{std::istream_iterator<double>(std::cin), {}};
  // A call is one second of one member, and none waits.
  service.call_s = service.target = 1;
  service.at_once = 1e9;
  service.min = policy->min;
  service.max = policy->max;
  PolicyScaler autoscaler(*policy, service.call_s);
  std::printf("%.6g\n", play(service, load, autoscaler, 0).agility);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "load" && argc == 5)
    return print_load(argv[2], std::atof(argv[3]), static_cast<std::size_t>(std::atoi(argv[4])));
  if (what == "again" && argc > 5) {
    Service service;
    service.tick_s = std::atof(argv[3]);
    service.notice_s = std::atof(argv[4]);
    service.start_s.clear();
    for (int i = 5; i < argc; ++i) service.start_s.push_back(std::atof(argv[i]));
    return play_again(argv[2], service);
  }
  if (argc != 3) return 2;
  return play_all(static_cast<std::uint32_t>(std::atoi(argv[1])), std::atof(argv[2]));
}
