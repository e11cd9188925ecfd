// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/plugin_host.h"

#include <dlfcn.h>
#include <glob.h>
#include <slurm/slurmdb.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/fd.h"
#include "tests/bench/sample_job.h"

/// A job of slurmctld, as far as updates of it need one.
struct job_record {
  std::string account;
};

// What slurmctld exports of accounting and of jobs. Programs that link this export it too.
extern "C" {
void* acct_db_conn = nullptr;
std::uint16_t accounting_enforce = 0;

int assoc_mgr_fill_in_user(void*, slurmdb_user_rec_t* user, int, slurmdb_user_rec_t**, bool) {
  static char name[] = "alice";
  if (user->uid != bellows::kKnownUser) return SLURM_ERROR;
  user->name = name;
  return SLURM_SUCCESS;
}

job_desc_msg_t* copy_job_record_to_job_desc(job_record* record) {
  bellows::HostJob job = bellows::sample_job(record->account);
  bellows::put(job->environment, job->env_size, {});  // Slurm has it in one block
  bellows::put(job->spank_job_env, job->spank_job_env_size,
               {bellows::kSampleFramework, bellows::kSampleRange,
                "BELLOWS_CONTRACT=bellows/1 tenant=tenant49 framework=framework7:2.1 gpus=1-8"});
  return job.release();
}
}

namespace bellows {
namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "plugin_host: %s\n", text.c_str());
  std::exit(1);
}

template <typename F>
F* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) fail(dlerror());
  return reinterpret_cast<F*>(found);
}

/// slurm_free_job_desc_msg asks for the configuration.
void provide_configuration() {
  char path[] = "/tmp/bellows-slurm-XXXXXX";
  const Fd file(::mkstemp(path));
  if (!file || !write_all(file.get(), "ClusterName=host\nSlurmctldHost=localhost\n", path).ok())
    fail("cannot write a slurm.conf below /tmp");
  ::setenv("SLURM_CONF", path, 1);
  symbol<int(const char*)>(RTLD_DEFAULT, "slurm_conf_init")(path);
  ::unlink(path);
}

/// Slurm's library stays: slurmctld never unloads it either.
void load_slurm() {
  static bool loaded = false;
  if (loaded) return;
  glob_t found;
  if (::glob("/usr/lib*/{*/,}slurm*/libslurmfull.so", GLOB_BRACE, nullptr, &found) != 0)
    fail("libslurmfull.so was not found below /usr/lib");
  if (!dlopen(found.gl_pathv[0], RTLD_LAZY | RTLD_GLOBAL)) fail(dlerror());
  ::globfree(&found);
  loaded = true;
  provide_configuration();
}

char* copy(const std::string& text) {
  static auto* const duplicate = symbol<char*(const char*)>(RTLD_DEFAULT, "slurm_xstrdup");
  return duplicate(text.c_str());
}

void* zeroed(std::size_t count, std::size_t size) {
  static auto* const allocate =
      symbol<void*(std::size_t, std::size_t, bool, bool, const char*, int, const char*)>(
          RTLD_DEFAULT, "slurm_xcalloc");
  return allocate(count, size, true, false, __FILE__, __LINE__, __func__);
}

void fill(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts) {
  entries = static_cast<char**>(zeroed(texts.size() + 1, sizeof(char*)));
  count = static_cast<std::uint32_t>(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) entries[i] = copy(texts[i]);
}

}  // namespace

PluginHost::PluginHost(const std::string& plugin, const std::string& policy) {
  load_slurm();
  ::setenv("BELLOWS_CONF", policy.c_str(), 1);
  handle_ = dlopen(plugin.c_str(), RTLD_LAZY);
  if (!handle_) fail(dlerror());
  init_ = symbol<int()>(handle_, "init");
  fini_ = symbol<int()>(handle_, "fini");
  modify_ = dlsym(handle_, "job_modify");
  submit_ = symbol<int(job_desc_msg_t*, std::uint32_t, char**)>(handle_, "job_submit");
}

PluginHost::~PluginHost() { dlclose(handle_); }

int PluginHost::modify(job_desc_msg_t& update, const std::string& account) const {
  job_record record{account};
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
  char* text = nullptr;
  const int rc = reinterpret_cast<int (*)(job_desc_msg_t*, job_record*, std::uint32_t, char**)>(
      modify_)(&update, &record, kKnownUser, &text);
  if (text) release(text);
  return rc;
#else
  return reinterpret_cast<int (*)(job_desc_msg_t*, job_record*, std::uint32_t)>(modify_)(
      &update, &record, kKnownUser);
#endif
}

void put(char*& text, const std::string& value) {
  release(text);
  text = copy(value);
}

void put(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts) {
  for (std::uint32_t i = 0; entries && i < count; ++i) release(entries[i]);
  symbol<void(void**)>(RTLD_DEFAULT, "slurm_xfree")(reinterpret_cast<void**>(&entries));
  fill(entries, count, texts);
}

void FreedBySlurm::operator()(job_desc_msg_t* job) const {
  static auto* const free_job =
      symbol<void(job_desc_msg_t*)>(RTLD_DEFAULT, "slurm_free_job_desc_msg");
  free_job(job);
}

void release(char*& text) {
  static auto* const free_text = symbol<void(void**)>(RTLD_DEFAULT, "slurm_xfree");
  free_text(reinterpret_cast<void**>(&text));
}

HostJob plain_job() {
  HostJob job(static_cast<job_desc_msg_t*>(zeroed(1, sizeof(job_desc_msg_t))));
  symbol<void(job_desc_msg_t*)>(RTLD_DEFAULT, "slurm_init_job_desc_msg")(job.get());
  job->user_id = kKnownUser;
  job->group_id = 20101;
  job->het_job_offset = NO_VAL;  // as slurmctld sets it for an ordinary job
  job->name = copy("train");
  job->work_dir = copy("/home/alice/project");
  job->script = copy(sample_script());
  job->time_limit = 240;
  fill(job->environment, job->env_size, sample_environment());
  return job;
}

HostJob sample_job(const std::string& account) {
  HostJob job = plain_job();
  job->account = copy(account);
  job->partition = copy("main");
  job->tres_per_job = copy(kSampleSize);
  fill(job->spank_job_env, job->spank_job_env_size, {kSampleFramework, kSampleRange});
  return job;
}

}  // namespace bellows
