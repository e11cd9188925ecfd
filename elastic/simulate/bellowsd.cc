// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/bellowsd.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "elastic/simulate/packing.h"
#include "elastic/simulate/sizes.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

/// After a launcher's first step: it reports a mean over 5 s, and agents count steps each second.
constexpr double kFirstSpeed = 6;
/// slurmctld's clock when the simulation begins; 0 would be no time.
constexpr double kEpoch = 1e9;

std::time_t clock_at(double now) { return static_cast<std::time_t>(kEpoch + now); }

JobBook::Clock::time_point time_at(double now) {
  return JobBook::Clock::time_point(
      std::chrono::duration_cast<JobBook::Clock::duration>(std::chrono::duration<double>(now)));
}

class Bellowsd : public Scheduler {
 public:
  Bellowsd(const ClusterShape& shape, PlanTerms plan, const SimulationTerms& terms)
      : shape_(shape), plan_(std::move(plan)), terms_(terms) {
    plan_.objective.restart_s = plan_s();
    for (std::uint32_t n = 1; n <= shape.nodes; ++n) nodes_.push_back(fmt::format("n{}", n));
  }

  BatchRule batch_rule() const override { return BatchRule::fixed; }

  std::vector<NodeGpus> decide(double now, const std::vector<const SimulatedJob*>& jobs) override {
    Places places;
    for (const SimulatedJob* job : jobs) places.push_back(job->held());
    const Pool pool = pool_at(now, jobs);
    report(now, jobs, pool);
    // A plan's reservation keeps all others from starting, too.
    if (now < busy_until_ || start_waiting(now, jobs, places)) return places;
    const auto plan = plan_gpus(pool, book_.notes(), plan_, clock_at(now), time_at(now));
    if (plan) carry_out(*plan, now, jobs, places);
    return places;
  }

 private:
  using Places = std::vector<NodeGpus>;

  /// What Slurm knows of a job.
  struct Record {
    std::uint32_t id = 0;
    std::uint32_t asked = 0;  ///< GPUs
    double queued_s = 0;      ///< a requeue sets it again
    double start_s = 0;       ///< of the run
  };

  double start_s() const { return terms_.start_s.value_or(0); }
  /// From a plan's first order until all its sizes run; their ranks compute a start later.
  double plan_s() const { return std::max(0.0, terms_.restart_s - start_s()); }

  Record& record_of(const SimulatedJob& job) {
    const auto [record, fresh] = records_.try_emplace(&job);
    if (fresh)
      record->second = {static_cast<std::uint32_t>(records_.size()), job.submission().gpus,
                        job.submission().submit_s, 0};
    return record->second;
  }

  /// Those that its batch can be divided among, and the one that its user asks for.
  GpusRange sizes_of(const SimulatedJob& job) const {
    const Submission& submission = job.submission();
    const std::uint32_t most =
        std::min({shape_.gpus(), job.application().largest_gpus(),
                  std::max(1U, submission.batch / job.application().limits().smallest_local)});
    std::set<std::uint32_t> sizes = {submission.gpus};
    for (std::uint32_t gpus = 1; gpus <= most; ++gpus)
      if (is_plain_size(gpus, shape_)) sizes.insert(gpus);
    return GpusRange::of({sizes.begin(), sizes.end()});
  }

  Pool pool_at(double now, const std::vector<const SimulatedJob*>& jobs) {
    Pool pool;
    pool.partition = "simulated";
    for (const std::string& node : nodes_) pool.nodes.emplace(node, shape_.gpus_per_node);
    pool.gpus = shape_.gpus();
    for (const SimulatedJob* job : jobs) {
      const Record& record = record_of(*job);
      PoolJob in_pool;
      in_pool.contract.tenant = job->submission().tenant;
      in_pool.contract.gpus = sizes_of(*job);
      in_pool.contract.framework = "simulated";
      in_pool.contract.framework_version = "1";
      SlurmJob& slurm = in_pool.job;
      slurm.id = record.id;
      slurm.name = job->application().name();
      slurm.admin_comment = in_pool.contract.to_string();
      slurm.restarts = job->restarts();
      slurm.asked.tres_per_job = spell_gpus(record.asked);
      slurm.times = {.submit = clock_at(record.queued_s), .now = clock_at(now)};
      slurm.state = job->gpus() > 0 ? SlurmState::running : SlurmState::pending;
      if (job->gpus() > 0) slurm.times.start = clock_at(record.start_s);
      for (std::size_t n = 0; n < job->held().size(); ++n)
        if (job->held()[n] > 0) {
          slurm.nodes.push_back({nodes_[n], job->held()[n]});
          pool.nodes[nodes_[n]] -= job->held()[n];
        }
      pool.jobs.push_back(std::move(in_pool));
    }
    return pool;
  }

