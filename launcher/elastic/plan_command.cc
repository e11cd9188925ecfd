// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/cli/commands.h"
#include "launcher/record/controller_query.h"
#include "launcher/record/policy_query.h"
#include "slurm/client.h"

namespace bellows {
namespace {

using Json = nlohmann::ordered_json;

int fail(const Error& error) {
  fmt::print(stderr, "bellows plan: {}\n", error.text);
  return exit_status_of(error);
}

std::string number(const Json& value) {
  const auto gpus = value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  return gpus == 0 ? "-" : std::to_string(gpus);
}

std::string text(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? one_line(value->get<std::string>()) : "";
}

const Json& list(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto value = object.find(key);
  return value != object.end() && value->is_array() ? *value : kNone;
}

void print_in_force(const Json& plan) {
  fmt::print("\nplan {} in force\n", text(plan, "name"));
  Table table({{"JOB"}, {"FROM", true}, {"TO", true}, {"STATE"}, {"WHY"}});
  for (const Json& job : list(plan, "jobs"))
    table.add({job.value("job", Json()).dump(), number(job.value("from", Json())),
               number(job.value("to", Json())), text(job, "state"), text(job, "why")});
  fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
}

void print_services(const Json& services) {
  if (services.empty()) return;
  Table table({{"POOL"},
               {"KEEPER"},
               {"TENANT"},
               {"GPUS", true},
               {"LEAVING", true},
               {"PLANNED", true},
               {"MEMBERS", true}});
  for (const Json& service : services)
    table.add({text(service, "pool"), service.value("keeper", Json()).dump(),
               text(service, "tenant"), number(service.value("gpus", Json())),
               number(service.value("leaving", Json())), number(service.value("planned", Json())),
               number(service.value("members", Json()))});
  fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
}

void print_pool(const Json& pool) {
  const std::string type = text(pool, "gpu_type");
  fmt::print("\npartition {}: {} for elastic jobs\n", text(pool, "partition"),
             counted(number(pool.value("gpus", Json())), type.empty() ? "GPU" : type + " GPU"));
  Table table(
      {{"JOB"}, {"TENANT"}, {"GPUS", true}, {"PLANNED", true}, {"BATCH", true}, {"REASON"}});
  for (const Json& job : list(pool, "jobs"))
    table.add({job.value("job", Json()).dump(), text(job, "tenant"),
               number(job.value("gpus", Json())), number(job.value("planned", Json())),
               job.value("batch", Json()).is_number() ? job["batch"].dump() : "",
               text(job, "reason")});
  fmt::print("{}", table.text(terminal_width(STDOUT_FILENO)));
  print_services(list(pool, "services"));
}

void print_text(const Json& plan) {
  const Json lag = plan.value("lag_s", Json());
  fmt::print("bellowsd   {}{}{}\n",
             lag.is_number() ? fmt::format("read slurmctld {:.1f} s ago", lag.get<double>())
                             : "has not read slurmctld yet",
             plan.value("dry_run", false) ? ", orders nothing (--dry-run)" : "",
             plan.value("acts", false) ? ", carries a plan out" : "");
  if (const std::string trouble = text(plan, "trouble"); !trouble.empty())
    fmt::print("trouble    {}\n", trouble);
  const Json in_force = plan.value("in_force", Json());
  if (in_force.is_object()) print_in_force(in_force);
  for (const Json& pool : list(plan, "pools")) print_pool(pool);
}

int show_plan(bool json) {
  if (const Status usable = SlurmClient::usable(); !usable) return fail(usable.error());
  SlurmClient slurm;
  const auto status = ask_policy_status(slurm);
  if (!status) return fail(status.error());
  if (status->controller.empty())
    return fail({ErrorKind::not_found,
                 "bellows.yaml names no controller, so nobody but users resizes jobs here"});
  const auto address = ControllerAddress::parse(status->controller);
  if (!address) return fail(address.error());
  const auto plan = ask_plan(slurm, *address);
  if (!plan) return fail(plan.error());
  if (json)
    fmt::print("{}\n", plan->dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_text(*plan);
  return kOk;
}

}  // namespace

void add_plan_command(CommandLine& program) {
  auto json = std::make_shared<bool>(false);
  CommandLine command =
      program.add_command("plan", "Show how bellowsd divides the GPUs among elastic jobs, and why");
  command.add_flag("--json", *json, "Print one JSON object");
  command.run([json] { return show_plan(*json); });
}

}  // namespace bellows
