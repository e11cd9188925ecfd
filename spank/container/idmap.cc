// SPDX-License-Identifier: Apache-2.0
#include "spank/container/idmap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/fd.h"
#include "spank/container/capabilities.h"

namespace bellows::container {
namespace {

/// Without it, a child would be missed by nobody, and the locks on its descriptors stay. Not before
/// it has joined a user namespace, which may take this back.
void end_with(pid_t maker) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != maker) ::_exit(1);
}

/// A child with a namespace of its own and the caller's descriptors. It only waits for its end, so
/// that the namespace can be set up. A resource.
class Holder {
 public:
  /// A user namespace or, in `user`, one with a host name. The child opens its namespace, since
  /// nobody else may look into a process with capabilities.
  explicit Holder(int user = -1) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    const Fd from(ends[0]);
    const Fd to(ends[1]);
    const pid_t maker = ::getpid();
    // No signal at its end: the caller's program has its own children.
    const int flags = CLONE_FILES | (user < 0 ? CLONE_NEWUSER : 0);
    pid_ = static_cast<pid_t>(::syscall(SYS_clone, flags, 0, 0, 0, 0));
    if (pid_ == 0) hold(to.get(), maker, user);
    if (pid_ < 0) return;
    int fd = -1;
    if (::read(from.get(), &fd, sizeof fd) == sizeof fd) space_.reset(fd);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }

  pid_t pid() const { return pid_; }
  const Fd& space() const { return space_; }

  /// The namespace, for longer than this lives.
  Result<Fd> keep() const {
    Fd space(::fcntl(space_.get(), F_DUPFD_CLOEXEC, 3));
    if (!space) return errno_error("keep", "a namespace");
    return space;
  }

 private:
  /// Only system calls: the caller is at an unknown point.
  [[noreturn]] static void hold(int to, pid_t maker, int user) {
    if (user >= 0 && (::setns(user, CLONE_NEWUSER) != 0 || ::unshare(CLONE_NEWUTS) != 0))
      ::_exit(1);
    end_with(maker);
    const char* made = user < 0 ? "/proc/self/ns/user" : "/proc/self/ns/uts";
    const int fd = ::open(made, O_RDONLY | O_CLOEXEC);
    if (::write(to, &fd, sizeof fd) != sizeof fd) ::_exit(1);
    while (true) ::pause();
  }

  pid_t pid_ = -1;
  Fd space_;
};

/// Of a child that shares its descriptors with the caller, which adopts those that it names in
/// `to`.
[[noreturn]] void open_in(int user, int to, pid_t maker,
                          const std::function<Result<std::pair<Fd, Fd>>()>& make) noexcept {
  if (::setns(user, CLONE_NEWUSER) != 0) ::_exit(1);
  end_with(maker);
  // Joining may set this to fs.suid_dumpable.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::unshare(CLONE_NEWNS) != 0) ::_exit(1);
  auto made = make();
  if (!made) ::_exit(1);
  const int fds[2] = {made->first.release(), made->second.release()};
  ::_exit(::write(to, fds, sizeof fds) == sizeof fds ? 0 : 1);
}

Status write_map(pid_t pid, const char* name, const std::string& text) {
  const std::string path = fmt::format("/proc/{}/{}", pid, name);
  // The files of a process with capabilities are root's.
  const auto raised = Raised::raise(CAP_DAC_OVERRIDE);
  if (!raised) return raised.error();
  auto fd = open_file(path, O_WRONLY);
  if (!fd) return fd.error();
  return write_all(fd->get(), text, path);
}

/// Lines of its maps: what an id is called in it, the id, and for how many this holds.
Result<Fd> make_user_namespace(const std::string& users, const std::string& groups) {
  const Holder holder;
  if (!holder.space()) return errno_error("make", "a user namespace");
  auto status = write_map(holder.pid(), "uid_map", users);
  if (status) status = write_map(holder.pid(), "setgroups", "deny");
  if (status) status = write_map(holder.pid(), "gid_map", groups);
  if (!status) return status.error();
  return holder.keep();
}

}  // namespace

Result<Fd> root_is(uid_t uid, gid_t gid) {
  return make_user_namespace(fmt::format("0 {} 1\n", uid), fmt::format("0 {} 1\n", gid));
}

Result<Fd> only_is(uid_t uid, gid_t gid) {
  return make_user_namespace(fmt::format("{0} {0} 1\n", uid), fmt::format("{0} {0} 1\n", gid));
}

Result<Fd> host_name_in(const Fd& user) {
  const Holder holder(user.get());
  if (!holder.space()) return errno_error("make", "a host name for the container's root");
  return holder.keep();
}

Result<std::pair<Fd, Fd>> opened_in(const Fd& user,
                                    const std::function<Result<std::pair<Fd, Fd>>()>& make) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make", "a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t maker = ::getpid();
  const pid_t pid = static_cast<pid_t>(::syscall(SYS_clone, CLONE_FILES, 0, 0, 0, 0));
  if (pid == 0) open_in(user.get(), to.get(), maker, make);
  int ended = 1;
  while (pid > 0 && ::waitpid(pid, &ended, __WCLONE) < 0 && errno == EINTR) {
  }
  to.reset();
  int fds[2] = {-1, -1};
  if (ended == 0 && ::read(from.get(), fds, sizeof fds) == sizeof fds)
    return std::pair(Fd(fds[0]), Fd(fds[1]));
  return Error{ErrorKind::invalid, "nothing can be opened in a user namespace"};
}

bool is_callers(int root) {
  struct stat info {};
  return ::fstat(root, &info) == 0 && info.st_uid == ::getuid();
}

Status map_root_to_caller(int mount) {
  const auto space = root_is(::getuid(), ::getgid());
  if (!space) return space.error();
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_IDMAP;
  attr.userns_fd = static_cast<std::uint64_t>(space->get());
  if (::mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0) return {};
  Error error = errno_error("map the owners of", "the image");
  if (errno == EINVAL) error.kind = ErrorKind::invalid;
  return error;
}

}  // namespace bellows::container
