// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/program_output.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "common/own_process.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 20;

/// Appends what is there. False when no more will come.
bool drain(int fd, std::string& text, std::size_t most_bytes) {
  std::array<char, 65536> buffer;
  while (text.size() <= most_bytes) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace

Result<ProgramOutput> output_of(const std::vector<std::string>& command,
                                std::chrono::milliseconds limit, std::size_t most_bytes,
                                std::vector<std::string> environment) {
  ChildOptions options;
  options.command = command;
  options.environment = environment.empty() ? own_environment() : std::move(environment);
  options.pipe_out = options.pipe_err = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  const Clock::time_point deadline = Clock::now() + limit;
  ProgramOutput output;
  bool out_open = true;
  bool err_open = true;
  while (out_open || err_open || !child->poll_exit()) {
    if (Clock::now() >= deadline)
      return Error{ErrorKind::busy,
                   fmt::format("{} did not end within {} s", command.front(),
                               std::chrono::duration_cast<std::chrono::seconds>(limit).count())};
    // A program that has closed both still has to end.
    pollfd fds[] = {{out_open ? child->out() : -1, POLLIN, 0},
                    {err_open ? child->err() : -1, POLLIN, 0}};
    poll(fds, 2, kPollMs);
    if (out_open) out_open = drain(child->out(), output.out, most_bytes);
    if (err_open) err_open = drain(child->err(), output.err, most_bytes);
    if (output.out.size() > most_bytes || output.err.size() > most_bytes)
      return Error{ErrorKind::invalid,
                   fmt::format("{} wrote more than {} bytes", command.front(), most_bytes)};
  }
  output.exit = *child->poll_exit();
  return output;
}

}  // namespace bellows
