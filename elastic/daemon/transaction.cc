// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/transaction.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// For a job whose launcher has not answered yet.
constexpr auto kLookEvery = 1s;
/// A job that completes no longer than this does not keep the others from starting.
constexpr auto kCompletesWithin = 8s;

void add(std::string& trouble, const std::string& more) {
  if (!trouble.empty()) trouble += "; ";
  trouble += more;
}

}  // namespace

const char* to_string(MemberState state) {
  constexpr std::array kNames = {"ordered", "committed", "requeueing", "waiting", "running", "out"};
  return kNames[static_cast<std::size_t>(state)];
}

Transaction::Transaction(std::string name, const PoolPlan& plan, std::uint32_t free, Slurm& slurm,
                         SlurmPlaces& places, JobBook& book, UserNames& users, Limits limits)
    : name_(std::move(name)),
      nodes_(plan.nodes.begin(), plan.nodes.end()),
      free_(free),
      slurm_(slurm),
      places_(places),
      book_(book),
      users_(users),
      limits_(limits) {
  for (const PlanLine& line : plan.lines)
    if (line.takes_part())
      members_.push_back({.line = line,
                          .order = fmt::format("{}-{}", name_, line.job.id),
                          .asked = line.runs() ? line.from : line.job.requested_gpus()});
}

std::string Transaction::reservation() const { return kOwnReservations + name_; }

void Transaction::leave_out(Member& member, std::string why) {
  book_.withdraw_order(member.line.job.id);
  member.state = MemberState::out;
  member.why = std::move(why);
  add(trouble_, fmt::format("job {}: {}", member.line.job.id, member.why));
}

/// The next plans do without it for a while.
void Transaction::fail(Member& member, std::string why, Clock::time_point now) {
  book_.note_failed(member.line.job.id, now);
  leave_out(member, std::move(why));
}

void Transaction::advance(Clock::time_point now, std::time_t slurm_now) {
  if (begun_ == Clock::time_point()) begun_ = phase_begun_ = now;
  const Phase before = phase_;
  if (phase_ != Phase::clearing) keep_reservation(slurm_now);
  switch (phase_) {
    case Phase::reserving:
      reserve(slurm_now);
      break;
    case Phase::stopping:
      await_answers(now);
      break;
    case Phase::moving:
      move(now, slurm_now);
      break;
    case Phase::starting:
      await_starts(now);
      break;
    case Phase::clearing:
      clear(now);
      break;
    case Phase::done:
      break;
  }
  if (phase_ != before) phase_begun_ = now;
}

void Transaction::keep_reservation(std::time_t slurm_now) {
  const auto hold = static_cast<std::time_t>(limits_.hold.count());
  if (hold_until_ == 0 || hold_until_ - slurm_now > hold / 2) return;
  Status kept = places_.extend(reservation(), slurm_now + hold);
  // It has ended if bellowsd stood still for so long. The jobs that have not gone on alone need it.
  if (!kept && kept.error().kind == ErrorKind::not_found) kept = make_reservation(slurm_now);
  if (kept.ok()) hold_until_ = slurm_now + hold;
}

Status Transaction::make_reservation(std::time_t slurm_now) {
  std::set<std::string> users;
  for (const Member& member : members_)
    if (std::string name = users_.name_of(member.line.job.uid); !name.empty())
      users.insert(std::move(name));
  return places_.reserve({reservation(),
                          nodes_,
                          {users.begin(), users.end()},
                          slurm_now,
                          slurm_now + static_cast<std::time_t>(limits_.hold.count())});
}

void Transaction::reserve(std::time_t slurm_now) {
  hold_until_ = slurm_now + static_cast<std::time_t>(limits_.hold.count());
  const Status made = make_reservation(slurm_now);
  if (!made) {
    trouble_ = made.error().text;
    // Whether it was made is not known then.
    phase_ = made.error().kind == ErrorKind::unavailable ? Phase::clearing : Phase::done;
    return;
  }
  give_orders();
  phase_ = Phase::stopping;
}

void Transaction::give_orders() {
  for (Member& member : members_) {
    if (member.line.runs())
      book_.give_order(member.line.job.id, {member.order, member.line.to, member.line.batch});
    else
      member.state = MemberState::committed;
  }
}

void Transaction::await_answers(Clock::time_point now) {
  bool all = true;
  for (Member& member : members_) {
    if (member.state != MemberState::ordered) continue;
    const auto answer = book_.answer_of(member.line.job.id);
    if (answer && answer->order == member.order) {
      if (answer->committed) {
        member.state = MemberState::committed;
        first_commit_ = first_commit_.value_or(now);
      } else {
        fail(member, "its launcher refused: " + answer->why, now);
      }
    } else if (too_late(now)) {
      fail(member, "its launcher did not stop it in time", now);
    } else if (!is_gone(member, now)) {
      all = false;
    }
  }
  if (all) begin_moving(now);
}

