// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "launcher/base/line_buffer.h"

namespace bellows {

/// The launcher's unix socket, spoken in JSON lines. Only the job's user and root get in. Never
/// blocks; the owner polls.
class ControlServer {
 public:
  struct Request {
    std::uint64_t client = 0;
    std::string line;
  };

  /// Listens on `path`, which replaces a socket that an earlier launcher left. The file goes away
  /// with the object.
  static Result<ControlServer> listen(const std::string& path);
  ControlServer(ControlServer&&) = default;
  ControlServer& operator=(ControlServer&&) = delete;
  ~ControlServer();

  void add_poll(std::vector<pollfd>& fds) const;
  /// Accepts, reads and writes what is possible now.
  std::vector<Request> serve();
  void send(std::uint64_t client, const std::string& line);

 private:
  struct Client {
    std::uint64_t id = 0;
    Fd fd;
    LineReader reader;
    LineWriter writer;
  };
  ControlServer(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  void accept_clients();

  Fd fd_;
  std::string path_;
  std::uint64_t next_ = 1;
  std::vector<Client> clients_;
};

/// Connects to a launcher's control socket.
Result<Fd> connect_control(const std::string& path);

}  // namespace bellows
