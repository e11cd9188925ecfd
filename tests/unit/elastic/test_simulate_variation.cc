// SPDX-License-Identifier: Apache-2.0
// Workloads at another load and with other batches.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "elastic/simulate/variation.h"
#include "tests/unit/elastic/simulate_support.h"

using namespace bellows;

TestSuite(variation, .timeout = 20);

namespace {

/// One job each 10 s.
std::vector<Submission> jobs_of(const SmallProgram& program, int jobs) {
  std::vector<Submission> submissions;
  for (int j = 0; j < jobs; ++j)
    submissions.push_back({"job-" + std::to_string(j), 10.0 * j, &program.application(), 1, 40});
  return submissions;
}

std::set<std::string> names_of(const std::vector<Submission>& submissions) {
  std::set<std::string> names;
  for (const Submission& submission : submissions) names.insert(submission.name);
  return names;
}

bool is_in_order(const std::vector<Submission>& submissions) {
  return std::is_sorted(submissions.begin(), submissions.end(),
                        [](const auto& a, const auto& b) { return a.submit_s < b.submit_s; });
}

}  // namespace

Test(variation, a_load_of_1_changes_nothing) {
  const SmallProgram program;
  const auto jobs = jobs_of(program, 20);
  const auto same = at_load(jobs, 1, 7);
  cr_assert(same.size() == 20);
  for (std::size_t j = 0; j < 20; ++j)
    cr_expect(same[j].name == jobs[j].name && same[j].submit_s == jobs[j].submit_s);
}

Test(variation, a_higher_load_has_more_jobs_in_the_same_time) {
  const SmallProgram program;
  const auto jobs = jobs_of(program, 20);
  const auto more = at_load(jobs, 2.5, 7);
  cr_assert(more.size() == 50 && is_in_order(more));
  cr_expect(names_of(more).size() == 50, "each job has a name of its own");
  cr_expect(more.back().submit_s <= 190);
  for (const Submission& job : jobs)
    cr_expect(std::count_if(more.begin(), more.end(),
                            [&](const Submission& other) {
                              return other.name == job.name && other.submit_s == job.submit_s;
                            }) == 1,
              "those of the workload stay");
  const auto late = std::count_if(more.begin(), more.end(),
                                  [](const Submission& job) { return job.submit_s > 95; });
  cr_expect(late > 15 && late < 35, "copies come at all times");
}

Test(variation, a_lower_load_has_some_of_the_jobs) {
  const SmallProgram program;
  const auto jobs = jobs_of(program, 20);
  const auto fewer = at_load(jobs, 0.5, 7);
  cr_assert(fewer.size() == 10 && is_in_order(fewer));
  const auto names = names_of(jobs);
  for (const std::string& name : names_of(fewer)) cr_expect(names.contains(name));
  cr_expect(names_of(fewer) == names_of(at_load(jobs, 0.5, 7)));
  cr_expect(names_of(fewer) != names_of(at_load(jobs, 0.5, 8)), "another seed, other jobs");
  cr_expect(at_load(jobs, 0.001, 7).size() == 1, "one at least");
}

Test(variation, chooses_batches) {
  const SmallProgram program({}, {.smallest_batch = 20});
  const auto jobs = jobs_of(program, 200);
  const auto all_are = [&](BatchChoice choice, std::uint32_t batch) {
    const auto with = with_batches(jobs, choice, 7);
    return std::all_of(with.begin(), with.end(),
                       [batch](const Submission& job) { return job.batch == batch; });
  };
  cr_expect(all_are(BatchChoice::submitted, 40));
  cr_expect(all_are(BatchChoice::initial, 20), "what the contract allows");
  cr_expect(all_are(BatchChoice::largest, 160));
  int small = 0;
  for (const Submission& job : with_batches(jobs, BatchChoice::random, 7)) {
    cr_expect(job.batch >= 20 && job.batch <= 160);
    small += job.batch < 57;
  }
  cr_expect(small > 70 && small < 130, "half are below the geometric mean: %d", small);
}
