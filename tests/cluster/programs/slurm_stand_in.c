/* SPDX-License-Identifier: Apache-2.0 */
/* slurmctld as `bellows run` sees it, for tests of the launcher without a cluster: preloaded, it
 * takes the place of the calls in libslurm that reach out. The one job it knows stands in the file
 * $SLURM_STAND_IN/job as "STATE RESTARTS GPUS" and holds that many GPUs on n1 and n2; what is
 * asked for is noted there and in the file log.
 *
 * $SLURM_STAND_IN/fault, as in stop_faults.py, may say "requeue|update before|after launcher": the
 * launcher then dies at that call, once; with "answer" instead it has none. "requeue before limit":
 * the job reaches its time limit just then. "requeue slow answer": the answer takes as long as a
 * start time is ahead. "end before launcher": it dies when all is done but the removal of its
 * marker.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../slurm_names.h"

struct stood_for {
  char state[32];
  unsigned restarts, gpus;
};

/* Good until the next but one call. */
static const char* path_of(const char* name) {
  static char paths[2][4096];
  static int turn;
  turn = !turn;
  snprintf(paths[turn], sizeof paths[turn], "%s/%s", getenv("SLURM_STAND_IN"), name);
  return paths[turn];
}

static struct stood_for load(void) {
  struct stood_for job = {"PENDING", 0, 1};
  FILE* file = fopen(path_of("job"), "r");
  if (!file) abort();
  if (fscanf(file, "%31s %u %u", job.state, &job.restarts, &job.gpus) != 3) abort();
  fclose(file);
  return job;
}

static void store(const struct stood_for* job) {
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", path_of("job"), (int)getpid());
  FILE* file = fopen(name, "w");
  if (!file) abort();
  fprintf(file, "%s %u %u\n", job->state, job->restarts, job->gpus);
  fclose(file);
  if (rename(name, path_of("job")) != 0) abort();
}

static void note(const char* what) {
  FILE* file = fopen(path_of("log"), "a");
  if (!file) abort();
  fprintf(file, "%s\n", what);
  fclose(file);
}

static int is_due(const char* call, const char* when, const char* target) {
  char wanted[64], found[64] = "";
  snprintf(wanted, sizeof wanted, "%s %s %s", call, when, target);
  FILE* file = fopen(path_of("fault"), "r");
  if (!file) return 0;
  if (!fgets(found, sizeof found, file)) found[0] = 0;
  fclose(file);
  found[strcspn(found, "\n")] = 0;
  return strcmp(found, wanted) == 0 && rename(path_of("fault"), path_of("fault.done")) == 0;
}

static void die_if(const char* call, const char* when) {
  if (is_due(call, when, "launcher")) raise(SIGKILL);
}

static uint32_t state_of(const struct stood_for* job) {
  if (strcmp(job->state, "RUNNING") == 0) return JOB_RUNNING;
  return strcmp(job->state, "TIMEOUT") == 0 ? JOB_TIMEOUT : JOB_PENDING;
}

/* slurmctld is killed just then: the connection ends without an answer. */
static int lost_if(const char* call, const char* when) {
  if (!is_due(call, when, "answer")) return SLURM_SUCCESS;
  errno = SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT;
  return SLURM_ERROR;
}

int unlink(const char* path) {
  const char* name = strrchr(path, '/');
  if (name && strcmp(name, "/launcher.active") == 0) die_if("end", "before");
  return unlinkat(AT_FDCWD, path, 0);
}

void slurm_init(const char* conf) { (void)conf; }
void slurm_fini(void) {}

static void load_into(job_info_msg_t** out, uint32_t id) {
  struct stood_for job = load();
  job_info_msg_t* message = calloc(1, sizeof *message);
  job_info_t* info = calloc(1, sizeof *info);
  unsigned here = (job.gpus + 1) / 2, there = job.gpus - here;
  char text[64];
  message->last_update = time(NULL);
  message->record_count = 1;
  message->job_array = info;
  info->job_id = id;
  info->job_state = state_of(&job);
  info->restart_cnt = job.restarts;
  info->array_task_id = NO_VAL;
  info->user_id = getuid();
  info->batch_flag = 1;
  info->requeue = 1;
  info->priority = strcmp(job.state, "HELD") != 0;
  info->num_tasks = job.gpus;
  info->start_time = 1700000000 + (time_t)job.restarts * 60;
  info->end_time = time(NULL) + 86400;
  info->batch_host = strdup("n1");
  info->nodes = strdup(there ? "n[1-2]" : "n1");
  info->num_nodes = there ? 2 : 1;
  info->gres_detail_cnt = info->num_nodes;
  info->gres_detail_str = calloc(2, sizeof(char*));
  snprintf(text, sizeof text, "gpu:%u", here);
  info->gres_detail_str[0] = strdup(text);
  snprintf(text, sizeof text, "gpu:%u", there);
  info->gres_detail_str[1] = strdup(text);
  snprintf(text, sizeof text, GRES "gpu:%u", job.gpus);
  info->tres_per_job = strdup(text);
  *out = message;
}

int slurm_load_job(job_info_msg_t** out, JOB_ARGUMENT, uint16_t flags) {
  (void)flags;
  load_into(out, JOB_ARGUMENT_ID);
  return SLURM_SUCCESS;
}

/* It lives as long as the process. */
void slurm_free_job_info_msg(job_info_msg_t* message) { (void)message; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
int slurm_get_job_steps(STEPS_ARGUMENTS, job_step_info_response_msg_t** out, uint16_t flags) {
  *out = calloc(1, sizeof **out);
  return SLURM_SUCCESS;
}

void slurm_free_job_step_info_response_msg(job_step_info_response_msg_t* message) { free(message); }

int slurm_load_ctl_conf(time_t since, slurm_conf_t** out) {
  (void)since;
  *out = calloc(1, sizeof **out);
  return SLURM_SUCCESS;
}

void FREE_CONF(slurm_conf_t* conf) { free(conf); }

int slurm_kill_job_step(STEP_SIGNAL_ARGUMENTS) { return SLURM_SUCCESS; }

static int requeue(uint32_t flags) {
  die_if("requeue", "before");
  if (lost_if("requeue", "before")) return SLURM_ERROR;
  struct stood_for job = load();
  if (is_due("requeue", "before", "limit")) {
    strcpy(job.state, "TIMEOUT");
    store(&job);
  }
  /* As slurmctld does: a job in another state than the one among the flags is skipped. */
  if (state_of(&job) == JOB_RUNNING ||
      (state_of(&job) == JOB_TIMEOUT && !(flags & JOB_STATE_BASE))) {
    strcpy(job.state, flags & JOB_REQUEUE_HOLD ? "HELD" : "PENDING");
    job.restarts++;
    store(&job);
    note("requeue");
  }
  if (is_due("requeue", "slow", "answer")) sleep(5);
  die_if("requeue", "after");
  return lost_if("requeue", "after");
}

int slurm_requeue(JOB_ARGUMENT, uint32_t flags) { return requeue(flags); }
#pragma GCC diagnostic pop

int slurm_update_job(job_desc_msg_t* change) {
  die_if("update", "before");
  if (lost_if("update", "before")) return SLURM_ERROR;
  struct stood_for job = load();
  unsigned gpus;
  if (change->tres_per_job && sscanf(change->tres_per_job, GRES "gpu:%u", &gpus) == 1)
    job.gpus = gpus;
  store(&job);
  note(change->begin_time != (time_t)NO_VAL && change->begin_time < time(NULL) + 2
           ? "update: too soon"
           : "update");
  die_if("update", "after");
  return lost_if("update", "after");
}
