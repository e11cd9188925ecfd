// SPDX-License-Identifier: Apache-2.0
#include "spank/container/squashfs_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/directory.h"
#include "spank/container/capabilities.h"
#include "spank/container/idmap.h"
#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

/// The server's descriptors, after the three that each program has.
constexpr int kFuse = 3;
constexpr int kFile = 4;
constexpr int kFree = 16;  ///< above all of them

/// What the server is given.
struct Given {
  Fd fuse;
  Fd file;
  Fd log;
  Fd null;
};

/// A connection, and its file system.
using Connected = std::pair<Fd, Fd>;

Result<Fd> open_fuse() {
  auto fuse = open_file("/dev/fuse", O_RDWR);
  if (fuse) return fuse;
  return Error{
      ErrorKind::unavailable,
      fuse.error().text + "; ask the administrator to load the kernel's module fuse on this node"};
}

/// As `uid` and `gid` of the caller's user namespace.
Result<Connected> connect(const std::string& path, Result<Fd> fuse, uid_t uid, gid_t gid) {
  if (!fuse) return fuse.error();
  MountFlags flags;
  flags.read_only = true;
  // Without allow_other: it is looked up by its user, or by way of an overlay that this user made.
  auto mount = new_filesystem("fuse",
                              {{"source", path},
                               {"subtype", "squashfuse"},
                               {"fd", std::to_string(fuse->get())},
                               {"rootmode", "40000"},
                               {"user_id", std::to_string(uid)},
                               {"group_id", std::to_string(gid)}},
                              flags);
  if (!mount) return mount.error();
  return Connected(*std::move(fuse), *std::move(mount));
}

/// The image's files that belong to root appear as the caller's.
Result<Connected> connect_as_root(const std::string& path) {
  const auto user = root_is(::getuid(), ::getgid());
  if (!user) return user.error();
  return opened_in(*user, [&] { return connect(path, open_fuse(), 0, 0); });
}

Result<Connected> connect_as_caller(const std::string& path) {
  auto fuse = Result<Fd>(Fd());
  {
    // On some nodes it is root's alone.
    const auto raised = Raised::raise(CAP_DAC_OVERRIDE);
    if (!raised) return raised.error();
    fuse = open_fuse();
  }
  return connect(path, std::move(fuse), ::getuid(), ::getgid());
}

/// Out of the way of the numbers that the server's will have.
bool move_up(Fd& fd) {
  fd.reset(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFree));
  return static_cast<bool>(fd);
}

Result<Given> open_given(const Image& image, Fd fuse) {
  auto file = read_image(image);
  if (!file) return file.error();
  auto null = open_file("/dev/null", O_RDWR);
  if (!null) return null.error();
  Given given{std::move(fuse), *std::move(file), Fd(::memfd_create("said", MFD_CLOEXEC)),
              *std::move(null)};
  for (Fd* fd : {&given.fuse, &given.file, &given.log, &given.null})
    if (!*fd || !move_up(*fd)) return errno_error("open what is needed for", "the image's server");
  return given;
}

[[noreturn]] void fail(const Given& given, const char* what) {
  ::dprintf(given.log.get(), "%s: %s", what, std::strerror(errno));
  ::_exit(1);
}

/// The caller's task may be bound to one CPU; what its server may have is what the job has.
void use_all_cpus() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  (void)::sched_setaffinity(0, sizeof all, &all);
}

