// SPDX-License-Identifier: Apache-2.0
/// Null calls of an elastic object against bare ones of gRPC: object_bench serve | bare |
/// call POOL ADDRESS THREADS CALLS REPEATS. Both servers are in processes of their own. `call`
/// prints a line for each repeat: seconds of a call by the stub, and by gRPC alone.

#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/method_handler.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "pool/include/bellows_object.h"
#include "pool/wire/channel.h"

using namespace bellows::pool;
using grpc::ByteBuffer;
using grpc::internal::RpcMethod;

namespace {

constexpr const char* kBare = "/bare.Bare/Call";

/// Answers with what came.
class Bare : public grpc::Service {
 public:
  Bare() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kBare, RpcMethod::NORMAL_RPC,
        new grpc::internal::RpcMethodHandler<Bare, ByteBuffer, ByteBuffer>(
            [](Bare*, grpc::ServerContext*, const ByteBuffer* request, ByteBuffer* answer) {
              *answer = *request;
              return grpc::Status::OK;
            },
            this)));
  }
};

int serve() {
  Server server;
  server.add(
      "null", [] {}, Runs::again);
  return server.serve() ? 0 : 1;
}

int serve_bare() {
  const auto key = read_key(std::getenv("BELLOWS_POOL"));
  if (!key) return 1;
  Bare bare;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", server_credentials(*key), &port);
  builder.RegisterService(&bare);
  const auto server = builder.BuildAndStart();
  std::printf("%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

/// Seconds of one call, in each of the threads.
template <typename Call>
double took(int threads, int calls, Call call) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&] {
      for (int number = 0; number < calls; ++number)
        if (!call()) std::abort();
    });
  for (auto& one : all) one.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

int measure(const char* pool, const char* address, int threads, int calls, int repeats) {
  const auto stub = Stub::connect(pool);
  const auto key = read_key(pool);
  if (!stub || !key) return 1;
  const auto channel = open_channel(address, *key);
  const RpcMethod method(kBare, RpcMethod::NORMAL_RPC);
  const grpc::Slice body("a body as long as", 9);
  const ByteBuffer request(&body, 1);
  const auto bare = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    ByteBuffer answer;
    return grpc::internal::BlockingUnaryCall<ByteBuffer, ByteBuffer>(channel.get(), method,
                                                                     &context, request, &answer)
        .ok();
  };
  const auto ours = [&] { return static_cast<bool>(stub->call<void>("null")); };
  took(threads, calls, ours);
  took(threads, calls, bare);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double by_stub = took(threads, calls, ours);
    const double alone = took(threads, calls, bare);
    std::printf("%.9g %.9g\n", by_stub, alone);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "serve") return serve();
  if (what == "bare") return serve_bare();
  if (what != "call" || argc != 7) return 2;
  return measure(argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]));
}
