// SPDX-License-Identifier: Apache-2.0
#include "pool/member/keeper_line.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <sys/eventfd.h>

#include <condition_variable>
#include <utility>

#include "pool/wire/pool_place.h"

namespace bellows::pool {

/// Between gRPC's threads and the agent's.
struct KeeperLine::Shared {
  explicit Shared(int bell_fd) : bell(bell_fd) {}
  void ring() const { eventfd_write(bell, 1); }

  const int bell;
  std::mutex mutex;
  std::optional<Order> order;
  std::optional<std::string> trouble;
};

/// One connection. It lives until gRPC says that it is over.
class KeeperLine::Call final : public grpc::ClientBidiReactor<Report, Order> {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)), stub_(Keeper::NewStub(channel)) {
    stub_->async()->Attend(&context_, this);
    StartRead(&order_);
    // Reports are sent from outside the callbacks.
    AddHold();
    StartCall();
  }
  ~Call() override {
    end();
    std::unique_lock lock(mutex_);
    over_changed_.wait(lock, [this] { return over_; });
  }

  void send(const Report& report) {
    const std::lock_guard lock(mutex_);
    next_ = report;
    write_next();
  }

  bool is_over() {
    const std::lock_guard lock(mutex_);
    return failed_ || over_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return fail();
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->order = order_;
    }
    shared_->ring();
    StartRead(&order_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return fail();
    const std::lock_guard lock(mutex_);
    writes_ = false;
    write_next();
  }

  void OnDone(const grpc::Status& status) override {
    {
      const std::lock_guard lock(shared_->mutex);
      if (!status.ok()) shared_->trouble = status.error_message();
    }
    shared_->ring();
    const std::lock_guard lock(mutex_);
    over_ = true;
    over_changed_.notify_all();
  }

 private:
  void write_next() {
    if (writes_ || failed_ || !held_ || !next_) return;
    report_ = std::move(*std::exchange(next_, std::nullopt));
    writes_ = true;
    StartWrite(&report_);
  }

  void fail() {
    {
      const std::lock_guard lock(mutex_);
      failed_ = true;
    }
    end();
  }

  void end() {
    context_.TryCancel();
    const std::lock_guard lock(mutex_);
    if (std::exchange(held_, false)) RemoveHold();
  }

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<Keeper::Stub> stub_;
  grpc::ClientContext context_;
  Order order_;
  std::mutex mutex_;  ///< of all below
  std::condition_variable over_changed_;
  std::optional<Report> next_;
  Report report_;
  bool writes_ = false;
  bool held_ = true;
  bool failed_ = false;
  bool over_ = false;
};

KeeperLine::KeeperLine(std::string dir, PoolKey key) : dir_(std::move(dir)), key_(std::move(key)) {}

Result<std::unique_ptr<KeeperLine>> KeeperLine::open(std::string dir, const PoolKey& key) {
  std::unique_ptr<KeeperLine> line(new KeeperLine(std::move(dir), key));
  line->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!line->bell_) return errno_error("make", "an eventfd");
  line->shared_ = std::make_shared<Shared>(line->bell_.get());
  return line;
}

KeeperLine::~KeeperLine() = default;

/// A keeper that was started again has another address. None follows one of an earlier term.
bool KeeperLine::connect() {
  const auto place = read_keeper(dir_);
  if (!place) {
    const std::lock_guard lock(shared_->mutex);
    shared_->trouble = place.error().text;
    return false;
  }
  if (place->term < term_) {
    // It was cut off, and knows nothing of the later one yet.
    const std::lock_guard lock(shared_->mutex);
    shared_->trouble = "a keeper of before has said that it has the pool";
    return false;
  }
  term_ = place->term;
  if (!channel_ || place->address() != address_) {
    address_ = place->address();
    channel_ = open_channel(address_, key_);
  }
  call_ = std::make_unique<Call>(channel_, shared_);
  return true;
}

void KeeperLine::send(const Report& report) {
  if (call_ && call_->is_over()) call_.reset();
  if (!call_ && !connect()) return;
  call_->send(report);
}

std::optional<Order> KeeperLine::take_order() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->order, std::nullopt);
}

std::optional<std::string> KeeperLine::take_trouble() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->trouble, std::nullopt);
}

}  // namespace bellows::pool
