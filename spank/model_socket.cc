// SPDX-License-Identifier: Apache-2.0
#include "spank/model_socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "common/fd.h"
#include "modelstore/control/control_client.h"
#include "spank/container/views.h"

namespace bellows::spank {
namespace {

/// A job's start must not wait longer for a bellows-modeld that hangs.
constexpr std::chrono::milliseconds kLimit{900};
/// The extern step and the first one must not wait one after the other.
constexpr std::time_t kAfterWaiting = 10;
/// Long enough for a bellows-modeld that goes on again.
constexpr std::chrono::milliseconds kLittle{100};
constexpr int kQueue = 1024;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{ErrorKind::invalid,
                 fmt::format("{} is too long for a socket; set a shorter run_dir", path)};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

/// Whether anybody takes clients: bellows-modeld, or its keeper until there is one again.
bool is_served(const std::string& path) {
  const auto address = address_of(path);
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address || !socket) return false;
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) ==
             0 ||
         errno == EAGAIN;
}

/// In a directory of root's, so nobody can have put a link there.
Result<Fd> bind_for(const std::string& path, uid_t uid) {
  const auto address = address_of(path);
  if (!address) return address.error();
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("remove", path);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno_error("make", path);
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int failure = errno;
  ::umask(before);
  errno = failure;
  if (bound != 0 || ::lchown(path.c_str(), uid, 0) != 0 || ::listen(socket.get(), kQueue) != 0)
    return errno_error("listen on", path);
  return socket;
}

bool is_young(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && ::time(nullptr) - info.st_mtime < kAfterWaiting;
}

}  // namespace

std::string ModelSocket::waited_path() const {
  return fmt::format("{}/{}/models.waited", settings_.run_dir, job_);
}

std::string ModelSocket::path() const {
  return fmt::format("{}/{}/models.sock", settings_.run_dir, job_);
}

Status ModelSocket::lend(uid_t uid, const Contract& contract) const {
  if (contract.extra_value(Contract::kModelsKey).empty() || is_served(path())) return {};
  const auto deadline = ControlClient::Clock::now() + kLimit;
  const auto views = container::JobViews::open(settings_.run_dir, job_);
  if (!views) return views.error();
  const auto lock = views->lock(kLimit);
  if (!lock) return lock.error();
  if (is_served(path())) return {};
  if (is_young(waited_path()))
    return Error{ErrorKind::unavailable, "another step has just waited for bellows-modeld in vain"};
  // Who had the lock before is not bellows-modeld's fault.
  const auto begun = ControlClient::Clock::now();
  const Status status = serve(uid, contract, deadline);
  // A program that finds no socket is told so at once; one that finds a dead one may wait.
  if (status.ok() || status.error().kind == ErrorKind::not_found) return status;
  ::unlink(path().c_str());
  return noted(begun, status);
}

Status ModelSocket::noted(ControlClient::Clock::time_point begun, const Status& status) const {
  const bool answered = status.ok() || status.error().kind != ErrorKind::unavailable;
  if (answered || ControlClient::Clock::now() - begun < kLimit / 2) return status;
  const Status kept = replace_file(waited_path(), "", 0600);
  return kept.ok() ? status : kept;
}

Status ModelSocket::serve(uid_t uid, const Contract& contract,
                          ControlClient::Clock::time_point deadline) const {
  auto modeld = ControlClient::connect(settings_.model_store, deadline);
  if (!modeld) return modeld.error();
  const auto socket = bind_for(path(), uid);
  if (!socket) return socket.error();
  const Status served = modeld->serve(std::to_string(job_), contract.tenant, uid, socket->get());
  if (!served.ok()) return served;
  Status first;
  for (const std::string& model :
       Contract::split_list(contract.extra_value(Contract::kModelsKey))) {
    Status begun = modeld->prefetch(contract.tenant, model);
    if (begun.ok()) continue;
    const ErrorKind kind = begun.error().kind;
    // It hangs or has ended: the next question would wait in vain, too.
    if (kind != ErrorKind::not_found && kind != ErrorKind::invalid) return begun;
    if (first.ok()) first = Error{ErrorKind::not_found, begun.error().text};
  }
  return first;
}

Status ModelSocket::lend_on_gpus(const std::vector<std::string>& gpus,
                                 const Contract& contract) const {
  if (gpus.empty()) return {};
  const auto deadline = ControlClient::Clock::now() + kLimit;
  const auto views = container::JobViews::open(settings_.run_dir, job_);
  if (!views) return views.error();
  // The tasks of a step come all at once, and bellows-modeld has so many speakers only.
  const auto lock = views->lock(kLimit);
  if (!lock) return lock.error();
  const auto begun = ControlClient::Clock::now();
  // Nobody asks for this task's GPUs again.
  if (is_young(waited_path())) return put_on_gpus(gpus, contract, begun + kLittle);
  return noted(begun, put_on_gpus(gpus, contract, std::max(deadline, begun + kLittle)));
}

Status ModelSocket::put_on_gpus(const std::vector<std::string>& gpus, const Contract& contract,
                                ControlClient::Clock::time_point deadline) const {
  auto modeld = ControlClient::connect(settings_.model_store, deadline);
  if (!modeld) return modeld.error();
  const std::string job = std::to_string(job_);
  Status first = modeld->add_gpus(job, gpus);
  if (!first.ok()) return first;
  for (const std::string& model :
       Contract::split_list(contract.extra_value(Contract::kModelsKey))) {
    Status begun = modeld->prefetch_on_gpus(job, model);
    if (first.ok()) first = std::move(begun);
    if (!first.ok() && first.error().kind != ErrorKind::not_found) break;
  }
  return first;
}

Status ModelSocket::end() const {
  bool was_lent = false;
  // A bellows-modeld that hung takes the socket when it goes on, although it has no name any more.
  // First, so that one that is restarted meanwhile sees that the job has ended.
  for (const std::string& each : {path(), waited_path()}) {
    if (::unlink(each.c_str()) == 0)
      was_lent = true;
    else if (errno != ENOENT && errno != ENOTDIR)
      return errno_error("remove", each);
  }
  if (!was_lent) return {};
  auto modeld = ControlClient::connect(settings_.model_store, ControlClient::Clock::now() + kLimit);
  if (!modeld) return modeld.error();
  const Status ended = modeld->end(std::to_string(job_));
  return !ended.ok() && ended.error().kind == ErrorKind::not_found ? Status() : ended;
}

std::string model_socket_of(const Contract& contract, const std::string& user_dir) {
  if (contract.extra_value(Contract::kModelsKey).empty()) return "";
  return user_dir.substr(0, user_dir.rfind('/')) + "/models.sock";
}

}  // namespace bellows::spank
