// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_context.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "checkpoint/store_writer.h"
#include "common/fd.h"
#include "common/text.h"
#include "launcher/job_view.h"
#include "launcher/rank_command.h"

namespace bellows {
namespace {

// A directory in /tmp can be made by anyone first.
Status make_private_dir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error("make the directory", path);
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return errno_error("look at", path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 0077) != 0)
    return Error{ErrorKind::denied,
                 path + " is not a directory that belongs to you alone: remove it"};
  return {};
}

/// Where the commands outside the job look for its files.
Result<std::string> usual_checkpoint_dir(const RunContext& context, const SlurmJob& job) {
  if (const char* dir = std::getenv("BELLOWS_CHECKPOINT_DIR"); dir && context.contract)
    return std::string(dir);
  return checkpoint_dir_of(job, context.contract);
}

Result<std::string> choose_checkpoint_dir(const RunContext& context, const SlurmJob& job) {
  if (!context.options.checkpoint_dir.empty())
    return std::filesystem::absolute(context.options.checkpoint_dir).lexically_normal().string();
  return usual_checkpoint_dir(context, job);
}

// Nothing in Slurm's record, which all can read, is the user's to keep a path in: a link at the
// usual place leads to the one that was chosen.
Status leave_link(const RunContext& context, const SlurmJob& job) {
  auto usual = usual_checkpoint_dir(context, job);
  if (!usual) return usual.error();
  std::error_code error;
  if (std::filesystem::equivalent(*usual, context.checkpoint_dir, error)) return {};
  const std::filesystem::path link(*usual);
  std::filesystem::create_directories(link.parent_path(), error);
  if (std::filesystem::is_symlink(link, error)) std::filesystem::remove(link, error);
  std::filesystem::create_symlink(context.checkpoint_dir, link, error);
  if (!error) return {};
  return Error{ErrorKind::io, fmt::format("cannot make {} a link to {}: {}", *usual,
                                          context.checkpoint_dir, error.message())};
}

}  // namespace

std::optional<std::uint32_t> job_id_from_environment() {
  const char* text = std::getenv("SLURM_JOB_ID");
  auto id = text ? parse_uint(text) : std::nullopt;
  if (!id || *id == 0 || *id > 0xffffffffu) return std::nullopt;
  return static_cast<std::uint32_t>(*id);
}

std::string own_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "bellows" : path.string();
}

std::string run_dir_of(std::uint32_t job_id) {
  if (const char* dir = std::getenv("BELLOWS_RUN_DIR"); dir && *dir) return dir;
  return fmt::format("/tmp/bellows-{}-{}", getuid(), job_id);
}

std::optional<std::uint32_t> owning_job(const std::string& checkpoint_dir) {
  auto text = read_owner(checkpoint_dir);
  if (!text) return std::nullopt;
  auto owner = nlohmann::json::parse(*text, nullptr, false);
  if (!owner.is_object() || !owner["attempt"].is_string()) return std::nullopt;
  // JOB.RESTART.ATTEMPT, or another name when it was written outside a job.
  const std::string attempt = owner["attempt"];
  auto id = parse_uint(attempt.substr(0, attempt.find('.')));
  if (!id || *id == 0 || *id > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*id);
}

Result<RunContext> make_run_context(const RunOptions& options, const SlurmJob& job) {
  RunContext context;
  context.options = options;
  context.job_id = job.id;
  context.program = own_program();
  context.run_dir = run_dir_of(job.id);
  if (const char* line = std::getenv(Contract::kVariable)) {
    auto contract = Contract::parse(line);
    if (!contract) return contract.error();
    context.contract = std::move(*contract);
  }
  context.options.command = framework_command(context.contract, options.command);
  auto launch = choose_launch_kind(options.kind, context.contract);
  if (!launch) return launch.error();
  context.launch = *launch;
  auto dir = choose_checkpoint_dir(context, job);
  if (!dir) return dir.error();
  context.checkpoint_dir = *dir;
  if (Status status = make_private_dir(context.run_dir); !status) return status.error();
  std::error_code error;
  std::filesystem::create_directories(context.checkpoint_dir, error);
  const bool made = !error;
  if (made && access(context.checkpoint_dir.c_str(), W_OK | X_OK) != 0)
    error.assign(errno, std::generic_category());
  if (error)
    return Error{ErrorKind::io,
                 fmt::format("cannot {} the checkpoint directory {}: {}; name one where you may "
                             "write with --checkpoint-dir",
                             made ? "write to" : "make", context.checkpoint_dir, error.message())};
  if (Status status = leave_link(context, job); !status)
    fmt::print(stderr, "bellows run: {}; status, history and logs need --checkpoint-dir\n",
               status.error().text);
  return context;
}

Status ActiveMarker::write() const {
  return replace_file(path_, fmt::format("{}\n", getpid()), 0600);
}

// A link that leads nowhere: root reads its text without opening what a user has made.
void ActiveMarker::plan(std::optional<std::uint32_t> gpus) const {
  unlink(plan_.c_str());
  if (gpus && symlink(std::to_string(*gpus).c_str(), plan_.c_str()) != 0)
    fmt::print(stderr, "bellows run: {}; a launcher that is killed comes back at the old size\n",
               errno_error("make", plan_).text);
}

void ActiveMarker::remove() const {
  unlink(path_.c_str());
  unlink(plan_.c_str());
}

}  // namespace bellows
