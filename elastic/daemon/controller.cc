// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/controller.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastic/policy/smoothing.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;
using nlohmann::ordered_json;

constexpr auto kLookEvery = 1s;
/// Between two plans, in which others may start on the nodes; and after plans that came to nothing.
constexpr std::chrono::seconds kRest = 1s;
constexpr std::chrono::seconds kFirstPause = 5s;
constexpr std::chrono::seconds kLongestPause = 5min;
/// Launchers find a new bellowsd within this: what one has not said yet is no reason to leave its
/// job out.
constexpr auto kFirstReports = 10s;

std::string random_name() {
  std::uint64_t random = 0;
  (void)(getrandom(&random, sizeof random, 0) == sizeof random);
  return fmt::format("{:016x}", random);
}

ordered_json shown(const PoolPlan& plan) {
  ordered_json jobs = ordered_json::array();
  for (const PlanLine& line : plan.lines)
    jobs.push_back({{"job", line.job.id},
                    {"tenant", line.tenant},
                    {"gpus", line.from},
                    {"planned", line.to},
                    {"batch", line.batch > 0 ? ordered_json(line.batch) : ordered_json(nullptr)},
                    {"from_class", line.from_class},
                    {"reason", line.reason}});
  ordered_json services = ordered_json::array();
  for (const ServiceLine& line : plan.services)
    services.push_back({{"pool", line.name},
                        {"keeper", line.keeper},
                        {"tenant", line.tenant},
                        {"gpus", line.from},
                        {"leaving", line.leaving},
                        {"planned", line.to},
                        {"members", line.members}});
  return {{"partition", plan.partition},
          {"gpu_type", plan.gpu_type},
          {"gpus", plan.gpus},
          {"jobs", jobs},
          {"services", services}};
}

ordered_json shown(const Transaction& transaction) {
  ordered_json jobs = ordered_json::array();
  for (const Transaction::Member& member : transaction.members())
    jobs.push_back({{"job", member.line.job.id},
                    {"from", member.line.from},
                    {"to", member.line.to},
                    {"state", to_string(member.state)},
                    {"why", member.why}});
  return {{"name", transaction.name()}, {"jobs", jobs}, {"trouble", transaction.trouble()}};
}

}  // namespace

void PlanBoard::show(std::string json) {
  const std::lock_guard lock(mutex_);
  json_ = std::move(json);
}

std::string PlanBoard::text() const {
  const std::lock_guard lock(mutex_);
  return json_;
}

Controller::Controller(const Parts& parts, Say say, std::chrono::seconds stock_delay, bool dry)
    : parts_(parts), say_(std::move(say)), start_times_(stock_delay), dry_(dry) {}

void Controller::tick(const Policy& policy, Clock::time_point now) {
  if (started_ == Clock::time_point()) started_ = now;
  if (transaction_)
    carry_out(now);
  else if (now >= next_look_)
    look(policy, now);
  show(now);
}

void Controller::look(const Policy& policy, Clock::time_point now) {
  next_look_ = now + kLookEvery;
  auto cluster = read_cluster(parts_.slurm, parts_.places);
  if (!cluster) {
    parts_.metrics.read_failures.Increment();
    if (trouble_ != cluster.error().text) say_(cluster.error().text);
    trouble_ = cluster.error().text;
    return;
  }
  if (!trouble_.empty()) say_("slurmctld answers again");
  trouble_.clear();
  cluster_ = *std::move(cluster);
  looked_ = now;
  std::vector<SlurmJob> elastic;
  for (const SlurmJob& job : cluster_.jobs)
    if (job.state == SlurmState::completed)
      parts_.book.note_completed(job.id);
    else if (!job.finished() && elastic_contract(job))
      elastic.push_back(job);
  note(elastic);
  if (!cleaned_ && !dry_) {
    const Status cleared = clear_reservations(parts_.slurm, parts_.places);
    if (!cleared) say_(cleared.error().text);
    // What slurmctld refuses it refuses again, and a reservation ends by itself.
    cleaned_ = cleared.ok() || cleared.error().kind != ErrorKind::unavailable;
    if (!cleaned_) return;
  }
  if (!dry_ && policy.enabled) start_times_.mend(parts_.slurm, cluster_, parts_.book.notes(), now);
  plan(policy, now);
}

void Controller::note(const std::vector<SlurmJob>& elastic) {
  std::uint32_t gpus = 0;
  for (const SlurmJob& job : elastic) gpus += job.gpus();
  parts_.book.update(elastic, cluster_.now, gpu_types(cluster_.nodes));
  parts_.services.update(cluster_.jobs);
  parts_.metrics.jobs.Set(static_cast<double>(elastic.size()));
  parts_.metrics.gpus.Set(gpus);
}

