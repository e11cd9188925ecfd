// SPDX-License-Identifier: Apache-2.0
// Entry points of spank_bellows.so: each only routes by context to one file.
#include "spank/epilog.h"
#include "spank/host.h"
#include "spank/isolation.h"
#include "spank/launch.h"
#include "spank/slurmd.h"
#include "spank/stepd.h"
#include "spank/submit.h"

// Without a declaration first these constants would be internal to this file, and Slurm would not
// find them.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(bellows, 1)
}
#pragma GCC visibility pop

namespace {

using namespace bellows::spank;

Settings settings(int count, char** arguments) {
  std::vector<std::string> complaints;
  return read_settings(count, arguments, complaints);
}

/// Complaints about plugstack.conf are for the nodes' logs, not for each user's terminal: made
/// before the user's is connected.
void complain(int count, char** arguments) {
  std::vector<std::string> complaints;
  (void)read_settings(count, arguments, complaints);
  const spank_context_t context = spank_context();
  if (context == S_CTX_REMOTE || context == S_CTX_JOB_SCRIPT)
    for (const std::string& complaint : complaints) slurm_error("bellows: %s", complaint.c_str());
}

}  // namespace

// The callbacks can't be noexcept themselves, since spank.h declares them without; guarded() is.
extern "C" {

int slurm_spank_init(spank_t spank, int ac, char** av) {
  return guarded("init", [&] {
    const spank_context_t context = spank_context();
    complain(ac, av);
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
      register_options(spank);
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR) forget_outer_job();
    if (context == S_CTX_ALLOCATOR) forget_outer_contract();
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR) export_variables();
    if (context == S_CTX_LOCAL) correct_size_for_srun(settings(ac, av));
    if (context == S_CTX_SLURMD) collect_views(settings(ac, av));
  });
}

int slurm_spank_job_prolog(spank_t spank, int ac, char** av) {
  return guarded("job_prolog", [&] {
    complain(ac, av);
    job_prolog(spank, settings(ac, av));
  });
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char** av) {
  return guarded("init_post_opt", [&] {
    const spank_context_t context = spank_context();
    if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR) {
      check_save(settings(ac, av));
      end_if_wrong();
      hand_on_container(spank);
      tell_place_of_script(settings(ac, av));
    }
    if (context == S_CTX_REMOTE) prepare_step(spank, settings(ac, av));
  });
}

int slurm_spank_task_init_privileged(spank_t spank, int ac, char** av) {
  return guarded("task_init_privileged", [&] { open_view(spank, settings(ac, av)); });
}

int slurm_spank_task_init(spank_t spank, int ac, char** av) {
  // Apart, so that nothing here keeps a task from its view.
  guarded("task_init", [&] { bind_rank(spank); });
  guarded("task_init", [&] { enter_view(spank, settings(ac, av)); });
  return guarded("task_init", [&] { tell_rank(spank); });
}

int slurm_spank_task_post_fork(spank_t spank, int ac, char** av) {
  return guarded("task_post_fork", [&] {
    begin_task(spank);
    begin_epilogs(spank, settings(ac, av));
  });
}

int slurm_spank_task_exit(spank_t spank, int ac, char** av) {
  return guarded("task_exit", [&] {
    epilogs_done();
    end_task(spank, settings(ac, av));
  });
}

int slurm_spank_exit(spank_t spank, int ac, char** av) {
  return guarded("exit", [&] {
    if (spank_context() == S_CTX_REMOTE) finish_step(spank, settings(ac, av));
  });
}
}
