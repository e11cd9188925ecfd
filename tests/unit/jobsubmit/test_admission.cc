// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <string>

#include "jobsubmit/admission/admission.h"
#include "slurm/gres.h"

using namespace bellows;

namespace {

const char* const kPolicy = R"(version: 1
checkpoint_dir: /shared/%u/%j
frameworks:
  digits: {versions: ["1.0"]}
  pytorch: {versions: ["2.1", "2.0", "1.13"], default: "1.13", env: {NCCL_DEBUG: WARN}}
  plain:
tenants:
  vision:
    frameworks: [digits, plain, "pytorch:2.*"]
    gpus: {min: 1, max: 8, start: 2}
  speech:
    frameworks: [digits]
    gpus: {min: 2, max: 8, step: 2}
)";

Policy policy() {
  auto policy = load_policy(kPolicy, "b.yaml");
  cr_assert(policy.ok(), "%s", policy.ok() ? "" : policy.error().text.c_str());
  return *std::move(policy);
}

Request job(const char* framework, const char* range, const char* account = "vision") {
  Request request;
  if (framework) request.framework = framework;
  if (range) request.gpus_range = range;
  request.batch = true;
  request.account = account;
  return request;
}

Decision taken(const Request& request) {
  const Policy p = policy();
  Decision decision = decide(&p, "", request);
  cr_assert(not decision.refused, "%s", decision.message.c_str());
  return decision;
}

void expect_refusal(const Request& request, Refusal why, const std::string& sentence) {
  const Policy p = policy();
  const Decision decision = decide(&p, "", request);
  cr_assert(decision.refused.has_value(), "was accepted instead of: %s", sentence.c_str());
  cr_expect(*decision.refused == why, "%s", decision.message.c_str());
  cr_expect(decision.message == sentence, "got %s, not %s", decision.message.c_str(),
            sentence.c_str());
  cr_expect(decision.message.find('\n') == std::string::npos, "one sentence");
}

std::string line(const Decision& decision) { return decision.contract.to_string(); }

}  // namespace

Test(admission, elastic_batch_job, .timeout = 10) {
  const Decision decision = taken(job("digits", "1-8"));
  cr_expect(line(decision) ==
            "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/shared/%25u/%25j");
  cr_expect(decision.changes.per_job == BELLOWS_GRES "gpu:2");
  cr_expect(decision.changes.tasks == 2U);
  cr_expect(decision.changes.min_cpus == 2U);
  cr_expect(not decision.changes.min_nodes);
  cr_expect(not decision.changes.max_nodes);
  cr_expect(decision.requeue);
  cr_expect(decision.message.empty());
}

Test(admission, range_without_framework, .timeout = 10) {
  cr_expect(line(taken(job(nullptr, "2,4"))) ==
            "bellows/1 tenant=vision gpus=2,4 "
            "ckpt=/shared/%25u/%25j");
}

Test(admission, framework_without_range_is_fixed_at_what_is_asked, .timeout = 10) {
  Request request = job("plain", nullptr);
  request.sizes.per_job = BELLOWS_GRES "gpu:4";
  const Decision decision = taken(request);
  cr_expect(decision.contract.gpus == GpusRange::between(4, 4));
  cr_expect(decision.contract.framework_version.empty());
  cr_expect(not decision.changes.per_job);
  cr_expect(decision.changes.tasks == 4U);

  cr_expect(taken(job("plain", nullptr)).contract.gpus == GpusRange::between(2, 2));
}

Test(admission, fixed_job_keeps_its_spelling, .timeout = 10) {
  Request request = job("digits", "4");
  request.sizes.per_node = "gpu:2,nic:1";
  request.sizes.min_nodes = 2;
  request.sizes.max_nodes = 2;
  request.sizes.tasks_per_node = 1;
  const Decision decision = taken(request);
  cr_expect(not decision.changes.per_job);
  cr_expect(not decision.changes.per_node);
  cr_expect(not decision.changes.tasks);
  cr_expect(not decision.changes.min_nodes);
}

Test(admission, gres_without_nodes_means_one_node, .timeout = 10) {
  Request request = job("digits", nullptr);
  request.sizes.per_node = "gpu:2";
  request.sizes.tasks = 8;
  const Decision decision = taken(request);
  cr_expect(decision.contract.gpus == GpusRange::between(2, 2));
  cr_expect(decision.changes.min_nodes == 1U);
  cr_expect(decision.changes.max_nodes == 1U);

  request.sizes.min_nodes = 2;
  const Decision two = taken(request);
  cr_expect(two.contract.gpus == GpusRange::between(4, 4));
  cr_expect(two.changes.min_nodes == 2U);
  cr_expect(two.changes.max_nodes == 2U, "nodes added for CPUs would bring GPUs");
}

