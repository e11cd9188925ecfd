// SPDX-License-Identifier: Apache-2.0
/// Plays loads against autoscalers in simulated time.
///
/// pool_bench SEED PEAK STARTS: a line for each load and autoscaler, with agility, calls failed,
/// calls, p99 s, member-hours and starts. Members take, in turn, the seconds that stand in STARTS.
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
#include "pool/simulate/number_file.h"
#include "pool/simulate/policy_scaler.h"
#include "pool/simulate/rivals.h"

using namespace bellows::pool;

namespace {

int play_all(std::uint32_t seed, double peak, const char* starts) {
  Service service;
  const auto start_s = read_numbers(starts, 10000);
  if (!start_s) {
    std::fprintf(stderr, "%s\n", start_s.error().text.c_str());
    return 1;
  }
  service.start_s = *start_s;
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
  if (argc != 4) return 2;
  return play_all(static_cast<std::uint32_t>(std::atoi(argv[1])), std::atof(argv[2]), argv[3]);
}
