// SPDX-License-Identifier: Apache-2.0
// What an image, and enroot's hooks in pyxis, make of a program's environment.
#include <criterion/criterion.h>

#include <map>
#include <string>

#include "spank/container/hook_variables.h"
#include "spank/container/image_variables.h"
#include "spank/container/working_directory.h"

using namespace bellows;
using namespace bellows::container;

namespace {

TestSuite(container_settings, .timeout = 20);

using Environment = std::map<std::string, std::string>;

VariableLookup lookup_in(const Environment& environment) {
  return [&environment](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
}

/// "NAME=VALUE NAME=VALUE"
std::string told(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables)
    text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

void expect(const std::string& found, const std::string& wanted) {
  cr_expect(found == wanted, "found: %s", found.c_str());
}

Test(container_settings, the_job_keeps_only_what_it_has) {
  const std::string image = "A=image\nB='image'\nSLURM_X=image\nLANG=image\n";
  Spec spec;
  const Environment job = {{"A", "job"}, {"B", "job"}, {"LANG", "job"}};
  expect(told(image_settings(image, spec, lookup_in(job))), "A=image B=image LANG=image");
  spec.env = {"A", "LANG", "NONE"};
  expect(told(image_settings(image, spec, lookup_in(job))), "B=image");
  const Environment without = {{"LANG", ""}};
  expect(told(image_settings(image, spec, lookup_in(without))), "A=image B=image");
}

Test(container_settings, first_hosts) {
  for (const auto& [list, host] : {std::pair<const char*, const char*>{"n1", "n1"},
                                   {"n1,n2", "n1"},
                                   {"node[01-04,07],m1", "node01"},
                                   {"node[7,9]", "node7"},
                                   {"r[1-2]n[03-4].x", "r1n03.x"},
                                   {"a-b.c_d", "a-b.c_d"},
                                   {"", ""},
                                   {"n[1-2", ""},
                                   {"n1;x", ""},
                                   {"n]1", ""},
                                   {"n[]", "n"},
                                   {"$(x)", ""}})
    expect(first_host(list), host);
  expect(first_host(std::string(256, 'n')), "");
}

/// Of the third task of a step on two nodes, in a job with a MASTER_ADDR of its own.
Environment third_task() {
  return {{"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_JOB_ID", "4540"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"MASTER_ADDR", "from-job"},
          {"RANK", "7"},
          {"SLURM_STEP_NODELIST", "n[2-3]"}};
}

Test(container_settings, pytorch) {
  Environment job = third_task();
  const auto found = [&job](const Spec& spec, const Variables& image) {
    return told(hook_variables(spec, image, lookup_in(job)));
  };
  const Variables torch = {{"PYTORCH_VERSION", "2.1"}};
  const std::string all =
      "RANK=2 LOCAL_RANK=0 WORLD_SIZE=3 MASTER_ADDR=n2 MASTER_PORT=61004 OMP_NUM_THREADS=1";
  expect(found({}, {}), "");
  expect(found({}, torch), all);
  Spec asks;
  asks.env = {"MASTER_ADDR", "WORLD_SIZE", "RANK"};
  expect(found(asks, torch),
         "RANK=2 LOCAL_RANK=0 WORLD_SIZE=3 MASTER_PORT=61004 OMP_NUM_THREADS=1");
  Variables more = torch;
  more.emplace_back("MASTER_PORT", "5");
  more.emplace_back("RANK", "5");
  expect(found({}, more), "RANK=2 LOCAL_RANK=0 WORLD_SIZE=3 MASTER_ADDR=n2 OMP_NUM_THREADS=1");
  job["OMP_NUM_THREADS"] = "8";
  job["SLURM_STEP_NODELIST"] = "n[";
  job["SLURM_JOB_ID"] = "x";
  expect(found({}, torch), "RANK=2 LOCAL_RANK=0 WORLD_SIZE=3");
  job = third_task();
  job["PYTORCH_VERSION"] = "2.2";
  expect(found({}, {}), "");
  asks.env = {"PYTORCH_VERSION"};
  expect(found(asks, {}), all);
  job["BELLOWS_LAUNCH"] = "torch";
  expect(found(asks, torch), "");
}

Test(container_settings, pmix) {
  Environment job = {{"PMIX_SECURITY_MODE", "munge,native"}, {"PMIX_GDS_MODULE", "hash"}};
  const auto found = [&job] { return told(hook_variables({}, {}, lookup_in(job))); };
  const std::string both = "PMIX_MCA_psec=munge,native PMIX_MCA_gds=hash";
  expect(found(), both);
  job["SLURM_MPI_TYPE"] = "pmix_v4";
  expect(found(), both);
  job["SLURM_MPI_TYPE"] = "pmi2";
  expect(found(), "");
  job["SLURM_MPI_TYPE"] = "pmix";
  job["PMIX_MCA_gds"] = "ds21";
  job["PMIX_PTL_MODULE"] = "tcp";
  expect(found(), "PMIX_MCA_ptl=tcp PMIX_MCA_psec=munge,native");
}

}  // namespace
