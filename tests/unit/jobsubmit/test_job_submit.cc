// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

Test(job_submit, names_itself, .timeout = 20) {
  Plugin plugin(kPolicy);
  cr_expect(
      std::strcmp(static_cast<const char*>(plugin.raw("plugin_type")), "job_submit/bellows") == 0);
  cr_expect(*static_cast<const std::uint32_t*>(plugin.raw("plugin_version")) ==
            SLURM_VERSION_NUMBER);
}

Test(job_submit, writes_the_contract, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  job->min_cpus = 1;
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(std::string(job->admin_comment) == kLine, "%s", job->admin_comment);
  cr_expect(
      read(job->spank_job_env, job->spank_job_env_size) ==
      (std::vector<std::string>{kFramework, kRange, std::string("BELLOWS_CONTRACT=") + kLine}));
  cr_expect(std::string(job->account) == "vision");
  cr_expect(std::string(job->tres_per_job) == BELLOWS_GRES "gpu:2");
  cr_expect(job->num_tasks == 2);
  cr_expect(job->min_cpus == 2);
  cr_expect(job->min_nodes == NO_VAL);
  cr_expect(job->requeue == 1);
  cr_expect(job->open_mode == OPEN_MODE_APPEND);
  cr_expect(plugin.message().empty());
}

