// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/member_line.h"

#include <cmath>
#include <utility>

namespace bellows::pool {
namespace {

constexpr int kMostMetrics = 256;
constexpr std::size_t kLongestText = 256;

/// What a member says is hostile: names and numbers are limited here, once.
std::optional<MemberReport> taken(const Report& report) {
  if (report.metric_size() > kMostMetrics || report.address().size() > kLongestText ||
      report.node().size() > kLongestText)
    return std::nullopt;
  MemberReport taken{.job = report.job(),
                     .incarnation = report.incarnation(),
                     .address = report.address(),
                     .node = report.node(),
                     .ready = report.ready(),
                     .draining = report.draining(),
                     .metrics = {},
                     .vote = report.vote(),
                     .vote_sequence = report.vote_sequence(),
                     .vote_age = std::chrono::milliseconds(report.vote_age_ms()),
                     .ready_ms = report.ready_ms()};
  for (const Metric& metric : report.metric())
    if (metric.name().size() <= kLongestText && std::isfinite(metric.value()))
      taken.metrics[metric.name()] = {metric.value(), std::chrono::milliseconds(metric.age_ms())};
  return taken;
}

}  // namespace

MemberLine::MemberLine(DeskKeeper& keeper, std::function<void(MemberLine*)> over)
    : keeper_(keeper), over_(std::move(over)) {
  StartRead(&report_);
}

std::uint32_t MemberLine::job() const {
  const std::lock_guard lock(mutex_);
  return job_;
}

void MemberLine::finish(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(finished_, true)) Finish(status);
}

/// As whom it has begun: what it leaves behind is found by that.
bool MemberLine::is_the_same(const MemberReport& report) const {
  const std::lock_guard lock(mutex_);
  return job_ == 0 || (job_ == report.job && incarnation_ == report.incarnation);
}

void MemberLine::OnReadDone(bool ok) {
  if (!ok) return finish(grpc::Status::OK);
  const auto report = taken(report_);
  if (!report)
    return finish({grpc::StatusCode::INVALID_ARGUMENT, "the report of this member is too large"});
  if (!is_the_same(*report))
    return finish({grpc::StatusCode::INVALID_ARGUMENT, "a connection is that of one member"});
  if (!keeper_.report(*report))
    return finish({grpc::StatusCode::NOT_FOUND, "Slurm has no such member of this pool yet"});
  {
    const std::lock_guard lock(mutex_);
    job_ = report->job;
    incarnation_ = report->incarnation;
    if (finished_) return;
  }
  StartRead(&report_);
}

void MemberLine::tell(const Order& order) {
  const std::lock_guard lock(mutex_);
  next_ = order;
  write_next();
}

/// gRPC takes one message at a time.
void MemberLine::write_next() {
  if (writes_ || finished_ || !next_) return;
  order_ = std::move(*std::exchange(next_, std::nullopt));
  writes_ = true;
  StartWrite(&order_);
}

void MemberLine::OnWriteDone(bool ok) {
  if (!ok) return finish(grpc::Status::OK);
  const std::lock_guard lock(mutex_);
  writes_ = false;
  write_next();
}

void MemberLine::OnDone() {
  std::uint32_t job = 0;
  std::uint64_t incarnation = 0;
  {
    const std::lock_guard lock(mutex_);
    job = job_;
    incarnation = incarnation_;
  }
  if (job != 0) keeper_.left(job, incarnation);
  over_(this);
}

}  // namespace bellows::pool
