// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/job_facts.h"

#include "jobsubmit/slurmctld/job_desc.h"

namespace bellows {
namespace {

std::optional<std::string> if_any(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

Sizes sizes_of(const Changes& changes) {
  Sizes sizes;
  sizes.per_job = changes.per_job;
  sizes.per_node = changes.per_node;
  sizes.per_task = changes.per_task;
  sizes.tasks = changes.tasks;
  sizes.min_nodes = changes.min_nodes;
  sizes.max_nodes = changes.max_nodes;
  return sizes;
}

/// Nothing: none, or a number that only Slurm could tell.
std::optional<std::uint32_t> gpus_in(const Sizes& sizes) {
  const auto counted = count_gpus(sizes);
  if (!counted || !*counted) return std::nullopt;
  return (*counted)->gpus;
}

void set_size(JobFacts& facts, const Sizes& sizes, const Contract* contract) {
  facts.gpus = gpus_in(sizes);
  facts.gpus_min = contract ? contract->gpus.min() : facts.gpus;
  facts.gpus_max = contract ? contract->gpus.max() : facts.gpus;
}

void set_framework(JobFacts& facts, const Contract* contract) {
  if (!contract) return;
  facts.framework = contract->framework;
  facts.framework_version = if_any(contract->framework_version);
}

}  // namespace

JobFacts facts_of_submission(const job_desc_msg_t& desc, const Request& request,
                             const Decision& decision) {
  const Contract* contract = request.wants_bellows() ? &decision.contract : nullptr;
  JobFacts facts;
  facts.account = if_any(request.account);
  if (desc.array_inx) facts.array = desc.array_inx;
  facts.batch = request.batch;
  set_framework(facts, contract);
  facts.gpus_range = request.gpus_range;
  set_size(facts, merged(request.sizes, sizes_of(decision.changes)), contract);
  facts.user_id = desc.user_id;
  facts.user_name = request.user;
  return facts;
}

JobFacts facts_of_job(const job_desc_msg_t& record, const Contract* contract, const Origin& owner) {
  const Request request = read_request(record);
  JobFacts facts;
  facts.account = if_any(owner.account);
  facts.batch = record.script || record.script_buf;
  set_framework(facts, contract);
  facts.gpus_range = request.gpus_range;
  set_size(facts, request.sizes, contract);
  facts.user_id = record.user_id;
  facts.user_name = owner.user;
  return facts;
}

JobFacts facts_of_update(const job_desc_msg_t& record, const job_desc_msg_t& update,
                         const Contract* contract, const Changes& changes) {
  const Sizes now = read_request(record).sizes;
  const Update asked = read_update(update);
  const auto next = gpus_in(merged(merged(now, asked.sizes), sizes_of(changes)));
  JobFacts facts;
  facts.account = asked.account;
  if (next == gpus_in(now)) return facts;
  facts.gpus = next;
  // A contract keeps its range.
  if (!contract) facts.gpus_min = facts.gpus_max = next;
  return facts;
}

}  // namespace bellows
