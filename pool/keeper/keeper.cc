// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/keeper.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace bellows::pool {
namespace {

/// A caller that has heard nothing for longer knows that the connection is gone.
constexpr std::chrono::seconds kTellEach{2};
/// What agents have to find a keeper that was started again.
constexpr std::chrono::seconds kSettle{5};

std::uint64_t milliseconds_of(Clock::time_point time) {
  const auto ago = Clock::now() - time;
  const auto wall = std::chrono::system_clock::now() -
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(wall.time_since_epoch()).count());
}

Member message_of(const MemberEntry& entry) {
  Member member;
  member.set_job(entry.job);
  // The two have the same states in the same order.
  member.set_state(static_cast<MemberState>(entry.phase));
  member.set_submitted_ms(milliseconds_of(entry.submitted));
  if (entry.ready_at) member.set_ready_ms(milliseconds_of(*entry.ready_at));
  if (!entry.report) return member;
  member.set_address(entry.report->address);
  member.set_incarnation(entry.report->incarnation);
  member.set_node(entry.report->node);
  return member;
}

/// Their ages are those in the report, and what has passed since.
void add_metrics(const MemberReport& report, Clock::duration since, Member& member) {
  for (const auto& [name, reported] : report.metrics) {
    const auto age = reported.age + std::chrono::duration_cast<std::chrono::milliseconds>(since);
    Metric* const metric = member.add_metric();
    metric->set_name(name);
    metric->set_value(reported.value);
    metric->set_age_ms(static_cast<std::uint32_t>(age.count()));
  }
}

}  // namespace

PoolKeeper::PoolKeeper(std::string dir, PoolSettings settings, PoolPolicy policy, PoolOrders orders,
                       KeeperRun run, Cluster& cluster, Say say)
    : dir_(std::move(dir)),
      settings_(std::move(settings)),
      run_(std::move(run)),
      cluster_(cluster),
      say_(std::move(say)),
      size_(std::move(policy)),
      wish_{.wanted = orders.size > 0 ? orders.size : settings_.min,
            .why = "the keeper has just begun, and asks which members there are",
            .drain_first = {}},
      orders_(orders) {}

/// The threads of both call this.
PoolKeeper::~PoolKeeper() {
  desk_.reset();
  worker_.reset();
}

Status PoolKeeper::open(const PoolKey& key, const std::string& host) {
  auto desk = Desk::open(*this, key);
  if (!desk) return desk.error();
  desk_ = std::move(*desk);
  KeeperSeat seat(dir_);
  const Status taken =
      seat.take({.host = host, .port = desk_->port(), .job = run_.job.id, .term = run_.term});
  if (taken)
    worker_ = std::make_unique<ClusterWorker>(cluster_, std::move(seat), run_.job,
                                              [this](const ClusterNews& news) { take(news); });
  return taken;
}

/// What goes well takes away the trouble of its own kind only.
void PoolKeeper::take_trouble(const ClusterNews& news) {
  const auto take_one = [this](std::string& trouble, const std::optional<std::string>& now) {
    if (!now || *now == trouble) return;
    trouble = *now;
    say_(trouble);
  };
  if (!news.submitted.empty()) submit_trouble_.clear();
  if (news.jobs) list_trouble_.clear();
  take_one(submit_trouble_, news.submit_trouble);
  take_one(list_trouble_, news.list_trouble);
  if (news.cancel_trouble) say_(*news.cancel_trouble);
}

/// For people; empty: there is none.
std::string PoolKeeper::trouble_locked() const {
  if (!list_trouble_.empty()) return list_trouble_;
  if (!submit_trouble_.empty()) return submit_trouble_;
  if (book_.fruitless() < MemberBook::kFruitless) return "";
  return fmt::format("{} members have ended before they were ready; their output is in {}/log",
                     book_.fruitless(), dir_);
}

void PoolKeeper::take_jobs(const PoolQueue& jobs, Clock::time_point asked) {
  const auto now = Clock::now();
  book_.listed(jobs.members, now);
  if (!std::exchange(knows_members_, true)) settles_by_ = now + kSettle;
  if (!standing_.may_act(now)) standing_.hears_since = now;
  standing_.acts_until = asked + ClusterWorker::kActsFor;
}

