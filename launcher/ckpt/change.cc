// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <cstdio>
#include <set>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "checkpoint/store/store_writer.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/prune.h"
#include "launcher/ckpt/safetensors.h"
#include "launcher/ckpt/text.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

Status give_name(FileOps& ops, const StepPlace& place, const std::string& name) {
  auto lock = lock_store(place.dir);
  if (!lock) return lock.error();
  return add_step_name(ops, place.dir, name, place.step);
}

void print_bad(const PrunePlan& plan) {
  for (std::uint64_t step : plan.bad) {
    fmt::print("step {} does not verify, and is not counted\n", step);
  }
  for (const auto& [step, why] : plan.unread) {
    fmt::print("step {} could not be read, and is not counted: {}\n", step, one_line(why));
  }
}

ordered_json json_of(const std::string& dir, const PrunePlan& plan,
                     const std::vector<std::uint64_t>& removed, bool dry_run) {
  std::set<std::uint64_t> kept(plan.keep.begin(), plan.keep.end());
  kept.insert(plan.remove.begin(), plan.remove.end());
  for (std::uint64_t step : removed) kept.erase(step);
  std::vector<std::uint64_t> unread;
  for (const auto& [step, why] : plan.unread) unread.push_back(step);
  return {{"dir", dir},   {"dry_run", dry_run}, {"removed", removed},
          {"kept", kept}, {"bad", plan.bad},    {"unread", unread}};
}

}  // namespace

int ckpt_prune(const CkptOptions& options) {
  auto dir = find_checkpoint_dir(options.dir);
  if (!dir) return complain("prune", dir.error());
  if (!options.dry_run && !options.job_is_over) {
    if (auto status = check_no_job_runs(*dir); !status) return complain("prune", status.error());
  }
  ProgressBar progress(options.progress());
  auto plan = plan_prune(*dir, options.retention, progress);
  note_interrupts();
  if (!plan) return complain("prune", plan.error());
  if (!options.json) print_bad(*plan);
  std::vector<std::uint64_t> removed;
  const auto note = [&](std::uint64_t step) {
    removed.push_back(step);
    if (!options.json) {
      fmt::print("{} step {}\n", options.dry_run ? "would remove" : "removed", step);
    }
  };
  FileOps ops;
  Status status;
  if (options.dry_run) {
    for (std::uint64_t step : plan->remove) note(step);
  } else if (!plan->remove.empty()) {
    status = run_prune(ops, *dir, *plan, note);
  }
  if (options.json) {
    print_json(json_of(*dir, *plan, removed, options.dry_run));
  } else {
    const std::size_t all = plan->keep.size() + plan->remove.size();
    fmt::print("{} of {} steps {}\n", all - removed.size(), all,
               options.dry_run ? "would stay" : "stay");
  }
  std::fflush(stdout);
  if (!status) return complain("prune", status.error());
  if (interrupted()) {
    return complain("prune",
                    {ErrorKind::unavailable, fmt::format("interrupted after {} of {} steps",
                                                         removed.size(), plan->remove.size())});
  }
  return kOk;
}

int ckpt_name(const CkptOptions& options) {
  auto place = find_step(options.dir, options.step);
  if (!place) return complain("name", place.error());
  struct stat s;
  // Who may read the directory may read its names.
  FileOps ops(stat(place->dir.c_str(), &s) == 0 ? access_of_mode(s.st_mode) : Access::owner);
  if (auto status = give_name(ops, *place, options.name); !status) {
    return complain("name", status.error());
  }
  fmt::print("step {} is {}\n", place->step, options.name);
  return kOk;
}

int ckpt_unname(const CkptOptions& options) {
  auto dir = find_checkpoint_dir(options.dir);
  if (!dir) return complain("name", dir.error());
  FileOps ops;
  auto status = remove_step_name(ops, *dir, options.step);
  return status ? kOk : complain("name", status.error());
}

int ckpt_export(const CkptOptions& options) {
  auto place = find_step(options.dir, options.step);
  if (!place) return complain("export", place.error());
  auto contents = StepContents::open(*place);
  if (!contents) return complain("export", contents.error());
  auto file = lay_out_tensors(*contents, options.except);
  if (!file) return complain("export", file.error());
  note_interrupts();
  ProgressBar progress(options.progress());
  // The user's umask decides, as of any file that a command writes.
  FileOps ops(Access::all);
  auto status = write_tensors(ops, *contents, *file, options.to, progress);
  progress.end();
  if (!status) return complain("export", status.error());
  if (options.json) {
    print_json({{"step", place->step},
                {"path", place->path()},
                {"file", options.to},
                {"arrays", file->order.size()},
                {"bytes", file->bytes}});
    return kOk;
  }
  fmt::print("{}: step {}, {} arrays, {}\n", one_line(options.to), place->step, file->order.size(),
             size_text(file->bytes));
  return kOk;
}

}  // namespace bellows
