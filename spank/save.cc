// SPDX-License-Identifier: Apache-2.0
#include "spank/save.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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

using Clock = std::chrono::steady_clock;
/// To unlink one file, and for what was killed to be gone: a file system that hangs may block both.
constexpr std::chrono::seconds kShort{5};

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

/// slurmstepd is where Slurm kills nothing, and as a rule nothing for want of memory, either.
Status leave_slurmstepd(const SaveRequest& request) {
  const auto score = open_file("/proc/self/oom_score_adj", O_WRONLY);
  if (!score) return score.error();
  if (auto status = write_all(score->get(), "0", "/proc/self/oom_score_adj"); !status.ok())
    return status;
  if (request.cgroups != nullptr && !request.cgroups->enter())
    return errno_error("enter", "the cgroups of the step");
  return {};
}

/// A change of user undoes what the process is to be sent when its parent dies.
Status become_owner_under(pid_t parent, const SaveRequest& request) {
  if (!become_owner(request.owner, request.groups) ||
      ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != parent)
    return Error{ErrorKind::internal, "cannot become the job's owner"};
  return {};
}

Result<std::string> save(const SaveRequest& request, const Places& places, pid_t parent) {
  const auto root = take_root(places);
  if (!root) return root.error();
  if (auto status = become_owner_under(parent, request); !status.ok()) return status.error();
  return container::write_save(root->get(), request.file);
}

Result<std::string> forget(const SaveRequest& request, const Places& places, pid_t parent) {
  if (auto status = container::join(places.target.get()); !status.ok()) return status.error();
  if (auto status = become_owner_under(parent, request); !status.ok()) return status.error();
  container::forget_save(request.file);
  return std::string();
}

using Work = Result<std::string> (*)(const SaveRequest& request, const Places& places,
                                     pid_t parent);

[[noreturn]] void answer(const SaveRequest& request, const Places& places, Work work, int to,
                         pid_t parent) noexcept {
  // Slurm takes every child of slurmstepd for one of its tasks; what it ends, it kills at last.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  // What slurmstepd has open is none of the programs that are started here.
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) ::_exit(1);
  try {
    const auto ready = leave_slurmstepd(request);
    const auto text = ready.ok() ? work(request, places, parent) : ready.error();
    const std::string line = (text ? kDone : kFailed) + (text ? *text : text.error().text);
    ::_exit(write_all(to, line, "the answer").ok() ? 0 : 1);
  } catch (...) {
    ::_exit(1);
  }
}

struct Answer {
  std::string text;   ///< empty: the child was killed
  bool late = false;  ///< this process will not wait any longer
};

Answer read_answer(int from, std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  Answer answer;
  char buffer[1024];
  while (answer.text.size() <= kMostAnswer) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd pipe = {from, POLLIN, 0};
    const int ready = ::poll(&pipe, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return {"", true};
    const ssize_t n = ::read(from, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    answer.text.append(buffer, static_cast<std::size_t>(n));
  }
  return answer;
}

/// Its owner may have stopped it, and a file system that hangs keeps even what is killed.
void end(pid_t child) {
  ::kill(child, SIGKILL);
  const auto limit = Clock::now() + kShort;
  while (::waitpid(child, nullptr, WNOHANG) == 0 && Clock::now() < limit) ::poll(nullptr, 0, 1);
}

Result<Answer> in_child(const SaveRequest& request, const Places& places, Work work,
                        std::chrono::seconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make", "a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_error("start", "what saves the container");
  if (child == 0) answer(request, places, work, to.get(), parent);
  to.reset();
  auto answer = read_answer(from.get(), limit);
  end(child);
  return answer;
}

Error not_saved(const SaveRequest& request, bool late) {
  if (late)
    return {ErrorKind::unavailable,
            fmt::format("the container was not saved to {}, since that took longer than {} s, the "
                        "limit of this site (save_seconds in plugstack.conf)",
                        request.file.path, request.limit.count())};
  return {ErrorKind::unavailable,
          fmt::format("the container was not saved to {}, since what saves it was killed, as at "
                      "the end of the job or for want of memory",
                      request.file.path)};
}

}  // namespace

Result<std::string> save_container(const SaveRequest& request) {
  const auto places = find_places(request);
  if (!places) return places.error();
  if (!places->container || !places->target) return std::string();
  const auto answer = in_child(request, *places, save, request.limit);
  if (!answer) return answer.error();
  if (answer->text.empty()) {
    (void)in_child(request, *places, forget, kShort);
    return not_saved(request, answer->late);
  }
  if (answer->text.front() == kDone) return answer->text.substr(1);
  return Error{ErrorKind::unavailable, answer->text.substr(1)};
}

}  // namespace bellows::spank