Test(admission, every_spelling_becomes_one_when_elastic, .timeout = 10) {
  Request request = job("digits", "1-8");
  request.sizes.per_node = BELLOWS_GRES "gpu:a100:2,nic:1";
  request.sizes.min_nodes = 2;
  request.sizes.max_nodes = 2;
  Decision decision = taken(request);
  cr_expect(decision.changes.per_job == BELLOWS_GRES "gpu:a100:4");
  cr_expect(decision.changes.per_node == "nic:1");
  cr_expect(decision.changes.tasks == 4U);

  request = job("digits", "1-8");
  request.sizes.per_task = BELLOWS_GRES "gpu:1";
  request.sizes.tasks = 3;
  request.sizes.cpus_per_task = 4;
  decision = taken(request);
  cr_expect(decision.changes.per_job == BELLOWS_GRES "gpu:3");
  cr_expect(decision.changes.per_task == "");
  cr_expect(decision.changes.min_cpus == 12U);

  request = job("digits", "1-8");
  request.sizes.tasks = 5;
  cr_expect(taken(request).changes.per_job == BELLOWS_GRES "gpu:5");
}

Test(admission, first_size, .timeout = 10) {
  cr_expect(taken(job("digits", "4-8")).changes.per_job == BELLOWS_GRES "gpu:4");
  cr_expect(taken(job("digits", "1,8")).changes.per_job == BELLOWS_GRES "gpu:1");
  Request request = job("digits", "1-8");
  request.sizes.min_nodes = 3;
  cr_expect(taken(request).changes.per_job == BELLOWS_GRES "gpu:3", "a GPU for each node at least");
  request.sizes.per_job = BELLOWS_GRES "gpu:8";
  cr_expect(taken(request).changes.per_job == BELLOWS_GRES "gpu:8");
}

Test(admission, only_batch_jobs_are_elastic, .timeout = 10) {
  Request request = job("digits", "1-8");
  request.batch = false;
  const Decision decision = taken(request);
  cr_expect(decision.contract.gpus == GpusRange::between(2, 2));
  cr_expect(not decision.requeue);
  cr_expect(decision.message ==
            "the job keeps 2 GPUs: only jobs submitted with sbatch can be resized");
}

Test(admission, a_fixed_job_may_refuse_requeueing, .timeout = 10) {
  Request request = job("digits", "2");
  request.requeue_off = true;
  cr_expect(not taken(request).requeue);
}

Test(admission, versions, .timeout = 10) {
  cr_expect(taken(job("pytorch:2.0", "1")).contract.framework_version == "2.0");
  const Decision decision = taken(job("pytorch", "1"));
  cr_expect(decision.contract.framework_version == "2.1",
            "the default, 1.13, is closed to this tenant");
  cr_expect(decision.env.at("NCCL_DEBUG") == "WARN");
  expect_refusal(job("pytorch:1.13", "1"), Refusal::policy,
                 "tenant vision may not use framework pytorch:1.13; of pytorch it may use version "
                 "2.1, 2.0");
  expect_refusal(job("pytorch:2.2", "1"), Refusal::option,
                 "framework pytorch has no version \"2.2\"; did you mean \"2.1\"?");
  expect_refusal(job("plain:1", "1"), Refusal::option,
                 "framework plain has no versions to choose from; write --framework=plain");
  expect_refusal(job("pytorch", "2", "speech"), Refusal::policy,
                 "tenant speech may not use framework pytorch; it may use digits");
}

Test(admission, unknown_framework_gets_a_hint, .timeout = 10) {
  expect_refusal(job("pytroch", "1"), Refusal::option,
                 "framework \"pytroch\" is not known here; did you mean \"pytorch\"?");
  expect_refusal(job("", "1"), Refusal::option,
                 "framework \"\" is not known here; known are digits, plain, pytorch");
  expect_refusal(job("\033[2Jx\n", "1"), Refusal::option,
                 "framework \"?[2Jx?\" is not known here; known are digits, plain, pytorch");
}

Test(admission, account_decides_the_tenant, .timeout = 10) {
  expect_refusal(job("digits", "1", "physics"), Refusal::account,
                 "account \"physics\" belongs to no tenant of Bellows; name another account with "
                 "--account, or ask the administrator to add it to bellows.yaml");
  expect_refusal(job("digits", "1", ""), Refusal::account,
                 "the job has no account and you have no default one, so it belongs to no tenant; "
                 "name an account with --account");
}

