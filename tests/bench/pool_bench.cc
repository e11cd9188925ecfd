// SPDX-License-Identifier: Apache-2.0
/// Plays loads against autoscalers in simulated time. pool_bench SEED PEAK: a line for each load
/// and autoscaler, with agility, calls failed, calls, p99 s, member-hours and starts.

#include <cstdio>
#include <cstdlib>

#include "pool/simulate/loads.h"
#include "pool/simulate/rivals.h"

int main(int argc, char** argv) {
  using namespace bellows::pool;
  if (argc != 3) return 2;
  const auto seed = static_cast<std::uint32_t>(std::atoi(argv[1]));
  Service service;
  // Made, not recorded: a start of a job in an idle partition, and of a program that loads a model.
  service.start_s = {4, 5, 5, 6, 7, 8, 8, 9, 11, 15};
  for (const auto& name : load_names()) {
    const auto load = make_load(name, std::atof(argv[2]), seed);
    for (const auto& scaler : autoscaler_names()) {
      const auto autoscaler = make_autoscaler(scaler, service, load);
      const PoolFigures f = play(service, load, *autoscaler, seed);
      std::printf("%s %s %.6g %.6g %.6g %.6g %.6g %u\n", name.c_str(), scaler.c_str(), f.agility,
                  f.failed, f.calls, f.p99_s, f.member_hours, f.starts);
    }
  }
  return 0;
}
