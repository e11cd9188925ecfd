// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/planner.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/text.h"
#include "elastic/optimizer/places.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// A launcher that says nothing for so long would not hear an order either.
constexpr auto kSilent = 15s;

/// One that saves for so long does so always, or has a save of which nothing will come.
constexpr auto kLongestSave = 60s;

/// Jobs that wait and take part in a division.
constexpr std::size_t kMostWaiting = 500;

std::uint32_t less(std::uint32_t from, std::uint32_t amount) {
  return from > amount ? from - amount : 0;
}

/// A job that takes part in the division. The optimizer sees what it may have above its floor: a
/// job that runs has its smallest size, whatever the others make of it.
struct Member {
  std::size_t line = 0;
  std::uint32_t floor = 0;
  JobState state;
  bool may_change_batch = false;

  /// To go on with at that size; 0: as the program has it. What a plan said of another size does
  /// not count for this one, so it is said also when nothing changes.
  std::uint64_t batch_at(std::uint32_t gpus) const {
    for (const SizeSpeed& size : state.sizes)
      if (size.gpus == gpus && may_change_batch) return size.batch;
    return 0;
  }
};

/// An elastic pool that takes part in the division of a tenant's share.
struct ServiceShare {
  const PoolService* service = nullptr;
  std::uint32_t floor = 0;   ///< GPUs
  std::uint32_t target = 0;  ///< GPUs, of the division

  /// What nobody else may have: what it holds, or is to have.
  std::uint32_t claimed() const { return std::max(target, service->staying); }
};

/// Of one tenant.
struct Group {
  TenantTerms terms;
  std::uint32_t fixed = 0;  ///< GPUs of jobs that keep what they have, and floors
  /// For jobs, above what is fixed: the rest of the tenant's share is its elastic pools'.
  std::uint32_t most = UINT32_MAX;
  std::vector<Member> members;
  std::vector<ServiceShare> services;
};

/// More members do as much more. None is worth more than what is wanted, nor than fits.
JobState state_of(const PoolService& service, std::uint32_t gpus) {
  JobState state;
  const std::uint32_t most = std::min(service.claim.wanted, gpus / service.gpus_each);
  for (std::uint32_t n = std::max(1U, service.claim.pool.min); n <= most; ++n)
    state.sizes.push_back(
        {n * service.gpus_each, 0, static_cast<double>(n), static_cast<double>(n)});
  return state;
}

std::vector<std::uint32_t> sizes_up_to(const Contract& contract, std::uint32_t most) {
  std::vector<std::uint32_t> sizes = contract.gpus.sizes();
  std::erase_if(sizes, [most](std::uint32_t gpus) { return gpus > most; });
  return sizes;
}

std::uint32_t gpus_per_node(const Pool& pool) {
  const auto nodes = static_cast<std::uint32_t>(pool.nodes.size());
  return nodes > 0 ? std::max(1U, (pool.gpus + nodes - 1) / nodes) : 1;
}

/// The sizes as the optimizer is to see them: above the floor.
ElasticJob above_floor(ElasticJob job, std::uint32_t floor) {
  if (floor == 0) return job;
  job.now = less(job.now, floor);
  std::vector<JobSize> sizes;
  for (const JobSize& size : job.sizes)
    if (size.gpus == floor)
      job.idle_value = size.value;
    else
      sizes.push_back({size.gpus - floor, size.batch, size.value});
  job.sizes = std::move(sizes);
  return job;
}

class PoolPlanner {
 public:
  PoolPlanner(const Pool& pool, const std::map<std::uint32_t, JobNotes>& notes,
              const PlanTerms& terms, std::time_t now, JobBook::Clock::time_point time)
      : pool_(pool), notes_(notes), terms_(terms), now_(now), time_(time) {
    for (const auto& [name, node] : pool.nodes) node_names_.push_back(name);
  }

