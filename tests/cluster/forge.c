// SPDX-License-Identifier: Apache-2.0
/* Submits a batch job as a hostile client would, with any text in spank_job_env.
 * forge ACCOUNT ENTRY...   prints the job's id
 * env:ENTRY goes into the environment, where one name may come twice; node:NAME is where to run. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slurm_names.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc > 60) return 2;
  char* environment[64] = {"PATH=/usr/bin:/bin", "BELLOWS_TENANT=root", "BELLOWS_CONTRACT=forged"};
  char* spank[64];
  uint32_t variables = 3, entries = 0;
  char directory[4096];
  job_desc_msg_t job;
  submit_response_msg_t* response = NULL;
  slurm_init(NULL);
  slurm_init_job_desc_msg(&job);
  job.name = "by-hand";
  job.account = argv[1];
  job.user_id = getuid();
  job.group_id = getgid();
  job.work_dir = getcwd(directory, sizeof directory);
  job.script = "#!/bin/sh\nenv\ncat /run/bellows/$SLURM_JOB_ID/contract 2>&1\n";
  for (int i = 2; i < argc; i++)
    if (strncmp(argv[i], "env:", 4) == 0)
      environment[variables++] = argv[i] + 4;
    else if (strncmp(argv[i], "node:", 5) == 0)
      job.req_nodes = argv[i] + 5;
    else
      spank[entries++] = argv[i];
  job.environment = environment;
  job.env_size = variables;
  job.spank_job_env = spank;
  job.spank_job_env_size = entries;
  if (slurm_submit_batch_job(&job, &response) != SLURM_SUCCESS) {
    fprintf(stderr, "%s\n", slurm_strerror(errno));
    return 1;
  }
  printf("%u\n", response->JOB_ID_FIELD);
  slurm_free_submit_response_response_msg(response);
  return 0;
}
