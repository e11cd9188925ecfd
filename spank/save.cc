// SPDX-License-Identifier: Apache-2.0
#include "spank/save.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/fd.h"
#include "spank/container/base_view.h"
#include "spank/container/mount_api.h"
#include "spank/container/mount_namespace.h"
#include "spank/owner.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostAnswer = 8192;
constexpr char kDone = '+';
constexpr char kFailed = '-';

/// Where the child has to be. A resource.
struct Places {
  Fd container;
  Fd target;
};

Result<Places> find_places(const SaveRequest& request) {
  const auto views = container::JobViews::open(request.run_dir, request.job);
  if (!views) return views.error();
  auto made = views->find(request.container);
  if (!made) return made.error();
  auto target = request.on_host ? container::own_namespace() : views->find(container::kBase);
  if (!target) return target.error();
  return Places{*std::move(made), *std::move(target)};
}

/// A copy of the root alone, with nothing that is mounted in it: the kernel clones only what is
/// mounted where the caller is.
Result<Fd> take_root(const Places& places) {
  if (auto status = container::join(places.container.get()); !status.ok()) return status.error();
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  if (!root) return root.error();
  container::MountFlags flags;
  flags.read_only = true;
  auto clone = container::clone_mount(root->get(), "/", false, flags);
  if (!clone) return clone.error();
  if (auto status = container::join(places.target.get()); !status.ok()) return status.error();
  return clone;
}

Result<std::string> save(const SaveRequest& request, const Places& places) {
  const auto root = take_root(places);
  if (!root) return root.error();
  if (!become_owner(request.owner, request.groups))
    return Error{ErrorKind::internal, "cannot become the job's owner"};
  return container::write_save(root->get(), request.file);
}

Result<std::string> forget(const SaveRequest& request, const Places& places) {
  if (auto status = container::join(places.target.get()); !status.ok()) return status.error();
  if (!become_owner(request.owner, request.groups))
    return Error{ErrorKind::internal, "cannot become the job's owner"};
  container::forget_save(request.file);
  return std::string();
}

using Work = Result<std::string> (*)(const SaveRequest& request, const Places& places);

[[noreturn]] void answer(const SaveRequest& request, const Places& places, Work work, int to,
                         pid_t parent) noexcept {
  // Slurm takes every child of slurmstepd for one of its tasks; what it ends, it kills at last.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  // What slurmstepd has open is none of the programs that are started here.
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) ::_exit(1);
  try {
    const auto text = work(request, places);
    // A change of user undoes it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent) ::_exit(1);
    const std::string line = (text ? kDone : kFailed) + (text ? *text : text.error().text);
    ::_exit(write_all(to, line, "the answer").ok() ? 0 : 1);
  } catch (...) {
    ::_exit(1);
  }
}

/// What the child answered; empty: it was killed.
Result<std::string> in_child(const SaveRequest& request, const Places& places, Work work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make", "a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_error("start", "what saves the container");
  if (child == 0) answer(request, places, work, to.get(), parent);
  to.reset();
  std::string text;
  char buffer[1024];
  for (;;) {
    const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || text.size() > kMostAnswer) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace

Result<std::string> save_container(const SaveRequest& request) {
  const auto places = find_places(request);
  if (!places) return places.error();
  if (!places->container || !places->target) return std::string();
  const auto answer = in_child(request, *places, save);
  if (!answer) return answer.error();
  if (answer->empty()) {
    (void)in_child(request, *places, forget);
    return Error{ErrorKind::unavailable,
                 fmt::format("the container was not saved to {}, since what saves it was killed, "
                             "as at the end of the job or for want of memory",
                             request.file.path)};
  }
  if (answer->front() == kDone) return answer->substr(1);
  return Error{ErrorKind::unavailable, answer->substr(1)};
}

}  // namespace bellows::spank
