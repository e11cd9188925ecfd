// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/server.h"

#include <fmt/core.h>
#include <httplib.h>
#include <sys/socket.h>

#include <utility>

#include "elastic/daemon/connections.h"

namespace bellows {
namespace {

/// A connection holds one of them until it is done, or has sent nothing for kSlowest.
constexpr std::size_t kThreads = 32;
constexpr time_t kSlowest = 2;
/// From when it was accepted, also while it waits for a thread.
constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(5);
/// Connections that the kernel keeps while all threads are busy; httplib's own five are too few for
/// launchers that start together.
constexpr int kBacklog = 1024;

int http_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::denied:
      return 403;
    case ErrorKind::not_found:
      return 404;
    case ErrorKind::unavailable:
      return 503;
    default:
      return 400;
  }
}

void refuse(httplib::Response& response, const Error& error) {
  response.status = http_status(error.kind);
  response.set_content(error.text + "\n", "text/plain");
}

}  // namespace

ControllerServer::ControllerServer(Munge munge, const Parts& parts)
    : munge_(std::move(munge)), parts_(parts), server_(std::make_unique<httplib::Server>()) {
  server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // Not SO_REUSEPORT, which httplib would set: two bellowsd would share one port.
  server_->set_socket_options([this](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    socket_ = socket;
  });
  server_->set_payload_max_length(kMostBody);
  server_->set_read_timeout(kSlowest);
  server_->set_write_timeout(kSlowest);
  server_->set_keep_alive_max_count(1);
  serve(Call::report);
  serve(Call::plan);
  serve(Call::service);
  server_->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(parts_.metrics.text(), "text/plain; version=0.0.4");
  });
}

ControllerServer::~ControllerServer() {
  server_->stop();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(ending_mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  if (slow_ender_.joinable()) slow_ender_.join();
}

void ControllerServer::end_slow(std::uint16_t port) {
  Connections connections(port, kLongest);
  std::unique_lock lock(ending_mutex_);
  while (!ending_.wait_for(lock, kLongest / 10, [this] { return ends_; }))
    parts_.metrics.slow.Increment(connections.end_old(Connections::Clock::now()));
}

void ControllerServer::serve(Call call) {
  server_->Post(
      path_of(call), [this, call](const httplib::Request& request, httplib::Response& response) {
        if (!active_) return refuse(response, {ErrorKind::unavailable, "this bellowsd stands by"});
        auto asked = open_question(munge_, call, request.body);
        auto body = asked ? answer(call, *asked) : Result<std::string>(asked.error());
        auto sealed = body ? seal_answer(munge_, *asked, *body) : Result<std::string>(body.error());
        if (sealed) return response.set_content(*sealed, "text/plain");
        parts_.metrics.refused.Increment();
        refuse(response, sealed.error());
      });
}

Result<std::string> ControllerServer::answer(Call call, const Asked& asked) {
  if (call == Call::plan) return parts_.board.text();
  if (call == Call::service) return answer_service(asked);
  auto report = parse_report(asked.body);
  if (!report) return report.error();
  auto reply = parts_.book.take(*report, asked.uid, JobBook::Clock::now());
  if (!reply) return reply.error();
  parts_.metrics.reports.Increment();
  return to_json(*reply);
}

Result<std::string> ControllerServer::answer_service(const Asked& asked) {
  auto report = parse_service_report(asked.body);
  if (!report) return report.error();
  auto reply = parts_.services.take(*report, asked.uid, ServiceBook::Clock::now());
  if (!reply) return reply.error();
  return to_json(*reply);
}

Status ControllerServer::listen(const HostPort& at) {
  if (!server_->bind_to_port(at.host, at.port))
    return Error{ErrorKind::busy,
                 fmt::format("cannot listen on {}:{}; does something else, perhaps "
                             "another bellowsd?",
                             at.host, at.port)};
  ::listen(socket_, kBacklog);
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  slow_ender_ = std::thread([this, at] { end_slow(at.port); });
  // A stop before that would not be noticed.
  while (!server_->is_running()) std::this_thread::yield();
  return {};
}

}  // namespace bellows
