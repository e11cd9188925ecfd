// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/fd.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/setup/setup_plan.h"
#include "slurm/client.h"
#include "slurm/compat.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostBytes = 64 << 20;

struct Options {
  bool print = false;
  bool json = false;
  std::string plugin_dir = SLURM_PLUGIN_DIR;
};

Result<std::string> read_text(const std::string& path) { return read_file(path, kMostBytes); }

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Where Slurm looks for plugins when slurm.conf does not say.
Result<std::string> built_in_plugin_dir() {
  if (auto usable = SlurmClient::usable(); !usable) return usable.error();
  const SlurmClient slurm;
  return std::string(slurm_conf.plugindir ? slurm_conf.plugindir : "");
}

/// As for Slurm, a cgroup.conf that is not there says nothing.
Result<SlurmConf> read_cgroup(const std::string& path) {
  return SlurmConf::read(path, [&](const std::string& file) -> Result<std::string> {
    if (file == path && !exists(path)) return std::string();
    return read_text(file);
  });
}

Result<SlurmSetup> read_setup(const Options& options) {
  const std::string path = slurm_conf_path();
  auto slurm = SlurmConf::read(path, read_text);
  if (!slurm) return slurm.error();
  auto cgroup = read_cgroup(beside(path, "cgroup.conf"));
  if (!cgroup) return cgroup.error();
  std::string plugstack_path = slurm->value("PlugStackConfig");
  if (plugstack_path.empty()) plugstack_path = beside(path, "plugstack.conf");
  auto plugstack = read_plugstack(plugstack_path, read_text);
  if (!plugstack) return plugstack.error();
  std::string slurm_plugins;
  if (slurm->all("PluginDir").empty()) {
    auto built_in = built_in_plugin_dir();
    if (!built_in) return built_in.error();
    slurm_plugins = *std::move(built_in);
  }
  return SlurmSetup{*std::move(slurm),     *std::move(cgroup),       std::move(plugstack_path),
                    *std::move(plugstack), std::move(slurm_plugins), options.plugin_dir};
}

void print_change(const ConfChange& change) {
  if (change.old_line.empty())
    fmt::print("# {}: add ({})\n{}\n", change.place.file, change.why, change.new_line);
  else if (change.new_line.empty())
    fmt::print("# {}: remove {} ({})\n", change.place.to_string(), change.old_line, change.why);
  else
    fmt::print("# {}: instead of {} ({})\n{}\n", change.place.to_string(), change.old_line,
               change.why, change.new_line);
}

void print_text(const SetupPlan& plan) {
  for (const ConfChange& change : plan.changes) print_change(change);
  for (const std::string& note : plan.notes) fmt::print("# note: {}\n", note);
  fmt::print("{}\n", plan.changes.empty()
                         ? "# nothing to do"
                         : "# The files are the same on every machine of the cluster. Then restart "
                           "slurmctld and every slurmd.");
}

ordered_json to_json(const ConfChange& change) {
  const auto or_null = [](const std::string& line) {
    return line.empty() ? ordered_json() : ordered_json(line);
  };
  const ConfPlace& place = change.place;
  return {{"file", place.file},
          {"first_line", place.first > 0 ? ordered_json(place.first) : ordered_json()},
          {"last_line", place.last > 0 ? ordered_json(place.last) : ordered_json()},
          {"old", or_null(change.old_line)},
          {"new", or_null(change.new_line)},
          {"why", change.why}};
}

void print_json(const SlurmSetup& setup, const SetupPlan& plan) {
  ordered_json changes = ordered_json::array();
  for (const ConfChange& change : plan.changes) changes.push_back(to_json(change));
  const ordered_json out = {
      {"slurm_conf", setup.slurm.path()}, {"changes", changes}, {"notes", plan.notes}};
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

int print_setup(const Options& options) {
  if (!options.print) throw WrongUsage{"setup only prints what to change; give --print"};
  const auto setup = read_setup(options);
  if (!setup) {
    fmt::print(stderr, "bellows setup: {}\n", setup.error().text);
    return kFailed;
  }
  const SetupPlan plan = plan_setup(*setup, exists);
  if (options.json)
    print_json(*setup, plan);
  else
    print_text(plan);
  return plan.changes.empty() ? kOk : kFailed;
}

}  // namespace

void add_setup_command(CommandLine& program) {
  auto options = std::make_shared<Options>();
  CommandLine command =
      program.add_command("setup", "Print the lines that Bellows needs in Slurm's configuration");
  command.add_flag("--print", options->print, "Print them; nothing is changed");
  command.add_flag("--json", options->json, "Print one JSON object");
  command
      .add_option("--plugin-dir", options->plugin_dir,
                  "Where job_submit_bellows.so and spank_bellows.so are")
      .show_default();
  command.run([options] { return print_setup(*options); });
}

}  // namespace bellows
