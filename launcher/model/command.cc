// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>

#include "launcher/cli/commands.h"
#include "launcher/model/commands.h"

namespace bellows {
namespace {

using modelwire::ControlOp;
using Options = std::shared_ptr<ModelOptions>;

/// A subcommand with what all have.
CommandLine add(CommandLine& model, const char* name, const char* help, const Options& options,
                const std::function<int(const ModelOptions&)>& run) {
  CommandLine command = model.add_command(name, help);
  command
      .add_option("--run", options->run,
                  "The own folder of bellows-modeld (default: /run/bellows-models)")
      .value_name("FOLDER");
  command.run([=] { return run(*options); });
  return command;
}

/// One that is about a model.
CommandLine add_of_model(CommandLine& model, const char* name, const char* help,
                         const Options& options,
                         const std::function<int(const ModelOptions&)>& run) {
  CommandLine command = add(model, name, help, options, run);
  command.add_option("NAME", options->name, "The model").required();
  command.add_option("--tenant", options->tenant,
                     "Whose it is, where several have one of this name");
  return command;
}

void add_readers(CommandLine& model) {
  auto options = std::make_shared<ModelOptions>();
  auto list = add(model, "list", "Show the models of this node, and how much room there is",
                  options, model_list);
  list.add_option("--tenant", options->tenant, "Only this tenant's");
  list.add_flag("--json", options->json, "Print JSON");

  options = std::make_shared<ModelOptions>();
  auto top =
      add(model, "top", "Show the models again and again, those in use first", options, model_top);
  top.add_option("--tenant", options->tenant, "Only this tenant's");
  top.add_option("--interval", options->interval, "Seconds between two looks")
      .value_name("SECONDS")
      .between(1, 3600)
      .show_default();
  top.add_flag("--once", options->once, "Look once");

  options = std::make_shared<ModelOptions>();
  auto show = add_of_model(model, "show", "Show a model, and who uses it", options, model_show);
  show.add_flag("--json", options->json, "Print JSON");
}

void add_add(CommandLine& model) {
  auto options = std::make_shared<ModelOptions>();
  auto command =
      add(model, "add", "Give a tenant a model, or a new version of one", options, model_add);
  command.add_option("NAME", options->name, "The model").required();
  command
      .add_option("PLACE", options->place,
                  "The path of a safetensors file, an index or a folder, or a URL: http://, "
                  "https:// or s3://")
      .required();
  command.add_option("--tenant", options->tenant, "Whose it is").required();
  command.add_option("--visible", options->visible,
                     "Other tenants that see it, with commas between, or * for all");
  command
      .add_option("--uid", options->uid,
                  "With whose rights the path is read (default: those of bellows-modeld)")
      .value_name("UID");
}

void add_prefetch(CommandLine& model) {
  auto options = std::make_shared<ModelOptions>();
  auto command = add_of_model(model, "prefetch", "Load a model, and wait until it is in memory",
                              options, model_prefetch);
  command.add_flag("--begin", options->begin_only, "Do not wait");
  command.add_option("--timeout", options->seconds, "Seconds to wait at most")
      .value_name("SECONDS")
      .show_default();
}

void add_progress(CommandLine& model) {
  auto options = std::make_shared<ModelOptions>();
  auto command = add(model, "progress", "In a job: print how far its node is that loads models",
                     options, model_progress);
  command.add_option("NAME", options->names, "The models").required();
}

void add_verify(CommandLine& model) {
  auto options = std::make_shared<ModelOptions>();
  auto command = add_of_model(model, "verify", "Read a model's memory and check its digest",
                              options, model_verify);
  command.add_option("--timeout", options->seconds, "Seconds to wait at most")
      .value_name("SECONDS")
      .between(1, 86400)
      .show_default();
}

void add_changes(CommandLine& model) {
  const auto add_change = [&](const char* name, ControlOp op, const char* help) {
    auto options = std::make_shared<ModelOptions>();
    add_of_model(model, name, help, options, [name, op](const ModelOptions& settled) {
      return model_change(settled, name, op);
    });
  };
  add_change("remove", ControlOp::remove, "Take a model away; who has it keeps it");
  add_change("pin", ControlOp::pin, "Load a model, and keep it in memory");
  add_change("unpin", ControlOp::unpin, "Let a model be evicted again");
  add_change("evict", ControlOp::evict, "Free the memory of a model that nobody uses");
}

}  // namespace

void add_model_command(CommandLine& program) {
  CommandLine model =
      program.add_command("model", "Show and change the models that this node holds in memory");
  model.require_command();
  add_readers(model);
  add_add(model);
  add_prefetch(model);
  add_progress(model);
  add_verify(model);
  add_changes(model);
}

}  // namespace bellows
