// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slurm/gres.h"
#include "slurm/interface.h"
#include "slurm/places.h"

namespace bellows {

/// A slurmctld with many jobs on nodes of equal GPUs, and a clock that a test moves. Jobs start by
/// priority as soon as there are GPUs, wherever these are; while there is a reservation, only those
/// that name it. A node that is lost is set down some seconds later. What it forbids, it counts.
class FakeCluster final : public Slurm, public SlurmPlaces {
 public:
  FakeCluster(std::uint32_t nodes, std::uint32_t gpus_per_node) {
    for (std::uint32_t n = 1; n <= nodes; ++n)
      all_nodes.push_back({"n" + std::to_string(n), {"main"}, gpus_per_node, "", true});
  }

  std::map<std::uint32_t, SlurmJob> all;
  std::vector<SlurmNode> all_nodes;
  std::map<std::string, SlurmReservation> held;
  double clock = 1000;
  double completes_after = 0.4;
  double notices_after = 12;  ///< until a node that is lost is set down
  bool silent = false;
  std::uint32_t most_of_a_job =
      UINT32_MAX;                        ///< GPUs with which a job starts: a limit of an account
  std::set<std::uint32_t> not_requeued;  ///< Slurm refuses to
  std::function<void(const std::string& call)> before_call;
  int over_capacity = 0;  ///< times that more GPUs were held than there are
  int held_by_slurm = 0;  ///< jobs whose reservation went away while they named it

  /// A batch job that runs, or waits with `priority`, for `gpus`.
  SlurmJob& add(std::uint32_t id, std::uint32_t gpus, bool runs, const std::string& contract) {
    SlurmJob& job = all[id];
    job.id = id;
    job.uid = 1000 + id % 2;
    job.partition = "main";
    job.kind.batch = job.kind.may_requeue = true;
    job.priority = 100;
    job.admin_comment = contract;
    job.asked.tres_per_job = spell_gpus(gpus);
    job.state = SlurmState::pending;
    job.reason = "Resources";
    job.times.submit = second() - 100;
    job.times.begin = second() - 100;
    if (runs) start(job);
    job.times.start = second() - 100;
    return job;
  }
  void end(std::uint32_t id) {
    all[id].state = SlurmState::completed;
    all[id].nodes.clear();
  }
  /// It dies with all that runs on it.
  void lose(const std::string& node) { set_down_at_[node] = clock + notices_after; }
  /// It was only cut off.
  void return_node(const std::string& name) {
    set_down_at_.erase(name);
    for (SlurmNode& node : all_nodes)
      if (node.name == name) {
        node.available = true;
        node.lost = false;
      }
  }
  bool is_lost(const std::string& node) const { return set_down_at_.contains(node); }
  bool has_lost_node(const SlurmJob& job) const {
    return std::any_of(job.nodes.begin(), job.nodes.end(),
                       [this](const NodeShare& share) { return is_lost(share.node); });
  }
  std::uint32_t used() const {
    std::uint32_t gpus = 0;
    for (const auto& [id, job] : all)
      for (const NodeShare& share : job.nodes)
        if (is_up(share.node)) gpus += share.gpus;
    return gpus;
  }
  std::uint32_t capacity() const {
    std::uint32_t gpus = 0;
    for (const SlurmNode& node : all_nodes)
      if (node.available) gpus += node.gpus;
    return gpus;
  }

  void advance(double seconds) {
    clock += seconds;
    for (SlurmNode& node : all_nodes)
      if (is_lost(node.name) && clock >= set_down_at_[node.name]) set_down(node);
    for (auto& [id, job] : all)
      if (job.completing && clock >= done_at_[id]) {
        job.completing = false;
        job.nodes.clear();
        if (static_cast<double>(job.times.begin) <= clock) job.times.begin = second() + 121;
      }
    std::vector<SlurmJob*> queue;
    for (auto& [id, job] : all)
      if (may_start(job)) queue.push_back(&job);
    std::stable_sort(queue.begin(), queue.end(), [](const SlurmJob* a, const SlurmJob* b) {
      return a->priority > b->priority;
    });
    for (SlurmJob* job : queue)
      if (used() + job->requested_gpus() <= capacity()) start(*job);
    if (used() > capacity()) ++over_capacity;
    end_reservations();
  }

