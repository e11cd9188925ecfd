// SPDX-License-Identifier: Apache-2.0
#include "launcher/logs/log_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "common/fd.h"
#include "launcher/base/detached_work.h"
#include "launcher/logs/log_line.h"
#include "launcher/record/event_log.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t size_of(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

std::uint64_t lines_in(const std::string& text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The files themselves, used only by the writer's thread.
class LogFiles {
 public:
  LogFiles(std::string dir, std::uint32_t job, std::uint64_t most, Access access)
      : dir_(std::move(dir)), most_(most), access_(access), next_{job, 0, 0, 0} {}

  void begin(std::uint32_t restart, std::uint32_t attempt) {
    fd_.reset();
    next_ = {next_.job, restart, attempt, 0};
  }

  /// False: not all of it could be written.
  bool write_lines(const std::string& lines) {
    if (!fd_ || size_ + lines.size() > most_ / LogWriter::kParts) open_next();
    if (!fd_) return false;
    // The end of a line that the file system did not take whole.
    std::string text = (torn_ ? "\n" : "") + lines;
    const ssize_t wrote = write(fd_.get(), text.data(), text.size());
    if (wrote > 0) {
      size_ += static_cast<std::uint64_t>(wrote);
      torn_ = text[static_cast<std::size_t>(wrote) - 1] != '\n';
    }
    return wrote == static_cast<ssize_t>(text.size());
  }

 private:
  void open_next() {
    mkdir(dir_.c_str(), directory_mode(access_));
    make_room();
    fd_.reset();
    // A launcher that Slurm started twice for the same run finds the files of the first.
    for (int tries = 0; tries < 1000 && !fd_; ++tries) {
      ++next_.part;
      auto fd = open_file(dir_ + "/" + next_.name(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL,
                          file_mode(access_));
      if (fd)
        fd_ = std::move(*fd);
      else if (errno != EEXIST)
        break;
    }
    size_ = 0;
    torn_ = false;
  }

  void make_room() {
    const std::vector<LogFile> files = log_files(dir_, next_.job);
    std::uint64_t sum = most_ / LogWriter::kParts;
    for (const LogFile& file : files) sum += size_of(dir_ + "/" + file.name());
    for (const LogFile& file : files) {
      if (sum <= most_) return;
      const std::string path = dir_ + "/" + file.name();
      sum -= std::min(sum, size_of(path));
      unlink(path.c_str());
    }
  }

  std::string dir_;
  std::uint64_t most_;
  Access access_;
  LogFile next_;
  Fd fd_;
  std::uint64_t size_ = 0;
  bool torn_ = false;
};

struct Item {
  std::string lines;
  bool begins = false;
  std::uint32_t restart = 0;
  std::uint32_t attempt = 0;
};

}  // namespace

struct LogWriter::Shared : DetachedWork {
  Shared(std::string dir, std::uint32_t job, std::uint64_t most_bytes, Access access)
      : files(std::move(dir), job, most_bytes, access) {}

  void take(std::string lines);
  void run();
  void write_item(const Item& item);

  std::deque<Item> queue;
  std::size_t queued = 0;
  std::uint64_t left_out = 0;  ///< lines
  Clock::time_point second;
  std::size_t this_second = 0;
  LogFiles files;  ///< of the thread
};

void LogWriter::Shared::take(std::string lines) {
  const auto now = Clock::now();
  if (now - second >= std::chrono::seconds(1)) {
    second = now;
    this_second = 0;
  }
  this_second += lines.size();
  if (queued + lines.size() > kMostQueued || this_second > kMostEachSecond) {
    left_out += lines_in(lines);
    return;
  }
  queued += lines.size();
  queue.push_back({std::move(lines)});
}

void LogWriter::Shared::write_item(const Item& item) {
  if (item.begins) return files.begin(item.restart, item.attempt);
  if (files.write_lines(item.lines)) return;
  std::lock_guard lock(mutex);
  left_out += lines_in(item.lines);
}

void LogWriter::Shared::run() {
  std::unique_lock lock(mutex);
  while (true) {
    wait_for_work(lock, [this] { return !queue.empty(); });
    if (queue.empty()) break;
    Item item = std::move(queue.front());
    queue.pop_front();
    const std::uint64_t missing = std::exchange(left_out, 0);
    lock.unlock();
    if (missing > 0) {
      const LogLine note{wall_clock(), std::nullopt, LogLine::Stream::run, true,
                         fmt::format("{} lines are missing here: they came faster than the log "
                                     "could take them, or its file system accepted no data",
                                     missing)};
      if (!files.write_lines(note.to_text() + "\n")) {
        std::lock_guard again(mutex);
        left_out += missing;
      }
    }
    write_item(item);
    lock.lock();
    queued -= item.lines.size();
  }
}

LogWriter::LogWriter(std::string log_dir, std::uint32_t job, std::uint64_t most_bytes,
                     Access access) {
  if (most_bytes == 0) return;
  shared_ = std::make_shared<Shared>(std::move(log_dir), job, most_bytes, access);
  DetachedWork::start(shared_);
}

LogWriter::~LogWriter() { close(std::chrono::milliseconds(0)); }

void LogWriter::begin(std::uint32_t restart, std::uint32_t attempt) {
  if (!shared_) return;
  std::lock_guard lock(shared_->mutex);
  shared_->queue.push_back({"", true, restart, attempt});
}

void LogWriter::add(std::string lines) {
  if (!shared_ || lines.empty()) return;
  std::lock_guard lock(shared_->mutex);
  shared_->take(std::move(lines));
  shared_->changed.notify_all();
}

void LogWriter::close(std::chrono::milliseconds limit) {
  if (!shared_) return;
  std::unique_lock lock(shared_->mutex);
  (void)shared_->close(lock, limit);
}

}  // namespace bellows
