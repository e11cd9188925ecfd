// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// What may be asked of bellowsd. Each is a POST to its path.
enum class Call {
  report,  ///< a launcher tells of its run and asks for an order
  plan,    ///< anybody asks for the plan
  service  ///< the keeper of an elastic pool tells what it wants and asks what it may have
};
const char* path_of(Call call);

/// A larger body is refused unread.
constexpr std::size_t kMostBody = 64 * 1024;
/// A longer answer is not read. munged seals no more either.
constexpr std::size_t kMostAnswer = 1024 * 1024;

/// How a launcher answers an order.
struct OrderAnswer {
  std::string order;
  bool committed = false;             ///< false: it does not stop; `why`
  std::optional<std::uint64_t> step;  ///< it will go on from; none: from the start, or not known
  std::string why;
};

/// What a launcher tells of its run. Times in seconds.
struct RunReport {
  enum class State {
    starting,  ///< an order would be refused
    running,   ///< its ranks compute, and can be stopped at a checkpoint
    stopping
  };
  std::uint32_t job = 0;
  std::uint32_t restarts = 0;  ///< Slurm's count, which tells the runs of a job apart
  State state = State::starting;
  std::uint32_t gpus = 0;
  std::uint32_t nodes = 0;
  std::uint64_t step = 0;             ///< the newest
  double step_s = 0;                  ///< a step's time, a mean over the last ones; 0: not known
  std::uint64_t batch = 0;            ///< samples in a step of the whole job; 0: not known
  std::uint64_t noise_scale = 0;      ///< of the gradient, in samples; 0: not known
  bool saving = false;                ///< a checkpoint has begun, and is not complete
  std::optional<OrderAnswer> answer;  ///< to the last order, in each report until the run ends
};

/// invalid: says what is wrong with it. Numbers that cannot be meant are refused, too.
Result<RunReport> parse_report(std::string_view json);
std::string to_json(const RunReport& report);

/// The job is to stop at a checkpoint and go on with so many GPUs.
struct Order {
  std::string id;  ///< of one order to one run of one job
  std::uint32_t gpus = 0;
  std::uint64_t batch = 0;  ///< 0: as before
};

/// What bellowsd answers to a report.
struct ReportReply {
  double again_s = 2;  ///< when it wants the next report
  std::optional<Order> order;
};

Result<ReportReply> parse_reply(std::string_view json);
std::string to_json(const ReportReply& reply);

/// What the keeper of an elastic pool tells of it. Its name and limits are in the keeper's
/// contract, and what its members hold is known to Slurm.
struct ServiceReport {
  /// Of `leaving`, at most; others count as members that stay.
  static constexpr std::size_t kMostLeaving = 4096;

  std::uint32_t job = 0;     ///< the keeper's
  std::uint32_t wanted = 0;  ///< members
  /// Jobs of members that are to go. They hold their GPUs until they are gone.
  std::vector<std::uint32_t> leaving{};
};

Result<ServiceReport> parse_service_report(std::string_view json);
std::string to_json(const ServiceReport& report);

/// What bellowsd answers to that.
struct ServiceReply {
  double again_s = 2;  ///< when it wants the next report
  /// That the pool may have now beside those that leave; none: that is not known yet.
  std::optional<std::uint32_t> members{};
};

Result<ServiceReply> parse_service_reply(std::string_view json);
std::string to_json(const ServiceReply& reply);

}  // namespace bellows
