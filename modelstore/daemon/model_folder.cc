// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/model_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/fd.h"
#include "common/text.h"
#include "modelstore/loader/user_rights.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kFileEnd = ".safetensors";
/// The process ends with the kind of its error behind this, and writes why; else it writes the
/// models' names, each with that of its file.
constexpr int kFirstError = 2;
constexpr std::size_t kMostText = 64 << 20;

/// What the models of a folder are called; nothing for what is none.
std::string name_of(const fs::directory_entry& entry) {
  std::error_code failed;
  const std::string name = entry.path().filename();
  if (entry.is_directory(failed)) return name;
  if (!name.ends_with(kFileEnd)) return "";
  return name.substr(0, name.size() - kFileEnd.size());
}

/// In the process that may hang.
Result<std::string> look(const std::string& path, uid_t uid) {
  const auto rights = UserRights::take(uid);
  if (!rights) return rights.error();
  // The first by their names, and one that says that there are more: each time the same.
  std::set<std::pair<std::string, std::string>> found;
  std::error_code failed;
  fs::directory_iterator entry(path, failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = name_of(*entry);
    if (modelwire::is_model_name(name.data(), name.size()))
      found.emplace(name, entry->path().filename());
    if (found.size() > kMostOfFolder + 1) found.erase(std::prev(found.end()));
  }
  if (failed) return Error{ErrorKind::unavailable, failed.message()};
  std::string text;
  for (const auto& [name, file] : found) text += name + '\0' + file + '\0';
  return text;
}

[[noreturn]] void tell(int fd, const std::string& path, uid_t uid) {
  const auto names = look(path, uid);
  const std::string& text = names ? *names : names.error().text;
  if (!write_all(fd, text, "bellows-modeld")) _exit(1);
  _exit(names ? 0 : kFirstError + static_cast<int>(names.error().kind));
}

/// All that it writes until it ends. Nothing: it did not in time.
std::optional<std::string> read_all(int fd, Clock::time_point deadline) {
  std::string text;
  char chunk[65536];
  while (text.size() < kMostText) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p = {fd, POLLIN, 0};
    const int ready = left > 0 ? poll(&p, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t got = read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return std::nullopt;
}

FolderModels options_of(const std::string& text, const ModelOption& folder) {
  FolderModels found;
  const auto words = split(text, '\0');
  found.has_more = words.size() / 2 > kMostOfFolder;
  for (std::size_t i = 0; i + 1 < words.size() && i / 2 < kMostOfFolder; i += 2) {
    const std::string word(words[i]), file(words[i + 1]);
    const std::string name = folder.name.empty() ? word : folder.name + "/" + word;
    if (!modelwire::is_model_name(name.data(), name.size())) continue;
    found.models.push_back({folder.tenant,
                            name,
                            {fs::path(folder.from.path) / file, folder.from.uid, {}},
                            folder.visible});
  }
  return found;
}

}  // namespace

Result<FolderModels> models_in_folder(const ModelOption& folder, std::chrono::milliseconds limit) {
  const std::string& path = folder.from.path;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return errno_error("make a pipe for", path);
  Fd in(ends[0]), out(ends[1]);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return errno_error("start a process for", path);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    tell(out.get(), path, folder.from.uid);
  }
  out.reset();
  const auto text = read_all(in.get(), Clock::now() + limit);
  if (!text) {
    // One that waits for a dead file system survives this, and nobody waits for it.
    kill(child, SIGKILL);
    return Error{ErrorKind::unavailable, fmt::format("cannot read {} in time", path)};
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 1)
    return Error{ErrorKind::unavailable, fmt::format("the process that reads {} died", path)};
  if (WEXITSTATUS(status) >= kFirstError)
    return Error{static_cast<ErrorKind>(WEXITSTATUS(status) - kFirstError),
                 fmt::format("cannot read {}: {}", path, *text)};
  return options_of(*text, folder);
}

}  // namespace bellows
