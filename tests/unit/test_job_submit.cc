// SPDX-License-Identifier: Apache-2.0
/// Loads job_submit_bellows.so the way slurmctld does (Slurm's library global, the plugin lazy and
/// local) and calls its entry points. What only slurmctld exports, this program exports in its
/// place, so the calls that reach into the job table are seen too.

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <glob.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

struct job_record {
  std::vector<std::string> spank_job_env;
  std::string per_job;
  std::uint32_t tasks = 2;
  std::uint16_t restarts = 0;
};

namespace {

constexpr uid_t kOwner = 20001;
constexpr uid_t kOperator = 20099;

void* slurm_library = nullptr;

template <typename F>
F* slurm_symbol(const char* name) {
  void* symbol = dlsym(slurm_library, name);
  cr_assert(symbol, "%s is not in libslurmfull", name);
  return reinterpret_cast<F*>(symbol);
}

char* copy(const std::string& text) {
  return slurm_symbol<char*(const char*)>("slurm_xstrdup")(text.c_str());
}

void** array(std::size_t count) {
  return static_cast<void**>(
      slurm_symbol<void*(std::size_t, std::size_t, bool, bool, const char*, int, const char*)>(
          "slurm_xcalloc")(count, sizeof(void*), true, false, __FILE__, __LINE__, __func__));
}

std::vector<std::string> read(char** entries, std::uint32_t count) {
  return {entries, entries + count};
}

void release(void* field) { slurm_symbol<void(void**)>("slurm_xfree")(static_cast<void**>(field)); }

void release(char**& entries, std::uint32_t count) {
  for (std::uint32_t i = 0; entries && i < count; ++i) release(&entries[i]);
  release(&entries);
}

}  // namespace

/// Slurm's own reads slurm.conf on the way; this frees the fields that the tests use.
extern "C" void slurm_free_job_desc_msg(job_desc_msg_t* job) {
  release(job->spank_job_env, job->spank_job_env_size);
  release(job->environment, job->env_size);
  for (char** text : {&job->script, &job->account, &job->admin_comment, &job->tres_per_job})
    release(text);
  release(&job);
}

namespace {

struct Freed {
  void operator()(job_desc_msg_t* job) const { slurm_free_job_desc_msg(job); }
};
using Job = std::unique_ptr<job_desc_msg_t, Freed>;

void fill(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts) {
  release(entries, count);
  entries = reinterpret_cast<char**>(array(texts.size() + 1));
  count = static_cast<std::uint32_t>(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) entries[i] = copy(texts[i]);
}

Job new_job() {
  Job job(reinterpret_cast<job_desc_msg_t*>(
      slurm_symbol<void*(std::size_t, std::size_t, bool, bool, const char*, int, const char*)>(
          "slurm_xcalloc")(1, sizeof(job_desc_msg_t), true, false, __FILE__, __LINE__, __func__)));
  slurm_symbol<void(job_desc_msg_t*)>("slurm_init_job_desc_msg")(job.get());
  job->user_id = kOwner;
  job->het_job_offset = NO_VAL;  // as slurmctld sets it for an ordinary job
  return job;
}

}  // namespace

// What slurmctld exports.
extern "C" {
void* acct_db_conn = nullptr;
std::uint16_t accounting_enforce = 0;

bool validate_operator(uid_t uid) { return uid == kOperator; }

int assoc_mgr_fill_in_user(void*, slurmdb_user_rec_t* user, int, slurmdb_user_rec_t**, bool) {
  static char account[] = "vision";
  if (user->uid == kOwner) user->default_acct = account;
  return SLURM_SUCCESS;
}

job_desc_msg_t* copy_job_record_to_job_desc(job_record* record) {
  Job job = new_job();
  fill(job->spank_job_env, job->spank_job_env_size, record->spank_job_env);
  job->tres_per_job = copy(record->per_job);
  job->num_tasks = record->tasks;
  job->restart_cnt = record->restarts;
  return job.release();
}
}

namespace {

/// The plugin, loaded with its own policy file; init and fini called.
class Plugin {
 public:
  explicit Plugin(const std::string& policy) {
    glob_t found;
    cr_assert(::glob("/usr/lib*/{*/,}slurm*/libslurmfull.so", GLOB_BRACE, nullptr, &found) == 0,
              "libslurmfull.so was not found");
    slurm_library = dlopen(found.gl_pathv[0], RTLD_LAZY | RTLD_GLOBAL);
    ::globfree(&found);
    cr_assert(slurm_library, "%s", dlerror());
    char path[] = "/tmp/bellows-plugin-XXXXXX";
    const int fd = ::mkstemp(path);
    cr_assert(fd >= 0);
    ::close(fd);
    path_ = path;
    std::ofstream(path_) << policy;
    ::setenv("BELLOWS_CONF", path_.c_str(), 1);
    handle_ = dlopen(PLUGIN, RTLD_LAZY);
    cr_assert(handle_, "%s", dlerror());
    cr_assert(symbol<int()>("init")() == SLURM_SUCCESS);
  }
  ~Plugin() {
    cr_expect(symbol<int()>("fini")() == SLURM_SUCCESS);
    cr_expect(dlclose(handle_) == 0);
    ::unlink(path_.c_str());
  }

