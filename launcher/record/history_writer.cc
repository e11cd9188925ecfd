// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/history_writer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "launcher/base/detached_work.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// Longer than a working file system needs, and too short for anybody to notice the wait.
constexpr auto kWrittenWithin = 100ms;
constexpr auto kTryAgainAfter = 1s;

}  // namespace

struct HistoryWriter::Shared : DetachedWork {
  Shared(std::string directory, Access wanted) : dir(std::move(directory)), access(wanted) {}

  void run();
  std::size_t append_all(const std::deque<JobEvent>& events, Status* status) const;
  void note(const Status& status);

  const std::string dir;
  const Access access;
  std::deque<JobEvent> queue;
  std::size_t left_out = 0;
  std::size_t dropped = 0;  ///< of those that are being written, from the queue meanwhile
  std::string trouble;      ///< empty: the last try went well
  std::optional<std::string> news;
  bool slow = false;  ///< the queue has not been empty since somebody waited in vain
};

// How many of them were written.
std::size_t HistoryWriter::Shared::append_all(const std::deque<JobEvent>& events,
                                              Status* status) const {
  auto log = EventLog::open(dir, access);
  if (!log) {
    *status = log.error();
    return 0;
  }
  std::size_t written = 0;
  while (written < events.size() && status->ok()) {
    *status = log->append(events[written]);
    if (status->ok()) ++written;
  }
  return written;
}

void HistoryWriter::Shared::note(const Status& status) {
  const std::string now = status.ok() ? "" : status.error().text;
  if (now == trouble) return;
  news = now.empty() ? "the history of this job is written again"
                     : now + "; the history of this job is written when it can be";
  trouble = now;
}

void HistoryWriter::Shared::run() {
  std::unique_lock lock(mutex);
  while (true) {
    wait_for_work(lock, [this] { return !queue.empty(); });
    if (queue.empty()) break;
    const std::deque<JobEvent> events = queue;
    dropped = 0;
    lock.unlock();
    Status status;
    std::size_t written = append_all(events, &status);
    lock.lock();
    const std::size_t gone = std::min(written, dropped);
    left_out -= gone;
    written -= gone;
    queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(written));
    note(status);
    if (queue.empty()) slow = false;
    changed.notify_all();
    if (status.ok()) continue;
    if (closing) break;
    changed.wait_for(lock, kTryAgainAfter, [this] { return closing; });
  }
}

HistoryWriter::HistoryWriter(std::string dir, Access access)
    : shared_(std::make_shared<Shared>(std::move(dir), access)) {
  DetachedWork::start(shared_);
}

HistoryWriter::~HistoryWriter() { close(0ms); }

void HistoryWriter::add(const JobEvent& event) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->closing) {
    ++shared_->left_out;
    return;
  }
  // How a job ended matters more than how it came there.
  if (shared_->queue.size() >= kMostKept) {
    shared_->queue.pop_front();
    ++shared_->left_out;
    ++shared_->dropped;
  }
  shared_->queue.push_back(event);
  shared_->changed.notify_all();
  if (shared_->slow || !shared_->trouble.empty()) return;
  const auto over = [this] { return shared_->queue.empty() || !shared_->trouble.empty(); };
  if (!shared_->changed.wait_for(lock, kWrittenWithin, over)) shared_->slow = true;
}

std::optional<std::string> HistoryWriter::news() {
  std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->news, std::nullopt);
}

bool HistoryWriter::well() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->trouble.empty();
}

std::size_t HistoryWriter::close(std::chrono::milliseconds limit) {
  std::unique_lock lock(shared_->mutex);
  (void)shared_->close(lock, limit);
  return shared_->queue.size() + shared_->left_out;
}

}  // namespace bellows
