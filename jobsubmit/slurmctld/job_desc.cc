// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/job_desc.h"

#include <fmt/core.h>
#include <pwd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "common/variables.h"
#include "jobsubmit/admission/gres_text.h"

namespace bellows {
namespace {

/// An entry of spank_job_env without the "SPANK_" that Slurm puts before it at some stages.
std::string_view bare(const char* entry) {
  std::string_view text(entry ? entry : "");
  if (text.starts_with("SPANK_")) text.remove_prefix(6);
  return text;
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::optional<std::string> value_of(std::string_view entry) {
  const auto equals = entry.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  return std::string(entry.substr(equals + 1));
}

bool is_identity(const char* entry) {
  if (!entry) return false;
  const std::string_view name = name_of(entry);
  for (std::string_view known : kJobVariables)
    if (name == known) return true;
  return false;
}

/// Drops the entries for which `drop` is true, keeping the order. True when there were any.
template <typename Drop>
bool drop_entries(char** entries, std::uint32_t& count, const Drop& drop) {
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (drop(i)) {
      slurm_xfree(reinterpret_cast<void**>(&entries[i]));
      continue;
    }
    entries[kept++] = entries[i];
  }
  for (std::uint32_t i = kept; i < count; ++i) entries[i] = nullptr;
  const bool dropped = kept != count;
  count = kept;
  return dropped;
}

void add_entry(char**& entries, std::uint32_t& count, const std::string& entry) {
  // Slurm's own readers of `environment` stop at a null pointer, so one always follows.
  slurm_xrecalloc(reinterpret_cast<void**>(&entries), count + 2, sizeof(char*), true, false,
                  __FILE__, __LINE__, __func__);
  entries[count++] = slurm_xstrdup(entry.c_str());
}

std::optional<std::string> text_of(const char* text) {
  if (!text) return std::nullopt;
  return std::string(text);
}

std::optional<std::uint32_t> number_of(std::uint32_t value) {
  if (value == NO_VAL || value == INFINITE) return std::nullopt;
  return value;
}

std::optional<std::uint32_t> number_of16(std::uint16_t value) {
  if (value == NO_VAL16 || value == INFINITE16) return std::nullopt;
  return value;
}

/// The CPUs of a node for its memory, where the site has bound memory to CPUs: Slurm adds them
/// after job_submit. A partition's own MaxMemPerCPU is not to be seen from here.
std::uint32_t cpus_for_memory(const job_desc_msg_t& desc) {
  if (!&slurm_conf || !(slurm_conf.max_mem_per_cpu & MEM_PER_CPU)) return 0;
  if (desc.mem_per_tres && *desc.mem_per_tres) return 0;
  const std::uint64_t limit = slurm_conf.max_mem_per_cpu & ~MEM_PER_CPU;
  const std::uint64_t memory =
      desc.pn_min_memory == NO_VAL64 ? slurm_conf.def_mem_per_cpu : desc.pn_min_memory;
  if ((memory & MEM_PER_CPU) || limit == 0) return 0;
  // 0 is all the memory that a node has.
  const std::uint64_t cpus = memory == 0 ? UINT32_MAX : memory / limit + (memory % limit != 0);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(cpus, UINT32_MAX));
}

/// "gres:gpu:4"
std::uint32_t shares_of_gpu(const char* text) {
  const auto item = text ? parse_gres_item(text) : Result<GresItem>(GresItem{"", "", 0, ""});
  return item ? static_cast<std::uint32_t>(std::min<std::uint64_t>(item->count, UINT16_MAX)) : 0;
}

Sizes read_sizes(const job_desc_msg_t& desc) {
  Sizes sizes;
  sizes.per_job = text_of(desc.tres_per_job);
  sizes.per_node = text_of(desc.tres_per_node);
  sizes.per_socket = text_of(desc.tres_per_socket);
  sizes.per_task = text_of(desc.tres_per_task);
  // Slurm reads INFINITE, which elsewhere is not a number, as a number here.
  if (desc.num_tasks != NO_VAL) sizes.tasks = desc.num_tasks;
  sizes.min_nodes = number_of(desc.min_nodes);
  sizes.max_nodes = number_of(desc.max_nodes);
  if (desc.ntasks_per_node != NO_VAL16) sizes.tasks_per_node = desc.ntasks_per_node;
  // 0 is nothing said.
  if (desc.ntasks_per_tres != NO_VAL16 && desc.ntasks_per_tres != 0)
    sizes.tasks_per_gpu = desc.ntasks_per_tres;
  sizes.min_cpus = number_of(desc.min_cpus);
  sizes.node_cpus = std::max(number_of16(desc.pn_min_cpus).value_or(0), cpus_for_memory(desc));
  const auto cpus = number_of16(desc.cpus_per_task);
  sizes.cpus_per_task = cpus && *cpus > 0 ? *cpus : 1;
  sizes.cpus_per_gpu = shares_of_gpu(desc.cpus_per_tres);
  return sizes;
}

/// Slurm fills these in as 0 where a job never said anything.
void drop_zeros(Sizes& sizes) {
  for (auto* value : {&sizes.tasks, &sizes.min_nodes, &sizes.max_nodes, &sizes.tasks_per_node,
                      &sizes.tasks_per_gpu})
    if (*value && **value == 0) value->reset();
}

/// A text that slurmctld's cache of accounting has for a user, or "".
std::string known_of_user(std::uint32_t uid, char* slurmdb_user_rec_t::*field) {
  if (!assoc_mgr_fill_in_user || !&acct_db_conn || !&accounting_enforce) return "";
  slurmdb_user_rec_t user;
  std::memset(&user, 0, sizeof user);
  user.uid = uid;
  if (assoc_mgr_fill_in_user(acct_db_conn, &user, accounting_enforce, nullptr, false) !=
          SLURM_SUCCESS ||
      !(user.*field))
    return "";
  // The text belongs to slurmctld's cache, and its lock is already given back: copy it at once.
  return user.*field;
}

constexpr std::size_t kMostParents = 64;

std::string parent_of(const std::string& account) {
  if (!assoc_mgr_fill_in_assoc || !&acct_db_conn || !&accounting_enforce) return "";
  std::string name = account;
  slurmdb_assoc_rec_t association;
  std::memset(&association, 0, sizeof association);
  association.acct = name.data();
  association.uid = NO_VAL;  // the account's own association, not one of its users
  if (assoc_mgr_fill_in_assoc(acct_db_conn, &association, accounting_enforce, nullptr, false) !=
          SLURM_SUCCESS ||
      !association.parent_acct)
    return "";
  return to_lower(association.parent_acct);  // copied at once, as above
}

std::optional<std::uint32_t> minutes_of(std::uint32_t limit) {
  static_assert(INFINITE == kUnlimited);
  if (limit == NO_VAL) return std::nullopt;
  return limit;
}

bool said(const char* text) { return text && *text; }

/// What the user says about the job besides its size.
void read_terms(const job_desc_msg_t& desc, Request& request) {
  request.partition = text_of(desc.partition).value_or("");
  request.reserved = said(desc.reservation);
  request.qos = text_of(desc.qos);
  request.time_limit = minutes_of(desc.time_limit);
  request.cpus_said = said(desc.cpus_per_tres) || number_of16(desc.cpus_per_task).value_or(0) > 0 ||
                      number_of16(desc.pn_min_cpus).value_or(0) > 0;
  request.memory_said = said(desc.mem_per_tres) || desc.pn_min_memory != NO_VAL64;
  request.signal_said = desc.warn_signal != 0;
  request.placement_said = (desc.bitflags & (USE_MIN_NODES | SPREAD_JOB)) != 0;
}

}  // namespace

