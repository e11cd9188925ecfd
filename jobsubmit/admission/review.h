// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jobsubmit/admission/admission.h"

namespace bellows {

/// A submitted job on its way through the rules: what is known of it so far, and the decision as it
/// grows. Until the rule that settles a field has passed, the field says nothing.
struct Review {
  Review(const Policy& by, const Request& of) : policy(by), request(of) {}

  const Policy& policy;
  const Request& request;
  Decision decision;
  const Tenant* tenant = nullptr;
  const GpuLimits* limits = nullptr;  ///< the tenant's, or those for its jobs of the framework
  std::optional<GpuRequest> asked;    ///< nothing: no option says how many GPUs
  GpusRange range = GpusRange::between(1, 1);
  std::string type;        ///< of the GPUs; empty: any
  std::uint32_t size = 1;  ///< to start with

  /// Returns false, as a rule does that has refused.
  bool refuse(Refusal why, std::string message);
  /// For the user of a job that is admitted.
  void note(std::string_view text);

  bool elastic() const { return range.min() != range.max(); }
  /// Whether the job will be resized, and so is spelled as --gpus=N with N tasks.
  bool resizable() const { return elastic() && request.batch; }
  bool takes_default_range() const;
  /// Whom a limit is for, in a sentence.
  std::string jobs_of_tenant() const;
};

}  // namespace bellows
