// SPDX-License-Identifier: Apache-2.0
/// A site's Lua hooks, asked by the plugin about slurmctld's own jobs.
#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

namespace {

/// A script in a file of its own, and lines of bellows.yaml that name it.
class Script {
 public:
  explicit Script(const std::string& source) {
    const int fd = ::mkstemp(path_);
    cr_assert(fd >= 0);
    ::close(fd);
    std::ofstream(path_) << source;
  }
  ~Script() { ::unlink(path_); }
  std::string yaml(const std::string& keys = "") const {
    return "lua: {script: " + std::string(path_) + keys + "}\n";
  }

 private:
  char path_[32] = "/tmp/bellows-script-XXXXXX";
};

std::string on_submit(const std::string& body) {
  return "function submit(job, tenant)\n" + body + "\nend\n";
}

std::string on_modify(const std::string& body) {
  return "function modify(job, change, tenant)\n" + body + "\nend\n";
}

/// A plugin with such a script besides its policy.
struct Site {
  Script script;
  Plugin plugin;
  explicit Site(const std::string& source, const std::string& policy = kPolicy,
                const std::string& keys = "")
      : script(source), plugin(policy + script.yaml(keys)) {}

  int submit(const Job& job) { return plugin.submit(job.get()); }
};

/// All that a decision may change: the struct's bytes include where each of its texts lies, and a
/// text is never changed in place.
std::string bytes(const Job& job) {
  return {reinterpret_cast<const char*>(job.get()), sizeof(job_desc_msg_t)};
}

void expect_admitted(const std::string& body, const Job& job) {
  Site site(on_submit(body));
  const int rc = site.submit(job);
  cr_expect(rc == SLURM_SUCCESS, "%s: %d %s", body.c_str(), rc, site.plugin.message().c_str());
}

constexpr const char* kFailed = "bellows: this site's rules could not be applied";

void expect_failed(const std::string& body, const Job& job) {
  Site site(on_submit(body));
  const std::string before = bytes(job);
  cr_expect(site.submit(job) == ESLURM_NOT_SUPPORTED, "%s", body.c_str());
  cr_expect(site.plugin.message().starts_with(kFailed), "%s", site.plugin.message().c_str());
  cr_expect(bytes(job) == before, "%s left something behind", body.c_str());
}

std::string text(const char* field) { return field ? field : "(none)"; }

struct Write {
  const char* field;
  const char* value;  ///< in Lua
  std::string (*read)(const job_desc_msg_t& desc);
  const char* set;
  const char* cleared;
};

template <auto Text>
std::string text_of(const job_desc_msg_t& desc) {
  return text(desc.*Text);
}

template <auto Number>
std::string number_of(const job_desc_msg_t& desc) {
  return std::to_string(desc.*Number);
}

using D = job_desc_msg_t;
constexpr const char* kNoVal = "4294967294";
constexpr const char* kNone = "(none)";

/// Of a job that wants nothing of Bellows, so that nothing else writes them.
constexpr Write kWrites[] = {
    {"account", "'speech'", text_of<&D::account>, "speech", kNone},
    {"comment", "'a b'", text_of<&D::comment>, "a b", kNone},
    {"features", "{'[a|b]', 'c'}", text_of<&D::features>, "[a|b]&c", kNone},
    {"min_nodes", "2", number_of<&D::min_nodes>, "2", kNoVal},
    {"max_nodes", "3", number_of<&D::max_nodes>, "3", kNoVal},
    {"name", "'n'", text_of<&D::name>, "n", kNone},
    {"num_tasks", "4", number_of<&D::num_tasks>, "4", kNoVal},
    {"partition", "'p,q'", text_of<&D::partition>, "p,q", kNone},
    {"priority", "0", number_of<&D::priority>, "0", kNoVal},
    {"qos", "'high'", text_of<&D::qos>, "high", kNone},
    {"requeue", "true", number_of<&D::requeue>, "1", "65534"},
    {"reservation", "'r'", text_of<&D::reservation>, "r", kNone},
    {"time_limit", "90", number_of<&D::time_limit>, "90", kNoVal},
};

const char* const kReadOnly[] = {
    "array",    "batch",    "framework",  "framework_version", "gpus",
    "gpus_min", "gpus_max", "gpus_range", "user_id",           "user_name",
};

}  // namespace