void PoolKeeper::take(const ClusterNews& news) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const std::uint32_t job : news.submitted) book_.submitted(job, now);
  if (news.jobs) take_jobs(*news.jobs, news.asked);
  standing_.replaced |= news.replaced;
  take_trouble(news);
  has_news_ = true;
  news_.notify_all();
}

bool PoolKeeper::report(const MemberReport& report) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = book_.version();
  const auto now = Clock::now();
  const bool is_member = book_.reported(report, now);
  if (is_member) size_.take(report, now);
  if (book_.version() == version) return is_member;
  has_news_ = true;
  news_.notify_all();
  return is_member;
}

void PoolKeeper::left(std::uint32_t job, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  book_.left(job, incarnation);
}

void PoolKeeper::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, most, [this] { return has_news_; });
  has_news_ = false;
}

/// Before that it would submit once more what its predecessor has submitted, and take members that
/// work for some that have never begun.
bool PoolKeeper::settled_locked(Clock::time_point now) const {
  if (!knows_members_ || now >= settles_by_) return knows_members_;
  return std::all_of(book_.members().begin(), book_.members().end(), [](const auto& entry) {
    return entry.second.phase != Phase::starting || entry.second.report;
  });
}

void PoolKeeper::choose_size_locked(Clock::time_point now) {
  wish_ = size_.wish(book_, orders_, now);
  // Before that it does not know how many it has.
  if (limit_ && settled_locked(now)) limit_size_locked();
}

/// Until bellowsd has said how many it may have, the pool keeps those that it has.
void PoolKeeper::limit_size_locked() {
  ServiceReport report{.job = run_.job.id, .wanted = wish_.wanted};
  for (const auto& [job, member] : book_.members())
    if (member.phase == Phase::draining) report.leaving.push_back(job);
  limit_->tell(std::move(report));
  if (!kept_) kept_ = book_.staying();
  const auto answer = limit_->members();
  wish_.most = std::max(answer.value_or(*kept_), settings_.min);
  if (wish_.wanted <= wish_.most) return;
  const std::string trouble = limit_->trouble();
  wish_.why += trouble.empty() ? fmt::format(", of which bellowsd lets it have {} now", wish_.most)
                               : fmt::format("; it keeps {}: {}", wish_.most, trouble);
  wish_.wanted = wish_.most;
}

StepPlan PoolKeeper::plan_locked(Clock::time_point now) {
  book_.tick(now, standing_.may_act(now) ? standing_.hears_since : now);
  if (!settled_locked(now)) return {};
  // Another keeper may have the pool, and this one is cut off from all that would tell it.
  if (!standing_.may_act(now)) {
    // Members still say how they are, and a hole in that is no load that has gone.
    wish_ = size_.wish(book_, orders_, now);
    worker_->want(0);
    return {};
  }
  // The keeper before this one, or the member itself, has begun that.
  for (const auto& [job, member] : book_.members())
    if (member.phase == Phase::draining) book_.drain(job, now + settings_.drain, now);
  choose_size_locked(now);
  const std::uint32_t most = orders_.ends ? 0 : std::min(settings_.max, wish_.most);
  StepPlan plan = plan_steps(book_, wish_.wanted, most, wish_.drain_first, now);
  for (const std::uint32_t job : plan.drain) book_.drain(job, now + settings_.drain, now);
  for (const std::uint32_t job : plan.cancel) book_.cancelled(job, now);
  // Under this lock: a job that is being submitted is either in the book or known to be under way.
  worker_->want(plan.submit);
  return plan;
}

KeeperTurn PoolKeeper::turn(Clock::time_point now) {
  StepPlan plan;
  bool has_ended = false;
  {
    const std::lock_guard lock(mutex_);
    if (standing_.replaced) return KeeperTurn::replaced;
    plan = plan_locked(now);
    has_ended = orders_.ends && standing_.may_act(now) && book_.staying() == 0 &&
                book_.count(Phase::draining) == 0 && !worker_->is_submitting();
  }
  carry_out(plan);
  tell_all(now);
  return has_ended ? KeeperTurn::pool_ended : KeeperTurn::goes_on;
}

