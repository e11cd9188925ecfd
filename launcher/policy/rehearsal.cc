// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/rehearsal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "common/fd.h"
#include "common/text.h"
#include "jobsubmit/admission/tenant_choice.h"
#include "jobsubmit/slurmctld/job_desc.h"
#include "jobsubmit/slurmctld/job_facts.h"
#include "jobsubmit/slurmctld/job_fields.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

constexpr std::size_t kMostScript = 1 << 20;

/// slurm_free_job_desc_msg would load Slurm's plugins, and need a slurm.conf for that.
struct Freed {
  void operator()(job_desc_msg_t* desc) const {
    for (char** text :
         {&desc->account, &desc->array_inx, &desc->comment, &desc->features, &desc->name,
          &desc->partition, &desc->qos, &desc->reservation, &desc->script, &desc->tres_per_job})
      set_text(*text, "");
    void* block = desc;
    slurm_xfree(&block);
  }
};
using Description = std::unique_ptr<job_desc_msg_t, Freed>;

Description new_description() {
  Description desc(static_cast<job_desc_msg_t*>(
      slurm_xcalloc(1, sizeof(job_desc_msg_t), true, false, __FILE__, __LINE__, __func__)));
  slurm_init_job_desc_msg(desc.get());
  desc->user_id = ::geteuid();
  desc->het_job_offset = NO_VAL;
  return desc;
}

/// A job as slurmctld would get it.
Description describe(const Request& request, const OptionsForRules& more) {
  Description desc = new_description();
  const auto word = [&](const char* option) {
    const auto found = more.find(option);
    return found == more.end() ? std::string() : found->second;
  };
  set_text(desc->account, request.account);
  set_text(desc->array_inx, word("array"));
  set_text(desc->comment, word("comment"));
  set_text(desc->features, word("constraint"));
  set_text(desc->name, word("job-name").empty() ? "sbatch" : word("job-name"));
  set_text(desc->partition, request.partition);
  set_text(desc->qos, request.qos.value_or(""));
  set_text(desc->reservation, word("reservation"));
  if (request.batch) set_text(desc->script, "#!/bin/sh\n");
  set_text(desc->tres_per_job, request.sizes.per_job.value_or(""));
  if (const auto priority = parse_uint(word("priority")))
    desc->priority = static_cast<std::uint32_t>(*priority);
  desc->time_limit = request.time_limit.value_or(NO_VAL);
  desc->min_nodes = request.sizes.min_nodes.value_or(NO_VAL);
  desc->max_nodes = request.sizes.max_nodes.value_or(NO_VAL);
  desc->num_tasks = request.sizes.tasks.value_or(NO_VAL);
  if (request.requeue_off) desc->requeue = 0;
  return desc;
}

const Tenant* tenant_of(const Policy& policy, const Request& request, const Decision& decision) {
  return request.wants_bellows() ? policy.find_tenant(decision.contract.tenant)
                                 : choose_tenant(policy, request).tenant;
}

/// What a hook may have written of the fields that admission looks at.
void take_back(const job_desc_msg_t& desc, const std::vector<std::string>& written,
               Request& request) {
  const Request now = read_request(desc);
  const auto wrote = [&](std::string_view name) {
    return std::find(written.begin(), written.end(), name) != written.end();
  };
  if (wrote("account")) request.account = to_lower(desc.account ? desc.account : "");
  if (wrote("partition")) request.partition = now.partition;
  if (wrote("reservation")) request.reserved = now.reserved;
  if (wrote("qos")) request.qos = now.qos;
  if (wrote("time_limit")) request.time_limit = now.time_limit;
  if (wrote("min_nodes")) request.sizes.min_nodes = now.sizes.min_nodes;
  if (wrote("max_nodes")) request.sizes.max_nodes = now.sizes.max_nodes;
  if (wrote("num_tasks")) request.sizes.tasks = now.sizes.tasks;
  if (wrote("requeue")) request.requeue_off = now.requeue_off;
}

/// A name that matches a pattern, as far as one can be constructed.
std::string name_for(const std::string& pattern) {
  std::string name = pattern;
  std::replace(name.begin(), name.end(), '*', 'x');
  std::replace(name.begin(), name.end(), '?', 'x');
  return name;
}

/// A partition that is open to the tenant's jobs.
std::string open_partition(const Tenant& tenant) {
  if (!tenant.sizing.partition.empty()) return tenant.sizing.partition;
  return tenant.sizing.partitions.empty() ? "partition"
                                          : name_for(tenant.sizing.partitions.front());
}

