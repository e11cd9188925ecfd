// SPDX-License-Identifier: Apache-2.0
#include "launcher/resize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "launcher/exit_status.h"
#include "launcher/job_view.h"
#include "launcher/line_buffer.h"
#include "launcher/rank_layout.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLauncherAnswersWithin = 30s;
constexpr auto kCanBeAskedWithin = 15s;
// The launcher requeues by itself 10 s after the commit: do not get in its way.
constexpr auto kRequeueTries = 8s;
constexpr auto kPoll = 50ms;
constexpr double kPollFast = 15;  // seconds
constexpr auto kPollLater = 1000ms;
constexpr int kSafeStart = 5;  // survives until COMPLETING clears; see slurm_client.h
constexpr int kSoonStart = 2;  // 1 could fall into the second in which the old credential ended

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<Child> open_control(const SlurmJob& job, const std::string& program) {
  ChildOptions options;
  options.command = {"srun",
                     "--overlap",
                     fmt::format("--jobid={}", job.id),
                     "--nodelist=" + job.batch_host,
                     "--nodes=1",
                     "--ntasks=1",
                     "--gres=none",
                     "--mpi=none",
                     "--overcommit",
                     "--quiet",
                     "--unbuffered",
                     "--chdir=/",
                     "--job-name=bellows-control",
                     program,
                     "control"};
  options.environment = host_step_environment(environ);
  options.pipe_in = true;
  options.pipe_out = true;
  return Child::start(options);
}

// Of a child that has closed its output: its own, srun's, or -1 when it lingers.
int exit_code(Child& child) {
  auto limit = std::chrono::steady_clock::now() + 2s;
  while (!child.poll_exit() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(20ms);
  return child.poll_exit() ? child.poll_exit()->code() : -1;
}

// The next line that is a JSON object; empty optional when the stream has ended.
std::optional<json> next_message(LineReader& reader) {
  while (auto line = reader.next()) {
    json message = json::parse(*line, nullptr, false);
    if (message.is_object() && message.contains("event")) return message;
  }
  return std::nullopt;
}

}  // namespace

Resize::Resize(SlurmClient& slurm, ResizeRequest request, std::string program, Say say,
               std::function<bool()> interrupted)
    : slurm_(slurm),
      request_(request),
      program_(std::move(program)),
      say_(std::move(say)),
      interrupted_(std::move(interrupted)),
      deadline_(Clock::now() + request.timeout) {}

std::optional<ResizeFailure> Resize::run() {
  auto job = slurm_.job(request_.job);
  if (!job) {
    bool silent = job.error().kind == ErrorKind::unavailable;
    return ResizeFailure{silent ? kUnreachable : kRefused, job.error().text};
  }
  job_ = *job;
  if (Failure failure = check(job_)) return failure;
  if (Failure failure = become_owner()) return failure;
  report_.from = job_.state == SlurmState::pending ? job_.requested_gpus() : job_.gpus();
  report_.to = request_.gpus;
  if (report_.from == report_.to) {
    report_.unchanged = true;
    report_.job = job_;
    return std::nullopt;
  }
  if (job_.state == SlurmState::pending) return change_pending();
  warn_of_waiting_jobs();
  if (Failure failure = stop_at_checkpoint()) return failure;
  if (Failure failure = requeue()) return failure;
  if (Failure failure = wait_until_running()) return failure;
  return verify();
}

std::optional<ResizeFailure> Resize::check(const SlurmJob& job) {
  auto refuse = [&job](const std::string& why) {
    return ResizeFailure{kRefused, fmt::format("job {} {}; nothing was changed", job.id, why)};
  };
  if (job.uid != getuid() && getuid() != 0)
    return refuse(
        fmt::format("belongs to {}: only its owner and root can resize it", user_name(job.uid)));
  if (job.cron) return refuse("comes from scrontab, and Slurm lets nobody change such jobs");
  if (job.het) return refuse("has several components, whose sizes are fixed");
  if (!job.batch || !job.may_requeue) return refuse("cannot be requeued (sbatch --requeue)");
  if (job.finished()) return refuse(fmt::format("is over ({})", slurm_state_name(job.state)));
  if (job.state == SlurmState::suspended) return refuse("is suspended");
  auto contract = contract_of(job);
  if (!contract) return refuse("has a contract that cannot be read: " + contract.error().text);
  if (!*contract)
    return refuse("has no Bellows contract (submit it with --framework and --gpus-range)");
  if (!(*contract)->gpus.contains(request_.gpus))
    return refuse(
        fmt::format("may hold {} GPUs, not {}", (*contract)->gpus.to_string(), request_.gpus));
  return std::nullopt;
}

// Root needs no right of its own here: whatever the owner may do is what is to be done.
std::optional<ResizeFailure> Resize::become_owner() {
  if (job_.uid == getuid()) return std::nullopt;
  std::array<char, 16384> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(job_.uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found &&
      initgroups(found->pw_name, found->pw_gid) == 0 && setgid(found->pw_gid) == 0 &&
      setuid(job_.uid) == 0)
    return std::nullopt;
  return ResizeFailure{kRefused,
                       fmt::format("cannot act as {}, who owns job {}; nothing was changed",
                                   user_name(job_.uid), job_.id)};
}

