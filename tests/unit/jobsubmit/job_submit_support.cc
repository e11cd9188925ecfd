// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/jobsubmit/job_submit_support.h"

using namespace bellows::job_submit_test;

/// Slurm's own reads slurm.conf on the way; this frees the fields that the tests use.
extern "C" void slurm_free_job_desc_msg(job_desc_msg_t* job) {
  release(job->spank_job_env, job->spank_job_env_size);
  release(job->environment, job->env_size);
  release(job->argv, job->argc);
  for (char** text :
       {&job->script, &job->account, &job->admin_comment, &job->tres_per_job, &job->tres_per_node,
        &job->tres_per_task, &job->tres_per_socket, &job->partition, &job->qos, &job->cpus_per_tres,
        &job->mem_per_tres, &job->features, &job->comment, &job->name, &job->reservation,
        &job->array_inx, &job->req_nodes})
    release(text);
  release(&job);
}

namespace {
std::size_t copies = 0;
}

std::size_t bellows::job_submit_test::record_copies() { return copies; }

// What slurmctld exports.
extern "C" {
void* acct_db_conn = nullptr;
std::uint16_t accounting_enforce = 0;
char* default_part_name = nullptr;

bool validate_operator(uid_t uid) { return uid == kOperator; }

int assoc_mgr_fill_in_user(void*, slurmdb_user_rec_t* user, int, slurmdb_user_rec_t**, bool) {
  static char account[] = "vision";
  static char name[] = "alice";
  if (user->uid != kOwner) return SLURM_SUCCESS;
  user->default_acct = account;
  user->name = name;
  return SLURM_SUCCESS;
}

int assoc_mgr_fill_in_assoc(void*, slurmdb_assoc_rec_t* association, int, slurmdb_assoc_rec_t**,
                            bool) {
  static char team[] = "TEAM";
  static char vision[] = "vision";
  static char root[] = "root";
  if (association->uid != NO_VAL || association->user) return SLURM_SUCCESS;
  const std::string account = association->acct;
  if (account == "team-a") association->parent_acct = team;
  if (account == "team") association->parent_acct = vision;
  if (account == "vision") association->parent_acct = root;
  if (account == "root") association->parent_acct = team;  // a circle ends too
  return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
bool assoc_mgr_is_user_acct_coord(void*, std::uint32_t uid, char* account, bool) {
#else
bool assoc_mgr_is_user_acct_coord(void*, std::uint32_t uid, char* account) {
#endif
  return uid == kCoordinator && std::string(account) == "vision";
}

job_desc_msg_t* copy_job_record_to_job_desc(job_record* record) {
  ++copies;
  Job job = new_job();
  fill(job->spank_job_env, job->spank_job_env_size, record->spank_job_env);
  if (!record->per_job.empty()) job->tres_per_job = copy(record->per_job);
  if (!record->per_task.empty()) job->tres_per_task = copy(record->per_task);
  job->num_tasks = record->tasks;
  job->restart_cnt = record->restarts;
  job->account = copy(record->account);
  job->partition = copy(record->partition);
  job->time_limit = record->time_limit;
  job->bitflags = record->bitflags;
  return job.release();
}
}