  int submit(job_desc_msg_t* job) {
    char* text = nullptr;
    const int rc =
        symbol<int(job_desc_msg_t*, std::uint32_t, char**)>("job_submit")(job, kOwner, &text);
    message_ = text ? text : "";
    release(&text);
    return rc;
  }
  int modify(job_desc_msg_t* update, job_record& record, uid_t uid = kOwner) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
    char* text = nullptr;
    return symbol<int(job_desc_msg_t*, job_record*, std::uint32_t, char**)>("job_modify")(
        update, &record, uid, &text);
#else
    return symbol<int(job_desc_msg_t*, job_record*, std::uint32_t)>("job_modify")(update, &record,
                                                                                  uid);
#endif
  }
  const std::string& message() const { return message_; }
  void* raw(const char* name) const { return dlsym(handle_, name); }

 private:
  template <typename F>
  F* symbol(const char* name) {
    void* found = dlsym(handle_, name);
    cr_assert(found, "%s is not exported", name);
    return reinterpret_cast<F*>(found);
  }

  void* handle_ = nullptr;
  std::string path_;
  std::string message_;
};

const char* const kPolicy =
    "version: 1\n"
    "checkpoint_dir: /c/%j\n"
    "frameworks: {digits: {versions: [\"1.0\"], env: {SEED: \"7\", MODE: fast}}}\n"
    "tenants: {vision: {gpus: {max: 8, start: 2}}, speech: }\n"
    "resize_site_factor: 900\n";
const char* const kLine = "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/c/%25j";
const std::string kFramework = "_SLURM_SPANK_OPTION_bellows_framework=digits";
const std::string kRange = "_SLURM_SPANK_OPTION_bellows_gpus_range=1-8";

Job elastic_job() {
  Job job = new_job();
  job->script = copy("#!/bin/sh\n");
  job->account = copy("VISION");
  fill(job->spank_job_env, job->spank_job_env_size, {kFramework, kRange});
  return job;
}

job_record running_job() {
  return {{kFramework, kRange, std::string("BELLOWS_CONTRACT=") + kLine}, "gres:gpu:2"};
}

}  // namespace

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
  cr_expect(std::string(job->tres_per_job) == "gres:gpu:2");
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
  job->tres_per_job = copy("gres:gpu:16");
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
            "bellows: the job keeps 2 GPUs: only jobs of sbatch can be resized");
  cr_expect(job->requeue == NO_VAL16);

  job = elastic_job();
  job->bitflags |= CRON_JOB;
  job->het_job_offset = 0;  // slurmctld leaves it so for scrontab
  cr_assert(plugin.submit(job.get()) == SLURM_SUCCESS, "%s", plugin.message().c_str());
  cr_expect(plugin.message().ends_with("only jobs of sbatch can be resized"));
}

Test(job_modify, size_moves_within_the_range, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record = running_job();
  Job update = new_job();
  update->tres_per_job = copy("gres:gpu:4");
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(update->num_tasks == 4);
  cr_expect(update->site_factor == NO_VAL, "it never ran");

  record.restarts = 1;
  update = new_job();
  update->tres_per_job = copy("gres/gpu:8");
  update->num_tasks = 8;
  cr_expect(plugin.modify(update.get(), record) == SLURM_SUCCESS);
  cr_expect(std::string(update->tres_per_job) == "gres:gpu:8");
  cr_expect(update->site_factor == NICE_OFFSET + 900);

  update = new_job();
  update->tres_per_job = copy("gres:gpu:9");
  cr_expect(plugin.modify(update.get(), record) == ESLURM_ACCOUNTING_POLICY);
  cr_expect(plugin.modify(update.get(), record, kOperator) == SLURM_SUCCESS);
  cr_expect(plugin.modify(update.get(), record, 0) == SLURM_SUCCESS);
}

Test(job_modify, other_jobs_and_other_changes_pass, .timeout = 20) {
  Plugin plugin(kPolicy);
  job_record record{{"OTHER=1"}, "gres:gpu:2"};
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
