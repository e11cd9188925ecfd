// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/cluster_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/record/controller_query.h"
#include "launcher/record/policy_query.h"
#include "slurm/client.h"

namespace bellows {
namespace {

using Plan = nlohmann::ordered_json;

void print_json(const PolicyStatus& status) {
  nlohmann::ordered_json out = {
      {"digest", nullptr},  {"since", nullptr},  {"enabled", nullptr},
      {"tenants", nullptr}, {"lua", status.lua}, {"people_known", status.people_known},
      {"problem", nullptr}, {"other", nullptr},  {"controller", nullptr}};
  if (!status.digest.empty()) {
    out["digest"] = status.digest;
    out["since"] = status.since;
    out["enabled"] = status.enabled;
    out["tenants"] = status.tenants;
  }
  if (!status.problem.empty()) out["problem"] = status.problem;
  if (!status.controller.empty()) out["controller"] = status.controller;
  if (status.other)
    out["other"] = {{"host", status.other->host},
                    {"digest", status.other->digest},
                    {"since", status.other->since}};
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// ", its last plan changed 2 jobs 40 s ago"; empty before the first.
std::string last_plan(const Plan& plan) {
  const auto last = plan.find("last");
  if (last == plan.end() || !last->is_object()) return "";
  const std::string trouble = last->value("trouble", "");
  return fmt::format(", its last plan changed {} {:.0f} s ago{}",
                     counted(last->value("moved", std::uint64_t{0}), "job"),
                     last->value("ago_s", 0.0),
                     trouble.empty() ? "" : ": " + one_line(trouble, 200));
}

/// One line about bellowsd, where the site has one. False: it does not answer.
bool print_controller(const SlurmClient& slurm, const PolicyStatus& status) {
  if (status.controller.empty()) return true;
  const auto address = ControllerAddress::parse(status.controller);
  const auto plan = address ? ask_plan(slurm, *address) : Result<Plan>(address.error());
  if (!plan) {
    fmt::print("bellowsd   {}\n", plan.error().text);
    return false;
  }
  const auto lag = plan->find("lag_s");
  fmt::print("bellowsd   alive, {}{}{}\n",
             lag != plan->end() && lag->is_number()
                 ? fmt::format("read slurmctld {:.1f} s ago", lag->get<double>())
                 : "has not read slurmctld yet",
             plan->value("acts", false) ? ", carries a plan out" : "", last_plan(*plan));
  return true;
}

void print_text(const PolicyStatus& status) {
  if (status.digest.empty())
    fmt::print("policy     none in force: jobs that ask for Bellows are refused\n");
  else
    fmt::print("policy     digest {}, in force since {:%F %T}, {} tenant{}{}\n", status.digest,
               fmt::localtime(static_cast<std::time_t>(status.since)), status.tenants,
               status.tenants == 1 ? "" : "s", status.lua ? ", with a Lua script" : "");
  if (!status.enabled) fmt::print("enabled    false: every job passes as it is\n");
  if (!status.people_known) fmt::print("people     users and groups are not looked up yet\n");
  if (!status.problem.empty()) fmt::print("rejected   {}\n", status.problem);
  if (!status.other) return;
  if (status.other->digest.empty())
    fmt::print("differs    controller {} has no policy in force\n", status.other->host);
  else
    fmt::print("differs    controller {} has digest {}, in force since {:%F %T}\n",
               status.other->host, status.other->digest,
               fmt::localtime(static_cast<std::time_t>(status.other->since)));
}

}  // namespace

int show_cluster_status(bool json) {
  SlurmClient slurm;
  const auto status = ask_policy_status(slurm);
  if (!status) {
    fmt::print(stderr, "bellows status: {}\n", status.error().text);
    return exit_status_of(status.error());
  }
  if (json)
    print_json(*status);
  else
    print_text(*status);
  const bool decides = json || print_controller(slurm, *status);
  const bool good = decides && !status->digest.empty() && status->problem.empty() && !status->other;
  return good ? kOk : kFailed;
}

}  // namespace bellows
