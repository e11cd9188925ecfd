// SPDX-License-Identifier: Apache-2.0
#include "spank/container/save_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "common/child.h"
#include "common/fd.h"
#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostSaid = 256U << 10;
constexpr std::size_t kMostName = 160;  // of 255 bytes, with what is added
constexpr unsigned kMostProcessors = 16;
/// The program opens the file once more, and by a name would follow what stands there by then.
constexpr const char* kInput = "/proc/self/fd/0";
constexpr const char* kHint = "name a file in a directory that you may write to";

struct Target {
  std::string directory;
  std::string name;

  std::string path() const { return directory + "/" + name; }
  std::string temporary(const std::string& tag) const {
    return fmt::format("{}/.{}.{}.saving", directory, name.substr(0, kMostName), tag);
  }
};

Error refused(const std::string& path, std::string_view why) {
  return {ErrorKind::denied,
          fmt::format("cannot save the container to {}: {}; {}", path, why, kHint)};
}

Error refused_by_errno(const std::string& path) {
  Error error = errno_error("save the container to", path);
  error.text += fmt::format("; {}", kHint);
  return error;
}

Target split_path(const std::string& path) {
  const auto slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

Result<Target> find_target(const std::string& path) {
  std::array<char, PATH_MAX> real{};
  if (::realpath(path.c_str(), real.data()) != nullptr) {
    struct stat info {};
    if (::stat(real.data(), &info) != 0) return refused_by_errno(path);
    if (!S_ISREG(info.st_mode)) return refused(path, "it is there and is no file");
    return split_path(real.data());
  }
  if (errno != ENOENT) return refused_by_errno(path);
  Target target = split_path(path);
  const std::string& directory = target.directory.empty() ? "/" : target.directory;
  if (::realpath(directory.c_str(), real.data()) == nullptr) return refused_by_errno(path);
  target.directory = std::string_view(real.data()) == "/" ? "" : real.data();
  return target;
}

Status check_directory(const Target& target, const std::string& path) {
  const std::string directory = target.directory + "/";
  return ::access(directory.c_str(), W_OK | X_OK) == 0 ? Status() : refused_by_errno(path);
}

std::vector<std::string> command_for(const SaveFile& file) {
  const unsigned processors = std::clamp(file.processors, 1U, kMostProcessors);
  return {file.program,
          ".",
          kInput,
          "-noappend",
          "-all-root",
          "-no-progress",
          "-quiet",
          "-comp",
          "zstd",
          "-Xcompression-level",
          "1",
          "-mem",
          "128M",
          "-processors",
          std::to_string(processors)};
}

/// What it said on standard error; empty with `ended` ok: nothing is wrong.
Result<std::string> run_program(const SaveFile& file, const Fd& temporary, ChildExit& ended) {
  ChildOptions options;
  options.command = command_for(file);
  options.in_fd = temporary.get();
  options.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  options.pipe_err = true;
  options.death_signal = SIGKILL;
  auto child = Child::start(options);
  if (!child) return child.error();
  std::string said;
  std::array<char, 4096> buffer{};
  for (bool more = true; more;) {
    pollfd pipe = {child->err(), POLLIN, 0};
    ::poll(&pipe, 1, 1000);
    const ssize_t n = ::read(child->err(), buffer.data(), buffer.size());
    more = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (n > 0 && said.size() < kMostSaid) said.append(buffer.data(), static_cast<std::size_t>(n));
  }
  while (!child->poll_exit()) ::poll(nullptr, 0, 1);
  ended = *child->poll_exit();
  return said;
}

/// Of what mksquashfs says of a failure, the line that says why: the first of the last two.
std::string reason_in(std::string_view said, const ChildExit& ended) {
  std::string reason;
  for (const auto line : split(said, '\n'))
    if (line.find("No space left") != std::string_view::npos ||
        line.find("Disk quota") != std::string_view::npos ||
        (line.find("FATAL ERROR") != std::string_view::npos && reason.empty()))
      reason = one_line(line, 256);
  return reason.empty() ? "mksquashfs " + ended.to_string() : reason;
}

/// How many files and directories it could not read.
std::size_t count_unread(std::string_view said) {
  std::size_t unread = 0;
  for (const auto line : split(said, '\n'))
    if (line.find("creating empty file") != std::string_view::npos ||
        line.find("skipping") != std::string_view::npos)
      ++unread;
  return unread;
}

Result<std::string> write_to(const std::string& temporary, int root, const SaveFile& file) {
  const Fd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return refused_by_errno(file.path);
  if (::fchdir(root) != 0) return errno_error("go to", "the container's root");
  ChildExit ended;
  const auto said = run_program(file, fd, ended);
  if (!said) return said.error();
  if (!ended.ok())
    return Error{ErrorKind::unavailable, fmt::format("cannot save the container to {}: {}",
                                                     file.path, reason_in(*said, ended))};
  struct stat info {};
  if (::fsync(fd.get()) != 0 || ::fstat(fd.get(), &info) != 0)
    return errno_error("save the container to", file.path);
  struct stat named {};
  if (::lstat(temporary.c_str(), &named) != 0 || named.st_dev != info.st_dev ||
      named.st_ino != info.st_ino)
    return refused(file.path, "another file was put in the place of the one that was written");
  std::string text = fmt::format("the container is saved to {} ({} MiB)", file.path,
                                 (info.st_size + (1 << 20) - 1) >> 20);
  if (const auto unread = count_unread(*said); unread > 0)
    text += fmt::format(
        ", without {} files or directories that only others may read, which are empty or left out",
        unread);
  return text;
}

}  // namespace

Status check_save(const SaveFile& file) {
  if (file.program.empty())
    return Error{ErrorKind::denied,
                 "this site saves no containers (mksquashfs=no in plugstack.conf); leave out "
                 "--container-save"};
  if (::access(file.program.c_str(), X_OK) != 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("cannot save the container, since this node has no {}; ask the "
                             "administrator to install squashfs-tools, or leave out "
                             "--container-save",
                             file.program)};
  const auto target = find_target(file.path);
  return target ? check_directory(*target, file.path) : Status(target.error());
}

Result<std::string> write_save(int root, const SaveFile& file) {
  if (auto status = check_save(file); !status.ok()) return status.error();
  const auto target = find_target(file.path);
  if (!target) return target.error();
  const std::string temporary = target->temporary(file.tag);
  ::unlink(temporary.c_str());
  auto text = write_to(temporary, root, file);
  if (text && ::rename(temporary.c_str(), target->path().c_str()) != 0)
    text = errno_error("save the container to", file.path);
  if (!text) ::unlink(temporary.c_str());
  return text;
}

void forget_save(const SaveFile& file) {
  if (const auto target = find_target(file.path)) ::unlink(target->temporary(file.tag).c_str());
}

}  // namespace bellows::container
