// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "checkpoint/store.h"
#include "checkpoint/store_names.h"
#include "checkpoint/store_writer.h"
#include "launcher/ckpt_commands.h"
#include "launcher/ckpt_place.h"
#include "launcher/ckpt_prune.h"
#include "launcher/ckpt_safetensors.h"
#include "launcher/ckpt_text.h"
#include "launcher/exit_status.h"

namespace bellows {
namespace {

Status give_name(FileOps& ops, const StepPlace& place, const std::string& name) {
  auto lock = lock_store(place.dir);
  if (!lock) return lock.error();
  return add_step_name(ops, place.dir, name, place.step);
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
  for (std::uint64_t step : plan->bad) {
    fmt::print("step {} does not verify, and is not counted\n", step);
  }
  std::size_t count = 0;
  const auto said = [&](std::uint64_t step) {
    ++count;
    fmt::print("{} step {}\n", options.dry_run ? "would remove" : "removed", step);
  };
  FileOps ops;
  Status status;
  if (options.dry_run) {
    for (std::uint64_t step : plan->remove) said(step);
  } else if (!plan->remove.empty()) {
    status = run_prune(ops, *dir, *plan, said);
  }
  fmt::print("{} of {} steps {}\n", plan->keep.size() + plan->remove.size() - count,
             plan->keep.size() + plan->remove.size(), options.dry_run ? "would stay" : "stay");
  std::fflush(stdout);
  if (!status) return complain("prune", status.error());
  if (interrupted()) {
    return complain("prune",
                    {ErrorKind::unavailable,
                     fmt::format("interrupted after {} of {} steps", count, plan->remove.size())});
  }
  return kOk;
}

int ckpt_name(const CkptOptions& options) {
  auto place = find_step(options.dir, options.step);
  if (!place) return complain("name", place.error());
  FileOps ops;
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
  FileOps ops;
  auto status = write_tensors(ops, *contents, *file, options.to, progress);
  progress.end();
  if (!status) return complain("export", status.error());
  fmt::print("{}: step {}, {} arrays, {}\n", one_line(options.to), place->step, file->order.size(),
             size_text(file->bytes));
  return kOk;
}

}  // namespace bellows