[[noreturn]] void become_server(const Given& given, const std::string& program,
                                const JobCgroup& home) {
  if (home && !home.enter()) fail(given, "it can't leave its step");
  use_all_cpus();
  sigset_t all;
  ::sigfillset(&all);
  if (::sigprocmask(SIG_SETMASK, &all, nullptr) != 0 || ::setsid() < 0 || ::chdir("/") != 0)
    fail(given, "it can't be set apart");
  if (const Status status = drop_all(true); !status.ok())
    fail(given, "it can't be made the user's");
  if (::dup2(given.null.get(), 0) < 0 || ::dup2(given.null.get(), 1) < 0 ||
      ::dup2(given.log.get(), 2) < 0 || ::dup2(given.fuse.get(), kFuse) < 0 ||
      ::dup2(given.file.get(), kFile) < 0 ||
      ::close_range(kFile + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
    fail(given, "it can't be given its files");
  const std::string file = fmt::format("/dev/fd/{}", kFile);
  // libfuse's name for a file system that is mounted already.
  const std::string target = fmt::format("/dev/fd/{}", kFuse);
  const char* const words[] = {"squashfuse_ll", "-f", file.c_str(), target.c_str(), nullptr};
  const char* const environment[] = {"PATH=/usr/bin:/bin", nullptr};
  ::execve(program.c_str(), const_cast<char**>(words), const_cast<char**>(environment));
  fail(given, program.c_str());
}

/// By way of a child that ends at once: the program that the task becomes must not find a child
/// that it did not start.
Status start(const Given& given, const std::string& program, const JobCgroup& home) {
  const pid_t between = ::fork();
  if (between == 0) {
    const pid_t server = ::fork();
    if (server == 0) become_server(given, program, home);
    ::_exit(server < 0 ? 1 : 0);
  }
  int status = 1;
  while (between > 0 && ::waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return {};
  return Error{ErrorKind::unavailable, "cannot start the image's server: no more processes"};
}

/// The user's program wrote it.
std::string said(const Fd& log) {
  std::array<char, 400> text{};
  const ssize_t n = ::pread(log.get(), text.data(), text.size(), 0);
  std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, ' ');
  return line;
}

/// Of what a server makes of a file, much may be wrong without being an error to those who look.
Status read_root(int mount) {
  const Directory root =
      read_directory(Fd(::openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  errno = root ? 0 : errno;
  if (root && ::readdir(root.get()) != nullptr) return {};
  return errno_error("read", "its root directory");
}

Status check_program(const Image& image, const std::string& program) {
  if (::access(program.c_str(), X_OK) == 0) return {};
  return Error{ErrorKind::unavailable,
               fmt::format("{} is none of the site's images, so {} would have to read it, and this "
                           "node has no such program; ask the administrator to install squashfuse, "
                           "or use a directory as the image",
                           image.path, program)};
}

/// By a server that answers.
Result<Fd> serve(Connected connected, const Image& image, const std::string& program,
                 const JobCgroup& home) {
  auto& [fuse, mount] = connected;
  auto given = open_given(image, std::move(fuse));
  if (!given) return given.error();
  if (auto status = start(*given, program, home); !status.ok()) return status.error();
  // With a copy here, the end of the server would not be the end of the connection.
  given->fuse.reset();
  const Status status = read_root(mount.get());
  if (status.ok() && is_served(mount.get())) return std::move(mount);
  std::string why = said(given->log);
  if (why.empty() && !status.ok()) why = status.error().text;
  return Error{ErrorKind::corrupt,
               fmt::format("{} cannot be read as a squashfs: {}", image.path, why)};
}

}  // namespace

bool is_served(int root) {
  struct statfs info {};
  return ::fstatfs(root, &info) == 0 && info.f_type == FUSE_SUPER_MAGIC;
}

Result<Fd> serve_squashfs(const Image& image, const std::string& program, const JobCgroup& home) {
  if (auto status = check_program(image, program); !status.ok()) return status.error();
  if (auto connected = connect_as_root(image.path)) {
    auto mount = serve(*std::move(connected), image, program, home);
    // Of an image that its user wrote as such, everything would be nobody's.
    if (!mount || is_callers(mount->get())) return mount;
  }
  auto connected = connect_as_caller(image.path);
  if (!connected) return connected.error();
  return serve(*std::move(connected), image, program, home);
}

}  // namespace bellows::container