  /// As launchers do.
  void report(double now, const std::vector<const SimulatedJob*>& jobs, const Pool& pool) {
    std::vector<SlurmJob> all;
    for (const PoolJob& job : pool.jobs) all.push_back(job.job);
    for (const auto& [job, record] : records_)
      if (job->is_done()) book_.note_completed(record.id);
    book_.update(all, clock_at(now));
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (jobs[j]->gpus() == 0) continue;
      RunReport report;
      report.job = all[j].id;
      report.restarts = all[j].restarts;
      report.gpus = jobs[j]->gpus();
      report.nodes = static_cast<std::uint32_t>(all[j].nodes.size());
      report.batch = jobs[j]->submission().batch;
      if (jobs[j]->rate() > 0) report.state = RunReport::State::running;
      report.step = jobs[j]->rate() > 0 ? 1 : 0;
      const double computes_s = record_of(*jobs[j]).start_s + start_s();
      if (jobs[j]->rate() > 0 && now >= computes_s + kFirstSpeed)
        report.step_s = 1 / jobs[j]->rate();
      // It is known and its user's own.
      (void)book_.take(report, all[j].uid, time_at(now));
    }
  }

  /// On as few nodes as can be, or nothing.
  static NodeGpus place(FreeGpus& free, std::uint32_t gpus) {
    return free.count() < gpus ? NodeGpus() : free.take_packed(gpus);
  }

  /// What Slurm does by itself. Whether anything started.
  bool start_waiting(double now, const std::vector<const SimulatedJob*>& jobs, Places& places) {
    FreeGpus free(shape_);
    for (const NodeGpus& held : places) free.take(held);
    bool any = false;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (jobs[j]->gpus() > 0) continue;
      Record& record = record_of(*jobs[j]);
      places[j] = place(free, record.asked);
      if (places[j].empty()) break;
      record.start_s = now;
      any = true;
    }
    return any;
  }

  void carry_out(const PoolPlan& plan, double now, const std::vector<const SimulatedJob*>& jobs,
                 Places& places) {
    const auto& lines = plan.lines;
    if (std::none_of(lines.begin(), lines.end(), [](const auto& line) { return line.moves(); }))
      return;
    FreeGpus free(shape_);
    std::vector<std::size_t> members;
    for (std::size_t j = 0; j < lines.size(); ++j)
      if (lines[j].takes_part())
        members.push_back(j);
      else
        free.take(places[j]);
    bool any_stops = false;
    for (const std::size_t j : members) {
      places[j] = place(free, lines[j].to);
      any_stops |= lines[j].runs();
      note_move(lines[j], now, record_of(*jobs[j]));
    }
    if (any_stops) busy_until_ = now + plan_s();
  }

  void note_move(const PlanLine& line, double now, Record& record) {
    book_.note_given(record.id, line.to, line.runs(), clock_at(now));
    record.asked = line.to;
    record.start_s = now + plan_s();
    if (line.runs()) record.queued_s = now;
  }

  ClusterShape shape_;
  PlanTerms plan_;
  SimulationTerms terms_;
  std::vector<std::string> nodes_;
  std::map<const SimulatedJob*, Record> records_;
  JobBook book_;
  double busy_until_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_bellowsd(const ClusterShape& shape, const PlanTerms& plan,
                                         const SimulationTerms& terms) {
  return std::make_unique<Bellowsd>(shape, plan, terms);
}

}  // namespace bellows
