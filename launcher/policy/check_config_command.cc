// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/store/store_place.h"
#include "common/contract.h"
#include "common/text.h"
#include "jobsubmit/policy/policy.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/policy/policy_file.h"
#include "launcher/policy/rehearsal.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

std::string shown(const FrameworkVersion& version) {
  switch (version.state) {
    case LifeCycle::deprecated:
      return version.version + " (deprecated)";
    case LifeCycle::removed:
      return version.version + " (removed)";
    case LifeCycle::supported:
      break;
  }
  return version.version;
}

void print_tenant(const Tenant& tenant) {
  fmt::print("  tenant {}: accounts {}{}; {}, first {}{}\n", tenant.name,
             fmt::join(tenant.accounts, ", "), tenant.children ? " and those below them" : "",
             counted(tenant.gpus.sizes.to_string(), "GPU"), tenant.gpus.start,
             tenant.suspended ? "; suspended: " + *tenant.suspended : "");
}

void print_framework(const std::string& name, const Framework& framework) {
  std::vector<std::string> versions;
  for (const FrameworkVersion& version : framework.versions)
    if (!version.version.empty()) versions.push_back(shown(version));
  fmt::print("  framework {}: {}\n", name,
             versions.empty() ? "no versions" : fmt::format("{}", fmt::join(versions, ", ")));
}

/// Asks the script's hooks about sample jobs, which finds what is wrong in them only when they run.
Status check_script(const Policy& policy) {
  if (policy.lua.path.empty()) return {};
  auto hook = load_rules(policy);
  if (!hook) return hook.error();
  const Findings findings = rehearse_samples(*hook, policy);
  if (!findings.wrong.empty())
    return Error{ErrorKind::invalid, fmt::format("{}", fmt::join(findings.wrong, "\n"))};
  return {};
}

/// What users can do to each other where they keep their checkpoints, as seen from this machine.
void warn_of_base(const std::string& pattern) {
  if (pattern.empty()) return;
  const std::string base = fixed_part(pattern);
  const Status status = check_shared_base(base);
  if (status) return;
  if (status.error().kind == ErrorKind::denied)
    fmt::print("  warning: {}; until then jobs are refused there\n", status.error().text);
  else
    fmt::print("  warning: {}; on the nodes it must belong to root and be sticky (chmod 1777)\n",
               status.error().text);
}

void print_model(const SiteModel& model) {
  std::string seen = model.for_all ? "all tenants" : "tenant " + model.tenant;
  for (const std::string& tenant : model.visible) seen += ", " + tenant;
  fmt::print("  model {} of tenant {}: {}; seen by {}\n", model.name, model.tenant, model.source,
             seen);
}

int check(const std::string& path) {
  auto policy = read_policy(path, "name a copy of it");
  if (!policy) {
    const bool wrong = policy.error().kind == ErrorKind::invalid;
    fmt::print(stderr, "{}{}\n", wrong ? "" : "bellows check-config: ", policy.error().text);
    return kFailed;
  }
  if (auto script = check_script(*policy); !script) {
    fmt::print(stderr, "{}\n", script.error().text);
    return kFailed;
  }
  fmt::print("{}: good\n", path);
  if (!policy->enabled) fmt::print("  switched off by enabled: false\n");
  for (const Tenant& tenant : policy->tenants) print_tenant(tenant);
  for (const auto& [name, framework] : policy->frameworks) print_framework(name, framework);
  for (const SiteModel& model : policy->models) print_model(model);
  warn_of_base(policy->checkpoint_dir);
  if (!policy->lua.path.empty()) fmt::print("  Lua script {}\n", policy->lua.path);
  for (const std::string& note : policy->notes) fmt::print("  note: {}\n", note);
  return kOk;
}

}  // namespace

void add_check_config_command(CommandLine& program) {
  auto path = std::make_shared<std::string>(default_policy_path());
  CommandLine command =
      program.add_command("check-config", "Check a bellows.yaml before slurmctld reads it");
  command.add_option("FILE", *path, "The file").show_default();
  command.run([path] { return check(*path); });
}

}  // namespace bellows