std::optional<ResizeFailure> Resize::change_pending() {
  SlurmJobChange change;
  change.gpus = request_.gpus;
  if (Status status = slurm_.change(job_, change); !status)
    return ResizeFailure{kFailed, status.error().text};
  report_.was_pending = true;
  report_.job = job_;
  return std::nullopt;
}

void Resize::warn_of_waiting_jobs() {
  auto jobs = slurm_.jobs();
  if (!jobs) return;
  std::uint32_t waiting = 0;
  for (const SlurmJob& other : *jobs)
    if (other.id != job_.id && other.state == SlurmState::pending && other.priority > 0 &&
        other.partition == job_.partition)
      ++waiting;
  if (waiting > 0)
    say_(
        fmt::format("warning: {} other {} in partition {}; what the job gives up can go to them, "
                    "and it may wait before it runs again",
                    waiting, waiting == 1 ? "job waits" : "jobs wait", job_.partition));
}

std::optional<ResizeFailure> Resize::stopped_waiting(const std::string& state) const {
  if (interrupted_()) return ResizeFailure{kInterrupted, "interrupted: " + state};
  return ResizeFailure{kTimedOut, "time is up: " + state};
}

// A slurmctld that was restarted starts no steps until the nodes have registered, 3 to 4 s later;
// and a job that has just started has ranks without a checkpoint to stop at.
std::optional<ResizeFailure> Resize::stop_at_checkpoint() {
  auto until = Clock::now() + kCanBeAskedWithin;
  while (true) {
    std::string not_yet;
    Failure failure = ask_launcher(not_yet);
    if (not_yet.empty() || Clock::now() >= until || interrupted_() || out_of_time()) return failure;
    say_(not_yet + "; trying again");
    std::this_thread::sleep_for(1s);
  }
}

std::optional<ResizeFailure> Resize::ask_launcher(std::string& not_yet) {
  auto started = Clock::now();
  auto control = open_control(job_, program_);
  if (!control) return ResizeFailure{kUnreachable, control.error().text + "; nothing was changed"};
  // A step whose srun is killed lingers for seconds, and holds up the job's next start.
  control_.emplace(std::move(*control));
  LineReader reader;
  LineWriter writer;
  writer.add(json{{"cmd", "stop"},
                  {"reason", "resize"},
                  {"gpus", request_.gpus},
                  {"from_scratch", request_.from_scratch}}
                 .dump());
  bool stopping = false;
  const std::string goes_on = fmt::format(
      "the job stops at its next checkpoint and then moves to {} GPUs by itself", request_.gpus);
  while (true) {
    bool late = !stopping && Clock::now() - started > kLauncherAnswersWithin;
    if (late)
      return ResizeFailure{kUnreachable,
                           "the job's launcher did not answer; the job was not requeued"};
    if (interrupted_() || out_of_time())
      return stopped_waiting(stopping ? goes_on : "the launcher may not have got the demand");
    pollfd fds[] = {{control_->out(), POLLIN, 0},
                    {writer.empty() ? -1 : control_->in(), POLLOUT, 0}};
    poll(fds, 2, 200);
    bool open = writer.flush(control_->in()) && reader.fill(control_->out());
    while (auto message = next_message(reader)) {
      std::string event = message->value("event", "");
      if (event == "error" && message->value("again", false)) {
        not_yet = "the job's ranks are still starting";
        control_->close_in();
        (void)exit_code(*control_);
      }
      if (event == "error")
        return ResizeFailure{kRefused, fmt::format("the launcher refuses: {}; nothing was changed",
                                                   message->value("error", "no reason given"))};
      if (event == "finished")
        return ResizeFailure{kRefused, "the job finished before it could be resized"};
      auto step = message->find("step");
      bool has_step = step != message->end() && step->is_number_unsigned();
      if (event == "stopping" && has_step)
        say_(fmt::format("stopping at step {}", step->get<std::uint64_t>()));
      stopping = true;
      if (event != "committed") continue;
      if (has_step) report_.step = step->get<std::uint64_t>();
      report_.commit_s = seconds_since(started);
      say_(report_.step
               ? fmt::format("committed step {} after {:.1f} s", *report_.step, report_.commit_s)
               : "stopped; there is no checkpoint yet");
      control_->close_in();
      return std::nullopt;
    }
    if (open) continue;
    if (stopping)
      return ResizeFailure{
          kFailed, fmt::format("the job's launcher went away before it had a checkpoint; the job "
                               "goes on from its newest one, perhaps at its old size: see bellows "
                               "status {}",
                               job_.id)};
    // A requeue takes this step along with the launcher: another resize was faster.
    if (auto now = slurm_.job(job_.id);
        now.ok() && (now->state != SlurmState::running || now->restarts != job_.restarts))
      return ResizeFailure{kRefused, fmt::format("job {} was requeued or ended meanwhile; this "
                                                 "demand changed nothing",
                                                 job_.id)};
    // srun's own exit status; the step's would be kUnreachable.
    if (exit_code(*control_) == kFailed) {
      not_yet = "Slurm does not start a step in the job yet";
      return ResizeFailure{kUnreachable,
                           fmt::format("Slurm starts no step in job {}, so its launcher cannot be "
                                       "asked; nothing was changed",
                                       job_.id)};
    }
    return ResizeFailure{kUnreachable,
                         fmt::format("job {} has no launcher that answers (is its script running "
                                     "'exec bellows run'?); nothing was changed",
                                     job_.id)};
  }
}

