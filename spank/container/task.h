// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/lasting/lasting.h"
#include "common/result.h"
#include "spank/container/accounts.h"
#include "spank/container/driver_files.h"
#include "spank/container/gpu_view.h"
#include "spank/container/image_import.h"
#include "spank/container/job_cgroup.h"
#include "spank/container/named_container.h"
#include "spank/container/own_mounts.h"
#include "spank/container/own_namespaces.h"
#include "spank/container/phases.h"
#include "spank/container/served_images.h"
#include "spank/container/task_prolog.h"
#include "spank/container/views.h"
#include "spank/container/watchdog.h"

namespace bellows::container {

/// What a task of a job is to get. A value.
struct TaskRequest {
  Spec spec;                 ///< without an image: the job's view of the host
  std::uint32_t step = 0;    ///< Slurm's number of the step
  bool plain_job = false;    ///< only what is in a container is in a view: TaskProlog is not
  std::uint64_t gpus = 0;    ///< that Slurm gave the step on this node
  std::string cwd;           ///< of the step, on the host
  Account account;           ///< the user's
  std::string home;          ///< of the step's environment, or of the account
  std::string console;       ///< the task's terminal; empty: none
  std::string script;        ///< a batch script that shall run in the container; empty: none
  std::string pmix_dir;      ///< where the step's PMIx server keeps its files; empty: none
  std::string pmix_session;  ///< the directory that it tells Open MPI to use, in /tmp; empty: none
  bool pmix_shares_session = false;  ///< it has files for the ranks there
  ImageImport import;                ///< of an image in a registry
  PrologRun prolog;                  ///< to be run on the host, before a container is entered
  std::string run_dir;               ///< where the job's launcher and agents listen; empty: none
  /// Where bellows-modeld takes clients, on the host and in a container; empty: nowhere.
  std::pair<std::string, std::string> model_socket;
  std::vector<OwnFile> own;  ///< of Bellows on the host; what is not there is left out
};

/// One task's way into its job's view of the node: opened by root, in task_init_privileged, and
/// gone by the job's user, in task_init, when Slurm's fence around the task's GPUs is up and
/// messages reach the user. A resource.
class TaskEntry {
 public:
  /// As root, for what enter() will be asked for, in a task of slurmstepd `stepd`. Keeps the
  /// capabilities that it needs across the change of user.
  static Result<TaskEntry> open(const std::string& run_dir, std::uint32_t job, JobOwner owner,
                                const Spec& spec, const Site& site, pid_t stepd);

  /// Where the servers of images and holders of leases live that the job's steps share. Without it,
  /// servers end with the step.
  void keep_processes_in(JobCgroup cgroup) { servers_ = std::move(cgroup); }

  /// As the user, with no other thread in the process. Afterwards the process is in the view, in
  /// the wanted directory, with no capability left. After an error it must not run the program.
  /// A phase that takes too long, also one that the caller begins afterwards, ends the process
  /// while this lives.
  Status enter(const TaskRequest& wanted, const Site& site, Phases& phases);

  /// What the user should know though all went well.
  const std::vector<std::string>& remarks() const { return remarks_; }

  /// What the TaskProlog said.
  const std::string& prolog_said() const { return prolog_said_; }

  /// Paths that begin with the first lie, in the container, in the second; both empty: none.
  const std::pair<std::string, std::string>& pmix_moved() const { return pmix_moved_; }

 private:
  TaskEntry(JobViews views, Fd host, std::uint32_t job, pid_t stepd)
      : views_(std::move(views)), host_(std::move(host)), job_(job), stepd_(stepd) {}

