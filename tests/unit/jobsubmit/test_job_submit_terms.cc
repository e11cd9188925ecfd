// SPDX-License-Identifier: Apache-2.0
#include <grp.h>
#include <pwd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

namespace {

const char* const kTerms =
    "sizing: {per_gpu: {cpus: 4, memory: 16G, snapshot: 4G}, time: {default: 60, max: 120}, "
    "signal_lead: 120, placement: pack, partition: gpu, partitions: [\"gpu*\"], qos: normal, "
    "qos_allowed: [normal], site_factor: 40}";

/// Until the watcher's thread has looked people up, their tenants are not known.
int submit_when_known(Plugin& plugin, job_desc_msg_t* job) {
  for (int i = 0;; ++i) {
    const int rc = plugin.submit(job);
    if (plugin.message().find("still being looked up") == std::string::npos || i == 500) return rc;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string text(const char* field) { return field ? field : ""; }

}  // namespace

Test(job_submit, terms_fill_in_what_the_user_left_open, .timeout = 20) {
  Plugin plugin(policy_with(kTerms));
  Job job = elastic_job();
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(text(job->cpus_per_tres) == BELLOWS_GRES "gpu:4");
  cr_expect(text(job->mem_per_tres) == BELLOWS_GRES "gpu:20480");
  cr_expect(job->pn_min_memory == NO_VAL64, "memory is for each GPU, not for each node");
  cr_expect(job->time_limit == 60);
  cr_expect(job->warn_signal == SIGUSR1);
  cr_expect(job->warn_time == 120);
  cr_expect(job->warn_flags == KILL_JOB_BATCH);
  cr_expect(job->bitflags & USE_MIN_NODES);
  cr_expect(text(job->partition) == "gpu");
  cr_expect(text(job->qos) == "normal");
  cr_expect(job->site_factor == NICE_OFFSET + 40);
}

Test(job_submit, a_reservation_puts_no_job_into_another_partition, .timeout = 20) {
  Plugin plugin(policy_with("sizing: {partitions: [gpu]}"));
  const auto submit = [&](const char* partition, const char* reservation) {
    Job job = elastic_job();
    if (partition) job->partition = copy(partition);
    if (reservation) job->reservation = copy(reservation);
    job->bitflags |= JOB_PART_ASSIGNED;  // as clients of their users' own making may send it
    const int rc = plugin.submit(job.get());
    cr_expect(not(job->bitflags & JOB_PART_ASSIGNED));
    return rc;
  };
  cr_expect(submit("gpu", nullptr) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(submit("gpu", "r,s") == SLURM_SUCCESS, "%s", plugin.message().c_str());
  for (const char* reservation : {"r", "r,s", "r,"}) {
    cr_expect(submit(nullptr, reservation) == ESLURM_ACCOUNTING_POLICY);
    cr_expect(plugin.message().find("name the partition too") != std::string::npos, "%s",
              plugin.message().c_str());
  }
}

Test(job_modify, reservations_move_no_job_to_another_partition, .timeout = 20) {
  Plugin plugin(policy_with("sizing: {partitions: [batch]}") +
                "plain_jobs: {partitions: {gpu: refuse}}\n");
  job_record plain;
  for (job_record record : {running_job(), plain})
    for (const bool by_slurm : {true, false}) {
      record.bitflags = by_slurm ? JOB_PART_ASSIGNED : 0;
      Job update = new_job();
      update->reservation = copy("r,s");
      cr_expect(plugin.modify(update.get(), record) ==
                (by_slurm ? ESLURM_ACCOUNTING_POLICY : SLURM_SUCCESS));
      cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
      release(&update->reservation);
      update->reservation = copy("r");
      cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
    }
}

Test(job_submit, terms_leave_what_the_user_said, .timeout = 20) {
  Plugin plugin(policy_with(kTerms));
  Job job = elastic_job();
  job->cpus_per_task = 2;
  job->pn_min_memory = 512 | MEM_PER_CPU;
  job->time_limit = 90;
  job->warn_signal = SIGUSR2;
  job->warn_time = 30;
  job->bitflags |= SPREAD_JOB;
  job->partition = copy("gpu2");
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(not job->cpus_per_tres);
  cr_expect(not job->mem_per_tres);
  cr_expect(job->time_limit == 90);
  cr_expect(job->warn_signal == SIGUSR2);
  cr_expect(job->warn_time == 30);
  cr_expect(job->warn_flags == 0);
  cr_expect(not(job->bitflags & USE_MIN_NODES));
  cr_expect(text(job->partition) == "gpu2");

  job = elastic_job();
  job->time_limit = INFINITE;
  cr_expect(plugin.submit(job.get()) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.message().starts_with("bellows: --time=unlimited is longer than the 2:00:00"));
}

Test(job_submit, policy_without_terms_sets_none, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(not job->cpus_per_tres);
  cr_expect(not job->mem_per_tres);
  cr_expect(not job->partition);
  cr_expect(not job->qos);
  cr_expect(job->time_limit == NO_VAL);
  cr_expect(job->warn_signal == 0);
  cr_expect(job->bitflags == 0);
  cr_expect(job->site_factor == NO_VAL);
}

Test(job_submit, batch_range_is_an_option_too, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size,
       {"_SLURM_SPANK_OPTION_bellows_batch_range=64-512"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(text(job->admin_comment) == "bellows/1 tenant=vision gpus=2 ckpt=/c/%25j batch=64-512");
}

Test(job_submit, pool_is_an_option_too, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size, {"_SLURM_SPANK_OPTION_bellows_pool=web"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(text(job->admin_comment) == "bellows/1 tenant=vision gpus=0 ckpt=/c/%25j pool=web");
  Job array = elastic_job();
  fill(array->spank_job_env, array->spank_job_env_size, {"_SLURM_SPANK_OPTION_bellows_pool=web"});
  array->array_inx = copy("1-2");
  cr_expect(plugin.submit(array.get()) != SLURM_SUCCESS);
  cr_expect(plugin.message().find("--array") != std::string::npos, "%s", plugin.message().c_str());
}

Test(job_submit, job_class_is_an_option_too, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size, {"_SLURM_SPANK_OPTION_bellows_job_class=bert"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(text(job->admin_comment) == "bellows/1 tenant=vision gpus=2 ckpt=/c/%25j class=bert");
}

Test(job_submit, the_kill_switch_lets_everything_pass, .timeout = 20) {
  Plugin plugin("enabled: false\nplain_jobs: refuse\n" + policy_with(""));
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size, {kRange, "BELLOWS_CONTRACT=forged"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(read(job->spank_job_env, job->spank_job_env_size) == std::vector<std::string>{kRange},
            "but no forgery");
  cr_expect(not job->admin_comment);
  cr_expect(text(job->account) == "VISION");
  Job plain = new_job();
  cr_expect(plugin.submit(plain.get()) == SLURM_SUCCESS);

  job_record record = running_job();
  Job update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:99");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
}

Test(job_submit, plain_jobs_go_by_the_partition, .timeout = 20) {
  Plugin plugin("plain_jobs: {default: pass, partitions: {gpu: refuse}}\n" + policy_with(""));
  Job job = new_job();
  cr_expect(plugin.submit(job.get()) == SLURM_SUCCESS);
  job->partition = copy("cpu,gpu");
  cr_expect(plugin.submit(job.get()) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.message().starts_with("bellows: partition gpu takes only jobs of Bellows;"));

  char gpu[] = "gpu";
  default_part_name = gpu;
  job = new_job();
  cr_expect(plugin.submit(job.get()) == ESLURM_ACCOUNTING_POLICY, "that is where Slurm puts it");
  default_part_name = nullptr;

  job_record record;
  record.spank_job_env = {"OTHER=1"};
  Job update = new_job();
  update->partition = copy("gpu");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
}

Test(job_submit, an_account_below_the_tenants_own, .timeout = 20) {
  Plugin plugin(policy_with("children: true"));
  Job job = elastic_job();
  release(&job->account);
  job->account = copy("team-a");
  cr_expect(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());

  Plugin strict(policy_with("children: false"));
  job = elastic_job();
  release(&job->account);
  job->account = copy("team-a");
  cr_expect(strict.submit(job.get()) == ESLURM_INVALID_ACCOUNT);
}

Test(job_submit, users_and_groups_narrow_a_tenant, .timeout = 30) {
  const passwd* me = ::getpwuid(::getuid());
  cr_assert(me);
  Plugin plugin(policy_with(std::string("users: [") + me->pw_name + "]"));
  Job job = elastic_job();
  job->user_id = ::getuid();
  cr_expect(submit_when_known(plugin, job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  job = elastic_job();
  cr_expect(plugin.submit(job.get()) == ESLURM_INVALID_ACCOUNT, "another user");

  const group* ours = ::getgrgid(::getgid());
  cr_assert(ours);
  Plugin grouped(policy_with(std::string("groups: [") + ours->gr_name + "]"));
  job = elastic_job();
  job->group_id = ::getgid();
  cr_expect(submit_when_known(grouped, job.get()) == SLURM_SUCCESS, "%s",
            grouped.message().c_str());
  job = elastic_job();
  job->group_id = 4000000;
  cr_expect(grouped.submit(job.get()) == ESLURM_INVALID_ACCOUNT);
}

Test(job_modify, nothing_refused_at_submit_can_be_had_later, .timeout = 20) {
  Plugin plugin(policy_with(kTerms));
  job_record record = running_job();
  record.partition = "gpu";
  const auto refused = [&](auto change) {
    Job update = new_job();
    change(*update);
    const int rc = plugin.modify(update.get(), record);
    cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
    return rc;
  };
  cr_expect(refused([](auto& u) { u.partition = copy("cpu"); }) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.partition = copy("gpu,cpu"); }) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.partition = copy("gpu3"); }) == SLURM_SUCCESS);
  cr_expect(refused([](auto& u) { u.qos = copy("high"); }) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.qos = copy("Normal"); }) == SLURM_SUCCESS);
  cr_expect(refused([](auto& u) { u.time_limit = 121; }) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.time_limit = INFINITE; }) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.time_limit = 120; }) == SLURM_SUCCESS);
  cr_expect(refused([](auto& u) { u.cpus_per_tres = copy(BELLOWS_GRES "gpu:64"); }) ==
            ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.mem_per_tres = copy(BELLOWS_GRES "gpu:1"); }) ==
            ESLURM_ACCOUNTING_POLICY);
  cr_expect(refused([](auto& u) { u.tres_per_node = copy("gpu:8"); }) == ESLURM_INVALID_GRES);
  cr_expect(refused([](auto& u) { u.tres_per_task = copy("gpu:8"); }) == ESLURM_INVALID_GRES);
  cr_expect(refused([](auto& u) { u.tres_per_socket = copy("gpu:8"); }) == ESLURM_INVALID_GRES);
  cr_expect(refused([](auto& u) { u.requeue = 0; }) == EINVAL);
  cr_expect(refused([](auto& u) { u.features = copy("bigmem"); }) == SLURM_SUCCESS);
}

Test(job_modify, a_broken_policy_refuses_only_what_needs_one, .timeout = 20) {
  Plugin plugin("version: 1\ntenants: [\n");
  job_record record = running_job();
  Job update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:4");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  update = new_job();
  update->time_limit = 30;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  update->time_limit = 90;
  cr_expect(plugin.modify(update.get(), record) == ESLURM_NOT_SUPPORTED);
  update = new_job();
  update->partition = copy("gpu");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_NOT_SUPPORTED);
}