  Result<PoolPlan> make() {
    plan_.partition = pool_.partition;
    plan_.gpu_type = pool_.gpu_type;
    for (const PoolJob* job : in_queue_order()) add(*job);
    for (const PoolService& service : pool_.services) add_service(service);
    plan_.gpus = capacity();
    if (!pool_.services.empty())
      if (const Status shared = share_with_services(); !shared) return shared.error();
    const std::uint32_t gpus = less(plan_.gpus, fixed());
    auto curves = curves_of(gpus, false);
    if (!curves) return curves.error();
    std::vector<std::vector<KnownPlace>> places;
    for (const auto& [name, group] : groups_) places.push_back(places_of(group));
    const auto division = plan_places(*std::move(curves), places, nodes(), gpus, terms_.surplus);
    if (!division) return division.error();
    std::size_t t = 0;
    for (const auto& [name, group] : groups_) {
      take(group, division->tenants[t]);
      note_nodes(group, division->places[t++]);
    }
    plan_.free = std::min(less(free(), let_grow()), free_where_it_changes());
    return std::move(plan_);
  }

 private:
  /// Those that run, and then those that wait as Slurm would start them. Of these more than there
  /// are GPUs could not run anyway, and each makes the division longer.
  std::vector<const PoolJob*> in_queue_order() const {
    std::vector<const PoolJob*> jobs;
    for (const PoolJob& job : pool_.jobs) jobs.push_back(&job);
    const auto waiting = std::stable_partition(jobs.begin(), jobs.end(), [](const PoolJob* job) {
      return job->job.state == SlurmState::running || job->starts_by_itself;
    });
    std::stable_sort(waiting, jobs.end(), [](const PoolJob* a, const PoolJob* b) {
      return a->job.priority > b->job.priority;
    });
    const std::size_t most = std::min<std::size_t>(pool_.gpus, kMostWaiting);
    if (static_cast<std::size_t>(jobs.end() - waiting) > most)
      jobs.resize(static_cast<std::size_t>(waiting - jobs.begin()) + most);
    return jobs;
  }

  void add(const PoolJob& of_pool) {
    const SlurmJob& job = of_pool.job;
    const bool runs = job.state == SlurmState::running;
    const auto found = notes_.find(job.id);
    const JobNotes notes = found == notes_.end() ? JobNotes() : found->second;
    PlanLine line{
        .job = job,
        .tenant = of_pool.contract.tenant,
        .from = runs ? job.gpus() : 0,
        .to = runs ? job.gpus() : job.requested_gpus(),
        .starts_by_itself = of_pool.starts_by_itself || (!runs && time_ < notes.left_alone_until)};
    if (runs) line.reason = keeps_because(job, notes, terms_, now_, time_);
    Group& group = group_of(line.tenant);
    const std::uint32_t here = pool_.gpus_here(job);
    if (runs && line.reason.empty() && here < line.from)
      line.reason = "keeps its size: a node of it is going away or is in another partition's pool";
    if (line.reason.empty())
      add_member(group, of_pool, notes, line);
    else
      group.fixed += here;
    // While it completes it may hold more than it is to have.
    if (line.starts_by_itself) group.fixed += less(here, line.to);
    held_ += here;
    plan_.lines.push_back(std::move(line));
  }

  /// Those that the division may give it. One that waits keeps what its user chose, or what it
  /// starts with by itself.
  std::vector<std::uint32_t> sizes_of(const PlanLine& line, const Contract& contract,
                                      const JobNotes& notes) const {
    const bool runs = line.runs();
    const std::uint32_t now = line.to;
    if (!runs && (line.starts_by_itself || user_wins(notes))) return {now};
    const bool seen = notes.speed.seen() || (notes.of_class && notes.of_class->most_gpus() > 0);
    // A stop would have to wait for its save: it may give GPUs to others, but nothing is won by
    // moving it for its own sake before the save is complete.
    const bool saves =
        runs && notes.report && notes.report->saving && time_ - notes.saves_since < kLongestSave;
    const std::uint32_t most =
        !saves && (runs || seen) ? notes.speed.most_to_try(now, notes.of_class.get()) : now;
    std::vector<std::uint32_t> sizes = sizes_up_to(contract, most);
    if (time_ < notes.too_many_until)
      std::erase_if(sizes, [&](std::uint32_t gpus) {
        return gpus >= notes.too_many && !(runs && gpus == now);
      });
    return sizes;
  }
  bool user_wins(const JobNotes& notes) const {
    return notes.user_resized != 0 &&
           now_ < notes.user_resized + static_cast<std::time_t>(terms_.user_wins_s);
  }