Test(admission, limits, .timeout = 10) {
  expect_refusal(
      job("digits", "1-16"), Refusal::policy,
      "--gpus-range=1-16 includes 9 GPUs, but a job of tenant vision may have 1-8 GPUs; ask "
      "for sizes among these");
  expect_refusal(
      job("digits", "2-8", "speech"), Refusal::policy,
      "--gpus-range=2-8 includes 3 GPUs, but a job of tenant speech may have 2-8:2 GPUs; ask "
      "for sizes among these");
  Request request = job("digits", nullptr);
  request.sizes.per_job = BELLOWS_GRES "gpu:16";
  expect_refusal(request, Refusal::policy,
                 "--gpus=16, but a job of tenant vision may have 1-8 GPUs; ask for sizes among "
                 "these");
}

Test(admission, contradictions, .timeout = 10) {
  Request request = job("digits", "1-8");
  request.requeue_off = true;
  expect_refusal(request, Refusal::option,
                 "--no-requeue contradicts --gpus-range=1-8: a job is resized by requeueing it; "
                 "leave out --no-requeue or give a single size");
  request = job("digits", "1-4");
  request.sizes.per_job = BELLOWS_GRES "gpu:8";
  expect_refusal(
      request, Refusal::gpus,
      "--gpus=8 is not one of the sizes of --gpus-range=1-4; choose one of them or leave "
      "it out");
  request = job("digits", "1-8");
  request.sizes.per_job = BELLOWS_GRES "gpu:2";
  request.sizes.tasks = 8;
  expect_refusal(request, Refusal::gpus,
                 "--gpus=2 gives 2 GPUs to 8 tasks, but an elastic job has one task for each GPU; "
                 "leave out --ntasks, or give a single size with --gpus-range");
  request = job("digits", "1-8");
  request.sizes.tasks_per_node = 4;
  expect_refusal(request, Refusal::gpus,
                 "--ntasks-per-node cannot be kept when the job is resized within "
                 "--gpus-range=1-8; leave it out: there is one task for each GPU");
  request = job("digits", "1-8");
  request.sizes.per_job = BELLOWS_GRES "gpu:4";
  request.sizes.per_node = BELLOWS_GRES "gpu:2";
  expect_refusal(request, Refusal::gpus,
                 "a GPU request of several parts cannot be kept when the job is resized within "
                 "--gpus-range=1-8; give one number with --gpus");
  request = job("digits", "1-4");
  request.sizes.min_nodes = 5;
  expect_refusal(
      request, Refusal::gpus,
      "--nodes=5 needs at least 5 GPUs, more than --gpus-range=1-4 allows; ask for fewer "
      "nodes");
  request = job("digits", "1-8");
  request.contradictory = true;
  expect_refusal(request, Refusal::option,
                 "--framework or --gpus-range is given twice with different values; give it once");
  request = job("digits", "1-8");
  request.heterogeneous = true;
  expect_refusal(request, Refusal::option,
                 "a heterogeneous job cannot have --framework or --gpus-range; submit its parts as "
                 "separate jobs");
}

Test(admission, bad_range_text_is_refused_with_the_forms, .timeout = 10) {
  expect_refusal(
      job("digits", "1-x"), Refusal::option,
      "GPU range \"1-x\": \"x\" is not a number; write N, MIN-MAX, MIN-MAX:STEP or a list "
      "such as 1,2,4,8");
}

Test(admission, no_policy_refuses_and_says_why, .timeout = 10) {
  const Decision decision = decide(nullptr, "b.yaml:1:1: broken", job("digits", "1-8"));
  cr_expect(decision.refused == Refusal::unavailable);
  cr_expect(decision.message ==
            "there is no policy to admit this job by (b.yaml:1:1: broken); tell the administrator, "
            "or submit it without --framework and --gpus-range");
}

namespace {

std::string counted(const Sizes& sizes) {
  auto request = count_gpus(sizes);
  if (!request) return request.error().text;
  if (!*request) return "none";
  return std::to_string((*request)->gpus) + " " + (*request)->type +
         ((*request)->mixed ? " mixed" : "");
}

Sizes per_node(const char* text) {
  Sizes sizes;
  sizes.per_node = text;
  return sizes;
}

}  // namespace

