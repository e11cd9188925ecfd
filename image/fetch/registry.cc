// SPDX-License-Identifier: Apache-2.0
#include "image/fetch/registry.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "common/child.h"
#include "common/own_process.h"
#include "common/text.h"
#include "image/fetch/credentials.h"
#include "image/layout/manifest.h"
#include "launcher/base/program_output.h"

namespace bellows::image {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSkopeo = "skopeo";
constexpr const char* kTrust = "/etc/containers/policy.json";
constexpr std::size_t kMostSaid = 65536;
constexpr std::size_t kMostNetrc = std::size_t{1} << 20;
constexpr int kLookMs = 200;
constexpr std::uint64_t kLeastRate = 1024;  // bytes a second, below which nobody waits for an image

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Where enroot has it.
std::string credentials_path() {
  if (const auto path = variable("ENROOT_CONFIG_PATH"); !path.empty())
    return path + "/.credentials";
  const auto config = variable("XDG_CONFIG_HOME");
  return (config.empty() ? variable("HOME") + "/.config" : config) + "/enroot/.credentials";
}

/// The sentence in a line of skopeo's log, such as `level=fatal msg="..."`.
std::string reason_in(const std::string& said) {
  const auto begin = said.rfind("msg=\"");
  if (begin == std::string::npos) return one_line(trim(said), 400);
  std::string text;
  for (auto i = begin + 5; i < said.size() && said[i] != '"'; ++i) {
    if (said[i] == '\\' && i + 1 < said.size()) ++i;
    text += said[i];
  }
  // It repeats the image's name, which the sentence has.
  constexpr std::string_view kParsing = "Error parsing image name \"";
  if (text.starts_with(kParsing))
    if (const auto end = text.find("\": ", kParsing.size()); end != text.npos)
      text.erase(0, end + 3);
  return one_line(text, 400);
}

std::uint64_t bytes_in(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator files(directory, error);
  for (const std::filesystem::recursive_directory_iterator end; !error && files != end;
       files.increment(error)) {
    std::error_code gone;
    if (const auto size = files->file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

/// What a program said; what is too much of it is lost.
void drain(int fd, std::string& text) {
  std::array<char, 4096> buffer{};
  ssize_t n;
  while ((n = ::read(fd, buffer.data(), buffer.size())) > 0)
    if (text.size() < kMostSaid) text.append(buffer.data(), static_cast<std::size_t>(n));
}

std::vector<std::string> environment_for(const std::string& scratch) {
  std::vector<std::string> variables = own_environment();
  std::erase_if(variables, [](const std::string& entry) { return entry.starts_with("TMPDIR="); });
  variables.push_back("TMPDIR=" + scratch);
  return variables;
}

}  // namespace

Result<Registry> Registry::open(const container::ImageReference& reference, FetchOptions options) {
  Registry registry(reference, std::move(options));
  if (auto status = registry.write_login(); !status) return status.error();
  return registry;
}

/// In memory, so that nothing is left of it however this process ends.
Status Registry::write_login() {
  const auto netrc = read_file(credentials_path(), kMostNetrc);
  if (!netrc) return {};
  const auto login = find_login(*netrc, reference_);
  if (!login || !*login) return login ? Status() : Status(login.error());
  const auto text = auth_file_text(reference_.registry, **login);
  if (!text) return text.error();
  login_.reset(::memfd_create("login", MFD_CLOEXEC));
  if (!login_) return errno_error("make", "memory for credentials");
  return write_all(login_.get(), *text, "memory for credentials");
}

std::vector<std::string> Registry::command(const char* verb) const {
  std::vector<std::string> words = {kSkopeo};
  if (::access(kTrust, R_OK) != 0) words.emplace_back("--insecure-policy");
  words.emplace_back(verb);
  if (login_) {
    words.emplace_back("--authfile");
    words.push_back(fmt::format("/proc/{}/fd/{}", ::getpid(), login_.get()));
  }
  return words;
}

Error Registry::stalled(std::uint64_t bytes) const {
  const std::string sent =
      bytes == 0 ? fmt::format("nothing for {} s", options_.stall_seconds)
                 : fmt::format("no more than {} bytes in {} s", bytes, options_.stall_seconds);
  return {ErrorKind::unavailable,
          fmt::format("the registry {} has sent {}; import the image again later, "
                      "and what came is not fetched twice",
                      reference_.registry, sent)};
}

Error Registry::failure(const std::string& said) const {
  const std::string reason = reason_in(said);
  const auto has = [&reason](const char* words) { return reason.find(words) != reason.npos; };
  const bool refused = has("unauthorized") || has("authentication required") || has("denied");
  std::string hint = "look at the image's name and at the registry";
  if (refused)
    hint =
        "is the name right, and are there credentials in ~/.config/enroot/.credentials or those "
        "of podman login?";
  return {refused ? ErrorKind::denied : ErrorKind::unavailable,
          fmt::format("failed to import docker image: {}: {}; {}", reference_.brief(),
                      reason.empty() ? "skopeo says nothing about it" : reason, hint)};
}

Result<std::string> Registry::read_manifest() const {
  auto words = command("inspect");
  words.emplace_back("--raw");
  words.push_back(reference_.place());
  const auto output = output_of(words, std::chrono::seconds(options_.stall_seconds), kMostJson);
  if (!output && output.error().kind == ErrorKind::busy) return stalled(0);
  if (!output && output.error().kind == ErrorKind::not_found)
    return Error{ErrorKind::not_found,
                 "images are fetched by skopeo, which is not installed here; tell the "
                 "administrator"};
  if (!output) return output.error();
  if (!output->exit.ok()) return failure(output->err);
  return output->out;
}

Status Registry::copy(const std::string& digest, const std::string& layout) const {
  container::ImageReference pinned = reference_;
  pinned.digest = digest;
  ChildOptions options;
  options.command = command("copy");
  options.command.push_back(pinned.place());
  options.command.push_back("oci:" + layout + ":image");
  options.environment = environment_for(layout);
  options.pipe_out = options.pipe_err = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  std::string out;
  std::string said;
  // When there was enough for the last time, and how much.
  std::uint64_t before = bytes_in(layout);
  auto last = Clock::now();
  while (!child->poll_exit()) {
    // Its ends of the pipes close when it ends.
    pollfd pipes[] = {{child->err(), POLLIN, 0}};
    ::poll(pipes, 1, kLookMs);
    drain(child->out(), out);
    drain(child->err(), said);
    const std::uint64_t now = bytes_in(layout);
    if (now > options_.most_bytes)
      return Error{ErrorKind::invalid,
                   fmt::format("the image {} has more than {} bytes, the most that is allowed",
                               reference_.place(), options_.most_bytes)};
    if (now < before || now - before >= kLeastRate * options_.stall_seconds) {
      before = now;
      last = Clock::now();
    }
    if (options_.progress) options_.progress(now);
    if (Clock::now() - last > std::chrono::seconds(options_.stall_seconds))
      return stalled(now - before);
  }
  drain(child->err(), said);
  return child->poll_exit()->ok() ? Status() : failure(said);
}

}  // namespace bellows::image