  void add_member(Group& group, const PoolJob& of_pool, const JobNotes& notes,
                  const PlanLine& line) {
    const SlurmJob& job = of_pool.job;
    Member member;
    member.line = plan_.lines.size();
    member.state.now = line.from;
    member.state.age_s = static_cast<double>(now_ - job.times.submit);
    member.state.restarts = job.restarts;
    if (notes.of_class)
      member.state.left = notes.of_class->service_left(notes.service.gpu_seconds());
    if (!line.runs())
      member.state.waited_s =
          std::max(0.0, static_cast<double>(now_ - std::max(job.times.submit, job.times.begin)));
    member.state.sizes =
        notes.speed.at(sizes_of(line, of_pool.contract, notes), gpus_per_node(pool_),
                       of_pool.contract.batch, line.from, notes.of_class.get());
    member.may_change_batch = of_pool.contract.batch.has_value();
    if (member.state.sizes.empty()) return;
    if (line.runs()) {
      member.floor = std::min(member.state.sizes.front().gpus, line.from);
      group.fixed += member.floor;
    }
    group.members.push_back(std::move(member));
  }

  void add_service(const PoolService& service) {
    Group& group = group_of(service.tenant);
    const ServiceShare share{&service, service.claim.pool.min * service.gpus_each, 0};
    group.fixed += share.floor + service.leaving;
    held_ += service.staying + service.leaving;
    group.services.push_back(share);
  }

  std::uint32_t fixed() const {
    std::uint32_t fixed = 0;
    for (const auto& [name, group] : groups_) fixed += group.fixed;
    return fixed;
  }

  /// Divides all GPUs among jobs and elastic pools, wherever they are. From then on what a pool
  /// claims is fixed, and its tenant's jobs have the rest of the share.
  Status share_with_services() {
    const std::uint32_t gpus = less(plan_.gpus, fixed());
    const auto curves = curves_of(gpus, true);
    if (!curves) return curves.error();
    const auto division = plan_pool(*curves, gpus, terms_.surplus);
    if (!division) return division.error();
    std::size_t t = 0;
    for (auto& [name, group] : groups_) {
      const TenantDivision& share = (*division)[t++];
      group.most = share.gpus;
      for (std::size_t s = 0; s < group.services.size(); ++s) {
        ServiceShare& service = group.services[s];
        const std::uint32_t above = share.jobs[group.members.size() + s].gpus;
        service.target = service.floor + above;
        group.most = less(group.most, above);
        group.fixed += less(service.claimed(), service.floor);
      }
    }
    return {};
  }

  /// Says how many members each elastic pool may have now. The GPUs of which they may be told that
  /// they are free.
  std::uint32_t let_grow() {
    // What others give up is not free yet.
    std::int64_t jobs_grow = 0;
    for (const PlanLine& line : plan_.lines)
      if (line.takes_part()) jobs_grow += std::int64_t{line.to} - line.from;
    std::uint32_t room =
        less(free(), static_cast<std::uint32_t>(std::max<std::int64_t>(jobs_grow, 0)));
    std::uint32_t given = 0;
    for (const auto& [name, group] : groups_)
      for (const ServiceShare& share : group.services) {
        const PoolService& service = *share.service;
        const std::uint32_t more = std::min(less(share.target, service.staying), room);
        room -= more;
        given += more;
        const std::uint32_t gpus = std::min(share.target, service.staying + more);
        plan_.services.push_back(
            {.keeper = service.claim.keeper,
             .name = service.claim.pool.name,
             .tenant = name,
             .from = service.staying,
             .leaving = service.leaving,
             .to = share.target,
             .members = std::max(service.claim.pool.min, gpus / service.gpus_each)});
      }
    return given;
  }

  Group& group_of(const std::string& tenant) {
    const auto [group, fresh] = groups_.try_emplace(tenant);
    if (const auto terms = terms_.tenants.find(tenant); fresh && terms != terms_.tenants.end())
      group->second.terms = terms->second;
    return group->second;
  }

