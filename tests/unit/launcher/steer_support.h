// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launcher/steer/resize.h"
#include "tests/unit/launcher/steer_world.h"

namespace bellows {

inline const JobName kJob{7, std::nullopt};
inline const std::string kNothing = "; nothing was changed";
inline const std::string kRefusedSize = "Requested node configuration";
inline constexpr int kForEver = 1 << 30;  ///< calls that get no answer

struct Resized {
  SteerEnd end{std::nullopt};
  ResizeReport report;
};

inline Resized resize(SteerWorld& world, std::uint32_t gpus, bool from_scratch = false,
                      std::optional<std::uint64_t> batch = {}) {
  Resize sequence(world.steering(), {kJob, gpus, from_scratch, batch});
  Resized done;
  done.end = SteerEnd(sequence.run());
  done.report = sequence.report();
  return done;
}

inline SteerEnd resize_to_2(SteerWorld& world) { return resize(world, 2).end; }

}  // namespace bellows
