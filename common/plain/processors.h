// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

namespace bellows::plain {

/// How many processors this process may use; 1 where there are more than cpu_set_t holds.
inline unsigned processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

}  // namespace bellows::plain
