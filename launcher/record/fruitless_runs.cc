// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/fruitless_runs.h"

namespace bellows {

std::uint32_t fruitless_runs(const std::vector<JobEvent>& events) {
  std::uint32_t runs = 0;
  for (const JobEvent& event : events) {
    if (event.event == "STORING" || event.note == EventNote::committed) runs = 0;
    if (event.note == EventNote::fruitless) ++runs;
  }
  return runs;
}

}  // namespace bellows
