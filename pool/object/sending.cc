// SPDX-License-Identifier: Apache-2.0
#include "pool/object/sending.h"

#include <fmt/core.h>

#include "pool/object/metadata.h"

namespace bellows::pool {
namespace {

/// What gRPC itself says of a call for which it had no connection. Where it says something else,
/// the caller is told that it may have run, in place of a second try.
constexpr std::string_view kNeverSent = "failed to connect to all addresses";
/// What it says where a member had not even a thread to refuse a call.
constexpr std::string_view kNoThread = "Server Threadpool Exhausted";

}  // namespace

Sending::Sending(Targets& targets, std::string_view name, Method method, std::string id,
                 std::chrono::milliseconds timeout)
    : targets_(targets),
      name_(name),
      method_(method),
      id_(std::move(id)),
      timeout_(timeout),
      deadline_(Clock::now() + timeout) {}

Failure Sending::failure(CallOutcome outcome, const std::string& what) const {
  return {outcome, fmt::format("{}: {}", name_, what), {}, {}};
}

std::optional<Failure> Sending::next() {
  target_ = targets_.take(deadline_);
  if (!target_) {
    const std::string why = refusal_.empty() ? targets_.trouble() : refusal_;
    const double seconds = std::chrono::duration<double>(timeout_).count();
    if (may_have_run_)
      return failure(CallOutcome::timed_out, fmt::format("no answer in {:g} s: {}", seconds, why));
    return failure(CallOutcome::unavailable,
                   fmt::format("no member of the pool took it in {:g} s: {}", seconds, why));
  }
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(std::chrono::system_clock::now() + (deadline_ - Clock::now()));
  context_->AddMetadata(kId, id_);
  context_->AddMetadata(kIncarnation, target_->incarnation_text);
  if (may_have_run_) context_->AddMetadata(kAgain, "1");
  return std::nullopt;
}

std::optional<Failure> Sending::failed(const grpc::Status& status, bool begun) {
  const auto code = status.error_code();
  const std::string& at = target_->address;
  refusal_ = fmt::format("{}: {}", at, status.error_message());
  if (code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    targets_.give(*target_, Targets::End::other);
    return failure(CallOutcome::timed_out,
                   fmt::format("{} did not answer in {:g} s", at,
                               std::chrono::duration<double>(timeout_).count()));
  }
  if (context_->GetServerTrailingMetadata().contains(kNotRun)) {
    const bool gone = code == grpc::StatusCode::UNAVAILABLE;
    const bool refused = code == grpc::StatusCode::INVALID_ARGUMENT;
    targets_.give(*target_, gone      ? Targets::End::gone
                            : refused ? Targets::End::other
                                      : Targets::End::full);
    if (refused) return failure(CallOutcome::refused, refusal_);
    return std::nullopt;
  }
  if (code == grpc::StatusCode::RESOURCE_EXHAUSTED && status.error_message() == kNoThread) {
    targets_.give(*target_, Targets::End::full);
    return std::nullopt;
  }
  targets_.give(*target_, Targets::End::lost);
  if (code == grpc::StatusCode::UNAVAILABLE && status.error_message().starts_with(kNeverSent))
    return std::nullopt;
  may_have_run_ = true;
  const bool lost = code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::CANCELLED;
  if (lost && method_.idempotent && !begun) return std::nullopt;
  return failure(CallOutcome::may_have_run, fmt::format("the member was lost at {}", refusal_));
}

}  // namespace bellows::pool