Test(gpu_request, spellings, .timeout = 10) {
  cr_expect(counted({}) == "none");
  for (const char* text : {BELLOWS_GRES "gpu:2", "gpu:2", "gres/gpu:2", "gres/gpu=2", "GPU:2",
                           "nic:1,gpu:2", "gpu:0,gpu:2", "gpu:2,gpu:a100:0", "gpu:v100:k,gpu:2"})
    cr_expect(counted(per_node(text)) == "2 ", "%s", text);
  cr_expect(counted(per_node("gpu")) == "1 ");
  cr_expect(counted(per_node("gpu:a100")) == "1 a100");
  cr_expect(counted(per_node("gpu:a100:2")) == "2 a100");
  cr_expect(counted(per_node("gpu:a100:2,gpu:v100:1")) == "3 v100 mixed");
  cr_expect(counted(per_node("gpu:2k")) == "2048 ");
  cr_expect(counted(per_node("gpu:a100:1KiB")) == "1024 a100");
  cr_expect(counted(per_node("gpu:2kb")) == "2000 ");
  cr_expect(counted(per_node("gpu:4090:2")) == "2 4090");
  for (const char* text :
       {"", "none", "nic:2", "gpu:0", "gpu:a100:0k", "gpu:m", "gpu:GiB", "shard:0", ",", " "})
    cr_expect(counted(per_node(text)) == "none", "%s", text);
}

Test(gpu_request, what_can_not_be_counted_is_said, .timeout = 10) {
  for (const char* text : {"gpu:a:b:1",
                           "gpu:a100:x",
                           "gpu:a\n:1",
                           "gpu:\033[2J",
                           ":1",
                           "gpu:5000",
                           "gpu:99999999999999999999:x",
                           "gpu:99999999999999999999",
                           "gpu:-18446744073709551612",
                           "gpu:a100:-18446744073709551612",
                           "gpu:18014398509481985k",
                           "gpu:1t",
                           "gpu:+2",
                           "gpu: 2",
                           "gpu:2 ",
                           "gpu::2",
                           "gpu:a100:",
                           "gpu:2(S:0-1)",
                           "gpu:0(x:8",
                           "shard:4",
                           "mps:50",
                           "gpu:1,shard:1"})
    cr_expect(counted(per_node(text)).size() > 20, "%s: %s", text, counted(per_node(text)).c_str());
  Sizes sizes = per_node("gpu:4096");
  sizes.min_nodes = 4000000000U;
  cr_expect(counted(sizes).find("more than the 4096") != std::string::npos);
  sizes = per_node("gpu:1");
  sizes.min_nodes = 1;
  sizes.max_nodes = 4;
  cr_expect(counted(sizes).find("leaves the number of GPUs open") != std::string::npos);
  sizes = {};
  sizes.per_task = "gpu:1";
  cr_expect(counted(sizes).find("add --ntasks") != std::string::npos);
  sizes = {};
  sizes.per_socket = "gpu:1";
  cr_expect(counted(sizes).find("--gpus-per-socket") != std::string::npos);
}

namespace {

Admitted admitted(const char* range, const char* per_job = BELLOWS_GRES "gpu:2") {
  Admitted job;
  job.contract.tenant = "vision";
  job.contract.gpus = *GpusRange::parse(range);
  job.sizes.per_job = per_job;
  job.sizes.tasks = 2;
  return job;
}

Update to(const char* per_job) {
  Update update;
  update.sizes.per_job = per_job;
  return update;
}

std::optional<Refusal> why(const Admitted& job, const Update& update) {
  const Policy p = policy();
  const UpdateDecision decision = decide_update(&p, job, update);
  cr_expect(decision.refused.has_value() == not decision.message.empty());
  return decision.refused;
}

}  // namespace

Test(update, within_the_range_passes, .timeout = 10) {
  const Policy p = policy();
  UpdateDecision decision = decide_update(&p, admitted("1-8"), to(BELLOWS_GRES "gpu:4"));
  cr_expect(not decision.refused);
  cr_expect(decision.changes.per_job == BELLOWS_GRES "gpu:4");
  cr_expect(decision.changes.tasks == 4U, "the tasks follow");

  Update update = to("gres/gpu:8");
  update.sizes.tasks = 8;
  update.sizes.min_nodes = 2;
  update.sizes.max_nodes = 2;
  decision = decide_update(&p, admitted("1-8"), update);
  cr_expect(not decision.refused);
  cr_expect(decision.changes.per_job == BELLOWS_GRES "gpu:8", "a spelling that Slurm would ignore");
  cr_expect(not decision.changes.tasks, "the user's own number stays");
}

Test(update, fewer_gpus_than_nodes_take_fewer_nodes, .timeout = 10) {
  const Policy p = policy();
  Admitted job = admitted("1-8");
  job.sizes.min_nodes = 2;
  cr_expect(decide_update(&p, job, to(BELLOWS_GRES "gpu:1")).changes.min_nodes == 1U);
  cr_expect(not decide_update(&p, job, to(BELLOWS_GRES "gpu:2")).changes.min_nodes);
}

