// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jobsubmit/admission/review.h"

namespace bellows {

// The rules that settle what a job gets. Each returns false once it has refused.

// framework_choice.cc
bool choose_framework(Review& review);

// container_choice.cc
bool choose_container(Review& review);

// model_choice.cc
bool choose_models(Review& review);

// pool_choice.cc
bool choose_pool(Review& review);

// size_choice.cc
bool choose_range(Review& review);
bool choose_type(Review& review);
bool choose_size(Review& review);

// terms.cc
bool choose_nodes(Review& review);
bool choose_partition(Review& review);
bool choose_time(Review& review);
/// Writes what is settled into the changes of the job, which refuses nothing any more.
void spell_terms(Review& review);

}  // namespace bellows
