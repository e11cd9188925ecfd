// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "pool/include/bellows_object.h"

namespace bellows::pool {

/// A method that is served.
struct Served {
  std::function<Answer<Value>(const Value::List&, const Sink<Value>&)> work;
  bool idempotent = false;
  bool streams = false;
};
using ServedMethods = std::map<std::string, Served, std::less<>>;

/// The calls that come to a member: which are taken, and what answers them.
class ObjectService : public grpc::Service {
 public:
  using Clock = std::chrono::steady_clock;

  /// incarnation: empty takes calls for every one.
  ObjectService(ServedMethods methods, std::string incarnation, int limit);

  void drain() { draining_ = true; }
  int calls() const { return calls_; }
  /// Since the last call came.
  Clock::duration quiet() const;

 private:
  class Counted;
  grpc::Status call(grpc::ServerContext& context, const grpc::ByteBuffer& request,
                    grpc::ByteBuffer* answer);
  grpc::Status stream(grpc::ServerContext& context, const grpc::ByteBuffer& request,
                      grpc::ServerWriter<grpc::ByteBuffer>& writer);
  grpc::Status check(grpc::ServerContext& context, const Counted& counted);
  /// Finds what is to run, and the arguments. A status that isn't OK: it can't be, and has not run.
  grpc::Status find(grpc::ServerContext& context, const grpc::ByteBuffer& request, bool streams,
                    const Served** found, Value::List* args) const;
  Answer<Value> description() const;

  const ServedMethods methods_;
  const std::string incarnation_;
  const int limit_;
  const Served describe_;
  std::atomic<bool> draining_ = false;
  std::atomic<int> calls_ = 0;
  std::atomic<Clock::rep> asked_ = 0;
};

}  // namespace bellows::pool
