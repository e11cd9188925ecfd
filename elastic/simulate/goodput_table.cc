// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/goodput_table.h"

namespace bellows {

double GoodputTable::at(const SpeedRecord& speed, const GradientNoise& noise,
                        const BatchLimits& limits, const GpuLayout& layout) {
  const StepTime& model = *speed.model();
  if (speed_ != &speed || models_ != speed.models()) known_.clear();
  speed_ = &speed;
  models_ = speed.models();
  const auto [entry, is_new] = known_.try_emplace({layout.nodes, layout.gpus});
  Known& known = entry->second;
  if (is_new) known.batches = possible_batches(model, limits, layout);
  if (known.per_s < 0 || known.noise != noise) {
    known.noise = noise;
    known.per_s = best_goodput(known.batches, noise).per_s;
  }
  return known.per_s;
}

}  // namespace bellows