void set_text(char*& field, const std::string& text) {
  slurm_xfree(reinterpret_cast<void**>(&field));
  if (!text.empty()) field = slurm_xstrdup(text.c_str());
}

bool strip_forged(job_desc_msg_t& desc) {
  if (!desc.spank_job_env) return false;
  std::vector<bool> forged(desc.spank_job_env_size);
  std::set<std::string_view> options;
  for (std::uint32_t i = desc.spank_job_env_size; i-- > 0;) {
    const std::string_view entry = bare(desc.spank_job_env[i]);
    forged[i] = entry.starts_with("BELLOWS_") ||
                (entry.starts_with(kOptionPrefix) && !options.insert(entry).second);
  }
  return drop_entries(desc.spank_job_env, desc.spank_job_env_size,
                      [&](std::uint32_t i) { return forged[i]; });
}

void drop_partition_flag(job_desc_msg_t& desc) { desc.bitflags &= ~JOB_PART_ASSIGNED; }

void drop_zero_divisor(job_desc_msg_t& desc) {
  // sbatch accepts no 0 here, so no user asked for it.
  if (desc.ntasks_per_socket == 0) desc.ntasks_per_socket = NO_VAL16;
}

Request read_request(const job_desc_msg_t& desc) {
  Request request;
  const auto take = [&](std::optional<std::string>& option, std::string_view entry) {
    if (option) request.contradictory = true;
    option = value_of(entry);
  };
  for (std::uint32_t i = 0; desc.spank_job_env && i < desc.spank_job_env_size; ++i) {
    std::string_view entry = bare(desc.spank_job_env[i]);
    if (!entry.starts_with(kOptionPrefix)) continue;
    entry.remove_prefix(kOptionPrefix.size());
    if (name_of(entry) == "framework") take(request.framework, entry);
    if (name_of(entry) == "gpus_range") take(request.gpus_range, entry);
    if (name_of(entry) == "batch_range") take(request.batch_range, entry);
    if (name_of(entry) == "model") take(request.models, entry);
    if (name_of(entry) == "model_on") take(request.model_on, entry);
    if (name_of(entry) == "pool") take(request.pool, entry);
    if (name_of(entry) == "job_class") take(request.job_class, entry);
    // The one text in which the plugin passes on all of them; the single options are not read.
    if (name_of(entry) == "container") take(request.container, entry);
  }
  // Slurm lets nobody update a scrontab job, so it can't be resized.
  const bool cron = (desc.bitflags & CRON_JOB) != 0;
  request.batch = desc.script != nullptr && !cron;
  request.heterogeneous = desc.het_job_offset != NO_VAL && !cron;
  request.array = said(desc.array_inx);
  request.requeue_off = desc.requeue == 0;
  request.whole_nodes = desc.shared == JOB_SHARED_NONE || desc.core_spec != NO_VAL16;
  request.sizes = read_sizes(desc);
  drop_zeros(request.sizes);
  read_terms(desc, request);
  return request;
}

