// SPDX-License-Identifier: Apache-2.0
#include "spank/container/image_import.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

#include "common/child.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostSaid = 8192;
constexpr int kLookMs = 100;
constexpr std::uint64_t kMostBudgetMib = std::uint64_t{16} << 20;  // as the importer reads sizes
constexpr std::string_view kName = "bellows image: ";
constexpr std::string_view kHandedOn[] = {"BELLOWS_IMAGE_CACHE", "DOCKER_CONFIG", "ENROOT_",
                                          "REGISTRY_AUTH_FILE",  "XDG_",          "LANG="};

bool is_proxy(std::string_view entry) {
  const std::string name = to_lower(entry.substr(0, entry.find('=')));
  return name == "http_proxy" || name == "https_proxy" || name == "no_proxy";
}

/// False when no more will come. What is too much is lost, since an importer that could not go on
/// writing would never end.
bool take(int pipe, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(pipe, buffer.data(), buffer.size());
  if (n > 0 && text.size() < kMostSaid) text.append(buffer.data(), static_cast<std::size_t>(n));
  return n != 0;
}

/// Hands on all lines but the last, which may be the reason of a failure.
void tell_but_last(std::string& text, bool tells) {
  for (;;) {
    const auto end = text.find('\n');
    if (end == std::string::npos || end + 1 == text.size()) break;
    if (tells)
      (void)write_all(STDERR_FILENO,
                      fmt::format("slurmstepd: {}\n", one_line(text.substr(0, end), 512)),
                      "standard error");
    text.erase(0, end + 1);
  }
}

/// The importer's sentence, without its name.
std::string reason_in(std::string_view last) {
  std::string_view text = trim(last);
  if (text.starts_with(kName)) text.remove_prefix(kName.size());
  return one_line(text, 1024);
}

}  // namespace

std::vector<std::string> import_environment(const std::vector<std::string>& job,
                                            const std::string& user, const std::string& home) {
  std::vector<std::string> variables = {"PATH=/usr/local/bin:/usr/bin:/bin", "USER=" + user,
                                        "HOME=" + home};
  for (const std::string& entry : job)
    if (is_proxy(entry) ||
        std::any_of(std::begin(kHandedOn), std::end(kHandedOn),
                    [&entry](std::string_view begin) { return entry.starts_with(begin); }))
      variables.push_back(entry);
  return variables;
}

Result<std::string> run_import(const ImageImport& import, const JobCgroup& home) {
  ChildOptions options;
  options.command = {import.program, "import"};
  if (!import.cache.empty()) options.command.push_back("--cache=" + import.cache);
  if (import.budget_mib > 0)
    options.command.push_back(
        fmt::format("--budget={}M", std::min(import.budget_mib, kMostBudgetMib)));
  if (import.job > 0 && home) options.command.push_back(fmt::format("--for-job={}", import.job));
  options.command.push_back(import.image);
  options.environment = import.environment;
  options.pipe_out = options.pipe_err = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  // Before it has begun to work. If it stays in the step, its lease ends with that.
  if (home) (void)home.admit(child->pid());
  std::string path;
  std::string said;
  for (bool out = true, err = true; out || err;) {
    pollfd pipes[] = {{out ? child->out() : -1, POLLIN, 0}, {err ? child->err() : -1, POLLIN, 0}};
    ::poll(pipes, 2, kLookMs);
    if (pipes[0].revents != 0) out = take(child->out(), path);
    if (pipes[1].revents != 0) err = take(child->err(), said);
    tell_but_last(said, import.tells);
  }
  while (!child->poll_exit()) ::poll(nullptr, 0, 1);
  const ChildExit ended = *child->poll_exit();
  if (!ended.ok() && !import.tells)
    return Error{ErrorKind::unavailable,
                 "the image could not be imported; the step's first task on this node says why"};
  if (!ended.ok()) {
    const std::string reason = reason_in(said);
    return Error{ErrorKind::unavailable,
                 reason.empty() ? fmt::format("bellows-image {}", ended.to_string()) : reason};
  }
  path = trim(path);
  if (path.starts_with('/') && path.size() < kMostSaid) return path;
  return Error{ErrorKind::internal, "bellows-image says no path"};
}

}  // namespace bellows::container
