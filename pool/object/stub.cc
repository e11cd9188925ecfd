// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <random>

#include "pool/include/bellows_object.h"
#include "pool/object/metadata.h"
#include "pool/object/pack.h"
#include "pool/object/sending.h"
#include "pool/object/watch.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

using grpc::internal::RpcMethod;

Failure unavailable(std::string text) {
  return {CallOutcome::unavailable, std::move(text), {}, {}};
}

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

bool flag(const Value::Map& map, std::string_view name) {
  for (const auto& [key, value] : map)
    if (key == Value{std::string(name)}) return value == Value{true};
  return false;
}

using Methods = std::map<std::string, Method, std::less<>>;

/// What a member answers to __describe__.
Methods methods_of(const Value& described) {
  Methods methods;
  std::map<std::string, Value> map;
  if (!from_value(described, &map)) return methods;
  for (const auto& [name, one] : map)
    if (const auto* const how = std::get_if<Value::Map>(&one.held))
      methods[name] = {.idempotent = flag(*how, "idempotent"), .streams = flag(*how, "stream")};
  return methods;
}

}  // namespace

/// What all copies of a stub share.
class Caller {
 public:
  Caller(const std::string& dir, const PoolKey& key)
      : targets_(key), id_(new_id()), watch_(dir, key, targets_) {}

  Answer<Method> method(std::string_view name, std::chrono::milliseconds timeout);
  Answer<Value> call(std::string_view name, Method method, const Value::List& args,
                     std::chrono::milliseconds timeout);
  Sending sending(std::string_view name, Method method, std::chrono::milliseconds timeout) {
    return {targets_, name, method, fmt::format("{}:{}", id_, ++number_), timeout};
  }

 private:
  Targets targets_;
  const std::string id_;
  std::atomic<std::uint64_t> number_ = 0;
  std::mutex mutex_;
  std::shared_ptr<const Methods> methods_;
  const RpcMethod call_{kCall, RpcMethod::NORMAL_RPC};
  // Ends first.
  Watch watch_;
};

Answer<Method> Caller::method(std::string_view name, std::chrono::milliseconds timeout) {
  std::shared_ptr<const Methods> methods;
  {
    const std::lock_guard lock(mutex_);
    methods = methods_;
  }
  if (!methods || !methods->contains(name)) {
    const auto described = call(kDescribe, {.idempotent = true}, {}, timeout);
    if (!described) return described.failure();
    methods = std::make_shared<const Methods>(methods_of(*described));
    const std::lock_guard lock(mutex_);
    methods_ = methods;
  }
  const auto found = methods->find(name);
  if (found != methods->end()) return found->second;
  return Failure{CallOutcome::refused,
                 fmt::format("the members have no method {}", name),
                 "AttributeError",
                 {}};
}

Answer<Value> Caller::call(std::string_view name, Method method, const Value::List& args,
                           std::chrono::milliseconds timeout) {
  const std::string body = pack_request(name, args);
  if (body.size() > kLargest)
    return Failure{CallOutcome::refused,
                   fmt::format("{} bytes can't be sent, {} are the most", body.size(), kLargest),
                   "ValueError",
                   {}};
  const grpc::ByteBuffer request = to_buffer(body);
  Sending sent = sending(name, method, timeout);
  for (;;) {
    if (auto none = sent.next()) return std::move(*none);
    grpc::ByteBuffer answer;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            &sent.channel(), call_, &sent.context(), request, &answer);
    if (status.ok()) {
      sent.answered();
      return unpack_answer(to_bytes(answer));
    }
    if (auto failure = sent.failed(status)) return std::move(*failure);
  }
}

/// A call that streams, and the member that answers it.
class CalledStream {
 public:
  CalledStream(std::shared_ptr<Caller> caller, Sending sent, const std::string& body)
      : caller_(std::move(caller)), sent_(std::move(sent)), body_(to_buffer(body)) {}
  explicit CalledStream(Failure failure) : failure_(std::move(failure)) {}
  CalledStream(const CalledStream&) = delete;
  CalledStream& operator=(const CalledStream&) = delete;
  ~CalledStream() {
    if (!reader_) return;
    sent_->context().TryCancel();
    grpc::ByteBuffer rest;
    while (reader_->Read(&rest)) {
    }
    (void)reader_->Finish();
    sent_->left();
  }

  bool next(Value* item);
  void fail(Failure failure) { failure_ = std::move(failure); }
  const Failure* failure() const { return failure_ ? &*failure_ : nullptr; }

 private:
  bool begin();
  bool take(const grpc::ByteBuffer& answer, Value* item);

  std::shared_ptr<Caller> caller_;
  std::optional<Sending> sent_;
  grpc::ByteBuffer body_;
  const RpcMethod method_{kStream, RpcMethod::SERVER_STREAMING};
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader_;
  bool begun_ = false;
  bool over_ = false;
  std::optional<Failure> failure_;
};

bool CalledStream::begin() {
  if (reader_) return true;
  failure_ = sent_->next();
  if (failure_) return false;
  reader_.reset(grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
      &sent_->channel(), method_, &sent_->context(), body_));
  return true;
}

bool CalledStream::take(const grpc::ByteBuffer& answer, Value* item) {
  begun_ = true;
  auto value = unpack_answer(to_bytes(answer));
  if (value)
    *item = std::move(*value);
  else
    failure_ = value.failure();
  return !failure_;
}

bool CalledStream::next(Value* item) {
  while (!over_ && !failure_ && begin()) {
    grpc::ByteBuffer answer;
    if (reader_->Read(&answer)) return take(answer, item);
    const grpc::Status status = reader_->Finish();
    reader_.reset();
    over_ = status.ok();
    if (over_)
      sent_->answered();
    else
      failure_ = sent_->failed(status, begun_);
  }
  return false;
}

bool next_value(CalledStream& stream, Value* item) { return stream.next(item); }
const Failure* failure_of(const CalledStream& stream) { return stream.failure(); }
void mistyped(CalledStream& stream) {
  stream.fail({CallOutcome::mistyped, "an item is of another type", {}, {}});
}

Answer<Stub> Stub::connect(const std::string& pool, std::chrono::milliseconds timeout) {
  std::string dir = pool;
  if (pool.find('/') == std::string::npos) {
    auto found = find_pool(pool);
    if (!found) return unavailable(found.error().text);
    dir = std::move(*found);
  }
  const auto key = read_key(dir);
  if (!key) return unavailable(key.error().text);
  return Stub(std::make_shared<Caller>(dir, *key), timeout);
}

Answer<Value> Stub::call_values(std::string_view method, const Value::List& args) const {
  const auto how = caller_->method(method, timeout_);
  if (!how) return how.failure();
  return caller_->call(method, *how, args, timeout_);
}

std::shared_ptr<CalledStream> Stub::stream_values(std::string_view method,
                                                  const Value::List& args) const {
  const auto how = caller_->method(method, timeout_);
  if (!how) return std::make_shared<CalledStream>(how.failure());
  return std::make_shared<CalledStream>(caller_, caller_->sending(method, *how, timeout_),
                                        pack_request(method, args));
}

}  // namespace bellows::pool
