// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/desk.h"

#include <grpcpp/server_builder.h>

#include <utility>

#include "pool/keeper/caller_line.h"
#include "pool/keeper/member_line.h"

namespace bellows::pool {
namespace {

constexpr int kMostBytes = 256 * 1024;
/// Calls that are under way when the keeper ends.
constexpr std::chrono::milliseconds kEndsWithin{500};

grpc::Status status_of(const Error& error) {
  const bool is_wrong = error.kind == ErrorKind::invalid || error.kind == ErrorKind::not_found;
  return {is_wrong ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::FAILED_PRECONDITION,
          error.text};
}

class OpenDesk final : public Desk, private Keeper::CallbackService {
 public:
  explicit OpenDesk(DeskKeeper& keeper) : keeper_(keeper) {}
  ~OpenDesk() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kEndsWithin);
  }

  Status listen(const PoolKey& key) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("0.0.0.0:0", server_credentials(key), &port_);
    builder.SetMaxReceiveMessageSize(kMostBytes);
    // Agents and callers ask whether the connection stands.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      return Error{ErrorKind::unavailable, "the keeper can't listen on any port of this node"};
    return {};
  }

  std::uint16_t port() const override { return static_cast<std::uint16_t>(port_); }

  void publish(const std::shared_ptr<const Members>& members) override {
    const std::lock_guard lock(mutex_);
    newest_ = members;
    for (CallerLine* line : callers_) line->publish(members);
  }

  void tell(std::uint32_t job, const Order& order) override {
    const std::lock_guard lock(mutex_);
    for (MemberLine* line : members_)
      if (line->job() == job) line->tell(order);
  }

 private:
  grpc::ServerBidiReactor<Report, Order>* Attend(grpc::CallbackServerContext*) override {
    auto line = std::make_unique<MemberLine>(keeper_, [this](MemberLine* over) {
      const std::lock_guard lock(mutex_);
      members_.erase(over);
      delete over;
    });
    const std::lock_guard lock(mutex_);
    return *members_.insert(line.release()).first;
  }

  grpc::ServerWriteReactor<Members>* Watch(grpc::CallbackServerContext*,
                                           const WatchRequest*) override {
    auto line = std::make_unique<CallerLine>([this](CallerLine* over) {
      const std::lock_guard lock(mutex_);
      callers_.erase(over);
      delete over;
    });
    const std::lock_guard lock(mutex_);
    if (newest_) line->publish(newest_);
    return *callers_.insert(line.release()).first;
  }

  grpc::ServerUnaryReactor* Show(grpc::CallbackServerContext* context, const ShowRequest*,
                                 Pool* pool) override {
    *pool = keeper_.show();
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context,
                                   const ChangeRequest* request, Pool* pool) override {
    auto changed = keeper_.change(*request);
    if (changed) *pool = std::move(*changed);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(changed ? grpc::Status::OK : status_of(changed.error()));
    return reactor;
  }

  DeskKeeper& keeper_;
  int port_ = 0;
  std::mutex mutex_;  ///< of all below but the server
  std::set<MemberLine*> members_;
  std::set<CallerLine*> callers_;
  std::shared_ptr<const Members> newest_;
  /// Last: its end waits for the lines, which need what is above.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<Desk>> Desk::open(DeskKeeper& keeper, const PoolKey& key) {
  auto desk = std::make_unique<OpenDesk>(keeper);
  if (const Status listening = desk->listen(key); !listening) return listening.error();
  return std::unique_ptr<Desk>(std::move(desk));
}

}  // namespace bellows::pool