  Result<SlurmJob> job(std::uint32_t id) override {
    if (!answers("job")) return no_answer();
    const auto found = all.find(id);
    if (found == all.end()) return Error{ErrorKind::not_found, "no such job"};
    return shown(found->second);
  }
  Result<SlurmJob> job(const JobName& name) override { return job(name.id); }
  Result<std::vector<SlurmJob>> jobs() override {
    if (!answers("jobs")) return no_answer();
    std::vector<SlurmJob> out;
    for (const auto& [id, job] : all) out.push_back(shown(job));
    return out;
  }
  Result<std::vector<SlurmStep>> steps(std::uint32_t) override { return std::vector<SlurmStep>(); }
  Result<SlurmGrace> grace_of(const SlurmJob&) override { return SlurmGrace(); }
  Status requeue_running(std::uint32_t id) override {
    if (!answers("requeue")) return no_answer();
    if (not_requeued.contains(id)) return Error{ErrorKind::denied, "not requeued"};
    SlurmJob& job = all[id];
    if (job.state == SlurmState::running) back_into_queue(job);
    return {};
  }
  Status requeue(std::uint32_t id) override { return requeue_running(id); }
  Status requeue_held(std::uint32_t id) override { return requeue_running(id); }
  Status may_change_size(const SlurmJob&, std::uint32_t) override { return {}; }
  Status change(const SlurmJob& wanted, const SlurmJobChange& change) override {
    if (!answers("change")) return no_answer();
    SlurmJob& job = all[wanted.id];
    if (job.finished()) return Error{ErrorKind::invalid, "Job has already finished"};
    if (change.gpus || change.begin_time)
      if (job.state != SlurmState::pending) return Error{ErrorKind::invalid, "no longer pending"};
    if (change.reservation && !change.reservation->empty() && !held.contains(*change.reservation))
      return Error{ErrorKind::invalid, "no such reservation"};
    if (change.reservation) job.reservation = *change.reservation;
    if (change.begin_time) job.times.begin = *change.begin_time;
    if (change.gpus) job.asked.tres_per_job = spell_gpus(*change.gpus);
    return {};
  }
  bool requeues_the_finished() const override { return false; }
  Status signal_step(std::uint32_t, std::uint32_t, int) override { return {}; }

  Result<std::vector<SlurmNode>> nodes() override {
    if (!answers("nodes")) return no_answer();
    return all_nodes;
  }
  Result<std::vector<std::string>> reservations() override {
    std::vector<std::string> names;
    for (const auto& [name, reservation] : held) names.push_back(name);
    return names;
  }
  Status reserve(const SlurmReservation& reservation) override {
    if (!answers("reserve")) return no_answer();
    held[reservation.name] = reservation;
    return {};
  }
  Status extend(const std::string& name, std::time_t end) override {
    if (!answers("extend")) return no_answer();
    const auto found = held.find(name);
    if (found == held.end()) return Error{ErrorKind::not_found, "no such reservation"};
    found->second.end = end;
    return {};
  }
  Status unreserve(const std::string& name) override {
    if (!answers("unreserve")) return no_answer();
    for (const auto& [id, job] : all)
      if (job.reservation == name && !job.finished()) {
        ++held_by_slurm;
        return Error{ErrorKind::invalid, "in use"};
      }
    if (held.erase(name) == 0) return Error{ErrorKind::not_found, "no such reservation"};
    return {};
  }

 private:
  static Error no_answer() { return {ErrorKind::unavailable, "Connection refused"}; }
  std::time_t second() const { return static_cast<std::time_t>(std::floor(clock)); }

  bool is_up(const std::string& name) const {
    return std::any_of(all_nodes.begin(), all_nodes.end(), [&name](const SlurmNode& node) {
      return node.name == name && node.available;
    });
  }
  /// It completes when the last of its nodes is done, or is set down.
  void back_into_queue(SlurmJob& job) {
    job.state = SlurmState::pending;
    job.reason = "None";
    job.completing = true;
    job.times.begin = 0;
    ++job.restarts;
    double& done_at = done_at_[job.id] = clock + completes_after;
    for (const NodeShare& share : job.nodes)
      if (is_lost(share.node)) done_at = std::max(done_at, set_down_at_[share.node]);
  }
  void set_down(SlurmNode& node) {
    if (!std::exchange(node.available, false)) return;
    node.lost = true;
    for (auto& [id, job] : all)
      if (job.state == SlurmState::running && has_lost_node(job)) back_into_queue(job);
  }
  /// Jobs that name one which ends are not held: bellowsd makes them so.
  void end_reservations() {
    for (auto& [id, job] : all)
      if (const auto of = held.find(job.reservation);
          of != held.end() && of->second.end <= second())
        job.reservation.clear();
    std::erase_if(held, [this](const auto& entry) { return entry.second.end <= second(); });
  }

  bool answers(const std::string& call) {
    if (before_call) before_call(call);
    return !silent;
  }
  SlurmJob shown(SlurmJob job) const {
    job.times.now = second();
    if (job.state == SlurmState::pending && !job.completing) job.nodes.clear();
    if (job.state == SlurmState::pending && job.requested_gpus() > capacity())
      job.reason = "ReqNodeNotAvail, UnavailableNodes:n1";
    return job;
  }
  bool may_start(const SlurmJob& job) const {
    if (job.requested_gpus() > most_of_a_job) return false;
    if (job.state != SlurmState::pending || job.completing || job.priority == 0) return false;
    if (static_cast<double>(job.times.begin) > clock) return false;
    return held.empty() || held.contains(job.reservation);
  }
  void start(SlurmJob& job) {
    std::uint32_t wanted = job.requested_gpus();
    std::map<std::string, std::uint32_t> taken;
    for (const auto& [id, other] : all)
      for (const NodeShare& share : other.nodes) taken[share.node] += share.gpus;
    job.nodes.clear();
    for (const SlurmNode& node : all_nodes) {
      if (!node.available) continue;
      const std::uint32_t gpus =
          std::min(wanted, node.gpus - std::min(node.gpus, taken[node.name]));
      if (gpus > 0) job.nodes.push_back({node.name, gpus, gpus});
      wanted -= gpus;
    }
    job.state = SlurmState::running;
    job.times.start = second();
  }

  std::map<std::uint32_t, double> done_at_;
  std::map<std::string, double> set_down_at_;  ///< of nodes that are lost
};

}  // namespace bellows
