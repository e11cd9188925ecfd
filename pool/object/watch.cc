// SPDX-License-Identifier: Apache-2.0
#include "pool/object/watch.h"

#include <fmt/core.h>

#include "pool/wire/pool.grpc.pb.h"
#include "pool/wire/pool_place.h"

namespace bellows::pool {
namespace {

// The keeper says something each two seconds. A new stream now and then finds one that hangs.
constexpr std::chrono::seconds kStream{30};
constexpr std::chrono::milliseconds kAgain{200};

}  // namespace

Watch::Watch(std::string dir, PoolKey key, Targets& targets)
    : dir_(std::move(dir)), key_(std::move(key)), targets_(targets), thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (call_) call_->TryCancel();
    ends_.notify_all();
  }
  thread_.join();
}

void Watch::run() {
  for (;;) {
    if (const auto place = read_keeper(dir_))
      follow(place->address());
    else
      targets_.set_trouble(place.error().text);
    std::unique_lock lock(mutex_);
    if (ends_.wait_for(lock, kAgain, [this] { return ended_; })) return;
  }
}

void Watch::follow(const std::string& address) {
  const auto stub = Keeper::NewStub(open_channel(address, key_));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStream);
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    call_ = &context;
  }
  const auto stream = stub->Watch(&context, WatchRequest());
  Members said;
  while (stream->Read(&said)) targets_.update(said);
  const grpc::Status status = stream->Finish();
  const std::lock_guard lock(mutex_);
  call_ = nullptr;
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
    targets_.set_trouble(
        fmt::format("its keeper at {} does not answer: {}", address, status.error_message()));
}

}  // namespace bellows::pool
