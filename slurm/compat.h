// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What differs between Slurm releases from 22.05 to 26.05; and, for code that runs inside a Slurm
/// process, what Slurm exports without declaring it in an installed header. Needs only the
/// published headers.

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/slurmdb.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "slurm/releases.h"

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

// Exported by every Slurm process; the same from 22.05 to 26.05.
char* slurm_xstrdup(const char* text);
void slurm_xfree(void** item);
void* slurm_xcalloc(std::size_t count, std::size_t size, bool clear, bool try_only,
                    const char* file, int line, const char* function);
void* slurm_xrecalloc(void** item, std::size_t count, std::size_t size, bool clear, bool try_only,
                      const char* file, int line, const char* function);
int slurm_bit_test(bitstr_t* bits, bitoff_t bit);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
const char* slurm_job_state_reason_string(enum job_state_reason reason);
#else
char* slurm_job_reason_string(enum job_state_reason reason);
#endif
void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Exported by slurmctld only (slurm_conf also by others): weak, so that the plugin loads anywhere.
// Check before use.
[[gnu::weak]] char* slurm_get_extra_conf_path(const char* name);
[[gnu::weak]] bool validate_operator(uid_t uid);
[[gnu::weak]] job_desc_msg_t* copy_job_record_to_job_desc(job_record_t* job);
[[gnu::weak]] void slurm_free_job_desc_msg(job_desc_msg_t* desc);
[[gnu::weak]] int assoc_mgr_fill_in_user(void* connection, slurmdb_user_rec_t* user, int enforce,
                                         slurmdb_user_rec_t** found, bool locked);
[[gnu::weak]] int assoc_mgr_fill_in_assoc(void* connection, slurmdb_assoc_rec_t* association,
                                          int enforce, slurmdb_assoc_rec_t** found, bool locked);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
[[gnu::weak]] bool assoc_mgr_is_user_acct_coord(void* connection, std::uint32_t uid, char* account,
                                                bool locked);
#else
[[gnu::weak]] bool assoc_mgr_is_user_acct_coord(void* connection, std::uint32_t uid, char* account);
#endif
extern char* default_part_name [[gnu::weak]];
extern slurm_conf_t slurm_conf [[gnu::weak]];
extern void* acct_db_conn [[gnu::weak]];
extern std::uint16_t accounting_enforce [[gnu::weak]];

}  // extern "C"

namespace bellows {

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
inline slurm_step_id_t step_named(std::uint32_t job, std::uint32_t step) {
  slurm_step_id_t name = SLURM_STEP_ID_INITIALIZER;
  name.job_id = job;
  name.step_id = step;
  return name;
}
#endif

/// A job as slurm_load_job and slurm_requeue want it named.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
inline slurm_step_id_t job_named(std::uint32_t job) { return step_named(job, NO_VAL); }
#else
inline std::uint32_t job_named(std::uint32_t job) { return job; }
#endif

/// Slurm's word for why a job waits ("Resources"): its numbers differ between releases. A number
/// that this libslurm has no word for gives no word.
inline const char* reason_word(std::uint32_t reason) {
  const auto known = static_cast<enum job_state_reason>(reason);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
  return slurm_job_state_reason_string(known);
#else
  return slurm_job_reason_string(known);
#endif
}

inline int kill_step(std::uint32_t job, std::uint32_t step, std::uint16_t signal) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
  slurm_step_id_t name = step_named(job, step);
  return slurm_kill_job_step(&name, signal, 0);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
  return slurm_kill_job_step(job, step, signal, 0);
#else
  return slurm_kill_job_step(job, step, signal);
#endif
}

/// All steps of a job.
inline int load_steps(std::uint32_t job, job_step_info_response_msg_t** response) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
  slurm_step_id_t name = step_named(job, NO_VAL);
  return slurm_get_job_steps(&name, response, SHOW_ALL);
#else
  return slurm_get_job_steps(0, job, NO_VAL, response, SHOW_ALL);
#endif
}

inline void free_conf(slurm_conf_t* conf) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  slurm_free_conf(conf);
#else
  slurm_free_ctl_conf(conf);
#endif
}

/// Of what slurm_create_reservation returned; null is nothing to free.
inline void free_reservation_name(char* name) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
  slurm_xfree(reinterpret_cast<void**>(&name));
#else
  std::free(name);
#endif
}

/// 0: not known. From 24.11 on clients can't see a single node's share of a job.
inline int cpus_on_node(const slurm_job_info_t& job, const char* node) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)
  return node && job.num_nodes > 0 ? static_cast<int>(job.num_cpus / job.num_nodes) : 0;
#else
  return job.job_resrcs ? slurm_job_cpus_allocated_on_node(job.job_resrcs, node) : 0;
#endif
}

}  // namespace bellows
