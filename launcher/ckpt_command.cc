// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "launcher/ckpt_commands.h"
#include "launcher/ckpt_place.h"
#include "launcher/commands.h"

namespace bellows {
namespace {

using Options = std::shared_ptr<CkptOptions>;

constexpr const char* kStep =
    "A step's number or name, the path of its directory, or of a checkpoint directory for the "
    "newest in it";

void add_dir(CLI::App* command, const Options& options) {
  command
      ->add_option("-d,--dir", options->dir,
                   "The checkpoint directory (default: $BELLOWS_CHECKPOINT_DIR, else "
                   "bellows-checkpoints)")
      ->type_name("DIR");
}

void add_json(CLI::App* command, const Options& options) {
  command->add_flag("--json", options->json, "Print JSON");
}

void add_quiet(CLI::App* command, const Options& options) {
  command->add_flag("-q,--quiet", options->quiet, "Show no progress");
}

/// The subcommand's own options, and what it runs.
CLI::App* add(CLI::App* ckpt, const char* name, const char* help, const Options& options,
              int& exit_status, int (*run)(const CkptOptions&)) {
  CLI::App* command = ckpt->add_subcommand(name, help);
  command->callback([options, &exit_status, run] { exit_status = run(*options); });
  return command;
}

void add_readers(CLI::App* ckpt, int& exit_status) {
  auto options = std::make_shared<CkptOptions>();
  auto* list = add(ckpt, "list", "Show the steps of a directory", options, exit_status, ckpt_list);
  list->add_option("DIR", options->dir, "The checkpoint directory");
  add_dir(list, options);
  add_json(list, options);
  list->footer("It reads no array: 'bellows ckpt verify' tells whether they are whole.");

  options = std::make_shared<CkptOptions>();
  auto* show = add(ckpt, "show", "Show what is in a step", options, exit_status, ckpt_show);
  show->add_option("STEP", options->step, std::string(kStep) + " (default: the newest)");
  add_dir(show, options);
  add_json(show, options);
  add_quiet(show, options);

  options = std::make_shared<CkptOptions>();
  auto* verify = add(ckpt, "verify", "Read steps to the last byte and hold them to their digests",
                     options, exit_status, ckpt_verify);
  auto* steps = verify->add_option("STEP", options->steps, kStep)->expected(0, -1);
  verify->add_flag("--all", options->all, "Every step of the directory")->excludes(steps);
  add_dir(verify, options);
  add_json(verify, options);
  add_quiet(verify, options);
  verify->footer("Exit status: 0 all are good, 1 one is not. Without STEP the newest.");
}

void add_diff(CLI::App* ckpt, int& exit_status) {
  auto options = std::make_shared<CkptOptions>();
  auto* diff =
      add(ckpt, "diff", "Compare the arrays of two steps", options, exit_status, ckpt_diff);
  diff->add_option("STEPS", options->steps, "Two steps, each a number, a name or a path")
      ->expected(2)
      ->required();
  add_dir(diff, options);
  add_json(diff, options);
  add_quiet(diff, options);
  diff->footer("Exit status: 0 equal, 1 different, 2 a step cannot be read.");
}

void add_prune(CLI::App* ckpt, int& exit_status) {
  auto options = std::make_shared<CkptOptions>();
  auto* prune = add(ckpt, "prune", "Remove old steps", options, exit_status, ckpt_prune);
  prune->add_option("DIR", options->dir, "The checkpoint directory");
  add_dir(prune, options);
  prune->add_option("--keep", options->retention.keep, "Keep the newest so many that verify")
      ->required()
      ->check(CLI::Range(1u, 1000000u));
  prune->add_option("--keep-every", options->retention.keep_every,
                    "Keep every step divisible by this too");
  prune->add_flag("-n,--dry-run", options->dry_run, "Say what would go, and remove nothing");
  prune->add_flag("--job-is-over", options->job_is_over,
                  "Do not ask Slurm whether the job that owns the directory runs");
  add_quiet(prune, options);
  prune->footer("Steps with a name stay: 'bellows ckpt name'.");
}

void add_name(CLI::App* ckpt, int& exit_status) {
  auto options = std::make_shared<CkptOptions>();
  auto remove = std::make_shared<bool>(false);
  CLI::App* name = ckpt->add_subcommand("name", "Name a step, which keeps it, or take a name away");
  name->add_option("STEP", options->step, kStep);
  name->add_option("NAME", options->name, "Letters, digits and ._+-");
  name->add_flag("--remove", *remove, "Take away the only argument, a name");
  add_dir(name, options);
  name->footer("bellows ckpt name STEP NAME\nbellows ckpt name --remove NAME");
  name->callback([options, remove, &exit_status] {
    if (options->step.empty()) throw CLI::RequiredError(*remove ? "NAME" : "STEP");
    if (*remove && !options->name.empty()) throw CLI::ExtrasError({options->name});
    if (!*remove && options->name.empty()) throw CLI::RequiredError("NAME");
    exit_status = *remove ? ckpt_unname(*options) : ckpt_name(*options);
  });
}

void add_export(CLI::App* ckpt, int& exit_status) {
  auto options = std::make_shared<CkptOptions>();
  auto* command = add(ckpt, "export", "Write a step's whole arrays into one safetensors file",
                      options, exit_status, ckpt_export);
  command->add_option("STEP", options->step, kStep)->required();
  command->add_option("--to", options->to, "The file; one that exists is replaced")
      ->required()
      ->type_name("FILE");
  command->add_option("--except", options->except, "Leave this array out")->type_name("NAME");
  add_dir(command, options);
  add_quiet(command, options);
}

}  // namespace

void add_ckpt_command(CLI::App& app, int& exit_status) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look at checkpoints, compare, name, remove, export");
  ckpt->require_subcommand(1);
  add_readers(ckpt, exit_status);
  add_diff(ckpt, exit_status);
  add_prune(ckpt, exit_status);
  add_name(ckpt, exit_status);
  add_export(ckpt, exit_status);
}

}  // namespace bellows
