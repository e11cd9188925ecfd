// SPDX-License-Identifier: Apache-2.0
#include "spank/container/entrypoint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/child.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows::container {

namespace {

struct Needed {
  const char* path;
  int right;
};

constexpr Needed kNeeded[] = {{kEntrypoint, R_OK}, {"/bin/sh", X_OK}};
/// More than Linux lets a program start with.
constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kMostSaid = 65536;
/// Scripts choose their descriptors below, and shells do for their own purposes.
constexpr int kFirst = 100;
constexpr std::string_view kOfShells[] = {"PWD", "OLDPWD", "SHLVL", "_"};

/// As execve() wants them; of two with the same name, the later.
std::vector<std::string> entries(const Variables& variables) {
  std::map<std::string, std::string> last;
  for (const auto& [name, value] : variables) last.insert_or_assign(name, value);
  std::vector<std::string> result;
  for (const auto& [name, value] : last) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

/// A file without a name that the entrypoint and what it starts can write to: unlike a pipe, it
/// holds all that they say without a reader.
Result<Fd> make_note(const char* name) {
  const Fd any(::memfd_create(name, MFD_CLOEXEC));
  Fd note(any ? ::fcntl(any.get(), F_DUPFD, kFirst) : -1);
  if (!note) return errno_error("make", "a file in memory for the entrypoint");
  return note;
}

std::string path_of(const Fd& note) { return fmt::format("/proc/self/fd/{}", note.get()); }

/// The end of what was written to a note. By its descriptor: this process may not look into its own
/// /proc/self/fd, since it was root's before.
Result<std::string> read_note(const Fd& note, std::uint64_t most) {
  struct stat info {};
  if (::fstat(note.get(), &info) != 0) return errno_error("read", "what the entrypoint said");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::string text(std::min(size, most), '\0');
  const Status status = read_at(note.get(), reinterpret_cast<unsigned char*>(text.data()),
                                text.size(), size - text.size(), "what the entrypoint said");
  return status.ok() ? Result<std::string>(std::move(text)) : status.error();
}

/// Sleeps until it ends. Not until its descriptors are closed, which a server that it started in
/// the background keeps.
ChildExit wait_for(Child& child) {
  while (!child.poll_exit()) {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  }
  return *child.poll_exit();
}

}  // namespace

Result<bool> runs_entrypoint(const Spec& spec, const Site& site) {
  if (!spec.entrypoint.value_or(site.entrypoint)) return false;
  for (const auto& [path, right] : kNeeded) {
    if (::access(path, right) == 0) continue;
    if (!spec.entrypoint) return false;
    Error error = errno_error("run the image's entrypoint by", path);
    error.text += "; leave out --container-entrypoint, or use an image that enroot has imported";
    return error;
  }
  return true;
}

Variables entrypoint_variables(const Spec& spec, const Variables& container,
                               const VariableLookup& lookup) {
  Variables variables;
  const auto take = [&](const std::string& name) {
    if (auto value = lookup(name.c_str())) variables.emplace_back(name, *std::move(value));
  };
  for (const std::string& name : spec.env) take(name);
  if (!says(variables, "PATH")) take("PATH");
  variables.insert(variables.end(), container.begin(), container.end());
  return variables;
}

Result<Variables> run_entrypoint(const Variables& variables, EntrypointOutput output,
                                 const std::string& script) {
  const auto note = make_note("environment");
  const auto log = make_note("log");
  for (const auto* made : {&note, &log})
    if (!*made) return made->error();
  // The shell's own process, whose environment is what the entrypoint started it with, whereas the
  // shell hands on only what it understands. The exit keeps it from becoming cat.
  const std::string tell =
      fmt::format("cat /proc/$$/environ >{} || exit 1; exit 0", path_of(*note));
  ChildOptions options;
  options.command = {"/bin/sh", script, "/bin/sh", "-c", tell};
  // Not among the program's output. A file to its end: programs open /dev/stderr, which empties it.
  const std::string to =
      output == EntrypointOutput::shown ? "&2" : fmt::format(">{} 2>&1", path_of(*log));
  options.command.insert(options.command.begin() + 1,
                         {"-c", fmt::format("exec /bin/sh \"$@\" >{}", to), "sh"});
  options.environment = entries(variables);
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  const ChildExit ended = wait_for(*child);
  auto text = read_note(*note, kMostBytes);
  if (!text) return text.error();
  if (ended.ok() && !text->empty()) return parse_process_environment(*text);
  if (const auto said = read_note(*log, kMostSaid); said)
    (void)write_all(STDERR_FILENO, *said, "standard error");
  return Error{ErrorKind::unavailable,
               fmt::format("{} {} {}; correct what it reports, or leave out --container-entrypoint",
                           script, ended.to_string(),
                           ended.ok() ? "without having started a program"
                                      : "before it had started a program")};
}

Variables variables_after(const Spec& spec, const Variables& before, const Variables& after,
                          const VariableLookup& lookup) {
  Variables variables;
  for (const auto& entry : after)
    if (!keeps(spec, entry.first, lookup) &&
        std::find(std::begin(kOfShells), std::end(kOfShells), entry.first) == std::end(kOfShells))
      variables.push_back(entry);
  for (const auto& entry : before)
    if (keeps(spec, entry.first, lookup)) variables.push_back(entry);
  return variables;
}

Variables parse_process_environment(std::string_view text) {
  Variables variables;
  for (const std::string_view entry : split(text, '\0')) {
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    variables.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

}  // namespace bellows::container
