// SPDX-License-Identifier: Apache-2.0
#include "launcher/setup/setup_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "common/text.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

constexpr const char* kAdmission = "job_submit_bellows.so";
constexpr const char* kSpank = "spank_bellows.so";

using Words = std::vector<std::string>;

bool same_word(std::string_view one, std::string_view other) {
  return to_lower(one) == to_lower(other);
}

bool has(const Words& words, std::string_view word) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& one) { return same_word(one, word); });
}

bool is_spank(const PlugstackLine& line) {
  return line.plugin.substr(line.plugin.rfind('/') + 1) == kSpank;
}

/// What stands before the = of an item such as bf_interval=60, or all of it.
std::string_view name_of(std::string_view item) { return item.substr(0, item.find('=')); }

class Planner {
 public:
  Planner(const SlurmSetup& setup, const std::function<bool(const std::string&)>& exists)
      : setup_(setup), exists_(exists) {}

  SetupPlan plan();

 private:
  void settle(const SlurmConf& conf, const char* key, const std::string& value, const char* why);
  Words words(const char* key) const;
  bool in_plugin_dirs(const char* plugin) const;
  bool finds_spank() const;
  void plugin_dir();
  void admission();
  void prolog();
  void gpus();
  void scheduler();
  void plugstack();
  void note_policy();

  const SlurmSetup& setup_;
  const std::function<bool(const std::string&)>& exists_;
  Words plugin_dirs_;  ///< as they will be
  SetupPlan plan_;
};

/// Makes the key stand once, with the value: in slurm.conf itself rather than in what it includes.
void Planner::settle(const SlurmConf& conf, const char* key, const std::string& value,
                     const char* why) {
  const std::vector<ConfEntry> found = conf.all(key);
  if (found.empty()) {
    plan_.changes.push_back({{conf.path(), 0, 0}, "", ConfEntry{key, value, {}}.line(), why});
    return;
  }
  auto kept = std::find_if(found.begin(), found.end(),
                           [&](const ConfEntry& entry) { return entry.place.file == conf.path(); });
  if (kept == found.end()) kept = found.begin();
  if (value != kept->value)
    plan_.changes.push_back(
        {kept->place, kept->line(), ConfEntry{kept->key, value, {}}.line(), why});
  for (auto entry = found.begin(); entry != found.end(); ++entry)
    if (entry != kept)
      plan_.changes.push_back({entry->place, entry->line(), "",
                               fmt::format("{} may appear only once: if there are several, Slurm "
                                           "uses the last line and logs an error",
                                           entry->key)});
}

/// The items of all the key's lines; of a repeated NAME=VALUE the last value, as Slurm would.
Words Planner::words(const char* key) const {
  Words all;
  for (const ConfEntry& entry : setup_.slurm.all(key))
    for (std::string_view item : split(entry.value, ',')) {
      if (item.empty()) continue;
      const auto same = std::find_if(all.begin(), all.end(), [&](const std::string& one) {
        return same_word(name_of(one), name_of(item));
      });
      if (same == all.end())
        all.emplace_back(item);
      else if (item.find('=') != std::string_view::npos)
        *same = item;
    }
  return all;
}

bool Planner::in_plugin_dirs(const char* plugin) const {
  return std::any_of(plugin_dirs_.begin(), plugin_dirs_.end(), [&](const std::string& directory) {
    return exists_(directory + "/" + plugin);
  });
}

/// A line of plugstack.conf may name the file itself.
bool Planner::finds_spank() const {
  const auto names_file = [&](const PlugstackLine& line) {
    return is_spank(line) && line.plugin.starts_with('/') && exists_(line.plugin);
  };
  return in_plugin_dirs(kSpank) ||
         std::any_of(setup_.plugstack.begin(), setup_.plugstack.end(), names_file);
}

void Planner::plugin_dir() {
  for (const ConfEntry& entry : setup_.slurm.all("PluginDir"))
    for (std::string_view directory : split(entry.value, ':'))
      if (std::find(plugin_dirs_.begin(), plugin_dirs_.end(), directory) == plugin_dirs_.end())
        plugin_dirs_.emplace_back(directory);
  const bool given = !plugin_dirs_.empty();
  if (!given) plugin_dirs_.push_back(setup_.slurm_plugins);
  const std::string& own = setup_.bellows_plugins;
  const bool adds = (!in_plugin_dirs(kAdmission) || !finds_spank()) &&
                    std::find(plugin_dirs_.begin(), plugin_dirs_.end(), own) == plugin_dirs_.end();
  if (adds) plugin_dirs_.push_back(own);
  const std::string value = fmt::format("{}", fmt::join(plugin_dirs_, ":"));
  if (adds || given)
    settle(setup_.slurm, "PluginDir", value, "Slurm looks for plugins only in these directories");
  const auto note = [&](const char* plugin) {
    plan_.notes.push_back(
        fmt::format("there is no {} in {} on this machine; install Bellows here, or name its "
                    "directory with --plugin-dir",
                    plugin, value));
  };
  if (!in_plugin_dirs(kAdmission)) note(kAdmission);
  if (!finds_spank()) note(kSpank);
}

