// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "common/munge/munge.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/job_paths.h"
#include "launcher/cli/commands.h"
#include "launcher/machine/restart_budget.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/record/lost_halt.h"
#include "launcher/run/run_shell.h"
#include "slurm/client.h"

namespace bellows {
namespace {

// Threads and children that come later inherit the mask; children reset it.
void block_signals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int number : {SIGCHLD, SIGUSR1, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void warn_unless_batch_script() {
  std::ifstream file("/proc/" + std::to_string(getppid()) + "/comm");
  std::string parent;
  if (std::getline(file, parent) && parent != "slurmstepd")
    fmt::print(
        stderr,
        "bellows run: this is not the batch script itself, so signals that Slurm sends to the "
        "script do not arrive here; write 'exec bellows run ...'\n");
}

// Slurm's answer decides what is started: without one there is nothing to do but ask again.
Result<SlurmJob> wait_for_job(Slurm& slurm, std::uint32_t id) {
  for (bool said = false;; std::this_thread::sleep_for(std::chrono::seconds(1))) {
    auto job = slurm.job(id);
    if (job.ok() || job.error().kind != ErrorKind::unavailable) return job;
    if (!said) fmt::print(stderr, "bellows run: {}; asking again\n", job.error().text);
    said = true;
  }
}

int fail(const std::string& text, int status) {
  fmt::print(stderr, "bellows run: {}\n", text);
  return status;
}

// A job that has run before must not end because its file system is away for a while.
Result<RunContext> prepare(const RunOptions& options, const SlurmJob& job) {
  RestartBudget budget(options.max_restarts);
  for (;;) {
    auto context = make_run_context(options, job);
    if (context.ok() || context.error().kind != ErrorKind::io || job.restarts == 0 ||
        !budget.spend(Blame::storage, std::nullopt, 0))
      return context;
    fmt::print(stderr, "bellows run: {}; trying again\n", context.error().text);
    std::this_thread::sleep_for(budget.pause());
  }
}

/// Also records it for `bellows status`, since the output is only one file among many.
int refuse(const SlurmJob& job, const std::string& text, int status) {
  (void)record_refused_run(job, text).ok();
  return fail(text, status);
}

std::optional<ControllerPlace> controller_of(const SlurmClient& slurm, const RunContext& context) {
  if (!context.contract) return std::nullopt;
  const std::string_view text = context.contract->extra_value(Contract::kControllerKey);
  // The keeper of a pool asks by itself.
  if (text.empty() || !context.contract->extra_value(Contract::kPoolKey).empty())
    return std::nullopt;
  auto address = ControllerAddress::parse(text);
  if (!address) {
    fmt::print(stderr, "bellows run: {}; bellowsd will not resize this job\n",
               address.error().text);
    return std::nullopt;
  }
  return ControllerPlace{*std::move(address), slurm.slurm_user(),
                         munge_socket_of(slurm.auth_info())};
}

Status check_server_options(LaunchKind kind, const RunOptions& options) {
  if (kind != LaunchKind::ps && options.server.any())
    return Error{ErrorKind::denied,
                 fmt::format("--ps-threads and the other options --ps-... are for --kind=ps, and "
                             "this job has kind {}: leave them out, or give that",
                             launch_kind_name(kind))};
  if (kind == LaunchKind::ps && options.own.signal != 0)
    return Error{ErrorKind::denied,
                 "--checkpoint-signal is sent to ranks, and with --kind=ps the rank is the "
                 "parameter server: leave it out"};
  return {};
}

int supervise(const RunOptions& options, std::uint32_t id) {
  SlurmClient slurm;
  auto job = wait_for_job(slurm, id);
  if (!job) return fail(job.error().text, kFailed);
  if (job->finished())
    return fail(fmt::format("job {} is over ({})", id, slurm_state_name(job->state)), kRefused);
  if (!job->kind.batch || job->kind.het)
    return refuse(
        *job,
        "this needs a batch job with a single component, since only such a job can be requeued",
        kRefused);
  auto context = prepare(options, *job);
  if (!context)
    return refuse(*job, context.error().text,
                  context.error().kind == ErrorKind::denied ? kRefused : kFailed);
  if (Status fits = check_server_options(context->launch, options); !fits)
    return refuse(*job, fits.error().text, kRefused);
  auto layout = context->launch == LaunchKind::ps ? RankLayout::one_of(*job) : RankLayout::of(*job);
  if (!layout)
    return refuse(*job, layout.error().text,
                  layout.error().kind == ErrorKind::denied ? kRefused : kFailed);
  if (needs_pmix(context->launch) && !slurm.has_plugin("mpi_pmix"))
    return refuse(
        *job,
        fmt::format("kind {} needs PMIx, and this Slurm has no mpi/pmix plugin; a program "
                    "that does not need PMIx or MPI can run with --kind=plain, or "
                    "--kind=torch",
                    launch_kind_name(context->launch)),
        kRefused);
  if (!context->contract)
    fmt::print(
        stderr,
        "bellows run: the job has no Bellows contract (sbatch --framework, --gpus-range), so "
        "it cannot be resized, and a killed launcher ends it\n");
  warn_unless_batch_script();
  context->controller = controller_of(slurm, *context);
  RunShell shell(slurm, std::move(*context), std::move(*job), std::move(*layout));
  return shell.run();
}

void add_launch_options(CommandLine& command, const std::shared_ptr<RunOptions>& options) {
  command
      .add_option("--kind", options->kind,
                  "How ranks are started: mpi, nccl, torch, plain or ps (default: the framework's)")
      .value_name("mpi|nccl|torch|plain|ps")
      .check([](const std::string& kind) {
        return parse_launch_kind(kind) ? "" : "'" + kind + "' is not mpi, nccl, torch, plain or ps";
      });
  command
      .add_option("--ps-threads", options->server.threads,
                  "With kind ps: threads of the parameter server (default: 1)")
      .between(1, 256);
  command
      .add_option("--ps-checkpoint-every", options->server.checkpoint_every,
                  "With kind ps: seconds between two checkpoints; 0: only when the job stops "
                  "(default: 60)")
      .between(0, 86400);
  command
      .add_option("--ps-mode", options->server.mode,
                  "With kind ps: async applies each gradient by itself, bounded so that learners "
                  "wait for the slowest, sync their mean")
      .value_name("async|bounded|sync")
      .check([](const std::string& mode) {
        return mode == "async" || mode == "bounded" || mode == "sync"
                   ? ""
                   : "'" + mode + "' is not async, bounded or sync";
      });
  command
      .add_option(
          "--ps-staleness", options->server.staleness,
          "With --ps-mode=bounded: how many gradients a learner may be ahead of the slowest "
          "(default: 8)")
      .between(0, 1 << 30);
  command
      .add_option("--cpu-bind", options->cpu_bind,
                  "CPUs of a rank: near its GPU, none, or what srun's --cpu-bind accepts")
      .show_default();
}

void add_own_checkpoint_options(CommandLine& command, const std::shared_ptr<RunOptions>& options) {
  command
      .add_option("--checkpoint-signal", options->checkpoint_signal,
                  "For a program without libbellows: the signal on which its ranks save and exit")
      .check([](const std::string& text) {
        return parse_signal(text) ? "" : "'" + text + "' is not a signal such as USR1 or 10";
      });
  command
      .add_option("--checkpoint-cmd", options->own.command,
                  "For a program without libbellows: a shell command that makes it save")
      .check([](const std::string& text) { return text.empty() ? "is empty" : ""; })
      .excludes("--checkpoint-signal");
  command
      .add_option("--checkpoint-grace", options->own.grace,
                  "Seconds that such a program gets to save")
      .show_default()
      .between(1, 86400);
  command
      .add_option("--stopped-status", options->stopped_status,
                  "Exit status of ranks that have saved and stopped, so that 0 means finished "
                  "(default: 0 after the signal means stopped)")
      .between(1, 255);
}

int run(RunOptions options) {
  if (auto signal = parse_signal(options.checkpoint_signal)) options.own.signal = *signal;
  if (options.stopped_status != 0)
    options.own.stopped_status = static_cast<int>(options.stopped_status);
  auto id = job_id_from_environment();
  if (!id)
    return fail(
        "not running inside a Slurm job: put this line into a batch script and submit it with "
        "sbatch",
        kRefused);
  block_signals();
  // From the start: slurmctld may take its time to answer, and a kill must not end the job.
  if (!std::getenv("BELLOWS_RUN_DIR")) return supervise(options, *id);
  ActiveMarker marker(run_dir_of(*id));
  (void)marker.write().ok();
  int status = supervise(options, *id);
  marker.remove();
  return status;
}

}  // namespace

void add_run_command(CommandLine& program) {
  auto options = std::make_shared<RunOptions>();
  CommandLine command = program.add_command(
      "run", "Run a program on all GPUs of the job, with checkpoints and restarts");
  command.footer("In a batch script: exec bellows run -- COMMAND [ARGUMENT]...");
  command
      .add_option("--checkpoint-dir", options->checkpoint_dir,
                  "Where checkpoints go (default: the administrator's choice, else bellows-JOBID)")
      .check([](const std::string& dir) { return dir.empty() ? "is empty" : ""; });
  command.add_option("--keep", options->keep, "Committed checkpoints to keep")
      .show_default()
      .between(1, 1000);
  command.add_option("--keep-every", options->keep_every,
                     "Also keep every checkpoint of a step divisible by this");
  command
      .add_option("--max-restarts", options->max_restarts,
                  "Restarts in a row without a new checkpoint, or a step beyond all earlier ones, "
                  "before the job fails")
      .show_default()
      .between(0, 1000);
  command
      .add_option("--log-size", options->log_mib,
                  "MiB for what 'bellows logs' shows; the oldest is removed first; 0: no logs")
      .show_default()
      .between(0, 1 << 20);
  command
      .add_option("--start-limit", options->start_limit,
                  "Seconds within which all ranks must have started; 0: no limit")
      .show_default()
      .between(0, 86400);
  command
      .add_option("--hang-floor", options->hang_floor,
                  "Minimum seconds without progress before ranks are considered hung; 0: never")
      .show_default()
      .between(0, 86400);
  command
      .add_option("--on-drain", options->on_drain,
                  "When one of its nodes is drained: leave at a checkpoint, or stay")
      .show_default()
      .check([](const std::string& what) {
        return what == "leave" || what == "stay" ? "" : "'" + what + "' is neither leave nor stay";
      });
  add_launch_options(command, options);
  add_own_checkpoint_options(command, options);
  command.add_option("COMMAND", options->command, "Program and arguments, one rank for each GPU")
      .required();
  command.positionals_at_end();
  command.run([options] { return run(*options); });
}

}  // namespace bellows