void PoolKeeper::carry_out(const StepPlan& plan) {
  for (const std::uint32_t job : plan.cancel) {
    say_(fmt::format("cancels member {}", job));
    worker_->cancel(job);
  }
  for (const std::uint32_t job : plan.drain) say_(fmt::format("drains member {}", job));
}

/// Callers first: who is told to drain gets no new calls by then.
void PoolKeeper::tell_all(Clock::time_point now) {
  if (!desk_) return;
  std::shared_ptr<const Members> members;
  std::map<std::uint32_t, Order> orders;
  {
    const std::lock_guard lock(mutex_);
    // Those that it does not know yet take calls.
    if (!settled_locked(now)) return;
    if (book_.version() == told_version_ && now - told_at_ < kTellEach) return;
    told_version_ = book_.version();
    told_at_ = now;
    members = members_locked();
    const std::uint32_t ready = book_.count(Phase::ready);
    for (const auto& [job, member] : book_.members()) {
      Order& order = orders[job];
      order.set_size(ready);
      order.set_drain(member.drain_by.has_value());
      if (member.drain_by)
        order.set_drain_seconds(static_cast<std::uint32_t>(std::max<std::int64_t>(
            0, std::chrono::duration_cast<std::chrono::seconds>(*member.drain_by - now).count())));
    }
  }
  desk_->publish(members);
  if (proxy_ && !proxy_(*members)) told_version_ = 0;
  for (const auto& [job, order] : orders) desk_->tell(job, order);
}

std::shared_ptr<const Members> PoolKeeper::members_locked() const {
  auto members = std::make_shared<Members>();
  members->set_version(book_.version());
  for (const auto& [job, entry] : book_.members())
    if (entry.phase == Phase::ready || entry.phase == Phase::draining)
      *members->add_member() = message_of(entry);
  return members;
}

Pool PoolKeeper::show_locked() const {
  Pool pool;
  pool.set_name(settings_.name);
  pool.set_keeper_job(run_.job.id);
  pool.set_min(settings_.min);
  pool.set_max(settings_.max);
  pool.set_wanted(wish_.wanted);
  pool.set_why(wish_.why);
  pool.set_ending(orders_.ends);
  pool.set_scaled_to(orders_.size);
  pool.set_proxy(proxy_address_);
  pool.set_trouble(trouble_locked());
  for (const auto& [job, entry] : book_.members()) {
    Member* const member = pool.add_member();
    *member = message_of(entry);
    if (entry.report) add_metrics(*entry.report, Clock::now() - entry.reported, *member);
  }
  return pool;
}

Pool PoolKeeper::show() {
  const std::lock_guard lock(mutex_);
  return show_locked();
}

/// What is answered for is known to the next keeper.
Status PoolKeeper::order(const PoolOrders& orders) {
  const Status written = write_orders(dir_, orders);
  if (written) orders_ = orders;
  return written;
}

Status PoolKeeper::drain_one(std::uint32_t job) {
  const auto place = book_.members().find(job);
  if (place == book_.members().end() || place->second.phase == Phase::ended)
    return Error{ErrorKind::not_found,
                 fmt::format("pool {} has no member {}", settings_.name, job)};
  book_.drain(job, Clock::now() + settings_.drain, Clock::now());
  return {};
}

Status PoolKeeper::carry_out_change(const ChangeRequest& request) {
  if (request.has_drain_job()) return drain_one(request.drain_job());
  if (request.has_end()) return order({.size = orders_.size, .ends = true});
  const std::uint32_t size = request.scale();
  if (size != 0 && (size < settings_.min || size > settings_.max))
    return Error{ErrorKind::invalid,
                 fmt::format("pool {} has from {} to {} members, not {}", settings_.name,
                             settings_.min, settings_.max, size)};
  return order({.size = size, .ends = orders_.ends});
}

Result<Pool> PoolKeeper::change(const ChangeRequest& request) {
  const std::lock_guard lock(mutex_);
  if (request.change_case() == ChangeRequest::CHANGE_NOT_SET)
    return Error{ErrorKind::invalid, "the request names no change"};
  if (const Status done = carry_out_change(request); !done) return done.error();
  // Who asked is told what comes of it.
  choose_size_locked(Clock::now());
  has_news_ = true;
  news_.notify_all();
  return show_locked();
}

}  // namespace bellows::pool
