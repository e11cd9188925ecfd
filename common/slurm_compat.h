// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What differs between Slurm releases, and what Slurm exports without declaring it in an
/// installed header. Needs only the published headers; for code that runs inside a Slurm process.

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/slurmdb.h>

#include <cstddef>
#include <cstdint>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
/// From 23.02 on job_modify can say why it refuses.
#define BELLOWS_JOB_MODIFY_ARGUMENTS \
  job_desc_msg_t *job_desc, job_record_t *job, uint32_t submit_uid, char **err_msg
#define BELLOWS_JOB_MODIFY_ERR_MSG err_msg
#else
#define BELLOWS_JOB_MODIFY_ARGUMENTS \
  job_desc_msg_t *job_desc, job_record_t *job, uint32_t submit_uid
#define BELLOWS_JOB_MODIFY_ERR_MSG nullptr
#endif

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define BELLOWS_JOB_DESC_ID(desc) ((desc)->step_id.job_id)
#else
#define BELLOWS_JOB_DESC_ID(desc) ((desc)->job_id)
#endif

struct job_record;
using job_record_t = struct job_record;

extern "C" {

// Exported by every Slurm process; the same from 22.05 to 25.11.
char* slurm_xstrdup(const char* text);
void slurm_xfree(void** item);
void* slurm_xcalloc(std::size_t count, std::size_t size, bool clear, bool try_only,
                    const char* file, int line, const char* function);
void* slurm_xrecalloc(void** item, std::size_t count, std::size_t size, bool clear, bool try_only,
                      const char* file, int line, const char* function);
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Exported by slurmctld only: weak, so that the plugin loads anywhere. Check before calling.
[[gnu::weak]] char* slurm_get_extra_conf_path(const char* name);
[[gnu::weak]] bool validate_operator(uid_t uid);
[[gnu::weak]] job_desc_msg_t* copy_job_record_to_job_desc(job_record_t* job);
[[gnu::weak]] void slurm_free_job_desc_msg(job_desc_msg_t* desc);
[[gnu::weak]] int assoc_mgr_fill_in_user(void* connection, slurmdb_user_rec_t* user, int enforce,
                                         slurmdb_user_rec_t** found, bool locked);
[[gnu::weak]] int assoc_mgr_fill_in_assoc(void* connection, slurmdb_assoc_rec_t* association,
                                          int enforce, slurmdb_assoc_rec_t** found, bool locked);
extern char* default_part_name [[gnu::weak]];
extern void* acct_db_conn [[gnu::weak]];
extern std::uint16_t accounting_enforce [[gnu::weak]];

}  // extern "C"
