// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/controller_address.h"
#include "common/result.h"
#include "elastic/daemon/controller.h"
#include "elastic/wire/envelope.h"

namespace httplib {
class Server;
}

namespace bellows {

/// bellowsd's door: takes sealed calls over HTTP in threads of its own and answers them from the
/// book and the board. GET /metrics is open to everybody, and says nothing of single jobs.
class ControllerServer {
 public:
  struct Parts {
    JobBook& book;
    ServiceBook& services;
    PlanBoard& board;
    Metrics& metrics;
  };

  /// All parts must outlive it.
  ControllerServer(Munge munge, const Parts& parts);
  /// Stops listening and joins the threads.
  ~ControllerServer();
  ControllerServer(const ControllerServer&) = delete;
  ControllerServer& operator=(const ControllerServer&) = delete;

  /// busy: something else listens there.
  Status listen(const HostPort& at);
  /// Until then every call is answered by 503: another bellowsd decides.
  void set_active(bool active) { active_ = active; }

 private:
  void serve(Call call);
  /// The JSON to answer.
  Result<std::string> answer(Call call, const Asked& asked);
  Result<std::string> answer_service(const Asked& asked);
  void end_slow(std::uint16_t port);

  Munge munge_;
  Parts parts_;
  std::atomic<bool> active_ = false;
  std::unique_ptr<httplib::Server> server_;
  int socket_ = -1;  ///< server_'s
  std::thread thread_;
  std::mutex ending_mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread slow_ender_;
};

}  // namespace bellows
