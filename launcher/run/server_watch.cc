// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/server_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "launcher/base/detached_work.h"
#include "launcher/record/event_log.h"
#include "launcher/record/server_record.h"
#include "paramserver/wire/ps_report.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kEvery = 3s;
/// It has much to do, but this takes no time.
constexpr int kAnswerWithinMs = 2000;

}  // namespace

struct ServerWatch::Shared : DetachedWork {
  explicit Shared(Place where) : place(std::move(where)) {}

  void run();
  ServerRecord record_of(const ps::PsReport& report, double now) const;

  const Place place;
  std::optional<ps::PsReport> last;
  double last_time = 0;
};

ServerRecord ServerWatch::Shared::record_of(const ps::PsReport& report, double now) const {
  ServerRecord record{.time = now,
                      .job = place.job,
                      .restart = place.restart,
                      .learners = report.learners,
                      .updates = report.updates,
                      .most_staleness = report.most_staleness};
  // After another start the numbers begin anew.
  const bool goes_on =
      last && last->updates <= report.updates && last->gradients <= report.gradients;
  const ps::PsReport before = goes_on ? *last : ps::PsReport();
  if (goes_on && now > last_time)
    record.updates_per_second =
        static_cast<double>(report.updates - before.updates) / (now - last_time);
  if (report.gradients > before.gradients && report.staleness >= before.staleness)
    record.staleness = static_cast<double>(report.staleness - before.staleness) /
                       static_cast<double>(report.gradients - before.gradients);
  return record;
}

void ServerWatch::Shared::run() {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kEvery, [this] { return closing; })) {
    lock.unlock();
    const auto report = ps::ask_for_report(place.socket.c_str(), kAnswerWithinMs);
    const double now = wall_clock();
    if (report) (void)record_of(*report, now).write(place.checkpoint_dir, place.access).ok();
    last = report;
    last_time = now;
    lock.lock();
  }
}

ServerWatch::ServerWatch(Place place) : shared_(std::make_shared<Shared>(std::move(place))) {
  DetachedWork::start(shared_);
}

ServerWatch::~ServerWatch() {
  std::unique_lock lock(shared_->mutex);
  (void)shared_->close(lock, 0ms);
}

}  // namespace bellows