Test(job_submit, strips_what_is_forged, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size,
       {"BELLOWS_CONTRACT=bellows/1 tenant=root gpus=1-4096", "KEEP=1", "SPANK_" + kFramework,
        "SPANK_BELLOWS_CONTRACT=x", kFramework, "BELLOWS_ANY=1", kRange});
  fill(job->environment, job->env_size,
       {"PATH=/bin", "BELLOWS_CONTRACT=x", "BELLOWS_TENANT=root", "BELLOWS_RUN_DIR=/tmp",
        "BELLOWS_AGENT=/my/agent", "SEED=8"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(read(job->spank_job_env, job->spank_job_env_size) ==
            (std::vector<std::string>{"KEEP=1", kFramework, kRange,
                                      std::string("BELLOWS_CONTRACT=") + kLine}));
  cr_expect(
      read(job->environment, job->env_size) ==
          (std::vector<std::string>{"PATH=/bin", "BELLOWS_AGENT=/my/agent", "SEED=8", "MODE=fast"}),
      "identity goes, the framework's variables come, the user's stay");
}

Test(job_submit, a_job_that_asks_nothing_is_untouched, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = new_job();
  const std::string before(reinterpret_cast<char*>(job.get()), sizeof(job_desc_msg_t));
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(before == std::string(reinterpret_cast<char*>(job.get()), sizeof(job_desc_msg_t)));

  job->account = copy("VISION");
  fill(job->spank_job_env, job->spank_job_env_size, {"BELLOWS_CONTRACT=x", "OTHER=1"});
  fill(job->environment, job->env_size, {"BELLOWS_CONTRACT=x"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(read(job->spank_job_env, job->spank_job_env_size) ==
            std::vector<std::string>{"OTHER=1"});
  cr_expect(read(job->environment, job->env_size) ==
            std::vector<std::string>{"BELLOWS_CONTRACT=x"});
  cr_expect(std::string(job->account) == "VISION");
  cr_expect(not job->admin_comment);
}

Test(job_submit, no_zero_reaches_a_division_in_slurmctld, .timeout = 20) {
  for (const char* policy : {kPolicy, "version: 1\nenabled: false\n", "broken: ["}) {
    Plugin plugin(policy);
    Job job = new_job();
    job->ntasks_per_socket = 0;
    cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
    cr_expect(job->ntasks_per_socket == NO_VAL16);
    job_record record;
    for (uid_t uid : {kOwner, kOperator, uid_t{0}}) {
      Job update = new_job();
      update->ntasks_per_socket = 0;
      cr_assert(plugin.modify(update.get(), record, uid) == SLURM_SUCCESS);
      cr_expect(update->ntasks_per_socket == NO_VAL16);
    }
    job->ntasks_per_socket = 2;
    cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
    cr_expect(job->ntasks_per_socket == 2);
  }
}

Test(job_submit, conflicting_duplicates_are_refused, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size,
       {kFramework, kRange, "SPANK__SLURM_SPANK_OPTION_bellows_gpus_range=1-4"});
  cr_expect(plugin.submit(job.get()) == EINVAL);
  cr_expect(plugin.message() ==
            "bellows: --framework or --gpus-range is given twice with different values; give it "
            "once");
}

Test(job_submit, default_account_comes_from_accounting, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  release(&job->account);
  job->user_id = kOperator;
  cr_expect(plugin.submit(job.get()) == ESLURM_INVALID_ACCOUNT, "this user has no default");
  job->user_id = kOwner;
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(std::string(job->account) == "vision");
}

Test(job_submit, whole_nodes_are_refused, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  job->shared = JOB_SHARED_NONE;
  cr_expect(plugin.submit(job.get()) == ESLURM_INVALID_GRES);
  cr_expect(plugin.message().starts_with("bellows: --exclusive and --core-spec give a job all"));
  job->shared = JOB_SHARED_USER;
  cr_expect(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());

  job = elastic_job();
  job->core_spec = 1;
  cr_expect(plugin.submit(job.get()) == ESLURM_INVALID_GRES);
}

Test(job_submit, refusal_reaches_the_user, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  job->tres_per_job = copy(BELLOWS_GRES "gpu:16");
  cr_expect(plugin.submit(job.get()) == ESLURM_INVALID_GRES);
  cr_expect(plugin.message().starts_with("bellows: --gpus=16 is not one of the sizes"));
  cr_expect(not job->admin_comment);
}

Test(job_submit, broken_policy_refuses_only_bellows_jobs, .timeout = 20) {
  Plugin plugin("version: 1\ntenants: [\n");
  Job plain = new_job();
  cr_expect(plugin.submit(plain.get()) == SLURM_SUCCESS);
  Job job = elastic_job();
  cr_expect(plugin.submit(job.get()) == ESLURM_NOT_SUPPORTED);
  cr_expect(plugin.message().starts_with("bellows: there is no policy to admit this job by (/tmp/"),
            "%s", plugin.message().c_str());
}

Test(job_submit, interactive_jobs_get_a_note, .timeout = 20) {
  Plugin plugin(kPolicy);
  Job job = elastic_job();
  release(&job->script);
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(plugin.message() ==
            "bellows: the job keeps 2 GPUs: only jobs submitted with sbatch can be resized");
  cr_expect(job->requeue == NO_VAL16);

  job = elastic_job();
  job->bitflags |= CRON_JOB;
  job->het_job_offset = 0;  // slurmctld leaves it so for scrontab
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(plugin.message().ends_with("only jobs submitted with sbatch can be resized"));
}

Test(job_modify, who_rewrites_admin_comment_keeps_the_contract, .timeout = 20) {
  for (const char* policy : {kPolicy, "version: 1\nenabled: false\n"}) {
    Plugin plugin(policy);
    job_record record = running_job();
    const auto rewritten = [&](const char* to, uid_t uid) {
      Job update = new_job();
      update->admin_comment = copy(to);
      cr_expect(plugin.modify(update.get(), record, uid) == SLURM_SUCCESS);
      return std::string(update->admin_comment ? update->admin_comment : "");
    };
    const std::string line = rewritten("", 0);
    cr_expect(line.starts_with("bellows/1 "), "%s", line.c_str());
    cr_expect(rewritten("JS1:x", kOperator) == line + " ; JS1:x");
    cr_expect(rewritten("bellows/1 tenant=evil gpus=1 ; JS1:y", 0) == line + " ; JS1:y");
    cr_expect(rewritten("x", kOwner) == "x", "Slurm refuses that");
    job_record plain;
    Job update = new_job();
    update->admin_comment = copy("bellows/1 tenant=evil gpus=1 ; JS1:z");
    cr_expect(plugin.modify(update.get(), plain, 0) == SLURM_SUCCESS);
    cr_expect(std::string(update->admin_comment) == "JS1:z");
  }
}

Test(job_modify, size_moves_within_the_range, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  Job update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:4");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(update->num_tasks == 4);
  cr_expect(update->site_factor == NO_VAL, "it never ran");

  record.restarts = 1;
  update = new_job();
  update->tres_per_job = copy("gres/gpu:8");
  update->num_tasks = 8;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(std::string(update->tres_per_job) == BELLOWS_GRES "gpu:8");
  cr_expect(update->site_factor == NICE_OFFSET + 900);

  update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:9");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
  cr_expect(plugin.modify(update.get(), record, 0) == SLURM_SUCCESS);
}

/// It is an operator for Slurm: SlurmUser, or whom the policy names.
Test(job_modify, size_by_bellowsd_is_within_the_range, .timeout = 20) {
  slurm_symbol<slurm_conf_t>("slurm_conf")->slurm_user_id = kOperator;
  job_record record = running_job();
  const auto answers = [&record](const std::string& controller) {
    Plugin plugin(kPolicy + controller);
    std::vector<int> codes;
    for (const char* size : {BELLOWS_GRES "gpu:4", BELLOWS_GRES "gpu:9"}) {
      Job update = new_job();
      update->tres_per_job = copy(size);
      codes.push_back(plugin.modify(update.get(), record, kOperator));
    }
    return codes;
  };
  const std::vector<int> free{SLURM_SUCCESS, SLURM_SUCCESS};
  const std::vector<int> held{SLURM_SUCCESS, ESLURM_ACCOUNTING_POLICY};
  cr_expect(answers("") == free);
  cr_expect(answers("controller: {addresses: [\"ctl:6830\"]}\n") == held);
  cr_expect(answers("controller: {addresses: [\"ctl:6830\"], uid: 20099}\n") == held);
  cr_expect(answers("controller: {addresses: [\"ctl:6830\"], uid: 20098}\n") == free);
}

Test(job_modify, other_jobs_and_other_changes_pass, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record;
  record.spank_job_env = {"OTHER=1"};
  Job update = new_job();
  update->tres_per_job = copy("gres/gpu:99");
  update->account = copy("Speech");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(std::string(update->tres_per_job) == "gres/gpu:99");
  cr_expect(std::string(update->account) == "Speech");

  record = running_job();
  update = new_job();
  update->begin_time = 1;
  update->time_limit = 10;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
}

Test(job_modify, account_is_settled_and_held_to_the_tenant, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  Job update = new_job();
  update->account = copy("VISION");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(std::string(update->account) == "vision");
  release(&update->account);
  update->account = copy("speech");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_INVALID_ACCOUNT);
}
