// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

struct TextBound {
  char* job_desc_msg_t::*text;
  const char* option;
  std::size_t most;
};

constexpr std::size_t kShort = 1024;
constexpr std::size_t kNodes = 1024 * 1024;

constexpr TextBound kTexts[] = {
    // As Slurm's _test_job_desc_fields, which comes later: what this plugin and Lua hooks read.
    {&job_desc_msg_t::account, "--account", kShort},
    {&job_desc_msg_t::array_inx, "--array", 4 * kShort},
    {&job_desc_msg_t::comment, "--comment", kShort},
    {&job_desc_msg_t::cpus_per_tres, "--cpus-per-gpu", kShort},
    {&job_desc_msg_t::features, "--constraint", kShort},
    {&job_desc_msg_t::mem_per_tres, "--mem-per-gpu", kShort},
    {&job_desc_msg_t::name, "--job-name", kShort},
    {&job_desc_msg_t::partition, "--partition", kShort},
    {&job_desc_msg_t::qos, "--qos", kShort},
    {&job_desc_msg_t::reservation, "--reservation", kShort},
    {&job_desc_msg_t::tres_per_job, "--gpus", kShort},
    {&job_desc_msg_t::tres_per_node, "--gres or --gpus-per-node", kShort},
    {&job_desc_msg_t::tres_per_socket, "--gpus-per-socket", kShort},
    {&job_desc_msg_t::tres_per_task, "--gpus-per-task", kShort},
    // Not bounded by Slurm, and copied when a job is updated.
    {&job_desc_msg_t::acctg_freq, "--acctg-freq", kShort},
    {&job_desc_msg_t::clusters, "--clusters", 4 * kShort},
    {&job_desc_msg_t::container, "--container", 4 * kShort},
    {&job_desc_msg_t::exc_nodes, "--exclude", kNodes},
    {&job_desc_msg_t::origin_cluster, "the name of the cluster", kShort},
    {&job_desc_msg_t::req_nodes, "--nodelist", kNodes},
    {&job_desc_msg_t::resp_host, "the name of the submitting host", kShort},
};

/// The bytes of a text with its end; `most` and one more where there are as many or more.
std::size_t bytes_of(const char* text, std::size_t most) { return strnlen(text, most) + 1; }

std::optional<std::string> long_text(const job_desc_msg_t& desc) {
  for (const TextBound& bound : kTexts)
    if (const char* text = desc.*bound.text;
        text && bytes_of(text, bound.most + 1) > bound.most + 1)
      return fmt::format("{} is longer than the {} bytes that a job may have there; shorten it",
                         bound.option, bound.most);
  return std::nullopt;
}

/// Takes the bytes of all entries off `left`. False: there are not as many left.
bool take_off(std::size_t& left, char* const* entries, std::uint32_t count) {
  for (std::uint32_t i = 0; entries && i < count; ++i) {
    const std::size_t bytes = entries[i] ? bytes_of(entries[i], left) : 0;
    if (bytes > left) return false;
    left -= bytes;
  }
  return true;
}

/// No command sends such an entry, and some of Slurm's own readers do not look for it.
bool lacks_text(char* const* entries, std::uint32_t count) {
  return entries && std::find(entries, entries + count, nullptr) != entries + count;
}

std::string name_of(const char* entry) {
  const std::string_view text(entry, strnlen(entry, 64));
  return shown(text.substr(0, text.find('=')));
}

std::optional<std::string> large_spank_job_env(const job_desc_msg_t& desc) {
  const std::uint32_t count = desc.spank_job_env_size;
  if (!desc.spank_job_env || count == 0) return std::nullopt;
  if (count > kMostSpankEntries)
    return fmt::format(
        "the job has {} options and variables for SPANK plugins (spank_job_env), and at most {} "
        "are allowed; leave some out",
        count, kMostSpankEntries);
  if (lacks_text(desc.spank_job_env, count))
    return "an entry of spank_job_env has no text; leave it out";
  const char* const* const end = desc.spank_job_env + count;
  const char* const* const begin = desc.spank_job_env;
  const char* const* const longest = std::find_if(begin, end, [](const char* entry) {
    return entry && bytes_of(entry, kMostSpankEntryBytes) > kMostSpankEntryBytes;
  });
  if (longest != end)
    return fmt::format(
        "\"{}\" for SPANK plugins (spank_job_env) does not fit into the {} KiB that an option or "
        "variable of them may have; shorten it",
        name_of(*longest), kMostSpankEntryBytes / 1024);
  std::size_t left = kMostSpankBytes;
  if (take_off(left, desc.spank_job_env, count)) return std::nullopt;
  return fmt::format(
      "the options and variables for SPANK plugins (spank_job_env) do not fit into {} KiB "
      "together; shorten them, or leave some out",
      kMostSpankBytes / 1024);
}

std::optional<std::string> large_program(const job_desc_msg_t& desc) {
  if (desc.env_size > kMostVariables)
    return fmt::format(
        "the job's environment has {} variables, and at most {} are allowed; name those it needs "
        "with "
        "--export",
        desc.env_size, kMostVariables);
  if (desc.argc > kMostArguments)
    return fmt::format(
        "the job's script has {} arguments, and at most {} are allowed; give it the name of a file "
        "with "
        "them",
        desc.argc, kMostArguments);
  if (lacks_text(desc.environment, desc.env_size))
    return "an entry of the job's environment has no text; leave it out";
  std::size_t left = kMostProgramBytes;
  if (take_off(left, desc.environment, desc.env_size) && take_off(left, desc.argv, desc.argc))
    return std::nullopt;
  return fmt::format(
      "the job's environment and the arguments of its script do not fit into {} KiB together; name "
      "the variables that it needs with --export, or give the script a file instead of arguments",
      kMostProgramBytes / 1024);
}

}  // namespace

std::optional<std::string> over_bounds(const job_desc_msg_t& desc) {
  if (auto why = long_text(desc)) return why;
  if (auto why = large_spank_job_env(desc)) return why;
  return large_program(desc);
}

}  // namespace bellows
