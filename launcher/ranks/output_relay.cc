// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/output_relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "launcher/base/detached_work.h"
#include "launcher/base/plain_output.h"
#include "launcher/logs/log_line.h"
#include "launcher/logs/log_writer.h"
#include "launcher/ranks/rank_output.h"
#include "launcher/ranks/task_end.h"
#include "launcher/record/event_log.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = LogLine::Stream;

constexpr std::size_t kChunk = 65536;
/// Between two calls of take_errors. Ranks may write anything, of any length.
constexpr std::size_t kMostRankErrors = 64;
constexpr std::size_t kMostSlurmErrors = 256;

void silence(const Fd& event) {
  eventfd_t ignored;
  eventfd_read(event.get(), &ignored);
}

/// One stream of one attempt's srun.
struct Source {
  Fd fd;
  Stream stream = Stream::out;
  RankOutput ranks;
  std::uint64_t run = 0;  ///< which srun it is of
};

/// What the owner asks of the thread, in its order.
struct Order {
  std::string line;  ///< to say, when there is no source
  std::list<Source> sources;
  std::uint32_t restart = 0;
  std::uint32_t attempt = 0;
};

}  // namespace

struct OutputRelay::Shared : DetachedWork {
  Shared(const Options& options, Fd wake_fd, Fd news_fd)
      : wake(std::move(wake_fd)),
        news(std::move(news_fd)),
        out(options.out),
        err(options.err),
        log(options.log_dir, options.job, options.log_bytes, options.access) {}

  void give(Order order);
  void run();
  void obey(Order order);
  bool read_some(Source& source);
  void read_all();
  void pass_on(Source& source, std::string_view chunk, bool over);
  std::vector<Order> take_orders();
  bool finished();
  void note_error(const Source& source, const RankOutput::Piece& piece);
  void count_open();

  std::vector<Order> orders;
  std::deque<std::string> rank_errors;
  std::deque<std::string> slurm_errors;
  std::uint64_t newest_run = 0;
  std::size_t open = 0;  ///< streams that have not come to their ends
  Fd wake;               ///< of the thread
  Fd news;               ///< of the owner

  // Of the thread.
  std::list<Source> sources;
  PlainOutput out;
  PlainOutput err;
  LogWriter log;
  std::vector<char> buffer = std::vector<char>(kChunk);
};

void OutputRelay::Shared::give(Order order) {
  {
    std::lock_guard lock(mutex);
    open += order.sources.size();
    orders.push_back(std::move(order));
  }
  eventfd_write(wake.get(), 1);
}

std::vector<Order> OutputRelay::Shared::take_orders() {
  silence(wake);
  std::lock_guard lock(mutex);
  return std::exchange(orders, {});
}

void OutputRelay::Shared::obey(Order order) {
  // What the ranks wrote before it comes before it.
  read_all();
  if (!order.sources.empty()) {
    log.begin(order.restart, order.attempt);
    sources.splice(sources.end(), order.sources);
    return;
  }
  err.write(order.line + "\n");
  log.add(LogLine{wall_clock(), std::nullopt, Stream::run, true, order.line}.to_text() + "\n");
}

void OutputRelay::Shared::note_error(const Source& source, const RankOutput::Piece& piece) {
  const bool of_slurm = piece.text.starts_with("slurmstepd") || error_of_stepd(piece.text) ||
                        (!piece.rank && piece.text.starts_with("srun: "));
  std::lock_guard lock(mutex);
  // Output of an earlier srun, read late: it says nothing about the current one.
  if (source.run != newest_run) return;
  if (of_slurm) eventfd_write(news.get(), 1);
  auto& lines = of_slurm ? slurm_errors : rank_errors;
  lines.emplace_back(piece.text);
  if (lines.size() > (of_slurm ? kMostSlurmErrors : kMostRankErrors)) lines.pop_front();
}

void OutputRelay::Shared::count_open() {
  std::lock_guard lock(mutex);
  open = sources.size();
  for (const Order& order : orders) open += order.sources.size();
  changed.notify_all();
}