/// The last of the plugins, so that it judges what the others have made of a job.
void Planner::admission() {
  Words plugins = words("JobSubmitPlugins");
  const auto ours = std::find_if(plugins.begin(), plugins.end(), [](const std::string& name) {
    return name == "bellows" || name == "job_submit/bellows";
  });
  if (ours == plugins.end())
    plugins.emplace_back("bellows");
  else if (ours + 1 != plugins.end())
    plan_.notes.push_back(
        fmt::format("JobSubmitPlugins has bellows before {}: what that changes in a job is not "
                    "checked against bellows.yaml",
                    plugins.back()));
  settle(setup_.slurm, "JobSubmitPlugins", fmt::format("{}", fmt::join(plugins, ",")),
         "slurmctld admits jobs according to bellows.yaml");
}

/// X11 implies Contain; NoHold excludes it.
void Planner::prolog() {
  Words flags = words("PrologFlags");
  const auto no_hold = std::remove_if(flags.begin(), flags.end(), [](const std::string& flag) {
    return same_word(flag, "NoHold");
  });
  const bool drops = no_hold != flags.end();
  flags.erase(no_hold, flags.end());
  if (!has(flags, "Contain") && !has(flags, "X11")) flags.emplace_back("Contain");
  settle(
      setup_.slurm, "PrologFlags", fmt::format("{}", fmt::join(flags, ",")),
      drops
          ? "the nodes learn a job's contract in its prolog; Slurm does not accept NoHold with that"
          : "the nodes learn a job's contract in its prolog");
}

void Planner::gpus() {
  Words tasks = words("TaskPlugin");
  std::erase_if(tasks, [](const std::string& name) {
    return same_word(name, "none") || same_word(name, "task/none");
  });
  if (!has(tasks, "cgroup") && !has(tasks, "task/cgroup")) tasks.emplace_back("task/cgroup");
  settle(setup_.slurm, "TaskPlugin", fmt::format("{}", fmt::join(tasks, ",")),
         "a job is confined to its own GPUs");
  Words types = words("GresTypes");
  if (!has(types, "gpu")) types.emplace_back("gpu");
  settle(setup_.slurm, "GresTypes", fmt::format("{}", fmt::join(types, ",")), "GPUs are counted");
  settle(setup_.slurm, "SelectType", "select/cons_tres", "jobs ask for GPUs with --gpus");
  const std::string fence = to_lower(setup_.cgroup.value("ConstrainDevices"));
  const bool on = fence == "yes" || fence == "up" || fence == "true" || fence == "1";
  settle(setup_.cgroup, "ConstrainDevices", on ? setup_.cgroup.value("ConstrainDevices") : "yes",
         "a job with a contract is not started where GPUs are not fenced");
}

/// The site's own values stay.
void Planner::scheduler() {
  Words parameters = words("SchedulerParameters");
  for (const char* wanted :
       {"batch_sched_delay=0", "sched_min_interval=100000", "sched_interval=2"}) {
    const auto set = std::find_if(parameters.begin(), parameters.end(), [&](const auto& one) {
      return same_word(name_of(one), name_of(wanted));
    });
    if (set == parameters.end())
      parameters.emplace_back(wanted);
    else if (*set != wanted)
      plan_.notes.push_back(fmt::format(
          "SchedulerParameters has {}, which stays; with {} a resized job starts at once", *set,
          wanted));
  }
  settle(setup_.slurm, "SchedulerParameters", fmt::format("{}", fmt::join(parameters, ",")),
         "a resized job starts within seconds");
}

void Planner::plugstack() {
  bool found = false;
  for (const PlugstackLine& line : setup_.plugstack) {
    if (!is_spank(line)) continue;
    if (found)
      plan_.changes.push_back(
          {line.place, line.text, "", "SPANK refuses to load a plugin a second time"});
    found = true;
  }
  if (!found)
    plan_.changes.push_back({{setup_.plugstack_path, 0, 0},
                             "",
                             fmt::format("required {}", kSpank),
                             "the options of sbatch and srun, the contract and the job's own view; "
                             "spank_bellows(8) has its settings"});
}

void Planner::note_policy() {
  const std::string policy = beside(setup_.slurm.path(), "bellows.yaml");
  if (exists_(policy)) return;
  const Words hosts = setup_.slurm.controllers();
  plan_.notes.push_back(fmt::format(
      "there is no {} on this machine; {} it, see bellows.yaml(5)", policy,
      hosts.empty()
          ? std::string("the controllers need")
          : fmt::format("{} need{}", fmt::join(hosts, ", "), hosts.size() == 1 ? "s" : "")));
}

SetupPlan Planner::plan() {
  plugin_dir();
  admission();
  prolog();
  gpus();
  scheduler();
  plugstack();
  note_policy();
  return std::move(plan_);
}

}  // namespace

SetupPlan plan_setup(const SlurmSetup& setup,
                     const std::function<bool(const std::string&)>& exists) {
  return Planner(setup, exists).plan();
}

}  // namespace bellows