Test(job_hooks, each_field_is_written_and_read_back, .timeout = 60) {
  for (const Write& write : kWrites) {
    const std::string field = std::string("job.") + write.field;
    Job job = new_job();
    job->user_id = kOperator;  // who has no default account
    expect_admitted("assert(" + field + " == nil) " + field + " = " + write.value, job);
    cr_expect(write.read(*job) == write.set, "%s: %s", write.field, write.read(*job).c_str());
    const std::string same =
        field == "job.features"
            ? "assert(#job.features == 2 and job.features[1] == '[a|b]' and job.features[2] == 'c')"
            : "assert(" + field + " == " + write.value + ")";
    expect_admitted(same, job);
    expect_admitted(field + " = nil assert(" + field + " == nil)", job);
    cr_expect(write.read(*job) == write.cleared, "%s: %s", write.field, write.read(*job).c_str());
  }
}

Test(job_hooks, what_was_written_is_read_in_the_same_call, .timeout = 20) {
  Job job = new_job();
  expect_admitted("job.name = 'x' assert(job.name == 'x') job.name = '' assert(job.name == nil)",
                  job);
  cr_expect(not job->name);
}

Test(job_hooks, read_only_fields_stay, .timeout = 60) {
  for (const char* field : kReadOnly)
    expect_failed(std::string("job.") + field + " = nil", elastic_job());
}

Test(job_hooks, values_that_slurm_could_not_take, .timeout = 60) {
  for (const char* body :
       {"job.min_nodes = 0", "job.num_tasks = -1", "job.max_nodes = 4294967294",
        "job.time_limit = 4294967294", "job.priority = 4294967295", "job.name = 'a\\nb'",
        "job.comment = 'a\\0b'", "job.features = {'a', ''}", "job.features = {'a\\1'}",
        "job.comment = ('x'):rep(4097)", "job.requeue = 1", "job.time_limit = '90'"})
    expect_failed(body, elastic_job());
  Job job = new_job();
  expect_admitted("job.time_limit = 4294967295", job);
  cr_expect(job->time_limit == INFINITE);
  expect_admitted("assert(job.time_limit == 4294967295)", job);
}

Test(job_hooks, see_what_admission_decided, .timeout = 20) {
  Job job = elastic_job();
  job->array_inx = copy("1-4");
  job->features = copy("a,[b*2&c]&d");
  expect_admitted(
      "assert(job.framework == 'digits' and job.framework_version == '1.0')\n"
      "assert(job.gpus == 2 and job.gpus_min == 1 and job.gpus_max == 8)\n"
      "assert(job.gpus_range == '1-8' and job.batch and job.account == 'vision')\n"
      "assert(job.user_id == 20001 and job.user_name == 'alice' and job.array == '1-4')\n"
      "assert(job.partition == nil and job.num_tasks == nil and job.requeue == nil)\n"
      "assert(#job.features == 3 and job.features[2] == '[b*2&c]')\n"
      "assert(tenant.name == 'vision' and tenant.gpus_max == 8)",
      job);
  cr_expect(text(job->admin_comment) == kLine);
  cr_expect(text(job->account) == "vision");
}

Test(job_hooks, see_plain_jobs_too, .timeout = 20) {
  Job job = new_job();
  job->account = copy("VISION");
  job->tres_per_node = copy("gpu:a:2,gpu:b:1");
  job->min_nodes = 2;
  expect_admitted(
      "assert(job.framework == nil and job.gpus_range == nil and job.batch == false)\n"
      "assert(job.gpus == 6 and job.gpus_min == 6 and job.gpus_max == 6)\n"
      "assert(job.account == 'vision' and tenant.name == 'vision')",
      job);
  cr_expect(text(job->account) == "VISION", "it is Slurm's to settle");
  cr_expect(not job->admin_comment);

  Job stranger = new_job();
  stranger->account = copy("physics");
  expect_admitted("assert(tenant == nil and job.gpus == nil)", stranger);
}

Test(job_hooks, a_range_without_a_framework, .timeout = 20) {
  Job job = elastic_job();
  fill(job->spank_job_env, job->spank_job_env_size, {kRange});
  expect_admitted("assert(job.framework == '' and job.framework_version == nil)", job);
}