void OutputRelay::Shared::pass_on(Source& source, std::string_view chunk, bool over) {
  const std::string time = log_time(wall_clock());
  std::string plain;
  std::string lines;
  auto take = [&](const RankOutput::Piece& piece) {
    plain.append(piece.text);
    if (piece.whole) plain.push_back('\n');
    lines.append(time).append(" ");
    if (piece.rank)
      fmt::format_to(std::back_inserter(lines), "{} {}", *piece.rank, stream_name(source.stream));
    else
      lines.append("- run");
    if (!piece.whole) lines.push_back('+');
    lines.append(" ").append(piece.text).push_back('\n');
    if (source.stream == Stream::err) note_error(source, piece);
  };
  if (over)
    source.ranks.end(take);
  else
    source.ranks.feed(chunk, take);
  if (!plain.empty()) (source.stream == Stream::out ? out : err).write(plain);
  log.add(std::move(lines));
}

// False at the end of the stream.
bool OutputRelay::Shared::read_some(Source& source) {
  const ssize_t got = read(source.fd.get(), buffer.data(), buffer.size());
  if (got > 0) pass_on(source, {buffer.data(), static_cast<std::size_t>(got)}, false);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  pass_on(source, {}, true);
  return false;
}

// One round over all sources is what a pipe holds.
void OutputRelay::Shared::read_all() {
  sources.remove_if([this](Source& source) { return !read_some(source); });
}

bool OutputRelay::Shared::finished() {
  std::lock_guard lock(mutex);
  return closing && orders.empty() && sources.empty();
}

void OutputRelay::Shared::run() {
  while (!finished()) {
    std::vector<pollfd> fds = {{wake.get(), POLLIN, 0}};
    for (const Source& source : sources) fds.push_back({source.fd.get(), POLLIN, 0});
    poll(fds.data(), fds.size(), -1);
    for (Order& order : take_orders()) obey(std::move(order));
    read_all();
    count_open();
  }
}

Result<OutputRelay> OutputRelay::start(const Options& options) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd news(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake || !news) return errno_error("make", "an event descriptor");
  auto shared = std::make_shared<Shared>(options, std::move(wake), std::move(news));
  shared->log.begin(options.restart, 0);
  DetachedWork::start(shared);
  return OutputRelay(std::move(shared));
}

OutputRelay::~OutputRelay() { close(std::chrono::milliseconds(0)); }

void OutputRelay::attach(std::uint32_t restart, std::uint32_t attempt, Fd out, Fd err) {
  Order order;
  order.restart = restart;
  order.attempt = attempt;
  {
    std::lock_guard lock(shared_->mutex);
    const std::uint64_t run = ++shared_->newest_run;
    shared_->rank_errors.clear();
    shared_->slurm_errors.clear();
    order.sources.push_back({std::move(out), Stream::out, {}, run});
    order.sources.push_back({std::move(err), Stream::err, {}, run});
  }
  shared_->give(std::move(order));
}

void OutputRelay::say(const std::string& line) { shared_->give({line, {}, 0, 0}); }

void OutputRelay::add_poll(std::vector<pollfd>& fds) const {
  fds.push_back({shared_->news.get(), POLLIN, 0});
}

OutputRelay::Errors OutputRelay::take_errors() {
  silence(shared_->news);
  std::lock_guard lock(shared_->mutex);
  Errors errors;
  errors.ranks.assign(shared_->rank_errors.begin(), shared_->rank_errors.end());
  errors.slurm.assign(shared_->slurm_errors.begin(), shared_->slurm_errors.end());
  shared_->rank_errors.clear();
  shared_->slurm_errors.clear();
  return errors;
}

bool OutputRelay::settle(std::chrono::milliseconds limit) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, limit, [this] { return shared_->open == 0; });
}

void OutputRelay::close(std::chrono::milliseconds limit) {
  if (!shared_) return;
  const auto until = Clock::now() + limit;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
  }
  eventfd_write(shared_->wake.get(), 1);
  std::unique_lock lock(shared_->mutex);
  if (!shared_->changed.wait_until(lock, until, [this] { return shared_->done; })) return;
  lock.unlock();
  shared_->log.close(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
}

}  // namespace bellows