Request sample_of(const Tenant& tenant, const std::string& framework) {
  Request request;
  request.batch = true;
  request.account = tenant.accounts.empty() ? "account" : tenant.accounts.front();
  request.user = tenant.users.empty() ? "user" : tenant.users.front();
  request.groups = tenant.groups;
  if (!tenant.partitions.empty()) request.partition = name_for(tenant.partitions.front());
  request.default_partition = open_partition(tenant);
  if (framework != "none") request.framework = framework;
  return request;
}

/// Sets what a user may say besides, so that a script's other branches run.
OptionsForRules fill(const Tenant& tenant, Request& request) {
  if (request.framework) request.gpus_range = std::to_string(tenant.gpus.start);
  if (request.partition.empty()) request.partition = open_partition(tenant);
  if (!tenant.sizing.qos.empty()) request.qos = tenant.sizing.qos;
  request.time_limit = 1;
  return {{"array", "1-2"},       {"comment", "sample"},     {"constraint", "sample"},
          {"job-name", "sample"}, {"reservation", "sample"}, {"priority", "1"}};
}

class Samples {
 public:
  Samples(LuaHook& hook, const Policy& policy) : hook_(hook), policy_(policy) {}

  void ask(const Tenant& tenant, const std::string& framework) {
    const std::string job = fmt::format("tenant {}, framework {}", tenant.name, framework);
    for (const bool full : {false, true}) {
      Request request = sample_of(tenant, framework);
      const OptionsForRules more = full ? fill(tenant, request) : OptionsForRules();
      Decision decision;
      if (request.wants_bellows()) decision = decide(&policy_, "", request);
      if (decision.refused) continue;
      if (hook_.has_modify()) modify(request, more, decision, job);
      if (!hook_.has_submit()) continue;
      take(rehearse(hook_, policy_, request, more, decision).outcome, "submit", job);
    }
  }
  Findings findings;

 private:
  void take(const HookOutcome& outcome, const char* hook, const std::string& job) {
    ++findings.calls;
    const auto add = [&](std::string_view what) {
      if (!seen_.emplace(what).second) return;
      findings.wrong.push_back(fmt::format("{} ({} of a sample job: {})", what, hook, job));
    };
    if (outcome.failure) add(split(*outcome.failure, '\n').front());
    for (const std::string& slip : outcome.slips) add(slip);
  }
  /// To other GPUs, and to other values of all else.
  void modify(const Request& request, const OptionsForRules& more, const Decision& decision,
              const std::string& job) {
    const Description record = describe(request, more);
    const Contract* contract = request.wants_bellows() ? &decision.contract : nullptr;
    for (const bool gpus : {true, false}) {
      Request asked;
      asked.batch = true;
      asked.time_limit = 2;
      asked.partition = request.partition;
      if (gpus) asked.sizes.per_job = spell_gpus(1);
      const Description update = describe(asked, gpus ? OptionsForRules() : more);
      JobFields now(*record, facts_of_job(*record, contract, request), JobFields::Access::read);
      JobFields change(*update, facts_of_update(*record, *update, contract, {}),
                       JobFields::Access::write);
      const Tenant* tenant = tenant_of(policy_, request, decision);
      take(hook_.modify(now, change, tenant, local_now()), "modify", job);
    }
  }

  LuaHook& hook_;
  const Policy& policy_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace

Result<LuaHook> load_rules(const Policy& policy) {
  LuaSettings settings = policy.lua;
  auto script = read_file(settings.path, kMostScript);
  if (!script) return script.error();
  settings.source = *std::move(script);
  auto hook = LuaHook::load(settings, JobFields::table());
  if (hook) hook->watch();
  return hook;
}

Rehearsal rehearse(LuaHook& hook, const Policy& policy, Request& request,
                   const OptionsForRules& more, const Decision& decision) {
  const Description desc = describe(request, more);
  JobFields job(*desc, facts_of_submission(*desc, request, decision), JobFields::Access::write);
  Rehearsal done;
  done.outcome = hook.submit(job, tenant_of(policy, request, decision), local_now());
  if (done.outcome.refused || done.outcome.failure) return done;
  done.written = job.written();
  job.apply(*desc);
  take_back(*desc, done.written, request);
  return done;
}

Findings rehearse_samples(LuaHook& hook, const Policy& policy) {
  Samples samples(hook, policy);
  for (const Tenant& tenant : policy.tenants) {
    samples.ask(tenant, "none");
    for (const auto& [name, framework] : policy.frameworks) samples.ask(tenant, name);
  }
  return std::move(samples.findings);
}

}  // namespace bellows