std::vector<std::string> parents_of(const std::string& account) {
  std::vector<std::string> parents;
  std::string next = account;
  while (parents.size() < kMostParents) {
    next = parent_of(next);
    if (next.empty() || std::find(parents.begin(), parents.end(), next) != parents.end()) break;
    parents.push_back(next);
  }
  return parents;
}

bool may_coordinate(std::uint32_t uid, const std::string& account) {
  if (!assoc_mgr_is_user_acct_coord || !&acct_db_conn) return true;
  std::string name = account;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
  return assoc_mgr_is_user_acct_coord(acct_db_conn, uid, name.data(), false);
#else
  return assoc_mgr_is_user_acct_coord(acct_db_conn, uid, name.data());
#endif
}

std::string default_partition() {
  return &default_part_name && default_part_name ? default_part_name : "";
}

std::string settled_account(const job_desc_msg_t& desc) {
  // Also where nothing is enforced slurmctld gives a job its user's default account.
  return desc.account && *desc.account
             ? to_lower(desc.account)
             : known_of_user(desc.user_id, &slurmdb_user_rec_t::default_acct);
}

void settle_account(job_desc_msg_t& desc) {
  const std::string account = settled_account(desc);
  if (account != (desc.account ? desc.account : "")) set_text(desc.account, account);
}

std::string owner_name(std::uint32_t uid) {
  std::string known = known_of_user(uid, &slurmdb_user_rec_t::name);
  if (!known.empty()) return known;
  passwd entry;
  passwd* found = nullptr;
  std::vector<char> buffer(16384);
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || !found) return "";
  return found->pw_name;
}

namespace {

/// Into the environment goes what the user has not set.
void add_missing(job_desc_msg_t& desc, const std::map<std::string, std::string>& variables) {
  std::set<std::string_view> missing;
  for (const auto& [name, value] : variables) missing.insert(name);
  for (std::uint32_t i = 0; i < desc.env_size && !missing.empty(); ++i)
    if (desc.environment[i]) missing.erase(name_of(desc.environment[i]));
  for (const auto& [name, value] : variables)
    if (missing.contains(name)) add_entry(desc.environment, desc.env_size, name + "=" + value);
}

void apply_terms(job_desc_msg_t& desc, const Changes& changes) {
  if (changes.cpus_per_gpu) set_text(desc.cpus_per_tres, *changes.cpus_per_gpu);
  if (changes.memory_per_gpu) set_text(desc.mem_per_tres, *changes.memory_per_gpu);
  if (changes.partition) set_text(desc.partition, *changes.partition);
  if (changes.qos) set_text(desc.qos, *changes.qos);
  if (changes.time_limit) desc.time_limit = *changes.time_limit;
  if (changes.signal_lead) {
    desc.warn_signal = SIGUSR1;
    desc.warn_time = *changes.signal_lead;
    desc.warn_flags = KILL_JOB_BATCH;
  }
  if (changes.placement == PlacementStrategy::pack) desc.bitflags |= USE_MIN_NODES;
  if (changes.placement == PlacementStrategy::spread) desc.bitflags |= SPREAD_JOB;
}

}  // namespace

void apply_changes(job_desc_msg_t& desc, const Changes& changes) {
  if (changes.per_job) set_text(desc.tres_per_job, *changes.per_job);
  if (changes.per_node) set_text(desc.tres_per_node, *changes.per_node);
  if (changes.per_task) set_text(desc.tres_per_task, *changes.per_task);
  if (changes.tasks) desc.num_tasks = *changes.tasks;
  if (changes.min_nodes) desc.min_nodes = *changes.min_nodes;
  if (changes.max_nodes) desc.max_nodes = *changes.max_nodes;
  // With --overcommit tasks share CPUs, so their number says nothing about CPUs.
  const bool overcommit = desc.overcommit != NO_VAL8 && desc.overcommit != 0;
  if (changes.min_cpus && !overcommit &&
      (desc.min_cpus == NO_VAL || desc.min_cpus < *changes.min_cpus))
    desc.min_cpus = *changes.min_cpus;
  if (changes.site_factor) desc.site_factor = NICE_OFFSET + *changes.site_factor;
  apply_terms(desc, changes);
}