/// A launcher answers no more when its job has ended, or was put back into the queue by another.
bool Transaction::is_gone(Member& member, Clock::time_point now) {
  if (now < std::max(member.again, phase_begun_ + kLookEvery)) return false;
  member.again = now + kLookEvery;
  const auto found = slurm_.job(member.line.job.id);
  if (!found && found.error().kind != ErrorKind::not_found) return false;
  if (!found || found->finished()) {
    free_ += member.line.from;
    leave_out(member, "it has ended");
  } else if (found->restarts != member.line.job.restarts) {
    leave_out(member, "another has requeued it");
  }
  return member.state == MemberState::out;
}

bool Transaction::too_late(Clock::time_point now) const {
  return now - phase_begun_ > limits_.commit ||
         (first_commit_ && now - *first_commit_ > limits_.together);
}

/// Jobs that were to give GPUs up may have refused: then those that were to get them go back to
/// what they had, the largest first.
void Transaction::drop_what_does_not_fit() {
  const auto missing = [this] {
    std::int64_t balance = free_;
    for (const Member& member : members_)
      if (member.state == MemberState::committed)
        balance += std::int64_t{member.line.from} - std::int64_t{member.line.to};
    return balance < 0;
  };
  while (missing()) {
    Member* largest = nullptr;
    for (Member& member : members_) {
      const bool grows =
          member.state == MemberState::committed && member.line.to > member.line.from;
      if (grows &&
          (!largest || member.line.to - member.line.from > largest->line.to - largest->line.from))
        largest = &member;
    }
    if (!largest) return;
    add(trouble_, fmt::format("job {} does not grow: the GPUs that it was to get were not given up",
                              largest->line.job.id));
    // One that has stopped goes on at once with what it had.
    largest->line.to = largest->line.from;
    if (!largest->line.runs()) largest->state = MemberState::out;
  }
}

void Transaction::begin_moving(Clock::time_point now) {
  drop_what_does_not_fit();
  const bool any = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.state == MemberState::committed;
  });
  for (Member& member : members_) {
    if (member.state != MemberState::committed) continue;
    if (!member.line.runs()) {
      change_waiting(member, now);
      continue;
    }
    const SlurmJob& job = member.line.job;
    NextRun next{.restarts = job.restarts,
                 .started = start_of_run(job),
                 .gpus_now = member.line.from,
                 .gpus = member.line.to,
                 .reservation = reservation()};
    member.road.emplace(Party::command, next, now);
    member.state = MemberState::requeueing;
  }
  phase_ = any ? Phase::moving : Phase::clearing;
}

void Transaction::change_waiting(Member& member, Clock::time_point now) {
  SlurmJobChange change;
  change.reservation = reservation();
  if (member.line.to != member.line.job.requested_gpus()) change.gpus = member.line.to;
  if (const Status status = slurm_.change(member.line.job, change); !status)
    return fail(member, status.error().text, now);
  book_.note_given(member.line.job.id, member.line.to, false, member.line.job.times.now);
  member.state = MemberState::waiting;
}

void Transaction::move(Clock::time_point now, std::time_t slurm_now) {
  bool all = true;
  for (Member& member : members_) {
    // A few steps at a time: the others' roads must not wait for a slow one.
    for (int steps = 0; steps < 4 && member.state == MemberState::requeueing; ++steps)
      if (now >= member.again) step_road(member, now);
    if (member.state == MemberState::waiting && member.road) {
      book_.note_given(member.line.job.id, member.line.to, true, slurm_now);
      member.road.reset();
    }
    if (member.state == MemberState::requeueing) all = false;
  }
  if (all) phase_ = Phase::starting;
}

void Transaction::step_road(Member& member, Clock::time_point now) {
  RequeueRoad& road = *member.road;
  const SlurmJob& job = member.line.job;
  const RequeueRoad::Step step = road.next();
  if (std::holds_alternative<RequeueRoad::Look>(step)) {
    const auto found = slurm_.job(job.id);
    road.looked(found ? Result<QueuedJob>(queued_job(*found)) : Result<QueuedJob>(found.error()),
                now);
  } else if (const auto* requeue = std::get_if<RequeueRoad::Requeue>(&step)) {
    road.requeued(
        requeue->kind == RequeueKind::any ? slurm_.requeue(job.id) : slurm_.requeue_running(job.id),
        now);
  } else if (const auto* change = std::get_if<RequeueRoad::Change>(&step)) {
    road.changed(slurm_.change(job, change->change), now);
  } else if (const auto* pause = std::get_if<RequeueRoad::Pause>(&step)) {
    member.again = now + pause->time;
    road.paused();
  } else {
    road_done(member, std::get<RequeueRoad::Done>(step), now);
  }
}

void Transaction::road_done(Member& member, const RequeueRoad::Done& done, Clock::time_point now) {
  switch (done.end) {
    case RoadEnd::found:
    case RoadEnd::forgotten:
      member.start_stands = true;
      [[fallthrough]];
    case RoadEnd::moved:
      member.state = MemberState::waiting;
      return;
    case RoadEnd::kept_size:
    case RoadEnd::as_it_is:
      add(trouble_,
          fmt::format("job {} goes on at its old size: {}", member.line.job.id, done.text));
      member.state = MemberState::waiting;
      return;
    case RoadEnd::newer_run:
    case RoadEnd::ended:
    case RoadEnd::gone:
      return leave_out(member, "it has ended or runs again already");
    case RoadEnd::refused:
    case RoadEnd::gave_up:
      // Its launcher still waits, and requeues it itself.
      return fail(member, "it was not requeued: " + done.text, now);
  }
}

