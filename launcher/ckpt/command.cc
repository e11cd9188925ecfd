// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>

#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/job.h"
#include "launcher/ckpt/place.h"
#include "launcher/ckpt/text.h"
#include "launcher/cli/commands.h"

namespace bellows {
namespace {

using Options = std::shared_ptr<CkptOptions>;

constexpr const char* kStep =
    "A step's number or name, the path of its directory, or of a checkpoint directory for the "
    "newest in it";

/// How many words name steps, beside a JOB.
struct Words {
  std::size_t least = 0;
  std::size_t most = 1;
};

void add_place(CommandLine& command, const Options& options) {
  command.add_option("JOB", options->job_word,
                     "Job id, or ARRAY_TASK, or a checkpoint directory, which --dir or "
                     "$BELLOWS_CHECKPOINT_DIR names otherwise");
}

void add_dir(CommandLine& command, const Options& options) {
  command
      .add_option("-d,--dir", options->dir,
                  "The checkpoint directory (default: that of JOB, $BELLOWS_CHECKPOINT_DIR, "
                  "bellows-checkpoints)")
      .value_name("DIR");
  command.add_option("-j,--job", options->job, "The job that the checkpoint directory belongs to")
      .check(job_name_complaint)
      .excludes("--dir");
}

void add_json(CommandLine& command, const Options& options) {
  command.add_flag("--json", options->json, "Print JSON");
}

void add_quiet(CommandLine& command, const Options& options) {
  command.add_flag("-q,--quiet", options->quiet, "Show no progress");
}

/// Once it is known whether the first word is a job, and where that keeps its checkpoints.
int run_settled(const char* name, CkptOptions& options, Words words,
                const std::function<int(const CkptOptions&)>& run) {
  settle_words(options, words.least, words.most);
  if (options.all && !options.steps.empty()) throw WrongUsage{"--all and STEP exclude each other"};
  if (Status found = find_job_dir(options); !found) return complain(name, found.error());
  return run(options);
}

/// The subcommand, and what it runs.
CommandLine add(CommandLine& ckpt, const char* name, const char* help, const Options& options,
                Words words, int (*run)(const CkptOptions&)) {
  CommandLine command = ckpt.add_command(name, help);
  command.run([=] { return run_settled(name, *options, words, run); });
  return command;
}

void add_readers(CommandLine& ckpt) {
  auto options = std::make_shared<CkptOptions>();
  auto list = add(ckpt, "list", "Show the steps of a directory", options, {0, 0}, ckpt_list);
  add_place(list, options);
  add_dir(list, options);
  add_json(list, options);
  list.footer("It reads no arrays; 'bellows ckpt verify' checks them.");

  options = std::make_shared<CkptOptions>();
  auto show = add(ckpt, "show", "Show what is in a step", options, {0, 1}, ckpt_show);
  add_place(show, options);
  show.add_option("STEP", options->step, std::string(kStep) + " (default: the newest)");
  add_dir(show, options);
  add_json(show, options);
  add_quiet(show, options);

  options = std::make_shared<CkptOptions>();
  auto verify = add(ckpt, "verify", "Read whole steps and check them against their digests",
                    options, {0, kAnyNumber}, ckpt_verify);
  add_place(verify, options);
  verify.add_option("STEP", options->steps, kStep).values(0, -1);
  verify.add_flag("--all", options->all, "Every step of the directory");
  add_dir(verify, options);
  add_json(verify, options);
  add_quiet(verify, options);
  verify.footer("Exit status: 0 all are good, 1 one is not. Without STEP, it checks the newest.");
}

void add_diff(CommandLine& ckpt) {
  auto options = std::make_shared<CkptOptions>();
  auto diff = add(ckpt, "diff", "Compare the arrays of two steps", options, {2, 2}, ckpt_diff);
  add_place(diff, options);
  diff.add_option("STEP", options->steps, "Two steps, each a number, a name or a path")
      .values(1, 2)
      .required();
  add_dir(diff, options);
  add_json(diff, options);
  add_quiet(diff, options);
  diff.footer("Exit status: 0 equal, 1 different, 2 a step cannot be read.");
}

void add_prune(CommandLine& ckpt) {
  auto options = std::make_shared<CkptOptions>();
  auto prune = add(ckpt, "prune", "Remove old steps", options, {0, 0}, ckpt_prune);
  add_place(prune, options);
  add_dir(prune, options);
  prune
      .add_option("--keep", options->retention.keep,
                  "Keep this many of the newest steps that verify")
      .required()
      .between(1, 1000000);
  prune.add_option("--keep-every", options->retention.keep_every,
                   "Also keep every step divisible by this");
  prune.add_flag("-n,--dry-run", options->dry_run,
                 "Show what would be removed, and remove nothing");
  prune.add_flag("--job-is-over", options->job_is_over,
                 "Do not ask Slurm whether the job that owns the directory is running");
  add_json(prune, options);
  add_quiet(prune, options);
  prune.footer("Steps with a name stay: 'bellows ckpt name'.");
}

int run_name(CkptOptions& options, bool remove) {
  const Words words = remove ? Words{1, 1} : Words{2, 2};
  return run_settled("name", options, words, [remove](const CkptOptions& settled) {
    if (settled.step.empty()) throw WrongUsage{remove ? "NAME is required" : "STEP is required"};
    if (remove && !settled.name.empty())
      throw WrongUsage{"unexpected argument '" + settled.name + "'"};
    if (!remove && settled.name.empty()) throw WrongUsage{"NAME is required"};
    return remove ? ckpt_unname(settled) : ckpt_name(settled);
  });
}

void add_name(CommandLine& ckpt) {
  auto options = std::make_shared<CkptOptions>();
  auto remove = std::make_shared<bool>(false);
  CommandLine name = ckpt.add_command("name", "Name a step, so that it is kept, or remove a name");
  add_place(name, options);
  name.add_option("STEP", options->step, kStep);
  name.add_option("NAME", options->name, "Letters, digits and ._+-");
  name.add_flag("--remove", *remove, "Remove the name, which is the only argument besides JOB");
  add_dir(name, options);
  name.footer("bellows ckpt name [JOB] STEP NAME\nbellows ckpt name --remove [JOB] NAME");
  name.run([options, remove] { return run_name(*options, *remove); });
}

void add_export(CommandLine& ckpt) {
  auto options = std::make_shared<CkptOptions>();
  auto command = add(ckpt, "export", "Write a step's whole arrays into one safetensors file",
                     options, {0, 1}, ckpt_export);
  add_place(command, options);
  command.add_option("STEP", options->step, std::string(kStep) + " (default: the newest)");
  command.add_option("--to", options->to, "The file; one that exists is replaced")
      .required()
      .value_name("FILE");
  command.add_option("--except", options->except, "Do not export this array").value_name("NAME");
  add_dir(command, options);
  add_json(command, options);
  add_quiet(command, options);
}

}  // namespace

void add_ckpt_command(CommandLine& program) {
  CommandLine ckpt =
      program.add_command("ckpt", "Show, verify, compare, name, remove and export checkpoints");
  ckpt.require_command();
  add_readers(ckpt);
  add_diff(ckpt);
  add_prune(ckpt);
  add_name(ckpt);
  add_export(ckpt);
}

}  // namespace bellows
