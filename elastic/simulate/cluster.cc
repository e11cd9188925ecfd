// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/cluster.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bellows {
namespace {

class Run {
 public:
  Run(const std::vector<Submission>& submissions, Scheduler& scheduler,
      const SimulationTerms& terms)
      : scheduler_(scheduler), terms_(terms) {
    for (const Submission& submission : submissions)
      out_.jobs.emplace_back(submission, scheduler.batch_rule());
    since_.resize(out_.jobs.size());
  }

  Outcome finish(const std::function<void(double, std::size_t)>& progress) {
    while (done_ < out_.jobs.size() && go_to_next()) {
      if (!asks_) continue;
      ask();
      if (progress) progress(now_, done_);
    }
    for (const std::size_t job : active_) end_span(job);
    out_.end_s = now_;
    return std::move(out_);
  }

 private:
  // Whether the scheduler is asked now.
  bool go_to_next() {
    const double arrival =
        arrived_ < out_.jobs.size() ? out_.jobs[arrived_].submission().submit_s : kNever;
    // Rounds without a job are left out.
    if (active_.empty()) next_round_ = std::ceil(arrival / terms_.round_s) * terms_.round_s;
    double next = std::min(arrival, next_round_);
    for (const std::size_t job : active_) next = std::min(next, out_.jobs[job].next_s());
    if (next > terms_.until_s) {
      now_ = terms_.until_s;
      return false;
    }
    now_ = next;
    asks_ = now_ >= next_round_;
    if (asks_) next_round_ = now_ + terms_.round_s;
    pass();
    arrive();
    return true;
  }

  void pass() {
    for (std::size_t i = 0; i < active_.size();) {
      SimulatedJob& job = out_.jobs[active_[i]];
      if (job.next_s() > now_) {
        ++i;
        continue;
      }
      const std::uint32_t gpus = job.gpus();
      job.pass();
      if (!job.is_done()) continue;
      out_.spans.push_back({active_[i], since_[active_[i]], now_, gpus});
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      ++done_;
      asks_ |= terms_.at_events;
    }
  }

  void arrive() {
    for (; arrived_ < out_.jobs.size() && out_.jobs[arrived_].submission().submit_s <= now_;
         ++arrived_) {
      out_.jobs[arrived_].join(scheduler_.class_for(out_.jobs[arrived_].application()));
      active_.push_back(arrived_);
      asks_ |= terms_.at_events;
    }
  }

  void end_span(std::size_t job) {
    if (out_.jobs[job].gpus() > 0)
      out_.spans.push_back({job, since_[job], now_, out_.jobs[job].gpus()});
  }

  void ask() {
    if (active_.empty()) return;
    std::vector<const SimulatedJob*> jobs;
    for (const std::size_t job : active_) jobs.push_back(&out_.jobs[job]);
    ++out_.decisions;
    const std::vector<NodeGpus> decided = scheduler_.decide(now_, jobs);
    const double start_s =
        any_gives_up(decided) ? terms_.restart_s : terms_.start_s.value_or(terms_.restart_s);
    for (std::size_t i = 0; i < active_.size(); ++i) {
      SimulatedJob& job = out_.jobs[active_[i]];
      if (!changes(job, decided[i])) continue;
      end_span(active_[i]);
      since_[active_[i]] = now_;
      job.place(now_, decided[i], job.has_run() ? terms_.restart_s : start_s);
    }
  }

  static bool changes(const SimulatedJob& job, const NodeGpus& gpus) {
    return placement_of(gpus).empty() ? job.gpus() > 0 : gpus != job.held();
  }

  bool any_gives_up(const std::vector<NodeGpus>& decided) const {
    for (std::size_t i = 0; i < active_.size(); ++i)
      if (out_.jobs[active_[i]].gpus() > 0 && changes(out_.jobs[active_[i]], decided[i]))
        return true;
    return false;
  }

  static constexpr double kNever = SimulatedJob::kNever;

  Scheduler& scheduler_;
  const SimulationTerms& terms_;
  Outcome out_;
  std::vector<std::size_t> active_;  ///< submitted and not done, by submission
  std::vector<double> since_;        ///< when each job got what it holds
  std::size_t arrived_ = 0;
  std::size_t done_ = 0;
  double now_ = 0;
  double next_round_ = 0;
  bool asks_ = false;
};

}  // namespace

Outcome simulate(const std::vector<Submission>& submissions, Scheduler& scheduler,
                 const SimulationTerms& terms,
                 const std::function<void(double, std::size_t)>& progress) {
  return Run(submissions, scheduler, terms).finish(progress);
}

}  // namespace bellows
