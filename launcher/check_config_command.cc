// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "common/fd.h"
#include "jobsubmit/policy.h"
#include "launcher/commands.h"
#include "launcher/exit_status.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

int check(const std::string& path) {
  auto text = read_file(path, kMostBytes);
  if (!text) {
    fmt::print(stderr, "bellows check-config: {}\n", text.error().text);
    return kFailed;
  }
  auto policy = load_policy(*text, path);
  if (!policy) {
    fmt::print(stderr, "{}\n", policy.error().text);
    return kFailed;
  }
  fmt::print("{}: good\n", path);
  for (const Tenant& tenant : policy->tenants)
    fmt::print("  tenant {}: accounts {}; {} GPUs, first {}\n", tenant.name,
               fmt::join(tenant.accounts, ", "), tenant.gpus.sizes().to_string(),
               tenant.gpus.start);
  for (const auto& [name, framework] : policy->frameworks)
    fmt::print("  framework {}: {}\n", name,
               framework.versions.empty() ? "no versions"
                                          : fmt::format("{}", fmt::join(framework.versions, ", ")));
  return kOk;
}

}  // namespace

void add_check_config_command(CLI::App& app, int& exit_status) {
  auto path = std::make_shared<std::string>("/etc/slurm/bellows.yaml");
  CLI::App* command =
      app.add_subcommand("check-config", "Check a bellows.yaml before slurmctld reads it");
  command->add_option("FILE", *path, "The file")->capture_default_str();
  command->callback([path, &exit_status] { exit_status = check(*path); });
}

}  // namespace bellows
