// SPDX-License-Identifier: Apache-2.0
/// Requests that are too large for slurmctld, or would be for the prolog on a node.
#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

namespace {

using Texts = std::vector<std::string>;

constexpr std::size_t kKiB = 1024;

Texts many(std::size_t count, const std::string& text = "NAME=value") { return {count, text}; }

/// Entries of other plugins, each of this size with its end.
Texts entries(std::size_t count, std::size_t bytes) {
  Texts texts;
  for (std::size_t i = 0; i < count; ++i) {
    std::string text = "_SLURM_SPANK_OPTION_other_" + std::to_string(i) + "=";
    texts.push_back(text + std::string(bytes - 1 - text.size(), 'x'));
  }
  return texts;
}

/// A request in which one thing is large; for a submission a job that asks for Bellows.
using Change = void (*)(job_desc_msg_t& job);

struct Large {
  const char* what;
  Change most;      ///< as large as it may be
  Change over;      ///< and more
  const char* why;  ///< a part of the sentence
};

template <auto Text, std::size_t Bytes>
void text_of(job_desc_msg_t& job) {
  release(&(job.*Text));
  job.*Text = copy(std::string(Bytes, ','));
}

template <auto List, auto Size>
void list_of(job_desc_msg_t& job, Texts texts) {
  const Texts had = read(job.*List, job.*Size);
  texts.insert(texts.end(), had.begin(), had.end());
  fill(job.*List, job.*Size, texts);
}

using D = job_desc_msg_t;
constexpr auto spank = list_of<&D::spank_job_env, &D::spank_job_env_size>;
constexpr auto environment = list_of<&D::environment, &D::env_size>;
constexpr auto arguments = list_of<&D::argv, &D::argc>;

const Large kLarge[] = {
    {"partition", text_of<&D::partition, 1024>, text_of<&D::partition, 1025>,
     "--partition is longer than the 1024 bytes"},
    {"qos", text_of<&D::qos, 1024>, text_of<&D::qos, 1025>, "--qos is longer"},
    {"account", text_of<&D::account, 1024>, text_of<&D::account, 1025>, "--account is longer"},
    {"array", text_of<&D::array_inx, 4096>, text_of<&D::array_inx, 4097>, "--array is longer"},
    {"features", text_of<&D::features, 1024>, text_of<&D::features, 1025>, "--constraint is"},
    {"comment", text_of<&D::comment, 1024>, text_of<&D::comment, 1025>, "--comment is longer"},
    {"name", text_of<&D::name, 1024>, text_of<&D::name, 1025>, "--job-name is longer"},
    {"reservation", text_of<&D::reservation, 1024>, text_of<&D::reservation, 1025>,
     "--reservation is"},
    {"tres_per_job", text_of<&D::tres_per_job, 1024>, text_of<&D::tres_per_job, 1025>, "--gpus is"},
    {"tres_per_node", text_of<&D::tres_per_node, 1024>, text_of<&D::tres_per_node, 1025>,
     "--gres or --gpus-per-node is"},
    {"tres_per_socket", text_of<&D::tres_per_socket, 1024>, text_of<&D::tres_per_socket, 1025>,
     "--gpus-per-socket is"},
    {"tres_per_task", text_of<&D::tres_per_task, 1024>, text_of<&D::tres_per_task, 1025>,
     "--gpus-per-task is"},
    {"cpus_per_tres", text_of<&D::cpus_per_tres, 1024>, text_of<&D::cpus_per_tres, 1025>,
     "--cpus-per-gpu is"},
    {"mem_per_tres", text_of<&D::mem_per_tres, 1024>, text_of<&D::mem_per_tres, 1025>,
     "--mem-per-gpu is"},
    {"req_nodes", text_of<&D::req_nodes, 1024 * kKiB>, text_of<&D::req_nodes, 1024 * kKiB + 1>,
     "--nodelist is"},
    {"entries of spank_job_env", [](D& job) { spank(job, many(254)); },
     [](D& job) { spank(job, many(255)); }, "has 257 options and variables for SPANK plugins"},
    {"an entry of spank_job_env", [](D& job) { spank(job, entries(1, 64 * kKiB)); },
     [](D& job) { spank(job, entries(1, 64 * kKiB + 1)); },
     "\"_SLURM_SPANK_OPTION_other_0\" for SPANK plugins (spank_job_env) does not fit into the 64 "
     "KiB"},
    {"spank_job_env", [](D& job) { spank(job, entries(3, 64 * kKiB)); },
     [](D& job) { spank(job, entries(4, 64 * kKiB)); }, "do not fit into 256 KiB together"},
    {"variables", [](D& job) { environment(job, many(16384)); },
     [](D& job) { environment(job, many(16385)); },
     "environment has 16385 variables, and at most 16384"},
    {"environment", [](D& job) { environment(job, many(32, std::string(64 * kKiB - 1, 'x'))); },
     [](D& job) { environment(job, many(33, std::string(64 * kKiB - 1, 'x'))); },
     "do not fit into 2048 KiB together"},
    {"arguments", [](D& job) { arguments(job, many(131072, "a")); },
     [](D& job) { arguments(job, many(131073, "a")); },
     "has 131073 arguments, and at most 131072 are"},
    {"arguments' bytes", [](D& job) { arguments(job, many(2, std::string(1023 * kKiB, 'x'))); },
     [](D& job) { arguments(job, many(2, std::string(1024 * kKiB, 'x'))); },
     "do not fit into 2048 KiB together"},
};

std::string only_line(const std::string& text) {
  return text.substr(text.find(": ") + 2, text.find('\n'));
}

}  // namespace