  /// What elastic jobs may hold together. While others wait, what is free is theirs. Room is made
  /// for those for which it can be.
  std::uint32_t capacity() const {
    const std::uint32_t ours = less(pool_.gpus, pool_.taken);
    const std::uint32_t free = less(ours, held_);
    std::uint32_t room = free;
    for (const auto& [name, group] : groups_) {
      for (const Member& member : group.members) room += less(member.state.now, member.floor);
      for (const ServiceShare& share : group.services)
        room += less(share.service->staying, share.floor);
    }
    std::uint32_t due = 0;
    for (const std::uint32_t gpus : pool_.due)
      if (gpus <= less(room, due)) due += gpus;
    return less(ours, std::max(std::min(free, pool_.wanted), due));
  }

  PoolNodes nodes() const {
    PoolNodes nodes;
    for (const auto& [name, free] : pool_.nodes) nodes.free.push_back(free);
    return nodes;
  }

  std::optional<std::uint32_t> number_of(const std::string& node) const {
    const auto found = std::lower_bound(node_names_.begin(), node_names_.end(), node);
    if (found == node_names_.end() || *found != node) return std::nullopt;
    return static_cast<std::uint32_t>(found - node_names_.begin());
  }

  /// Of a tenant's members.
  std::vector<KnownPlace> places_of(const Group& group) const {
    std::vector<KnownPlace> places;
    for (const Member& member : group.members) {
      const PlanLine& line = plan_.lines[member.line];
      KnownPlace& place = places.emplace_back(KnownPlace{{}, member.floor, line.starts_by_itself});
      for (const NodeShare& share : line.job.nodes)
        if (const auto number = number_of(share.node)) place.held.push_back({*number, share.gpus});
    }
    return places;
  }

  /// Others may go on to start on nodes on which nothing changes.
  void note_nodes(const Group& group, const std::vector<GpuPlace>& places) {
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const PlanLine& line = plan_.lines[group.members[m].line];
      if (!line.takes_part()) continue;
      for (const NodeShare& share : line.job.nodes)
        if (pool_.nodes.contains(share.node)) plan_.nodes.insert(share.node);
      for (const PlacedGpus& share : places[m]) plan_.nodes.insert(node_names_[share.node]);
      // Then it is for Slurm to find it a place.
      if (places[m].empty() || !line.job.asked.required_nodes.empty())
        plan_.nodes.insert(node_names_.begin(), node_names_.end());
    }
  }

  /// Elsewhere others may start at any time.
  std::uint32_t free_where_it_changes() const {
    std::uint32_t free = 0;
    for (const std::string& node : plan_.nodes) free += pool_.nodes.at(node);
    return free;
  }

  std::uint32_t free() const {
    std::uint32_t promised = 0;
    for (const PlanLine& line : plan_.lines)
      if (line.starts_by_itself) promised += less(line.to, pool_.gpus_here(line.job));
    return less(pool_.gpus, pool_.taken + held_ + promised);
  }

  /// `gpus`: for all tenants together, above what is fixed.
  Result<std::vector<TenantShare>> curves_of(std::uint32_t gpus, bool with_services) const {
    // In one fixed point, so that tenants can be compared by value.
    std::vector<JobState> states;
    for (const auto& [name, group] : groups_) {
      for (const Member& member : group.members) states.push_back(member.state);
      for (std::size_t s = 0; with_services && s < group.services.size(); ++s)
        states.push_back(state_of(*group.services[s].service, pool_.gpus));
    }
    const std::vector<ElasticJob> jobs = value_jobs(states, terms_.objective);
    std::vector<TenantShare> shares;
    std::size_t j = 0;
    for (const auto& [name, group] : groups_) {
      std::vector<ElasticJob> own;
      for (const Member& member : group.members)
        own.push_back(above_floor(jobs[j++], member.floor));
      for (std::size_t s = 0; with_services && s < group.services.size(); ++s) {
        ElasticJob job = jobs[j++];
        job.now = group.services[s].service->staying;
        own.push_back(above_floor(std::move(job), group.services[s].floor));
      }
      const std::uint32_t limit = less(group.terms.limit, group.fixed + elsewhere(name));
      auto curve = TenantCurve::of(std::move(own), std::min({gpus, limit, group.most}));
      if (!curve) return curve.error();
      shares.push_back({*std::move(curve),
                        less(group.terms.guarantee.of(pool_.gpu_type), group.fixed),
                        group.terms.weight});
    }
    return shares;
  }

  /// A tenant's limit is on all of its jobs.
  std::uint32_t elsewhere(const std::string& tenant) const {
    const auto found = pool_.elsewhere.find(tenant);
    return found == pool_.elsewhere.end() ? 0 : found->second;
  }

  void take(const Group& group, const TenantDivision& division) {
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      const Member& member = group.members[m];
      PlanLine& line = plan_.lines[member.line];
      line.to = member.floor + division.jobs[m].gpus;
      line.reason = line.starts_by_itself ? "starts by itself"
                                          : to_string(reason_of(line, division.jobs[m].reason));
      line.from_class = line.moves() && is_by_class(line);
      if (line.from_class) line.reason += ", by the speed of its class there";
      if (line.runs() && line.moves()) line.batch = member.batch_at(line.to);
    }
  }

  bool is_by_class(const PlanLine& line) const {
    const auto found = notes_.find(line.job.id);
    if (found == notes_.end() || !found->second.of_class) return false;
    return found->second.speed.is_by_class_at(packed_layout(line.to, gpus_per_node(pool_)),
                                              *found->second.of_class);
  }

  /// The optimizer saw only what lies above the floor.
  static Reason reason_of(const PlanLine& line, Reason reason) {
    if (!line.runs()) return reason;
    if (line.to == line.from) return Reason::stays;
    return line.to > line.from ? Reason::grows : Reason::shrinks;
  }

  const Pool& pool_;
  const std::map<std::uint32_t, JobNotes>& notes_;
  const PlanTerms& terms_;
  std::time_t now_;
  JobBook::Clock::time_point time_;
  std::vector<std::string> node_names_;  ///< in ascending order
  PoolPlan plan_;
  std::map<std::string, Group> groups_;
  std::uint32_t held_ = 0;
};

}  // namespace

