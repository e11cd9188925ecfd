// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/site_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/fd.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

/// Nothing: there is no such user.
Result<std::optional<uid_t>> uid_of(const std::string& user) {
  std::vector<char> room(1 << 16);
  passwd entry{};
  passwd* found = nullptr;
  const int failure = getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found);
  if (found) return std::optional<uid_t>(found->pw_uid);
  if (failure == 0 || failure == ENOENT) return std::optional<uid_t>();
  return Error{ErrorKind::unavailable,
               fmt::format("user {} cannot be looked up: {}", user, std::strerror(failure))};
}

}  // namespace

Result<SiteList> read_site(const std::string& path) {
  const auto text = read_file(path, kMostBytes);
  if (!text) return text.error();
  const auto policy = load_policy(*text, path);
  if (!policy) return policy.error();
  SiteList list;
  for (const SiteModel& model : policy->models) {
    uid_t uid = model.uid.value_or(geteuid());
    if (!model.user.empty()) {
      const auto found = uid_of(model.user);
      if (!found) return found.error();
      if (!*found) {
        list.remarks.push_back(fmt::format("model {} of tenant {} is left out: there is no user {}",
                                           model.name, model.tenant, model.user));
        continue;
      }
      uid = **found;
    }
    list.models.push_back({model.tenant,
                           model.name,
                           {model.source, uid},
                           model.for_all ? "*" : fmt::format("{}", fmt::join(model.visible, ","))});
  }
  return list;
}

struct SiteModels::Shared {
  Fd event;
  std::mutex mutex;
  std::optional<Result<SiteList>> result;
};

SiteModels::~SiteModels() = default;

Result<std::unique_ptr<SiteModels>> SiteModels::make(EventLoop& loop, std::string path,
                                                     Taker taker) {
  std::unique_ptr<SiteModels> site(new SiteModels(std::move(path), std::move(taker)));
  site->shared_ = std::make_shared<Shared>();
  site->shared_->event = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!site->shared_->event) return errno_error("make", "an eventfd");
  auto watch = loop.watch(site->shared_->event.get(), EPOLLIN,
                          [self = site.get()](std::uint32_t) { self->on_read(); });
  if (!watch) return watch.error();
  site->watch_ = std::move(*watch);
  return site;
}

void SiteModels::read() {
  again_ = reading_;
  if (reading_) return;
  reading_ = true;
  std::thread([shared = shared_, path = path_] {
    auto list = read_site(path);
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(list);
    (void)eventfd_write(shared->event.get(), 1);
  }).detach();
}

void SiteModels::wait(std::chrono::milliseconds limit) {
  pollfd p = {shared_->event.get(), POLLIN, 0};
  if (poll(&p, 1, static_cast<int>(limit.count())) == 1) on_read();
}

void SiteModels::on_read() {
  eventfd_t count = 0;
  if (eventfd_read(shared_->event.get(), &count) != 0) return;
  std::optional<Result<SiteList>> result;
  {
    const std::lock_guard lock(shared_->mutex);
    result = std::exchange(shared_->result, std::nullopt);
  }
  reading_ = false;
  if (again_) read();
  if (result) taker_(*result);
}

}  // namespace bellows