void apply_decision(job_desc_msg_t& desc, const Decision& decision) {
  apply_changes(desc, decision.changes);
  if (decision.requeue) {
    desc.requeue = 1;
    if (desc.open_mode == 0) desc.open_mode = OPEN_MODE_APPEND;
  }
  const std::string line = decision.contract.to_string();
  show_contract(desc, line);
  add_entry(desc.spank_job_env, desc.spank_job_env_size,
            fmt::format("{}={}", Contract::kVariable, line));
  if (!desc.environment) return;
  drop_entries(desc.environment, desc.env_size,
               [&](std::uint32_t i) { return is_identity(desc.environment[i]); });
  add_missing(desc, decision.env);
}

void add_plain_contract(job_desc_msg_t& desc, const Contract& contract) {
  add_entry(desc.spank_job_env, desc.spank_job_env_size,
            fmt::format("{}={}", Contract::kPlainVariable, contract.to_string()));
}

void show_contract(job_desc_msg_t& desc, std::string_view line) {
  const std::string_view comment = desc.admin_comment ? desc.admin_comment : "";
  set_text(desc.admin_comment, Contract::admin_comment(line, Contract::others_in(comment)));
}

namespace {

bool changes_cpus(const job_desc_msg_t& update) {
  return update.min_cpus != NO_VAL || update.pn_min_cpus != NO_VAL16 ||
         update.cpus_per_task != NO_VAL16 || update.pn_min_memory != NO_VAL64;
}

}  // namespace

bool touches_contract(const job_desc_msg_t& update) {
  return update.tres_per_job || update.tres_per_node || update.tres_per_socket ||
         update.tres_per_task || update.account || update.requeue == 0 || update.cpus_per_tres ||
         update.mem_per_tres || update.partition || update.reservation || update.qos ||
         update.time_limit != NO_VAL || update.num_tasks != NO_VAL || update.min_nodes != NO_VAL ||
         update.max_nodes != NO_VAL || update.ntasks_per_tres != NO_VAL16 || changes_cpus(update);
}

namespace {

std::optional<std::string> kept_line(const job_desc_msg_t& job, std::string_view variable) {
  for (std::uint32_t i = 0; job.spank_job_env && i < job.spank_job_env_size; ++i) {
    const std::string_view entry = bare(job.spank_job_env[i]);
    if (name_of(entry) == variable) return value_of(entry);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> contract_line(const job_desc_msg_t& job) {
  return kept_line(job, Contract::kVariable);
}

std::optional<std::string> plain_contract_line(const job_desc_msg_t& job) {
  return kept_line(job, Contract::kPlainVariable);
}

bool has_partition_of_slurm(const job_desc_msg_t& job) {
  return (job.bitflags & JOB_PART_ASSIGNED) != 0;
}

Admitted read_admitted(const job_desc_msg_t& job, Contract contract) {
  Admitted admitted;
  admitted.contract = std::move(contract);
  admitted.sizes = read_sizes(job);
  drop_zeros(admitted.sizes);
  admitted.has_run = job.restart_cnt > 0;
  admitted.origin.account = to_lower(job.account ? job.account : "");
  admitted.origin.partition = text_of(job.partition).value_or("");
  admitted.time_limit = minutes_of(job.time_limit);
  admitted.cpus_per_gpu = text_of(job.cpus_per_tres).value_or("");
  admitted.memory_per_gpu = text_of(job.mem_per_tres).value_or("");
  admitted.partition_by_slurm = has_partition_of_slurm(job);
  return admitted;
}

Update read_update(const job_desc_msg_t& desc) {
  Update update;
  update.sizes = read_sizes(desc);
  // No limit is a limit that was changed.
  if (desc.max_nodes == INFINITE) update.sizes.max_nodes = 0;
  update.cpus_said = changes_cpus(desc);
  update.sizes.node_cpus.reset();
  if (desc.account) update.account = settled_account(desc);
  update.requeue_off = desc.requeue == 0;
  update.partition = text_of(desc.partition);
  update.reservation = text_of(desc.reservation);
  update.qos = text_of(desc.qos);
  update.time_limit = minutes_of(desc.time_limit);
  update.cpus_per_gpu = text_of(desc.cpus_per_tres);
  update.memory_per_gpu = text_of(desc.mem_per_tres);
  return update;
}

}  // namespace bellows