void Controller::plan(const Policy& policy, Clock::time_point now) {
  plans_.clear();
  const PlanTerms terms = plan_terms_of(policy, restart_s_);
  const auto notes = parts_.book.notes();
  const auto claims = parts_.services.claims(now);
  for (const Pool& pool : pools_of(cluster_, policy.controller->make_room_s, claims)) {
    auto planned = plan_gpus(pool, notes, terms, cluster_.now, now);
    if (planned)
      plans_.push_back(*std::move(planned));
    else
      say_(fmt::format("partition {}: {}", pool.partition, planned.error().text));
  }
  answer(claims, policy.enabled && !dry_);
  const bool may_act =
      !dry_ && policy.enabled && now - started_ >= kFirstReports && now >= next_plan_;
  if (!may_act) return;
  if (const PoolPlan* next = next_to_carry_out()) begin(*next, now);
}

void Controller::answer(const std::vector<ServiceClaim>& claims, bool divides) {
  for (const ServiceClaim& claim : claims) {
    const auto each = gpus_of_member(cluster_, claim);
    if (!divides || each == 0U)
      parts_.services.allow(claim.keeper, claim.pool.max);
    else if (!each)  // What a member needs is known when there is one.
      parts_.services.allow(claim.keeper, std::max(1U, claim.pool.min));
  }
  if (!divides) return;
  for (const PoolPlan& plan : plans_)
    for (const ServiceLine& line : plan.services) parts_.services.allow(line.keeper, line.members);
}

/// The pools take turns: one that has something to do at each look must not keep the others from
/// it.
const PoolPlan* Controller::next_to_carry_out() const {
  const PoolPlan* first = nullptr;
  for (const PoolPlan& plan : plans_) {
    const auto& lines = plan.lines;
    if (std::none_of(lines.begin(), lines.end(), [](const PlanLine& line) { return line.moves(); }))
      continue;
    if (std::pair(plan.partition, plan.gpu_type) > last_pool_) return &plan;
    if (!first) first = &plan;
  }
  return first;
}

void Controller::begin(const PoolPlan& plan, Clock::time_point now) {
  last_pool_ = {plan.partition, plan.gpu_type};
  transaction_.emplace(random_name(), plan, plan.free, parts_.slurm, parts_.places, parts_.book,
                       parts_.users, Transaction::Limits());
  for (const auto& member : transaction_->members())
    say_(fmt::format("plan {}: job {} {} -> {}{}: {}", transaction_->name(), member.line.job.id,
                     member.line.from, member.line.to,
                     member.line.batch > 0 ? fmt::format(", batch {}", member.line.batch) : "",
                     member.line.reason));
  parts_.metrics.acts.Set(1);
  carry_out(now);
}

void Controller::carry_out(Clock::time_point now) {
  // slurmctld's clock runs on between two looks at it.
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(now - *looked_);
  transaction_->advance(now, cluster_.now + static_cast<std::time_t>(since.count()));
  if (!transaction_->done()) return;
  count();
  last_ = {transaction_->name(), transaction_->trouble(), moved(), now};
  pause_ = last_->moved > 0 ? kRest : std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_plan_ = now + pause_;
  transaction_.reset();
  next_look_ = now;
}

std::size_t Controller::moved() const {
  const auto& members = transaction_->members();
  const auto moved =
      std::count_if(members.begin(), members.end(), [](const Transaction::Member& member) {
        return member.state == MemberState::running && member.line.from != member.line.to;
      });
  return static_cast<std::size_t>(moved);
}

void Controller::count() {
  Metrics& metrics = parts_.metrics;
  metrics.acts.Set(0);
  metrics.moves.Increment(static_cast<double>(moved()));
  if (moved() > 0) metrics.plans.Increment();
  if (!transaction_->trouble().empty()) metrics.troubled.Increment();
  if (const auto took = transaction_->took()) {
    metrics.last_plan_s.Set(took->count());
    restart_s_ = restart_s_ ? smoothed(*restart_s_, took->count()) : took->count();
    say_(fmt::format("plan {}: all sizes run after {:.1f} s", transaction_->name(), took->count()));
  }
  if (!transaction_->trouble().empty())
    say_(fmt::format("plan {}: {}", transaction_->name(), transaction_->trouble()));
}

void Controller::show(Clock::time_point now) {
  ordered_json out = {{"acts", acts()},      {"dry_run", dry_},     {"lag_s", nullptr},
                      {"trouble", trouble_}, {"in_force", nullptr}, {"last", nullptr}};
  if (looked_) {
    const double lag = std::chrono::duration<double>(now - *looked_).count();
    out["lag_s"] = lag;
    parts_.metrics.lag_s.Set(lag);
  }
  if (transaction_) out["in_force"] = shown(*transaction_);
  if (last_)
    out["last"] = {{"name", last_->name},
                   {"ago_s", std::chrono::duration<double>(now - last_->at).count()},
                   {"moved", last_->moved},
                   {"trouble", last_->trouble}};
  ordered_json pools = ordered_json::array();
  for (const PoolPlan& plan : plans_) pools.push_back(shown(plan));
  out["pools"] = pools;
  parts_.board.show(out.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace bellows
