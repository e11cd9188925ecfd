// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/jobs.h"

namespace bellows {

void Jobs::post_task(Workers& workers, std::function<void()> work,
                     std::function<void(const Status&)> finish) {
  workers.post(
      {std::move(work), [this, attempt = attempt_, finish = std::move(finish)](const Status& ran) {
         --count_;
         if (attempt == attempt_) finish(ran);
       }});
  ++count_;
}

}  // namespace bellows