Test(job_hooks, changes_are_checked_against_the_policy, .timeout = 20) {
  const std::string policy =
      policy_with("sizing: {partitions: ['gpu*'], partition: gpu, time: {max: 60}}");
  for (const char* body : {"job.partition = 'secret'", "job.time_limit = 61", "job.num_tasks = 16",
                           "job.max_nodes = 4 job.min_nodes = 9"}) {
    Site site(on_submit(body), policy);
    Job job = elastic_job();
    const int rc = site.submit(job);
    cr_expect(rc != SLURM_SUCCESS && rc != ESLURM_NOT_SUPPORTED, "%s: %d", body, rc);
    cr_expect(not job->admin_comment, "%s", body);
  }
  Site site(on_submit("job.partition = 'secret'"), policy);
  Job job = elastic_job();
  cr_expect(site.submit(job) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(site.plugin.message() ==
                "bellows: partition \"secret\" is not open to tenant vision; it may use gpu* (this "
                "site's rules had changed: partition)",
            "%s", site.plugin.message().c_str());
}

Test(job_hooks, changes_that_the_policy_allows, .timeout = 20) {
  Site site(on_submit("job.partition = 'gpu2' job.time_limit = 30 job.num_tasks = 4"),
            policy_with("sizing: {partitions: ['gpu*'], partition: gpu, time: {max: 60}}"));
  Job job = elastic_job();
  cr_assert(site.submit(job) == SLURM_SUCCESS, "%s", site.plugin.message().c_str());
  cr_expect(text(job->partition) == "gpu2" && job->time_limit == 30);
  cr_expect(text(job->tres_per_job) == BELLOWS_GRES "gpu:4", "the size follows: %s",
            text(job->tres_per_job).c_str());
}

Test(job_hooks, another_account_is_another_tenant, .timeout = 20) {
  Job job = elastic_job();
  expect_admitted("job.account = 'SPEECH'", job);
  cr_expect(text(job->account) == "speech");
  cr_expect(text(job->admin_comment).find("tenant=speech ") != std::string::npos);
  Site site(on_submit("job.account = 'physics'"));
  cr_expect(site.submit(elastic_job()) == ESLURM_INVALID_ACCOUNT);
}

Test(job_hooks, plain_jobs_are_judged_after_them, .timeout = 20) {
  const std::string policy = std::string(kPolicy) + "plain_jobs: {partitions: {gpu: refuse}}\n";
  Site into(on_submit("job.partition = 'gpu'"), policy);
  Job job = new_job();
  cr_expect(into.submit(job) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(into.plugin.message().ends_with("(this site's rules had changed: partition)"));
  Site out_of(on_submit("job.partition = 'cpu'"), policy);
  job = new_job();
  job->partition = copy("gpu");
  cr_expect(out_of.submit(job) == SLURM_SUCCESS, "%s", out_of.plugin.message().c_str());
  cr_expect(text(job->partition) == "cpu");
  Site silent(on_submit(""), policy);
  release(&job->partition);
  job->partition = copy("gpu");
  cr_expect(silent.submit(job) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(silent.plugin.message().find("had changed") == std::string::npos);
}

Test(job_hooks, what_the_policy_refuses_they_do_not_see, .timeout = 20) {
  Site site(on_submit("return 'the hook'"));
  Job job = elastic_job();
  job->tres_per_job = copy(BELLOWS_GRES "gpu:16");
  cr_expect(site.submit(job) == ESLURM_INVALID_GRES);
}

Test(job_hooks, a_refusal_leaves_the_job_alone, .timeout = 20) {
  Site site(on_submit("job.partition = 'x' job.account = nil return 'not on Sundays'"));
  for (const Job& job : {elastic_job(), new_job()}) {
    const std::string before = bytes(job);
    cr_expect(site.submit(job) == ESLURM_ACCOUNTING_POLICY);
    cr_expect(site.plugin.message() == "bellows: not on Sundays", "%s",
              site.plugin.message().c_str());
    cr_expect(bytes(job) == before);
  }
}

Test(job_hooks, a_failure_leaves_the_job_alone, .timeout = 60) {
  for (const char* body :
       {"job.partition = 'x' error('broken')", "job.partition = 'x' return 7", "while true do end",
        "job.partition = 'x' while true do pcall(function() while true do end end) end",
        "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end", "job.nme = 'x'"})
    expect_failed(body, elastic_job());
}

Test(job_hooks, on_error_pass_continues_without_the_script, .timeout = 20) {
  Site site(on_submit("job.partition = 'x' job.time_limit = 1 while true do end"), kPolicy,
            ", on_error: pass");
  Job job = elastic_job();
  cr_assert(site.submit(job) == SLURM_SUCCESS, "%s", site.plugin.message().c_str());
  cr_expect(text(job->admin_comment) == kLine);
  cr_expect(not job->partition);
  cr_expect(job->time_limit == NO_VAL);
  cr_expect(site.submit(elastic_job()) == SLURM_SUCCESS, "the state after a limit is a new one");
}

Test(job_hooks, the_kill_switch_holds_for_them, .timeout = 20) {
  Site off(on_submit("return 'no'"), std::string(kPolicy) + "enabled: false\n");
  cr_expect(off.submit(elastic_job()) == SLURM_SUCCESS);
  Site broken("function", std::string(kPolicy) + "enabled: false\n");
  cr_expect(broken.submit(elastic_job()) == SLURM_SUCCESS, "whatever the script is like");
}

Test(job_hooks, a_broken_script_makes_the_policy_invalid, .timeout = 20) {
  Site site("function submit(\n");
  cr_expect(site.submit(new_job()) == SLURM_SUCCESS);
  cr_expect(site.submit(elastic_job()) == ESLURM_NOT_SUPPORTED);
  cr_expect(site.plugin.message().find("bellows-script-") != std::string::npos, "%s",
            site.plugin.message().c_str());
}

Test(job_modify_hooks, see_the_job_and_the_change, .timeout = 20) {
  Site site(
      on_modify("assert(job.gpus == 2 and job.gpus_max == 8 and job.framework_version == '1.0')\n"
                "assert(job.partition == 'batch' and job.gpus_range == '1-8')\n"
                "assert(job.user_name == 'alice' and job.account == 'vision')\n"
                "assert(change.gpus == 4 and change.gpus_max == nil and change.user_id == nil)\n"
                "assert(change.partition == nil and change.time_limit == nil)\n"
                "assert(tenant.name == 'vision')"));
  job_record record = running_job();
  Job update = new_job();
  update->tres_per_job = copy("gres/gpu:4");
  cr_expect(site.plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(text(update->tres_per_job) == BELLOWS_GRES "gpu:4" && update->num_tasks == 4);
}

Test(job_modify_hooks, see_plain_jobs_too, .timeout = 20) {
  Site site(
      on_modify("assert(job.framework == nil and job.gpus == 2 and tenant.name == 'vision')\n"
                "if change.gpus == 6 and change.gpus_max == 6 then return 'no' end"));
  job_record record = running_job();
  record.spank_job_env.clear();
  Job update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:6");
  cr_expect(site.plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  update = new_job();
  update->tres_per_job = copy(BELLOWS_GRES "gpu:5");
  cr_expect(site.plugin.modify(update.get(), record) == SLURM_SUCCESS);
}

Test(job_modify_hooks, refuse_for_users_only, .timeout = 20) {
  Site site(on_modify("return 'no ' .. (change.comment or '')"));
  job_record record = running_job();
  Job update = new_job();
  update->comment = copy("x");
  const std::string before = bytes(update);
  cr_expect(site.plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(bytes(update) == before);
  cr_expect(site.plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
  cr_expect(site.plugin.modify(update.get(), record, 0) == SLURM_SUCCESS);
  update = new_job();
  update->begin_time = 1;
  cr_expect(site.plugin.modify(update.get(), record) == SLURM_SUCCESS,
            "an update of nothing that hooks see");
}

Test(job_modify_hooks, changes_are_checked_against_the_policy, .timeout = 20) {
  const std::string policy = policy_with("sizing: {partitions: ['gpu*', batch]}");
  job_record record = running_job();
  Site bad(on_modify("change.partition = 'secret'"), policy);
  Job update = new_job();
  update->time_limit = 10;
  cr_expect(bad.plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  Site good(on_modify("change.partition = 'gpu1' change.time_limit = nil"), policy);
  update = new_job();
  update->time_limit = 10;
  cr_expect(good.plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(text(update->partition) == "gpu1" && update->time_limit == NO_VAL);
}

Test(job_modify_hooks, failures, .timeout = 20) {
  job_record record = running_job();
  for (const char* body : {"job.partition = 'x'", "change.partition = 'x' while true do end"}) {
    Site refuse(on_modify(body));
    Job update = new_job();
    update->time_limit = 10;
    const std::string before = bytes(update);
    cr_expect(refuse.plugin.modify(update.get(), record) == ESLURM_NOT_SUPPORTED, "%s", body);
    cr_expect(bytes(update) == before);
    Site pass(on_modify(body), kPolicy, ", on_error: pass");
    cr_expect(pass.plugin.modify(update.get(), record) == SLURM_SUCCESS, "%s", body);
    cr_expect(bytes(update) == before);
  }
}