  Status watch(const Site& site, Phases& phases);
  void begin_patiently(const char* phase, std::uint32_t seconds, Phases& phases);
  Status look_at_gpus(const TaskRequest& wanted, const Site& site, Phases& phases);
  Status find_or_build(const std::string& name, const TaskRequest& wanted, const Site& site,
                       Phases& phases, Fd& found);
  ServedFor served_for(const TaskRequest& wanted, const Site& site) const;
  Status find_container(const std::string& name, const TaskRequest& wanted, const Site& site,
                        Phases& phases, Fd& found);
  Status find_of_step(const std::string& name, const TaskRequest& wanted, const Site& site,
                      Phases& phases, Fd& found) const;
  Status find_named(const std::string& name, const TaskRequest& wanted, const Site& site,
                    Phases& phases, Fd& found);
  Status look(const std::string& name, const TaskRequest& wanted, const Site& site,
              Fd& found) const;
  Status read_state(const std::string& name, std::optional<NamedState>& state) const;
  Status keep_state(const std::string& name) const;
  Result<bool> is_in(const std::string& name) const;
  Result<bool> is_vacant(const std::string& name) const;
  Status settle(const std::string& name, const TaskRequest& wanted, const Site& site,
                Phases& phases, const Fd& found);
  Status take_root(const Fd& container);
  Status begin_lasting(const Spec& spec, const Site& site, bool vacant, lasting::Use& use);
  Status check_size(const TaskRequest& wanted);
  Status check_number(const std::string& name, const Site& site) const;
  Status keep(const std::string& name, const TaskRequest& wanted, int made);
  Status build(const std::string& name, const TaskRequest& wanted, const Site& site,
               Phases& phases);
  Status build_base(const TaskRequest& wanted, const Site& site, Phases& phases);
  Status build_container(const TaskRequest& wanted, const Site& site, Phases& phases);
  Status cover_host_proc() const;
  Status enter_host_view(const TaskRequest& wanted);
  Status enter_container(const TaskRequest& wanted, const Site& site, Phases& phases);
  Status join_others(const std::string& name, const TaskRequest& wanted, const Site& site,
                     Phases& phases);
  Result<Fd> leave_in_proc(const Fd& root) const;
  Status correct_devices(const Fd& container);
  Result<std::vector<Device>> clone_from_host(const std::vector<std::string>& names,
                                              const Fd& container) const;
  Status check_saving(const TaskRequest& wanted, const Site& site, Phases& phases) const;
  Status import_image(const std::string& name, const TaskRequest& wanted, Phases& phases);
  Status run_task_prolog(const TaskRequest& wanted);
  Result<Fd> open_place(const char* name) const;

  JobViews views_;
  Fd host_;  ///< the host's mount namespace
  std::uint32_t job_;
  pid_t stepd_;
  Fd base_;             ///< the job's view of the host
  std::string joined_;  ///< the container of another step, which the step's name stands for
  JobCgroup servers_;
  std::string
      served_;  ///< the name of the container's image among those with servers, if it has one
  GpuView gpus_;
  OwnMounts own_;     ///< of the container
  NamedState state_;  ///< of the named container that this task makes
  Fd kept_;           ///< the root that it goes on with
  Fd lasting_;  ///< where its user's containers are that outlive jobs; invalid: it ends with the
                ///< job
  Fd layer_;    ///< of such a container that this task makes
  std::pair<std::string, std::string> pmix_moved_;
  std::vector<std::string> remarks_;
  std::string prolog_said_;
  std::string imported_;  ///< the root directory of an image in a registry
  std::optional<Watchdog> watchdog_;
  UserSpace user_;        ///< of the program; invalid: the host's
  bool capable_ = false;  ///< it is root there and has capabilities
  bool joins_ = false;    ///< other steps run in the container
};

/// A task that builds a view may use up the limit in several phases, so others wait longer for it.
inline std::uint32_t wait_seconds(const Site& site) { return 3 * site.phase_seconds; }

/// Whether a task goes into a container: with a name, into one that another step made.
inline bool wants_container(const Spec& spec) { return !spec.image.empty() || !spec.name.empty(); }

/// Whether what is written to a step's container stays on the node when the job has ended.
bool outlasts_job(const Spec& spec, const Site& site, std::uint32_t job);

/// What the disk says of such a container that the job has not. Its image is the step's: that was
/// judged, and what lies on the disk its user may have changed since.
Status find_lasting(const Fd& users, const Spec& spec, std::optional<NamedState>& found);

/// Whether the program is root in a user namespace of the container's.
inline bool is_fake_root(const Spec& spec, const Site& site) {
  return wants_container(spec) && spec.remap_root.value_or(site.remap_root);
}

/// Whether the program has a user namespace of the container's.
inline bool has_user_namespace(const Spec& spec, const Site& site) {
  return is_fake_root(spec, site) || (wants_container(spec) && site.user_namespace);
}

}  // namespace bellows::container
