// SPDX-License-Identifier: Apache-2.0
// What is asked of slurmctld about jobs. libslurm's own calls to slurmctld give way to those here.
#include <criterion/criterion.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <array>
#include <cerrno>

#include "slurm/client.h"

using namespace bellows;

namespace {

constexpr uid_t kAlice = 1001;
/// Zeroed.
std::array<slurm_job_info_t, 2> records{};
job_info_msg_t answer{};
int refusal = 0;
uid_t asked_for = 0;

}  // namespace

extern "C" {
// There is no slurm.conf.
void slurm_init(const char*) {}

int slurm_load_job_user(job_info_msg_t** jobs, std::uint32_t user, std::uint16_t) {
  asked_for = user;
  errno = refusal;
  if (refusal != 0) return SLURM_ERROR;
  *jobs = &answer;
  return SLURM_SUCCESS;
}
int slurm_load_jobs(std::time_t, job_info_msg_t**, std::uint16_t) {
  cr_assert_fail("the jobs of all users are asked for");
  return SLURM_ERROR;
}
void slurm_free_job_info_msg(job_info_msg_t*) {}
}

Test(slurm_client, slurmctld_is_asked_for_the_jobs_of_one_user_alone) {
  records[0].job_id = 7;
  records[1].job_id = 9;
  records[0].user_id = records[1].user_id = kAlice;
  answer.record_count = 2;
  answer.job_array = records.data();
  SlurmClient client;
  const auto jobs = client.jobs_of(kAlice);
  cr_assert(jobs.ok());
  cr_expect_eq(asked_for, kAlice);
  cr_assert_eq(jobs->size(), 2);
  cr_expect(jobs->at(0).id == 7 && jobs->at(1).id == 9);
  refusal = SLURM_COMMUNICATIONS_CONNECTION_ERROR;
  const auto none = client.jobs_of(kAlice);
  cr_assert_not(none.ok());
  cr_expect(none.error().kind == ErrorKind::unavailable);
  cr_expect(none.error().text.find("the jobs of user 1001") != std::string::npos);
}
