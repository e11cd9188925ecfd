// SPDX-License-Identifier: Apache-2.0
#include "pool/object/object_service.h"

#include <fmt/core.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include "pool/object/metadata.h"
#include "pool/object/pack.h"

namespace bellows::pool {
namespace {

using grpc::ByteBuffer;
using grpc::Status;
using grpc::StatusCode;
using grpc::internal::RpcMethod;

Status refuse(grpc::ServerContext& context, StatusCode code, const std::string& why) {
  context.AddTrailingMetadata(kNotRun, "1");
  return {code, why};
}

/// What a method threw, for its caller.
Answer<Value> guarded(const Served& method, const Value::List& args, const Sink<Value>& sink) {
  const auto raised = [](const char* type, const std::exception& error) {
    return Failure{CallOutcome::raised, error.what(), type, {}};
  };
  try {
    return method.work(args, sink);
  } catch (const Raised& error) {
    return raised(error.type().c_str(), error);
  } catch (const std::invalid_argument& error) {
    return raised("ValueError", error);
  } catch (const std::out_of_range& error) {
    return raised("IndexError", error);
  } catch (const std::exception& error) {
    return raised("RuntimeError", error);
  } catch (...) {
    return Failure{CallOutcome::raised, "something that is no std::exception", "RuntimeError", {}};
  }
}

std::string checked(Answer<Value> answer) {
  std::string bytes = pack_answer(std::move(answer));
  if (bytes.size() <= kLargest) return bytes;
  return pack_answer(
      Failure{CallOutcome::raised,
              fmt::format("{} bytes can't be sent, {} are the most", bytes.size(), kLargest),
              "ValueError",
              {}});
}

}  // namespace

/// One call, for as long as it runs.
class ObjectService::Counted {
 public:
  explicit Counted(ObjectService& service) : service_(service), calls_(++service.calls_) {
    service.asked_ = Clock::now().time_since_epoch().count();
  }
  ~Counted() { --service_.calls_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int calls() const { return calls_; }

 private:
  ObjectService& service_;
  const int calls_;
};

ObjectService::ObjectService(ServedMethods methods, std::string incarnation, int limit)
    : methods_(std::move(methods)),
      incarnation_(std::move(incarnation)),
      limit_(limit),
      describe_{.work = [this](const auto&, const auto&) { return description(); },
                .idempotent = true} {
  AddMethod(new grpc::internal::RpcServiceMethod(
      kCall, RpcMethod::NORMAL_RPC,
      new grpc::internal::RpcMethodHandler<ObjectService, ByteBuffer, ByteBuffer>(
          [](ObjectService* self, grpc::ServerContext* context, const ByteBuffer* request,
             ByteBuffer* answer) { return self->call(*context, *request, answer); },
          this)));
  AddMethod(new grpc::internal::RpcServiceMethod(
      kStream, RpcMethod::SERVER_STREAMING,
      new grpc::internal::ServerStreamingHandler<ObjectService, ByteBuffer, ByteBuffer>(
          [](ObjectService* self, grpc::ServerContext* context, const ByteBuffer* request,
             grpc::ServerWriter<ByteBuffer>* writer) {
            return self->stream(*context, *request, *writer);
          },
          this)));
}

ObjectService::Clock::duration ObjectService::quiet() const {
  return Clock::now().time_since_epoch() - Clock::duration(asked_.load());
}

Status ObjectService::check(grpc::ServerContext& context, const Counted& counted) {
  if (draining_) return refuse(context, StatusCode::UNAVAILABLE, "the member drains");
  const auto& metadata = context.client_metadata();
  const auto meant = metadata.find(kIncarnation);
  if (meant != metadata.end() && !incarnation_.empty() &&
      std::string_view(meant->second.data(), meant->second.size()) != incarnation_)
    return refuse(context, StatusCode::UNAVAILABLE, "the member is not the one that was meant");
  if (counted.calls() > limit_)
    return refuse(context, StatusCode::RESOURCE_EXHAUSTED,
                  fmt::format("the member has {} calls", limit_));
  return Status::OK;
}

Status ObjectService::find(grpc::ServerContext& context, const ByteBuffer& request, bool streams,
                           const Served** found, Value::List* args) const {
  const auto wrong = [&](const std::string& why) {
    return refuse(context, StatusCode::INVALID_ARGUMENT, why);
  };
  auto asked = unpack_request(to_bytes(request));
  if (!asked) return wrong("a call is [method, [argument, ...], {name: argument, ...}]");
  if (asked->method == kDescribe && !streams) {
    *found = &describe_;
    return Status::OK;
  }
  const auto method = methods_.find(asked->method);
  if (method == methods_.end())
    return wrong(fmt::format("there is no method {:.100}", asked->method));
  if (method->second.streams != streams)
    return wrong(asked->method + (streams ? " does not stream" : " streams"));
  if (asked->names_args) return wrong(asked->method + ": a method in C++ takes no named arguments");
  if (!method->second.idempotent && context.client_metadata().contains(kAgain))
    return wrong(asked->method + " may have run already and is not idempotent");
  *found = &method->second;
  *args = std::move(asked->args);
  return Status::OK;
}

Status ObjectService::call(grpc::ServerContext& context, const ByteBuffer& request,
                           ByteBuffer* answer) {
  const Counted counted(*this);
  const Served* method = nullptr;
  Value::List args;
  Status status = check(context, counted);
  if (status.ok()) status = find(context, request, false, &method, &args);
  if (status.ok()) *answer = to_buffer(checked(guarded(*method, args, {})));
  return status;
}

Status ObjectService::stream(grpc::ServerContext& context, const ByteBuffer& request,
                             grpc::ServerWriter<ByteBuffer>& writer) {
  const Counted counted(*this);
  const Served* method = nullptr;
  Value::List args;
  Status status = check(context, counted);
  if (status.ok()) status = find(context, request, true, &method, &args);
  if (!status.ok()) return status;
  const Sink<Value> sink(
      [&](const Value& item) {
        return !context.IsCancelled() && writer.Write(to_buffer(checked(item)));
      },
      [&] { return !context.IsCancelled(); });
  auto ended = guarded(*method, args, sink);
  if (!ended) writer.Write(to_buffer(checked(std::move(ended))));
  return Status::OK;
}

Answer<Value> ObjectService::description() const {
  Value::Map all;
  for (const auto& [name, method] : methods_)
    all.push_back(
        {Value{name}, Value{Value::Map{{Value{std::string("idempotent")}, Value{method.idempotent}},
                                       {Value{std::string("stream")}, Value{method.streams}},
                                       {Value{std::string("timeout_s")}, Value{0.0}}}}});
  return Value{std::move(all)};
}

}  // namespace bellows::pool
