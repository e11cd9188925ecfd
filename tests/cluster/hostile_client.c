// SPDX-License-Identifier: Apache-2.0
/* Speaks to slurmctld as a client that is not sbatch: requests straight through libslurm, with any
 * value in any field. One request a line on standard input, one answer a line on standard output:
 *
 *   VERB<TAB>FIELD=VALUE<TAB>...      VERB: submit, alloc, willrun, update, cancel
 *   ok JOBID  |  no ERRNO TEXT
 *
 * spank= and environment= may come more than once, and environment= without a value is an entry
 * without a text. %XX in a value is a byte. FIELD*N= is the value N times: in one text, or as N
 * entries, in which a # is the entry's number. */
#include <errno.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "slurm_names.h"

enum { MOST_LINE = 1 << 20 };

typedef enum { TEXT, U8, U16, U32, U64, WHEN } Kind;

struct field {
  const char* name;
  size_t offset;
  Kind kind;
};

#define FIELD(name, kind) \
  { #name, offsetof(job_desc_msg_t, name), kind }

static const struct field kFields[] = {
    FIELD(account, TEXT),
    FIELD(admin_comment, TEXT),
    FIELD(alloc_node, TEXT),
    FIELD(array_inx, TEXT),
    FIELD(batch_features, TEXT),
    FIELD(begin_time, WHEN),
    FIELD(bitflags, U64),
    FIELD(boards_per_node, U16),
    FIELD(clusters, TEXT),
    FIELD(comment, TEXT),
    FIELD(contiguous, U16),
    FIELD(core_spec, U16),
    FIELD(cores_per_socket, U16),
    FIELD(cpus_per_task, U16),
    FIELD(cpus_per_tres, TEXT),
    FIELD(deadline, WHEN),
    FIELD(dependency, TEXT),
    FIELD(end_time, WHEN),
    FIELD(exc_nodes, TEXT),
    FIELD(features, TEXT),
    FIELD(group_id, U32),
    FIELD(het_job_offset, U32),
    {"job_id", offsetof(job_desc_msg_t, JOB_ID_FIELD), U32},
    FIELD(job_id_str, TEXT),
    FIELD(licenses, TEXT),
    FIELD(max_cpus, U32),
    FIELD(max_nodes, U32),
    FIELD(mem_per_tres, TEXT),
    FIELD(min_cpus, U32),
    FIELD(min_nodes, U32),
    FIELD(name, TEXT),
    FIELD(nice, U32),
    FIELD(ntasks_per_board, U16),
    FIELD(ntasks_per_core, U16),
    FIELD(ntasks_per_node, U16),
    FIELD(ntasks_per_socket, U16),
    FIELD(ntasks_per_tres, U16),
    FIELD(num_tasks, U32),
    FIELD(open_mode, U8),
    FIELD(overcommit, U8),
    FIELD(partition, TEXT),
    FIELD(plane_size, U16),
    FIELD(pn_min_cpus, U16),
    FIELD(pn_min_memory, U64),
    FIELD(prefer, TEXT),
    FIELD(priority, U32),
    FIELD(qos, TEXT),
    FIELD(reboot, U16),
    FIELD(req_nodes, TEXT),
    FIELD(requeue, U16),
    FIELD(reservation, TEXT),
    FIELD(script, TEXT),
    FIELD(shared, U16),
    FIELD(site_factor, U32),
    FIELD(sockets_per_board, U16),
    FIELD(sockets_per_node, U16),
    FIELD(task_dist, U32),
    FIELD(threads_per_core, U16),
    FIELD(time_limit, U32),
    FIELD(time_min, U32),
    FIELD(tres_bind, TEXT),
    FIELD(tres_freq, TEXT),
    FIELD(tres_per_job, TEXT),
    FIELD(tres_per_node, TEXT),
    FIELD(tres_per_socket, TEXT),
    FIELD(tres_per_task, TEXT),
    FIELD(user_id, U32),
    FIELD(warn_flags, U16),
    FIELD(warn_signal, U16),
    FIELD(warn_time, U16),
    FIELD(wckey, TEXT),
};

/* One request lives until the next; what is repeated stays, which is little in a test. */
static void* room(void* old, size_t bytes) {
  void* found = realloc(old, bytes);
  if (found) return found;
  fprintf(stderr, "hostile_client: no memory\n");
  exit(2);
}

static int digit(char c) {
  const char* digits = "0123456789abcdef";
  const char* found = c ? strchr(digits, c) : NULL;
  return found ? (int)(found - digits) : -1;
}

static void decode(char* text) {
  char* to = text;
  for (; *text; ++text) {
    if (*text == '%' && digit(text[1]) >= 0 && digit(text[2]) >= 0) {
      *to++ = (char)(digit(text[1]) * 16 + digit(text[2]));
      text += 2;
    } else {
      *to++ = *text;
    }
  }
  *to = '\0';
}

static void store(job_desc_msg_t* job, const struct field* field, char* value) {
  char* at = (char*)job + field->offset;
  const unsigned long long number = field->kind == TEXT ? 0 : strtoull(value, NULL, 0);
  switch (field->kind) {
    case TEXT:
      *(char**)at = value;
      break;
    case U8:
      *(uint8_t*)at = (uint8_t)number;
      break;
    case U16:
      *(uint16_t*)at = (uint16_t)number;
      break;
    case U32:
      *(uint32_t*)at = (uint32_t)number;
      break;
    case U64:
      *(uint64_t*)at = number;
      break;
    case WHEN:
      *(time_t*)at = (time_t)number;
      break;
  }
}

static void add_entry(char*** list, uint32_t* count, char* value) {
  if ((*count & (*count + 1)) == 0) *list = room(*list, (2 * *count + 2) * sizeof **list);
  (*list)[(*count)++] = value;
}

/* The value, with its first # replaced by a number. */
static char* numbered(const char* value, unsigned long number) {
  const size_t bytes = strlen(value) + 24;
  const char* mark = strchr(value, '#');
  const int before = (int)(mark ? mark - value : (long)strlen(value));
  char* text = room(NULL, bytes);
  if (mark)
    snprintf(text, bytes, "%.*s%lu%s", before, value, number, mark + 1);
  else
    snprintf(text, bytes, "%s", value);
  return text;
}

static void add_entries(char*** list, uint32_t* count, char* value, unsigned long times) {
  if (times == 1) add_entry(list, count, value);
  for (unsigned long i = 0; times > 1 && i < times; ++i) add_entry(list, count, numbered(value, i));
}

static char* repeated(char* value, unsigned long times) {
  const size_t length = strlen(value);
  if (times == 1) return value;
  char* text = room(NULL, length * times + 1);
  for (unsigned long i = 0; i < times; ++i) memcpy(text + i * length, value, length);
  text[length * times] = '\0';
  return text;
}

/* One FIELD=VALUE or FIELD*TIMES=VALUE. 0: there is no such field. */
static int take(job_desc_msg_t* job, char* piece) {
  char* value = strchr(piece, '=');
  if (!value) return 0;
  *value++ = '\0';
  decode(value);
  char* star = strchr(piece, '*');
  const unsigned long times = star ? strtoul(star + 1, NULL, 10) : 1;
  if (star) *star = '\0';
  if (strcmp(piece, "spank") == 0) {
    add_entries(&job->spank_job_env, &job->spank_job_env_size, value, times);
    return 1;
  }
  if (strcmp(piece, "environment") == 0) {
    add_entries(&job->environment, &job->env_size, *value ? value : NULL, times);
    return 1;
  }
  for (size_t i = 0; i < sizeof kFields / sizeof *kFields; ++i) {
    if (strcmp(piece, kFields[i].name) != 0) continue;
    store(job, &kFields[i], repeated(value, times));
    return 1;
  }
  return 0;
}

/* Jobs that nobody starts: they wait for a week. */
static void fill_in(job_desc_msg_t* job, int batch) {
  static char path[] = "PATH=/usr/bin:/bin";
  static char script[] = "#!/bin/sh\ntrue\n";
  job->name = "hostile";
  job->work_dir = "/";
  job->std_out = "/dev/null";
  job->user_id = getuid();
  job->group_id = getgid();
  job->begin_time = time(NULL) + 7 * 24 * 3600;
  if (batch) {
    job->script = script;
    add_entry(&job->environment, &job->env_size, path);
  }
}

static int submit(job_desc_msg_t* job, uint32_t* id) {
  submit_response_msg_t* response = NULL;
  if (slurm_submit_batch_job(job, &response) != SLURM_SUCCESS) return -1;
  *id = response->JOB_ID_FIELD;
  slurm_free_submit_response_response_msg(response);
  return 0;
}

static int alloc(job_desc_msg_t* job, uint32_t* id) {
  resource_allocation_response_msg_t* response = NULL;
  if (slurm_allocate_resources(job, &response) != SLURM_SUCCESS) return -1;
  *id = response->JOB_ID_FIELD;
  slurm_free_resource_allocation_response_msg(response);
  return 0;
}

/* libslurm's header has nothing to free this response with. */
static int will_run(job_desc_msg_t* job) {
  will_run_response_msg_t* response = NULL;
  if (slurm_job_will_run2(job, &response) != SLURM_SUCCESS) return -1;
  return 0;
}

static int call(const char* verb, job_desc_msg_t* job, uint32_t* id) {
  *id = job->JOB_ID_FIELD == NO_VAL ? 0 : job->JOB_ID_FIELD;
  if (strcmp(verb, "submit") == 0) return submit(job, id);
  if (strcmp(verb, "alloc") == 0) return alloc(job, id);
  if (strcmp(verb, "willrun") == 0) return will_run(job);
  if (strcmp(verb, "update") == 0) return slurm_update_job(job) ? -1 : 0;
  char name[16];
  snprintf(name, sizeof name, "%u", job->JOB_ID_FIELD);
  return slurm_kill_job2(name, SIGKILL, 0, NULL) ? -1 : 0;
}

static int answer(char* line) {
  job_desc_msg_t job;
  char* rest = NULL;
  uint32_t id = 0;
  slurm_init_job_desc_msg(&job);
  const char* verb = strtok_r(line, "\t", &rest);
  if (!verb) return 2;
  const int batch = strcmp(verb, "submit") == 0 || strcmp(verb, "willrun") == 0;
  if (batch || strcmp(verb, "alloc") == 0) fill_in(&job, batch);
  for (char* piece = NULL; (piece = strtok_r(NULL, "\t", &rest));) {
    if (take(&job, piece)) continue;
    fprintf(stderr, "hostile_client: what is %s?\n", piece);
    return 2;
  }
  errno = 0;
  if (call(verb, &job, &id) == 0)
    printf("ok %u\n", id);
  else
    printf("no %d %s\n", errno, slurm_strerror(errno));
  free(job.spank_job_env);
  free(job.environment);
  return fflush(stdout) ? 1 : 0;
}

int main(void) {
  static char line[MOST_LINE];
  slurm_init(NULL);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    const int status = answer(line);
    if (status) return status;
  }
  return 0;
}