/// False: it neither runs nor is over.
bool Transaction::look_at(Member& member) {
  const auto found = slurm_.job(member.line.job.id);
  if (!found && found.error().kind != ErrorKind::not_found) return false;
  if (!found || found->finished()) {
    member.state = MemberState::out;
    member.why = "it has ended";
    return true;
  }
  member.line.job = *found;
  if (found->state == SlurmState::running) member.state = MemberState::running;
  return member.state == MemberState::running;
}

void Transaction::await_starts(Clock::time_point now) {
  bool completing = false;
  bool all = true;
  for (Member& member : members_) {
    if (member.state != MemberState::waiting || look_at(member)) continue;
    all = false;
    completing |= member.line.job.completing;
  }
  if (all) {
    took_ = now - begun_;
    phase_ = Phase::clearing;
    return;
  }
  if (now - phase_begun_ > limits_.start) {
    bool again = false;
    for (Member& member : members_)
      if (member.state == MemberState::waiting) again |= fall_back(member, now);
    phase_begun_ = now;
    if (!again) phase_ = Phase::clearing;
    return;
  }
  if (completing && now - phase_begun_ <= kCompletesWithin) return;
  for (Member& member : members_)
    if (member.state == MemberState::waiting) bring_forward(member, now);
}

/// Slurm knows reasons that a plan, which knows GPUs and nodes, does not: processors, limits of an
/// account, a reservation ahead. True: the job waits with the size from before the plan.
bool Transaction::fall_back(Member& member, Clock::time_point now) {
  const SlurmJob& job = member.line.job;
  add(trouble_, fmt::format("job {} does not start with {} ({})", job.id,
                            counted(member.line.to, "GPU"), job.reason));
  book_.note_failed(job.id, now);
  book_.note_stuck(job.id, member.line.to, now);
  if (std::exchange(member.fell_back, true) || member.line.to <= member.asked) return false;
  SlurmJobChange change;
  change.gpus = member.asked;
  change.begin_time = job.times.now + requeue_clock::kSoon;
  if (!slurm_.change(job, change)) return false;
  book_.note_given(job.id, member.asked, false, job.times.now);
  member.line.to = member.asked;
  return true;
}

/// The start times leave room for what may go wrong; nothing has.
void Transaction::bring_forward(Member& member, Clock::time_point now) {
  const SlurmJob& job = member.line.job;
  if (job.state != SlurmState::pending || job.completing || now < member.again) return;
  member.again = now + kLookEvery;
  SlurmJobChange change;
  // A slurmctld that was killed may have forgotten the reservation. It is made again, and would
  // keep the plan's own job from starting.
  if (job.reservation != reservation()) change.reservation = reservation();
  // Later, a change that says nothing makes Slurm look at the job.
  if (!member.start_stands)
    change.begin_time = job.times.now + requeue_clock::kSoon;
  else if (job.times.now < job.times.begin && !change.reservation)
    return;
  Status changed = slurm_.change(job, change);
  if (!changed && std::exchange(change.reservation, std::nullopt))
    changed = slurm_.change(job, change);
  if (changed.ok()) member.start_stands = true;
}

void Transaction::clear(Clock::time_point now) {
  bool clear = true;
  for (const Member& member : members_) {
    const auto found = slurm_.job(member.line.job.id);
    if (!found && found.error().kind != ErrorKind::not_found) clear = false;
    // Of one that has finished Slurm changes nothing, and lets its reservation be deleted.
    if (!found || found->finished() || found->reservation != reservation()) continue;
    SlurmJobChange change;
    change.reservation = "";
    if (!slurm_.change(*found, change)) clear = false;
  }
  const Status gone = clear ? places_.unreserve(reservation()) : Status();
  const bool over = clear && (gone.ok() || gone.error().kind == ErrorKind::not_found);
  // It ends by itself then.
  if (over || now - phase_begun_ > limits_.clear) phase_ = Phase::done;
}

Status clear_reservations(Slurm& slurm, SlurmPlaces& places) {
  auto jobs = slurm.jobs();
  if (!jobs) return jobs.error();
  // What one job or reservation refuses must not keep the others.
  Status first;
  const auto note = [&first](const Status& status) {
    if (first.ok() && !status && status.error().kind != ErrorKind::not_found) first = status;
  };
  for (const SlurmJob& job : *jobs) {
    if (job.finished() || !job.reservation.starts_with(kOwnReservations)) continue;
    SlurmJobChange change;
    change.reservation = "";
    note(slurm.change(job, change));
  }
  auto names = places.reservations();
  if (!names) return names.error();
  for (const std::string& name : *names)
    if (name.starts_with(kOwnReservations)) note(places.unreserve(name));
  return first;
}

}  // namespace bellows
