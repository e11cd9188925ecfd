// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "checkpoint/system/worker.h"

namespace bellows {

/// What an agent's workers are doing, and who receives the results. Main thread only; must
/// outlive the workers.
class Jobs {
 public:
  explicit Jobs(std::unique_ptr<Completions> completions) : completions_(std::move(completions)) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  Completions& completions() { return *completions_; }
  const Completions& completions() const { return *completions_; }
  /// That are not finished, whoever they were for.
  std::size_t count() const { return count_; }
  /// The attempt has ended: what is under way is finished without being taken.
  void disown() { ++attempt_; }

  /// Runs `work` on a worker, and then `take` here, with what it returned or the Error of what it
  /// threw.
  template <class Work, class Take>
  void post(Workers& workers, Work work, Take take) {
    // Made here, since a worker that has done its work must not fail to say so.
    auto result = std::make_shared<std::optional<std::invoke_result_t<Work&>>>();
    post_task(
        workers, [result, work = std::move(work)]() mutable { result->emplace(work()); },
        [result, take = std::move(take)](const Status& ran) {
          ran ? take(**result) : take(ran.error());
        });
  }

 private:
  void post_task(Workers& workers, std::function<void()> work,
                 std::function<void(const Status&)> finish);

  std::unique_ptr<Completions> completions_;
  std::uint64_t attempt_ = 0;
  std::size_t count_ = 0;
};

}  // namespace bellows
