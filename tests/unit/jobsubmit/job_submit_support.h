// SPDX-License-Identifier: Apache-2.0
#pragma once

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

#include "slurm/gres.h"

/// A job in the table of the slurmctld that job_submit_support.cc stands in for.
struct job_record {
  std::vector<std::string> spank_job_env;
  std::string per_job;
  std::string per_task;
  std::uint32_t tasks = 2;
  std::uint16_t restarts = 0;
  std::string account = "vision";
  std::string partition = "batch";
  std::uint32_t time_limit = 60;
  std::uint64_t bitflags = 0;
};

extern "C" {
void slurm_free_job_desc_msg(job_desc_msg_t* job);
extern char* default_part_name;
}

/// Loads job_submit_bellows.so the way slurmctld does (Slurm's library global, the plugin lazy and
/// local) and calls its entry points. What only slurmctld exports, job_submit_support.cc
/// exports in its place, so the calls that reach into the job table are seen too.
namespace bellows::job_submit_test {

inline constexpr uid_t kOwner = 20001;
inline constexpr uid_t kOperator = 20099;
inline constexpr uid_t kCoordinator = 20050;  ///< of the account vision
inline constexpr uid_t kOther = 20051;

inline void* slurm_library = nullptr;

inline void load_slurm() {
  if (slurm_library) return;
  glob_t found;
  cr_assert(::glob("/usr/lib*/{*/,}slurm*/libslurmfull.so", GLOB_BRACE, nullptr, &found) == 0,
            "libslurmfull.so was not found");
  slurm_library = dlopen(found.gl_pathv[0], RTLD_LAZY | RTLD_GLOBAL);
  ::globfree(&found);
  cr_assert(slurm_library, "%s", dlerror());
  static_cast<slurm_conf_t*>(dlsym(slurm_library, "slurm_conf"))->prolog_flags =
      PROLOG_FLAG_CONTAIN;
}

template <typename F>
F* slurm_symbol(const char* name) {
  load_slurm();
  void* symbol = dlsym(slurm_library, name);
  cr_assert(symbol, "%s is not in libslurmfull", name);
  return reinterpret_cast<F*>(symbol);
}

inline char* copy(const std::string& text) {
  return slurm_symbol<char*(const char*)>("slurm_xstrdup")(text.c_str());
}

inline void** array(std::size_t count) {
  return static_cast<void**>(
      slurm_symbol<void*(std::size_t, std::size_t, bool, bool, const char*, int, const char*)>(
          "slurm_xcalloc")(count, sizeof(void*), true, false, __FILE__, __LINE__, __func__));
}

inline std::vector<std::string> read(char** entries, std::uint32_t count) {
  return {entries, entries + count};
}

inline void release(void* field) {
  slurm_symbol<void(void**)>("slurm_xfree")(static_cast<void**>(field));
}

inline void release(char**& entries, std::uint32_t count) {
  for (std::uint32_t i = 0; entries && i < count; ++i) release(&entries[i]);
  release(&entries);
}

struct Freed {
  void operator()(job_desc_msg_t* job) const { slurm_free_job_desc_msg(job); }
};
using Job = std::unique_ptr<job_desc_msg_t, Freed>;

inline void fill(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts) {
  release(entries, count);
  entries = reinterpret_cast<char**>(array(texts.size() + 1));
  count = static_cast<std::uint32_t>(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) entries[i] = copy(texts[i]);
}

inline Job new_job() {
  Job job(reinterpret_cast<job_desc_msg_t*>(
      slurm_symbol<void*(std::size_t, std::size_t, bool, bool, const char*, int, const char*)>(
          "slurm_xcalloc")(1, sizeof(job_desc_msg_t), true, false, __FILE__, __LINE__, __func__)));
  slurm_symbol<void(job_desc_msg_t*)>("slurm_init_job_desc_msg")(job.get());
  job->user_id = kOwner;
  job->het_job_offset = NO_VAL;  // as slurmctld sets it for an ordinary job
  return job;
}

/// The plugin, loaded with its own policy file; init and fini called.
class Plugin {
 public:
  explicit Plugin(const std::string& policy) {
    load_slurm();
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

inline const char* const kPolicy =
    "version: 1\n"
    "checkpoint_dir: /c/%j\n"
    "frameworks: {digits: {versions: [\"1.0\"], env: {SEED: \"7\", MODE: fast}}}\n"
    "tenants: {vision: {gpus: {max: 8, start: 2}}, speech: }\n"
    "resize_site_factor: 900\n";
inline const char* const kLine =
    "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/c/%25j";
inline const std::string kFramework = "_SLURM_SPANK_OPTION_bellows_framework=digits";
inline const std::string kRange = "_SLURM_SPANK_OPTION_bellows_gpus_range=1-8";

inline Job elastic_job() {
  Job job = new_job();
  job->script = copy("#!/bin/sh\n");
  job->account = copy("VISION");
  fill(job->spank_job_env, job->spank_job_env_size, {kFramework, kRange});
  return job;
}

/// How often a job of the table was copied for the plugin.
std::size_t record_copies();

inline job_record running_job() {
  job_record record;
  record.spank_job_env = {kFramework, kRange, std::string("BELLOWS_CONTRACT=") + kLine};
  record.per_job = BELLOWS_GRES "gpu:2";
  return record;
}

/// The policy with these keys for the tenant vision besides.
inline std::string policy_with(const std::string& keys) {
  return "version: 1\n"
         "frameworks: {digits: {versions: [\"1.0\"]}}\n"
         "checkpoint_dir: /c/%j\n"
         "tenants: {vision: {gpus: {max: 8, start: 2}, " +
         keys + "}, speech: }\n";
}

}  // namespace bellows::job_submit_test
