// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/control_step.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "common/child.h"
#include "launcher/base/line_buffer.h"
#include "launcher/slurm/step_environment.h"

namespace bellows {
namespace {

constexpr int kListenMs = 200;

class ControlStep final : public LauncherLine {
 public:
  ControlStep(Child srun, const std::string& demand) : srun_(std::move(srun)) {
    writer_.add(demand);
  }

  Heard listen() override {
    pollfd fds[] = {{srun_.out(), POLLIN, 0},
                    {writer_.empty() ? -1 : srun_.in(), POLLOUT, 0},
                    {srun_.err(), POLLIN, 0}};
    poll(fds, 3, kListenMs);
    if (fds[2].revents != 0 && !errors_.fill(srun_.err())) srun_.close_err();
    Heard heard;
    heard.open = writer_.flush(srun_.in()) && reader_.fill(srun_.out());
    while (auto line = reader_.next()) heard.lines.push_back(std::move(*line));
    return heard;
  }
  void hang_up() override { srun_.close_in(); }
  std::optional<int> exit_code() override {
    const auto& exit = srun_.poll_exit();
    return exit ? std::optional(exit->code()) : std::nullopt;
  }
  std::optional<std::string> complaint() override {
    (void)errors_.fill(srun_.err());
    return errors_.next();
  }

 private:
  Child srun_;
  LineReader reader_;
  LineReader errors_;
  LineWriter writer_;
};

Result<Child> start_step(const SlurmJob& job, const std::string& program) {
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
  // What srun says of a step that found no launcher is noise beside our own sentence.
  options.pipe_err = true;
  return Child::start(options);
}

}  // namespace

CallLauncher call_by_step(const std::string& program) {
  return [program](const SlurmJob& job,
                   const std::string& demand) -> Result<std::unique_ptr<LauncherLine>> {
    auto srun = start_step(job, program);
    if (!srun) return srun.error();
    return std::unique_ptr<LauncherLine>(std::make_unique<ControlStep>(std::move(*srun), demand));
  };
}

}  // namespace bellows
