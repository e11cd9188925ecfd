// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// job_submit_bellows.so in a process of its own, loaded the way slurmctld does (Slurm's library
/// global, the plugin lazy and local): for measurements of the plugin alone. What cannot be loaded
/// ends the program.
namespace bellows {

struct FreedBySlurm {
  void operator()(job_desc_msg_t* job) const;
};
using HostJob = std::unique_ptr<job_desc_msg_t, FreedBySlurm>;

class PluginHost {
 public:
  /// Calls nothing yet.
  PluginHost(const std::string& plugin, const std::string& policy);
  ~PluginHost();
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  int init() const { return init_(); }
  int fini() const { return fini_(); }
  /// The bare entry point; release() what it leaves in *message.
  int submit(job_desc_msg_t& job, char** message) const {
    return submit_(&job, job.user_id, message);
  }
  /// The same of an update to the held sample job of an account, by its owner.
  int modify(job_desc_msg_t& update, const std::string& account) const;

 private:
  void* handle_;
  int (*init_)();
  int (*fini_)();
  int (*submit_)(job_desc_msg_t*, std::uint32_t, char**);
  void* modify_;
};

/// A text of Slurm's heap, freed and set to null.
void release(char*& text);

/// Sets a text or a list of Slurm's heap, in the place of what was there.
void put(char*& text, const std::string& value);
void put(char**& entries, std::uint32_t& count, const std::vector<std::string>& texts);

/// The user whom accounting knows, as "alice". About any other one the system is asked.
inline constexpr std::uint32_t kKnownUser = 20001;

/// The sample job, in Slurm's heap as slurmctld has it; these need a PluginHost to have been made.
HostJob sample_job(const std::string& account);
/// The same job without Bellows' options.
HostJob plain_job();

}  // namespace bellows
