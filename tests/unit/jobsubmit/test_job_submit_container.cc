// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

namespace {

const std::string kPolicyOfImages = policy_with("images: [\"/own/*\"]");
const std::string kOption = "_SLURM_SPANK_OPTION_bellows_container=";
constexpr const char* kContainerLine =
    "bellows/1 tenant=vision gpus=0 ckpt=/c/%25j image=/own/a.sqsh script=image images=/own/%2A "
    "container=mount:/data:/data:ro";

Job container_job(const std::vector<std::string>& entries) {
  Job job = new_job();
  job->script = copy("#!/bin/sh\n");
  job->account = copy("vision");
  fill(job->spank_job_env, job->spank_job_env_size, entries);
  return job;
}

bool has_script(const Job& job) {
  return std::string_view(job->admin_comment).find(" script=") != std::string_view::npos;
}

job_record container_record() {
  job_record record;
  record.spank_job_env = {kOption + "image:/own/a.sqsh",
                          std::string("BELLOWS_CONTRACT=") + kContainerLine};
  return record;
}

}  // namespace

Test(job_submit_container, is_admitted_without_gpus, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({kOption + "image:/own/a.sqsh,mount:/data:/data:ro"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(std::string(job->admin_comment) == kContainerLine, "%s", job->admin_comment);
  cr_expect(!job->tres_per_job && !job->tres_per_node && job->num_tasks == NO_VAL);
}

Test(job_submit_container, refuses_other_images, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({kOption + "image:/etc/a.sqsh"});
  cr_expect(plugin.submit(job.get()) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.message() ==
            "bellows: tenant vision may not bring image /etc/a.sqsh; it may bring /own/*");
  job = container_job({kOption + "image:/own/../etc/a.sqsh"});
  cr_expect(plugin.submit(job.get()) == EINVAL);
  cr_expect(!job->admin_comment);
}

Test(job_submit_container, refuses_two_texts, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({kOption + "image:/own/a.sqsh", "SPANK_" + kOption + "image:/own/b"});
  cr_expect(plugin.submit(job.get()) == EINVAL);
  cr_expect(plugin.message() ==
            "bellows: an option of Bellows is given twice with different values; give it once");
  job = container_job({kOption + "image:/own/a.sqsh", kOption + "image:/own/a.sqsh"});
  cr_expect(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
}

Test(job_submit_container, strips_forged_keys, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({kOption + "verbose",
                           "BELLOWS_CONTRACT=bellows/1 tenant=vision gpus=0 image=/etc images=*",
                           "SPANK_BELLOWS_CONTRACT=bellows/1 tenant=vision gpus=0 images=*"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(read(job->spank_job_env, job->spank_job_env_size) ==
            (std::vector<std::string>{kOption + "verbose",
                                      "BELLOWS_CONTRACT=bellows/1 tenant=vision gpus=0 "
                                      "ckpt=/c/%25j images=/own/%2A container=verbose"}));
}

Test(job_submit_container, plain_jobs_may_have_steps_in_containers, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({"SPANK_BELLOWS_PLAIN_CONTRACT=bellows/1 tenant=x gpus=0 images=/"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(read(job->spank_job_env, job->spank_job_env_size) ==
            (std::vector<std::string>{"BELLOWS_PLAIN_CONTRACT=bellows/1 tenant=vision gpus=0 "
                                      "images=/own/%2A plain=yes"}));
  cr_expect(!job->admin_comment && plugin.message().empty());
  job = container_job({});
  job->account = copy("speech");
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(job->spank_job_env_size == 0, "its tenant may bring no images");
  Plugin suspended(policy_with("images: [\"/own/*\"], suspended: unpaid"));
  job = container_job({});
  cr_assert(suspended.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(job->spank_job_env_size == 0, "its tenant is suspended");
}

/// Else a node would forget what the job may have while it runs.
Test(job_submit_container, plain_jobs_have_none_without_an_extern_step, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  slurm_symbol<slurm_conf_t>("slurm_conf")->prolog_flags = PROLOG_FLAG_ALLOC;
  Job job = container_job({});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(job->spank_job_env_size == 0);
  job = container_job({kOption + "image:/own/a.sqsh"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(job->admin_comment != nullptr, "one with options has a directory on its nodes");
}

/// The job keeps the right to its tenant's images wherever it goes.
Test(job_submit_container, plain_jobs_stay_with_the_tenant_of_their_images, .timeout = 20) {
  Plugin plugin(
      "version: 1\ntenants: {guests: {accounts: [vision], partitions: [guest]}, "
      "vision: {images: [\"/own/*\"]}, speech: }\n");
  job_record plain;
  job_record record;
  record.spank_job_env = {
      "BELLOWS_PLAIN_CONTRACT=bellows/1 tenant=vision gpus=0 images=/own/%2A "
      "plain=yes"};
  Job update = new_job();
  update->account = copy("speech");
  cr_expect(plugin.modify(update.get(), plain) == SLURM_SUCCESS);
  cr_expect(plugin.modify(update.get(), record) == ESLURM_INVALID_ACCOUNT);
  cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
  release(&update->account);
  update->account = copy("VISION");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(std::string(update->account) == "vision", "as Slurm will have it");
  update = new_job();
  update->partition = copy("guest");
  cr_expect(plugin.modify(update.get(), plain) == SLURM_SUCCESS);
  cr_expect(plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  update = new_job();
  update->partition = copy("other");
  update->tres_per_job = copy(BELLOWS_GRES "gpu:1");
  update->time_limit = 600;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS, "all else is as Slurm has it");
}

Test(job_submit_container, scripts_run_in_the_image_unless_there_are_services, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  const std::string image = kOption + "image:/own/a.sqsh";
  Job job = container_job({image, "_SLURM_SPANK_OPTION_bellows_gpus_range=1"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(!has_script(job), "%s", job->admin_comment);
  cr_expect(plugin.message() ==
                "bellows: the batch script runs on the host, since the job has --gpus-range; what "
                "it starts with srun runs in the image",
            "%s", plugin.message().c_str());
  job = container_job({kOption + "verbose"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS && plugin.message().empty());
  cr_expect(!has_script(job), "there is no image");
  job = new_job();
  job->account = copy("vision");
  fill(job->spank_job_env, job->spank_job_env_size, {image});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(!has_script(job), "there is no script");
}

/// A client without the plugin's last word, or one that forges it.
Test(job_submit_container, looks_at_nothing_but_the_text, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  Job job = container_job({"_SLURM_SPANK_OPTION_bellows_container_image=/etc/a.sqsh"});
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS);
  cr_expect(!job->admin_comment, "a plain job");
  job = container_job({kOption + std::string(60000, 'x')});
  cr_expect(plugin.submit(job.get()) == EINVAL);
  cr_expect(plugin.message() ==
            "bellows: the --container options together are longer than 2560 bytes");
  job = container_job({kOption + "mount:/a\n:/b"});
  cr_expect(plugin.submit(job.get()) == EINVAL);
  cr_expect(plugin.message() == "bellows: mount \"/a?:/b\": it has a control character", "%s",
            plugin.message().c_str());
}

Test(job_submit_container, updates_add_no_gpus, .timeout = 20) {
  Plugin plugin(kPolicyOfImages);
  job_record record = container_record();
  Job update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:1");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  update = new_job();
  update->num_tasks = 3;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
}
