// SPDX-License-Identifier: Apache-2.0
// What sacct prints, as a workload.
#include <string>
#include <vector>

#include "elastic/simulate/accounting.h"
#include "tests/unit/elastic/simulate_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(accounting, .timeout = 20);

namespace {

constexpr char kTitles[] = "JobID|Submit|ElapsedRaw|AllocTRES|JobName\n";

Result<std::vector<AccountedJob>> jobs_of(const std::string& lines) {
  const auto table = parse_accounting(kTitles + lines, "sacct");
  if (!table) return table.error();
  return accounted_jobs(*table);
}

/// Reads `lines` with a program "small" in 4 nodes of 4 GPUs.
class Site {
 public:
  explicit Site(const std::string& programs) {
    applications_.emplace("small", program_.application());
    folder_.write("programs.csv", "job_name,application,batch_size\n" + programs);
  }

  Result<AccountedWorkload> read(const std::string& lines) const {
    folder_.write("sacct.txt", kTitles + lines);
    return read_accounting(folder_.path() + "/sacct.txt", folder_.path() + "/programs.csv",
                           applications_, {.nodes = 4, .gpus_per_node = 4});
  }
  std::string complaint(const std::string& lines) const {
    const auto workload = read(lines);
    return workload ? "" : workload.error().text;
  }

 private:
  SmallProgram program_;
  Applications applications_;
  MeasuredFolder folder_;
};

}  // namespace

Test(accounting, reads_what_slurm_prints) {
  const auto jobs = jobs_of(
      "7|1970-01-02T00:00:01|90|billing=2,cpu=2,gres/gpu:a100=3,gres/gpu=3,node=1|a|b\n"
      "7.batch|1970-01-02T00:00:01|90|cpu=2|batch\n"
      "8_1|1970-01-01T00:01:00|0||\n"
      "9|2024-02-29T12:00:00|5|gres/gpu:a=1,gres/gpu:b=2|it, too\n");
  cr_assert(jobs.ok(), "%s", jobs.ok() ? "" : jobs.error().text.c_str());
  cr_assert(jobs->size() == 3, "no step is a job");
  cr_expect((*jobs)[0].id == "7" && (*jobs)[0].name == "a|b" && (*jobs)[0].gpus == 3);
  cr_expect((*jobs)[0].submitted_s == 86401 && (*jobs)[0].elapsed_s == 90);
  cr_expect((*jobs)[1].gpus == 0 && (*jobs)[1].submitted_s == 60 && (*jobs)[1].name.empty());
  cr_expect((*jobs)[2].gpus == 3, "where Slurm accounts for types only");
  cr_expect((*jobs)[2].submitted_s == 1709208000);
}

Test(accounting, refuses_what_slurm_does_not_print) {
  for (const char* submit : {"Unknown", "2026-02-29T00:00:00", "2026-01-01T24:00:00",
                             "2026-01-01 00:00:00", "+026-01-01T00:00:00", ""})
    cr_expect(has(jobs_of(std::string("1|") + submit + "|1||x\n").error().text, "line 2"), "%s",
              submit);
  cr_expect(has(jobs_of("1|2026-01-01T00:00:00|-1||x\n").error().text, "ElapsedRaw"));
  for (const char* tres : {"gres/gpu=", "gres/gpu", "gres/gpu=4G", "gres/gpu=99999999999",
                           "gres/gpu:a=4294967295,gres/gpu:b=1"})
    cr_expect(has(jobs_of(std::string("1|2026-01-01T00:00:00|1|") + tres + "|x\n").error().text,
                  "no number of GPUs"),
              "%s", tres);
  cr_expect(has(jobs_of("1|2026-01-01T00:00:00\n").error().text, "2 cells under 5 titles"));
}

Test(accounting, gives_each_job_the_work_that_it_did) {
  const Site site("train-*,small,10\nskip*,-,0\n");
  // 300 s on one GPU, with a batch of 10.
  const auto workload = site.read(
      "2|2026-01-01T00:10:00|600|gres/gpu=1|train-b\n"
      "1|2026-01-01T00:00:00|150|gres/gpu=1|train-a\n"
      "3|2026-01-01T00:20:00|60|cpu=1|train-c\n"
      "4|2026-01-01T00:20:00|0|gres/gpu=1|train-d\n"
      "5|2026-01-01T00:20:00|60|gres/gpu=1|skipped\n"
      "6|2026-01-01T00:20:00|60|cpu=1|no GPU, and no program\n");
  cr_assert(workload.ok(), "%s", workload.ok() ? "" : workload.error().text.c_str());
  const auto& jobs = workload->submissions;
  cr_assert(jobs.size() == 2 && workload->left_out == 4);
  cr_expect(jobs[0].name == "job 1 (train-a)" && jobs[0].submit_s == 0);
  cr_expect(near(jobs[0].work, 0.5) && jobs[0].gpus == 1 && jobs[0].batch == 10);
  cr_expect(jobs[1].submit_s == 600 && near(jobs[1].work, 2));
}

Test(accounting, says_which_job_can_not_be_simulated) {
  const Site site("train,small,10\n");
  const std::string line = "1|2026-01-01T00:00:00|60|gres/gpu=";
  cr_expect(has(site.complaint(line + "1|other\n"), "no job_name of"));
  cr_expect(has(site.complaint(line + "17|train\n"), "held 17 GPUs, and the cluster has 16"));
  cr_expect(has(site.complaint(line + "12|train\n"), "can't share a batch of 10"));
  cr_expect(has(site.complaint(line + "0|train\n"), "no job that ran on a GPU"));
  cr_expect(has(Site("a,large,10\n").complaint(line + "1|a\n"), "nothing was measured"));
  cr_expect(has(Site("a,small,9\n").complaint(line + "1|a\n"), "batches from 10 to 160"));
}