Test(job_submit_bounds, hold_for_every_job_whatever_the_policy, .timeout = 60) {
  for (const char* policy : {kPolicy, "version: 1\nenabled: false\n", "broken: ["}) {
    Plugin plugin(policy);
    for (const Large& large : kLarge) {
      Job most = elastic_job();
      large.most(*most);
      cr_expect(plugin.submit(most.get()) != ESLURM_PATHNAME_TOO_LONG, "%s: %s", large.what,
                plugin.message().c_str());
      Job over = elastic_job();
      large.over(*over);
      cr_expect(plugin.submit(over.get()) == ESLURM_PATHNAME_TOO_LONG, "%s: %s", large.what,
                plugin.message().c_str());
      cr_expect(plugin.message().starts_with("bellows: ") &&
                    only_line(plugin.message()).find(large.why) != std::string::npos,
                "%s: %s", large.what, plugin.message().c_str());
      cr_expect(not over->admin_comment);
    }
  }
}

Test(job_submit_bounds, hold_for_every_update_before_the_job_is_looked_at, .timeout = 60) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  for (const Large& large : kLarge)
    for (uid_t uid : {kOwner, kOther, kOperator, uid_t{0}}) {
      Job update = elastic_job();
      large.over(*update);
      const std::size_t copied = record_copies();
      cr_expect(plugin.modify(update.get(), record, uid) == ESLURM_PATHNAME_TOO_LONG, "%s",
                large.what);
      cr_expect(record_copies() == copied, "%s", large.what);
    }
}

Test(job_submit_bounds, leave_room_for_other_plugins, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  spank(*job, entries(50, 4 * kKiB));
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(job->spank_job_env_size == 53, "theirs, two options, and the contract");
  Job plain = new_job();
  spank(*plain, entries(50, 4 * kKiB));
  cr_expect(plugin.submit(plain.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
}

Test(job_submit_bounds, refuse_an_entry_without_a_text, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = new_job();
  fill(job->environment, job->env_size, {"A=1", "B=2", "C=3"});
  release(&job->environment[1]);
  cr_expect(plugin.submit(job.get()) == ESLURM_PATHNAME_TOO_LONG);
  cr_expect(
      plugin.message().ends_with("an entry of the job's environment has no text; leave it out"));
  job = new_job();
  fill(job->spank_job_env, job->spank_job_env_size, {"A=1", "B=2", "C=3"});
  release(&job->spank_job_env[1]);
  cr_expect(plugin.submit(job.get()) == ESLURM_PATHNAME_TOO_LONG);
}

// The remainder of a division by 0 would end slurmctld.
Test(job_modify, no_tasks_for_each_gpu_are_nothing_said, .timeout = 20) {
  Plugin plugin(kPolicy);
  for (const char* gpus : {"", BELLOWS_GRES "gpu:2"}) {
    job_record record = running_job();
    record.per_job = gpus;
    Job update = new_job();
    update->ntasks_per_tres = 0;
    update->num_tasks = 4;
    cr_expect(plugin.modify(update.get(), record) != EINVAL);
    Job job = elastic_job();
    job->ntasks_per_tres = 0;
    job->num_tasks = 4;
    cr_expect(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  }
}

// Slurm takes INFINITE for a number of tasks, and would count GPUs by it.
Test(job_modify, no_limit_of_tasks_is_a_number, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  record.spank_job_env = {"BELLOWS_CONTRACT=bellows/1 tenant=vision framework=plain gpus=2"};
  record.per_job.clear();
  record.per_task = BELLOWS_GRES "gpu:1";
  for (const std::uint32_t tasks : {2u, INFINITE}) {
    Job update = new_job();
    update->num_tasks = tasks;
    cr_expect((plugin.modify(update.get(), record) == SLURM_SUCCESS) == (tasks == 2), "%s",
              plugin.message().c_str());
  }
}

// slurmctld asks before it checks whose job it is, and then refuses by itself.
Test(job_modify, a_job_of_others_is_left_to_slurm, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  const auto grow = [&](uid_t uid) {
    Job update = new_job();
    update->tres_per_job = copy(BELLOWS_GRES "gpu:9");
    return plugin.modify(update.get(), record, uid);
  };
  cr_expect(grow(kOwner) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(grow(kOther) == SLURM_SUCCESS);
  cr_expect(grow(kCoordinator) == ESLURM_ACCOUNTING_POLICY);
  record.account = "speech";
  cr_expect(grow(kCoordinator) == SLURM_SUCCESS, "who coordinates another account");
}
