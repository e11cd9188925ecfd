// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jobsubmit/admission/review.h"

namespace bellows {

// What a rule found, told once it has passed. These only look: nothing here may decide anything.

void tell_tenant(const Review& review, Trace& trace);
void tell_framework(const Review& review, Trace& trace);
void tell_container(const Review& review, Trace& trace);
void tell_pool(const Review& review, Trace& trace);
void tell_range(const Review& review, Trace& trace);
void tell_type(const Review& review, Trace& trace);
void tell_size(const Review& review, Trace& trace);
void tell_nodes(const Review& review, Trace& trace);
void tell_partition(const Review& review, Trace& trace);
void tell_time(const Review& review, Trace& trace);
void tell_batch_range(const Review& review, Trace& trace);
void tell_models(const Review& review, Trace& trace);
void tell_job_class(const Review& review, Trace& trace);
void tell_terms(const Review& review, Trace& trace);

}  // namespace bellows
