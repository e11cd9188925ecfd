// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "pool/include/bellows_object.h"
#include "pool/object/targets.h"

namespace bellows::pool {

/// How a method may be called.
struct Method {
  bool idempotent = false;
  bool streams = false;
};

/// One call on its way: whom it is sent to, and what may be done with it after each failure. At
/// most once: it goes to another member only if it has certainly not run, or may run again.
class Sending {
 public:
  Sending(Targets& targets, std::string_view name, Method method, std::string id,
          std::chrono::milliseconds timeout);

  /// Chooses a member and prepares the context of a call to it. A Failure: there was none in time.
  std::optional<Failure> next();
  grpc::Channel& channel() { return *target_->channel; }
  std::shared_ptr<grpc::Channel> shared_channel() { return target_->channel; }
  grpc::ClientContext& context() { return *context_; }

  /// The call of next() has an answer.
  void answered() { targets_.give(*target_, Targets::End::answered); }
  /// It has none, and nobody waits for it any more.
  void left() { targets_.give(*target_, Targets::End::other); }
  /// It has failed. nullopt: it may be sent again. begun: some of its answer has been used.
  std::optional<Failure> failed(const grpc::Status& status, bool begun = false);

 private:
  Failure failure(CallOutcome outcome, const std::string& what) const;

  Targets& targets_;
  const std::string name_;
  const Method method_;
  const std::string id_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  std::shared_ptr<Target> target_;
  std::unique_ptr<grpc::ClientContext> context_;
  bool may_have_run_ = false;
  std::string refusal_;
};

}  // namespace bellows::pool
