/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests' own clients in C: what differs between Slurm releases, as slurm/compat.h does it
 * for the product. */
#pragma once

#include <slurm/slurm.h>
#include <slurm/slurm_version.h>

/* What comes before a GRES in TRES fields. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define GRES "gres/"
#else
#define GRES "gres:"
#endif

/* The job's id in job_desc_msg_t and in slurmctld's answers. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID_FIELD step_id.job_id
#else
#define JOB_ID_FIELD job_id
#endif

/* What frees slurmctld's configuration. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define FREE_CONF slurm_free_conf
#else
#define FREE_CONF slurm_free_ctl_conf
#endif

/* The job that slurm_load_job and slurm_requeue take, and its id. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define JOB_ARGUMENT slurm_step_id_t job
#define JOB_ARGUMENT_ID job.job_id
#else
#define JOB_ARGUMENT uint32_t job
#define JOB_ARGUMENT_ID job
#endif

/* What slurm_get_job_steps and slurm_kill_job_step take. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define STEPS_ARGUMENTS slurm_step_id_t* step
#define STEP_SIGNAL_ARGUMENTS slurm_step_id_t *step, uint16_t signal, uint16_t flags
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define STEPS_ARGUMENTS time_t since, uint32_t job, uint32_t step
#define STEP_SIGNAL_ARGUMENTS uint32_t job, uint32_t step, uint16_t signal, uint16_t flags
#else
#define STEPS_ARGUMENTS time_t since, uint32_t job, uint32_t step
#define STEP_SIGNAL_ARGUMENTS uint32_t job, uint32_t step, uint16_t signal
#endif
