// SPDX-License-Identifier: Apache-2.0
/// spank_job_env and environment of a job as a forger would send them: entries of both, one a line,
/// with an empty line between the two. Nothing that only slurmctld may set survives, an option is
/// read once, and the contract that is written is the one that is read back.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "jobsubmit/slurmctld/job_desc.h"
#include "tests/fuzz/slurm_heap.h"

namespace {

using namespace bellows;
using Texts = std::vector<std::string>;

constexpr std::string_view kOption = "_SLURM_SPANK_OPTION_bellows_";

void require(bool holds) {
  if (!holds) std::abort();
}

std::string_view bare(std::string_view entry) {
  if (entry.starts_with("SPANK_")) entry.remove_prefix(6);
  return entry;
}

Texts list(char** entries, std::uint32_t count) {
  Texts texts;
  for (std::uint32_t i = 0; i < count; ++i) texts.push_back(entries[i] ? entries[i] : "");
  return texts;
}

/// What must be left of spank_job_env, found in another way than job_desc.cc does it: from the
/// back.
Texts honest(const Texts& sent) {
  Texts kept;
  for (auto entry = sent.rbegin(); entry != sent.rend(); ++entry) {
    const std::string_view text = bare(*entry);
    if (text.starts_with("BELLOWS_")) continue;
    const bool again = std::any_of(kept.begin(), kept.end(),
                                   [&](const std::string& other) { return bare(other) == text; });
    if (!again || !text.starts_with(kOption)) kept.push_back(*entry);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

std::size_t times(const Texts& entries, std::string_view option) {
  const std::string name = std::string(kOption) + std::string(option);
  return static_cast<std::size_t>(
      std::count_if(entries.begin(), entries.end(), [&](const std::string& entry) {
        return bare(entry).substr(0, bare(entry).find('=')) == name;
      }));
}

void check_options(const job_desc_msg_t& job, const Texts& entries) {
  const Request request = read_request(job);
  const std::size_t counts[] = {times(entries, "framework"),   times(entries, "gpus_range"),
                                times(entries, "batch_range"), times(entries, "job_class"),
                                times(entries, "model"),       times(entries, "model_on"),
                                times(entries, "pool")};
  require(!request.framework || counts[0] > 0);
  require(!request.gpus_range || counts[1] > 0);
  require(!request.batch_range || counts[2] > 0);
  require(!request.job_class || counts[3] > 0);
  require(!request.models || counts[4] > 0);
  require(!request.model_on || counts[5] > 0);
  require(!request.pool || counts[6] > 0);
  // An entry without "=" has no value, so it contradicts nothing.
  require(!request.contradictory || *std::max_element(std::begin(counts), std::end(counts)) > 1);
}

Decision decision_for(const Texts& texts) {
  Decision decision;
  decision.contract.tenant = texts.empty() || texts[0].empty() ? "t" : texts[0];
  decision.contract.checkpoint_dir = texts.size() > 1 ? texts[1] : "";
  decision.requeue = true;
  decision.env = {{"SEED", "7"}, {"BELLOWS_TENANT", "t"}};
  return decision;
}

/// A contract holds no control characters, and no more than a line may: the policy sees to that.
bool presentable(const Contract& contract) {
  const std::string line = contract.to_string();
  const auto& texts = contract.tenant + contract.checkpoint_dir;
  return line.size() <= Contract::kMostBytes &&
         std::none_of(texts.begin(), texts.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

void check_contract(job_desc_msg_t& job, const Texts& before, const Texts& texts) {
  const Decision decision = decision_for(texts);
  if (!presentable(decision.contract)) return;
  apply_decision(job, decision);
  const auto line = contract_line(job);
  require(line && *line == job.admin_comment);
  const auto contract = Contract::parse(*line);
  require(contract.ok() && *contract == decision.contract);
  Texts entries = list(job.spank_job_env, job.spank_job_env_size);
  entries.pop_back();
  require(entries == before);
  require(!job.environment || !job.environment[job.env_size]);
  for (const std::string& entry : list(job.environment, job.env_size)) {
    require(!entry.starts_with("BELLOWS_CONTRACT="));
    require(!entry.starts_with("BELLOWS_TENANT=") || entry == "BELLOWS_TENANT=t");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  // Slurm's texts end at a NUL.
  std::erase(text, '\0');
  Texts lists[2];
  std::size_t which = 0;
  for (std::string_view line : split(text, '\n')) {
    if (line.empty() && which == 0)
      which = 1;
    else
      lists[which].emplace_back(line == "-" ? "" : line);
  }
  const std::unique_ptr<job_desc_msg_t, fuzz::JobFreed> job(new job_desc_msg_t());
  fuzz::fill(job->spank_job_env, job->spank_job_env_size, lists[0]);
  fuzz::fill(job->environment, job->env_size, lists[1]);

  const Texts kept = honest(lists[0]);
  require(strip_forged(*job) == (kept.size() != lists[0].size()));
  require(list(job->spank_job_env, job->spank_job_env_size) == kept);
  require(!contract_line(*job));
  require(!strip_forged(*job));
  check_options(*job, kept);
  check_contract(*job, kept, lists[1]);
  return 0;
}
