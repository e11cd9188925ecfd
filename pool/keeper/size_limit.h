// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/result.h"
#include "elastic/wire/message.h"

namespace bellows::pool {

/// How many members bellowsd lets a pool have. Asks it again and again from a thread of its own,
/// since an answer may take seconds. What was answered holds until there is another answer.
class SizeLimit {
 public:
  /// Blocks for some seconds at most.
  using Ask = std::function<Result<ServiceReply>(const ServiceReport&)>;

  explicit SizeLimit(Ask ask);
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  /// Waits for the question that is under way.
  ~SizeLimit();

  /// What bellowsd is told from now on.
  void tell(ServiceReport report);
  /// Nothing: it has not said so far.
  std::optional<std::uint32_t> members() const;
  /// Why it gives no answer; empty: it does.
  std::string trouble() const;

 private:
  void run();
  std::optional<ServiceReport> next();
  void take(const Result<ServiceReply>& reply);

  const Ask ask_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::optional<ServiceReport> report_;
  std::optional<std::uint32_t> members_;
  std::string trouble_;
  std::chrono::steady_clock::time_point again_at_{};
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace bellows::pool