bool PlanLine::moves() const { return runs() ? to != from : to != 0 && to != job.requested_gpus(); }

bool PlanLine::takes_part() const { return moves() || (!runs() && to > 0 && !starts_by_itself); }

std::string keeps_because(const SlurmJob& job, const JobNotes& notes, const PlanTerms& terms,
                          std::time_t now, JobBook::Clock::time_point time) {
  const auto in_s = [](std::uint32_t seconds) { return static_cast<std::time_t>(seconds); };
  if (!notes.report || time - notes.heard > kSilent)
    return "keeps its size: its launcher is silent";
  if (notes.report->state != RunReport::State::running)
    return "keeps its size: it cannot be stopped at a checkpoint now";
  if (time < notes.left_alone_until) return "keeps its size: plans with it have failed";
  if (job.configuring || job.times.start + in_s(terms.dwell_s) > now)
    return fmt::format("keeps its size: it has had it for less than {} s", terms.dwell_s);
  if (notes.report->step > 0 && !notes.speed.seen_at(job.gpus()))
    return "keeps its size: its speed there is not known yet";
  if (job.times.preempt != 0) return "keeps its size: it is being preempted";
  if (notes.moves.size() >= terms.restarts_per_hour)
    return fmt::format("keeps its size: it was moved {} times within an hour", notes.moves.size());
  if (notes.user_resized != 0 && now < notes.user_resized + in_s(terms.user_wins_s))
    return "keeps its size: its user chose it";
  if (job.times.end != 0 && job.times.end < now + in_s(terms.last_s))
    return "keeps its size: its time limit is near";
  return "";
}

Result<PoolPlan> plan_gpus(const Pool& pool, const std::map<std::uint32_t, JobNotes>& notes,
                           const PlanTerms& terms, std::time_t now,
                           JobBook::Clock::time_point time) {
  return PoolPlanner(pool, notes, terms, now, time).make();
}

}  // namespace bellows
