// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/size_limit.h"

#include <utility>

namespace bellows::pool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAfterTrouble{2};

}  // namespace

SizeLimit::SizeLimit(Ask ask) : ask_(std::move(ask)), thread_([this] { run(); }) {}

SizeLimit::~SizeLimit() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  news_.notify_all();
  thread_.join();
}

void SizeLimit::tell(ServiceReport report) {
  const std::lock_guard lock(mutex_);
  if (!report_) news_.notify_all();
  report_ = std::move(report);
}

std::optional<std::uint32_t> SizeLimit::members() const {
  const std::lock_guard lock(mutex_);
  return members_;
}

std::string SizeLimit::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

/// When it is time to ask. Nothing: the end.
std::optional<ServiceReport> SizeLimit::next() {
  std::unique_lock lock(mutex_);
  while (!ends_ && !report_) news_.wait(lock);
  while (!ends_ && Clock::now() < again_at_) news_.wait_until(lock, again_at_);
  return ends_ ? std::nullopt : report_;
}

/// A question without an answer is no reason to change anything.
void SizeLimit::take(const Result<ServiceReply>& reply) {
  const std::lock_guard lock(mutex_);
  trouble_ = reply ? "" : reply.error().text;
  const auto pause = reply ? std::chrono::duration<double>(reply->again_s) : kAfterTrouble;
  again_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
  if (reply && reply->members) members_ = reply->members;
}

void SizeLimit::run() {
  while (const auto report = next()) take(ask_(*report));
}

}  // namespace bellows::pool