Test(update, outside_the_range_is_refused, .timeout = 10) {
  cr_expect(why(admitted("1-8"), to(BELLOWS_GRES "gpu:9")) == Refusal::policy);
  cr_expect(why(admitted("2,4"), to(BELLOWS_GRES "gpu:3")) == Refusal::policy);
  cr_expect(why(admitted("1-8"), to("")) == Refusal::policy);
  cr_expect(why(admitted("2"), to(BELLOWS_GRES "gpu:4")) == Refusal::policy);
  cr_expect(why(admitted("2"), to(BELLOWS_GRES "gpu:2")) == std::nullopt);
  const UpdateDecision decision = decide_update(nullptr, admitted("1-8"), to(BELLOWS_GRES "gpu:9"));
  cr_expect(decision.message ==
            "the job was admitted for 1-8 GPUs, and 9 is not among these sizes");
}

Test(update, other_spellings_of_an_elastic_job_are_refused, .timeout = 10) {
  Update update;
  update.sizes.per_node = "gpu:4";
  cr_expect(why(admitted("1-8"), update) == Refusal::gpus);
  update.sizes.per_job = "";
  update.sizes.min_nodes = 1;
  cr_expect(why(admitted("1-8"), update) == Refusal::gpus);
  cr_expect(why(admitted("1-8", BELLOWS_GRES "gpu:a100:2"), to(BELLOWS_GRES "gpu:v100:2")) ==
            Refusal::gpus);
}

Test(update, the_type_stays, .timeout = 10) {
  const Policy p = policy();
  cr_expect(decide_update(&p, admitted("1-8", BELLOWS_GRES "gpu:a100:2"), to(BELLOWS_GRES "gpu:4"))
                .changes.per_job == BELLOWS_GRES "gpu:a100:4");
}

Test(update, nodes_of_a_fixed_job_count, .timeout = 10) {
  Admitted job = admitted("4");
  job.sizes.per_job.reset();
  job.sizes.per_node = "gpu:2";
  job.sizes.min_nodes = 2;
  job.sizes.max_nodes = 2;
  Update update;
  update.sizes.min_nodes = 4;
  update.sizes.max_nodes = 4;
  cr_expect(why(job, update) == Refusal::policy);
  update.sizes.per_node = BELLOWS_GRES "gpu:1";
  cr_expect(why(job, update) == std::nullopt);
  update.sizes.per_node = "gpu:1";
  cr_expect(why(job, update) == Refusal::gpus, "Slurm would keep 2 on each of 4 nodes");

  update = Update();
  update.sizes.max_nodes = 0;
  cr_expect(why(job, update) == Refusal::gpus, "no limit on nodes is no limit on GPUs");
}

Test(update, tasks_of_each_gpu_count, .timeout = 10) {
  Admitted job = admitted("4");
  job.sizes.per_job.reset();
  job.sizes.tasks = 8;
  job.sizes.tasks_per_gpu = 2;
  Update update;
  update.sizes.tasks_per_gpu = 1;
  cr_expect(why(job, update) == Refusal::policy);
  update.sizes.tasks = 4;
  cr_expect(why(job, update) == std::nullopt);
}

Test(update, account_stays_in_the_tenant, .timeout = 10) {
  Update update;
  update.account = "speech";
  cr_expect(why(admitted("1-8"), update) == Refusal::account);
  update.account = "nobody";
  cr_expect(why(admitted("1-8"), update) == Refusal::account);
  update.account = "vision";
  cr_expect(why(admitted("1-8"), update) == std::nullopt);
  cr_expect(decide_update(nullptr, admitted("1-8"), update).refused == Refusal::account);
}

Test(update, requeueing_of_an_elastic_job_stays_on, .timeout = 10) {
  Update update;
  update.requeue_off = true;
  cr_expect(why(admitted("1-8"), update) == Refusal::option);
  cr_expect(why(admitted("2"), update) == std::nullopt);
}

Test(update, site_factor_only_for_a_resize, .timeout = 10) {
  Policy p = policy();
  Admitted job = admitted("1-8");
  cr_expect(not decide_update(&p, job, to(BELLOWS_GRES "gpu:4")).changes.site_factor);
  p.resize_site_factor = 700;
  cr_expect(not decide_update(&p, job, to(BELLOWS_GRES "gpu:4")).changes.site_factor,
            "a job that never ran has no place to keep");
  job.has_run = true;
  cr_expect(decide_update(&p, job, to(BELLOWS_GRES "gpu:4")).changes.site_factor == 700U);
  Update nodes_only;
  nodes_only.sizes.min_nodes = 1;
  cr_expect(not decide_update(&p, job, nodes_only).changes.site_factor);
}
