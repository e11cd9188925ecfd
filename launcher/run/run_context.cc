// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/run_context.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "checkpoint/store/store_place.h"
#include "checkpoint/store/store_writer.h"
#include "checkpoint/system/file_ops.h"
#include "launcher/base/job_paths.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/record/directory_claim.h"
#include "launcher/record/job_view.h"

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

/// A path of the user's, checked where it lies below the directory that the site has chosen.
StorePlace place_of(const RunContext& context, const std::string& path) {
  std::string dir = std::filesystem::absolute(path).lexically_normal().string();
  if (!context.contract || context.contract->checkpoint_dir.empty()) return dir;
  // As `dir` is: the administrator may have written /a//b or /a/./b.
  const std::filesystem::path base(fixed_part(context.contract->checkpoint_dir));
  return StorePlace::below(base.lexically_normal().string(), dir);
}

/// Where the commands outside the job look for its files.
Result<StorePlace> usual_place(const RunContext& context, const SlurmJob& job) {
  if (const char* dir = std::getenv("BELLOWS_CHECKPOINT_DIR"); dir && context.contract)
    return place_of(context, dir);
  auto dir = checkpoint_dir_of(job, context.contract);
  if (!dir) return dir.error();
  if (context.contract && !context.contract->checkpoint_dir.empty()) return place_of(context, *dir);
  return StorePlace(*dir, job.asked.work_dir);
}

Result<StorePlace> choose_place(const RunContext& context, const SlurmJob& job) {
  if (context.options.checkpoint_dir.empty()) return usual_place(context, job);
  return place_of(context, context.options.checkpoint_dir);
}

Status make_directory(const RunContext& context, const StorePlace& place) {
  const bool sites = context.contract && !context.contract->checkpoint_dir.empty();
  // The user chooses where a job runs, and the site decides about what all users share.
  if (sites && place.dir != place.base) {
    if (Status status = check_shared_base(place.base); !status) return status;
  }
  FileOps ops(context.access);
  return make_place(ops, place);
}

Status make_checkpoint_dir(const RunContext& context, const StorePlace& place) {
  Status status = make_directory(context, place);
  // The error of the checks already says what to do.
  if (!status && status.error().kind == ErrorKind::denied && place.dir != place.base) return status;
  if (status && access(place.dir.c_str(), W_OK | X_OK) != 0)
    status = errno_error("write to the checkpoint directory", place.dir);
  if (status) return status;
  return Error{ErrorKind::io,
               status.error().text + "; name one where you may write with --checkpoint-dir"};
}

// Slurm's record of a job has no field in which a user could keep a path, so a link at the usual
// place leads to the chosen one.
Status leave_link(const RunContext& context, const SlurmJob& job) {
  auto usual = usual_place(context, job);
  if (!usual) return usual.error();
  std::error_code error;
  if (std::filesystem::equivalent(usual->dir, context.checkpoint_dir, error)) return {};
  const std::filesystem::path link(usual->dir);
  const bool chosen = usual->dir == usual->base;
  const std::string name = link.filename();
  auto parent = chosen ? make_place(link.parent_path().string(), context.access)
                       : make_parent(*usual, context.access);
  if (!parent) return parent.error();
  struct stat info;
  if (fstatat(parent->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(info.st_mode))
    unlinkat(parent->get(), name.c_str(), 0);
  if (symlinkat(context.checkpoint_dir.c_str(), parent->get(), name.c_str()) == 0) return {};
  return errno_error("create a link to " + context.checkpoint_dir + " as", usual->dir);
}

/// Whether the usual place belongs to this job alone.
bool usual_dir_has_id(const RunContext& context) {
  return !context.contract || context.contract->checkpoint_dir.empty() ||
         context.contract->checkpoint_dir.find("%j") != std::string::npos;
}

// A job id is used again when slurmctld has lost its state. A job whose user names a directory
// continues from what is there; but nobody has named this one.
Status clear_usual_place(const RunContext& context, const SlurmJob& job) {
  auto usual = usual_place(context, job);
  if (!usual || !usual_dir_has_id(context)) return {};
  // What is wrong with it is reported when it is to be used.
  if (usual->dir != usual->base && !open_parent(*usual)) return {};
  std::error_code error;
  if (!context.options.checkpoint_dir.empty() &&
      std::filesystem::equivalent(usual->dir, context.checkpoint_dir, error))
    return {};
  auto now_at = set_aside_older(usual->dir, job);
  if (!now_at) return now_at.error();
  if (*now_at)
    fmt::print(stderr,
               "bellows run: {} belonged to an older job with the number {}: it is now {}, and "
               "this job starts from scratch\n",
               usual->dir, job.id, **now_at);
  return {};
}

// One that can't be used must not end a job that could train with its own batch. To ignore one that
// can't be read now would change how the job trains.
Status read_batch(RunContext& context) {
  auto ordered = BatchRecord(context.checkpoint_dir).read(context.contract);
  if (ordered) {
    context.ordered = *ordered;
    return {};
  }
  const ErrorKind kind = ordered.error().kind;
  if (kind != ErrorKind::corrupt && kind != ErrorKind::denied) return ordered.error();
  fmt::print(stderr,
             "bellows run: {}; it is not used, and the program trains with its own batch: order "
             "one with 'bellows resize --batch', or remove the file\n",
             ordered.error().text);
  return {};
}

}  // namespace

Result<RunContext> make_run_context(const RunOptions& options, const SlurmJob& job) {
  RunContext context;
  context.options = options;
  context.job_id = job.id;
  context.run = RunName::make(job.id, job.restarts, static_cast<std::uint64_t>(job.times.submit));
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
  if (context.contract)
    context.access = access_named(context.contract->extra_value(Contract::kAccessKey));
  auto place = choose_place(context, job);
  if (!place) return place.error();
  context.checkpoint_dir = place->dir;
  context.trusted_base = place->base;
  if (Status status = clear_usual_place(context, job); !status) return status.error();
  if (Status status = make_private_dir(context.run_dir); !status) return status.error();
  if (Status status = make_checkpoint_dir(context, *place); !status) return status.error();
  if (Status status = read_batch(context); !status) return status.error();
  if (Status status = leave_link(context, job); !status)
    fmt::print(stderr, "bellows run: {}; status, history and logs need --checkpoint-dir\n",
               status.error().text);
  return context;
}

}  // namespace bellows
