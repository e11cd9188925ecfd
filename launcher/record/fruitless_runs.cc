// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/fruitless_runs.h"

namespace bellows {
namespace {

constexpr const char* kFruitless = ", without a new checkpoint";

}  // namespace

std::string fruitless_cause(const std::string& cause) { return cause + kFruitless; }

std::uint32_t fruitless_runs(const std::vector<JobEvent>& events) {
  std::uint32_t runs = 0;
  for (const JobEvent& event : events) {
    if (event.event == "STORING" || event.cause.starts_with("committed step")) runs = 0;
    if (event.event == "QUEUED" && event.cause.ends_with(kFruitless)) ++runs;
  }
  return runs;
}

}  // namespace bellows