std::optional<ResizeFailure> Resize::requeue() {
  auto started = Clock::now();
  SlurmJobChange change;
  Status status;
  do {
    // The controller's clock, read just before: a start time in its past would lose the job.
    auto job = slurm_.job(job_.id);
    status = job.ok() ? Status() : Status(job.error());
    if (status.ok()) {
      change.begin_time = job->controller_now + kSafeStart;
      requeued_ = Clock::now();
      status = slurm_.requeue_running(job_.id);
    }
    if (status.ok() || status.error().kind != ErrorKind::unavailable) break;
    std::this_thread::sleep_for(500ms);
  } while (Clock::now() - started < kRequeueTries);
  if (!status)
    return ResizeFailure{kFailed, status.error().text + "; its launcher will requeue it by itself"};

  change.gpus = request_.gpus;
  started = Clock::now();
  do {
    status = slurm_.change(job_, change);
    if (status.ok() || status.error().kind != ErrorKind::unavailable) break;
    std::this_thread::sleep_for(200ms);
    // What was 5 s ahead may be past by now.
    if (auto job = slurm_.job(job_.id)) change.begin_time = job->controller_now + kSafeStart;
  } while (Clock::now() - started < kRequeueTries);
  if (!status) {
    // Slurm may have taken some of the fields: back to the size that is known to work.
    change.gpus = report_.from;
    if (!slurm_.change(job_, change))
      (void)slurm_.change(job_, {std::nullopt, change.begin_time}).ok();
    return ResizeFailure{kFailed, status.error().text + "; it was requeued and restarts as it was"};
  }
  say_(fmt::format("requeued; asked for {} GPUs", request_.gpus));
  return std::nullopt;
}

std::optional<ResizeFailure> Resize::wait_until_running() {
  bool pulled = false;
  std::time_t next_look = 0;
  int looks = 0;
  bool said_waiting = false;
  while (true) {
    if (interrupted_() || out_of_time())
      return stopped_waiting(
          fmt::format("the job is queued for {} GPUs and goes on when it starts", request_.gpus));
    // A job that waits for others may wait long; slurmctld has more to do than to answer that.
    std::this_thread::sleep_for(seconds_since(requeued_) < kPollFast ? kPoll : kPollLater);
    auto job = slurm_.job(job_.id);
    if (!job && job.error().kind == ErrorKind::not_found)
      return ResizeFailure{kFailed, job.error().text + ": it ended while it was requeued"};
    if (!job) continue;  // says nothing about the job
    report_.job = *job;
    if (job->state == SlurmState::running && job->restarts > job_.restarts) {
      report_.requeue_s = seconds_since(requeued_);
      return std::nullopt;
    }
    if (job->finished())
      return ResizeFailure{kFailed, fmt::format("job {} ended while it was requeued: {}", job_.id,
                                                slurm_state_name(job->state))};
    if (job->state != SlurmState::pending || job->completing) continue;
    if (!pulled) {
      SlurmJobChange change;
      change.begin_time = job->controller_now + kSoonStart;
      // Refused when it has just started; then there is nothing to pull.
      pulled = slurm_.change(job_, change).ok();
      next_look = job->controller_now + kSoonStart;
      continue;
    }
    if (job->controller_now >= next_look) {
      // Nothing makes Slurm look at a job whose start time has come, until its next round in up to
      // a minute; a change does, even an empty one.
      (void)slurm_.change(job_, {}).ok();
      next_look = job->controller_now + (++looks > 5 ? 10 : 1);
    }
    bool others_first = job->reason == "Resources" || job->reason == "Priority";
    if (others_first && !said_waiting && seconds_since(requeued_) > 5) {
      said_waiting = true;
      say_(fmt::format("waiting for GPUs ({})", job->reason));
    }
  }
}

std::optional<ResizeFailure> Resize::verify() {
  const SlurmJob& job = report_.job;
  if (job.gpus() != request_.gpus)
    return ResizeFailure{kFailed, fmt::format("job {} runs again, but with {} GPUs instead of {}",
                                              job.id, job.gpus(), request_.gpus)};
  std::vector<std::string> places;
  for (const NodeShare& share : job.nodes)
    places.push_back(fmt::format("{}: {}", share.node, share.gpus));
  say_(fmt::format("running on {} GPUs ({}), {:.1f} s after the requeue", job.gpus(),
                   fmt::join(places, ", "), report_.requeue_s));
  return std::nullopt;
}

}  // namespace bellows
