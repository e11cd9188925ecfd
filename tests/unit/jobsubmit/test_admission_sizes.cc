// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <iterator>
#include <string>
#include <string_view>

#include "jobsubmit/admission/tenant_choice.h"
#include "slurm/gres.h"
#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows::admission_test;

namespace {

const Case kRanges[] = {
    {"--framework=digits --gpus-range=1-8",
     "vision framework=digits:1.0 gpus=1-8 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=digits --gpus-range=4-8",
     "vision framework=digits:1.0 gpus=4-8 | job=gres:gpu:4 tasks=4 cpus=4 requeue"},
    {"--framework=digits --gpus-range=1,8",
     "vision framework=digits:1.0 gpus=1,8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"--gpus-range=2,4", "vision gpus=2,4 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--gpus-range=3", "vision gpus=3 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"--gpus-range=1-8:3", "vision gpus=1-7:3 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"--framework=plain", "vision framework=plain gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
};

const Case kSpellings[] = {
    {"--framework=plain --gpus=4", "vision framework=plain gpus=4 | tasks=4 cpus=4 requeue"},
    {"--framework=plain --gpus=a100:4", "vision framework=plain gpus=4 | tasks=4 cpus=4 requeue"},
    {"--framework=plain --gres=gpu:a100:1,gpu:v100:2",
     "vision framework=plain gpus=3 | tasks=3 cpus=3 minnodes=1 maxnodes=1 requeue"},
    {"--framework=plain --gpus=a100:1 --gres=gpu:v100:8",
     "gpus: GPUs of several types in several options are not one number; ask for all of them in "
     "one option"},
    {"--framework=plain --gres=gpu:a100:2,gres:gpu:v100:2",
     "gpus: \"gpu:a100:2,gres:gpu:v100:2\" is spelled in two ways; write gres:gpu:N for the GPUs"},
    {"--framework=plain --gres=gres:gpu:5,gres:gpu:1",
     "gpus: \"gres:gpu:5,gres:gpu:1\" asks for the same GPUs twice; give their number once"},
    {"--framework=plain --ntasks-per-gpu=9 -n1",
     "gpus: --ntasks=1 is not a multiple of --ntasks-per-gpu=9; make it one"},
    {"--framework=plain -n6", "vision framework=plain gpus=2 | job=gres:gpu:2 requeue"},
    {"--framework=plain -n6 --gpus=2", "vision framework=plain gpus=2 | requeue"},
    {"--framework=plain --gpus=2 -c4", "vision framework=plain gpus=2 | tasks=2 cpus=8 requeue"},
    {"--framework=digits --gpus-range=4 --gres=gpu:2,nic:1 -N2 --ntasks-per-node=1",
     "vision framework=digits:1.0 gpus=4 | requeue"},
    {"--framework=digits --gres=gpu:2 -n8",
     "vision framework=digits:1.0 gpus=2 | minnodes=1 maxnodes=1 requeue"},
    {"--framework=digits --gres=gpu:2 -n8 -N2-",
     "vision framework=digits:1.0 gpus=4 | minnodes=2 maxnodes=2 requeue"},
    {"--framework=digits --gres=gpu -N3",
     "vision framework=digits:1.0 gpus=3 | tasks=3 cpus=3 requeue"},
    {"--framework=plain --gpus-per-task=1 -n3", "vision framework=plain gpus=3 | requeue"},
    {"--framework=plain --ntasks-per-gpu=2 -n4", "vision framework=plain gpus=2 | requeue"},
    {"--gpus-range=1-8 --gpus=8", "vision gpus=1-8 | job=gres:gpu:8 tasks=8 cpus=8 requeue"},
    {"--gpus-range=1-8 --gres=gres:gpu:a100:2,nic:1 -N2",
     "vision gpus=1-8 | job=gres:gpu:a100:4 node=nic:1 tasks=4 cpus=4 requeue"},
    {"--gpus-range=1-8 --gpus-per-node=4",
     "vision gpus=1-8 | job=gres:gpu:4 node= tasks=4 cpus=4 requeue"},
    {"--gpus-range=1-8 --gpus-per-task=1 -n3 -c4",
     "vision gpus=1-8 | job=gres:gpu:3 task= tasks=3 cpus=12 requeue"},
    {"--gpus-range=1-8 -n5", "vision gpus=1-8 | job=gres:gpu:5 tasks=5 cpus=5 requeue"},
    {"--gpus-range=1-8 --ntasks-per-gpu=1 -n4",
     "vision gpus=1-8 | job=gres:gpu:4 tasks=4 cpus=4 requeue"},
    {"--gpus-range=1-8 -N3", "vision gpus=1-8 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"--gpus-range=1-8 -N3 --gpus=8", "vision gpus=1-8 | job=gres:gpu:8 tasks=8 cpus=8 requeue"},
    {"--gpus-range=1-8 -N3-6", "vision gpus=1-8 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"--gpus-range=1-8 -c16", "vision gpus=1-8 | job=gres:gpu:2 tasks=2 cpus=32 requeue"},
    {"--gpus-range=1-8 salloc",
     "vision gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 | the job keeps 2 GPUs: only jobs submitted "
     "with sbatch can be resized"},
    {"--gpus-range=1-8 --gpus=4 salloc",
     "vision gpus=4 | tasks=4 cpus=4 | the job keeps 4 GPUs: only jobs submitted with sbatch can "
     "be resized"},
    {"--gpus-range=4 salloc", "vision gpus=4 | job=gres:gpu:4 tasks=4 cpus=4"},
    {"--framework=plain --no-requeue",
     "vision framework=plain gpus=2 | job=gres:gpu:2 tasks=2 cpus=2"},
    {"--gpus-range=2 --no-requeue", "vision gpus=2 | job=gres:gpu:2 tasks=2 cpus=2"},
};

const Case kClashes[] = {
    {"--gpus-range=1-8 --no-requeue",
     "option: --no-requeue contradicts --gpus-range=1-8: a job is resized by requeueing it; leave "
     "out --no-requeue or give a single size"},
    {"--gpus-range=1-8 --no-requeue salloc",
     "vision gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 | the job keeps 2 GPUs: only jobs submitted "
     "with sbatch can be resized"},
    {"--gpus-range=1-16",
     "policy: --gpus-range=1-16 includes 9 GPUs, but a job of tenant vision may have 1-8 GPUs; ask "
     "for sizes among these"},
    {"-Aspeech --gpus-range=2-8",
     "policy: --gpus-range=2-8 includes 3 GPUs, but a job of tenant speech may have 2-8:2 GPUs; "
     "ask for sizes among these"},
    {"-Aspeech --gpus-range=2-8:2", "speech gpus=2-8:2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Aspeech --framework=digits",
     "speech framework=digits:1.0 gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Aspeech --framework=digits --gpus=3",
     "policy: --gpus=3, but a job of tenant speech may have 2-8:2 GPUs; ask for sizes among these"},
    {"--framework=plain --gpus=16",
     "policy: --gpus=16, but a job of tenant vision may have 1-8 GPUs; ask for sizes among these"},
    {"--framework=plain --gpus-per-node=8 -N2",
     "policy: --gpus-per-node=8 on 2 nodes, but a job of tenant vision may have 1-8 GPUs; ask for "
     "sizes among these"},
    {"--framework=plain --gpus-per-task=3 -n3",
     "policy: --gpus-per-task=3 with --ntasks=3, but a job of tenant vision may have 1-8 GPUs; ask "
     "for sizes among these"},
    {"--gpus-range=1-4 --gpus=8",
     "gpus: --gpus=8 is not one of the sizes of --gpus-range=1-4; choose one of them or leave it "
     "out"},
    {"--gpus-range=2,4 --gpus=3",
     "gpus: --gpus=3 is not one of the sizes of --gpus-range=2,4; choose one of them or leave it "
     "out"},
    {"--gpus-range=1-8 --gpus=2 -n8",
     "gpus: --gpus=2 gives 2 GPUs to 8 tasks, but an elastic job has one task for each GPU; leave "
     "out --ntasks, or give a single size with --gpus-range"},
    {"--gpus-range=1-8 -n9",
     "gpus: --ntasks=9 is not one of the sizes of --gpus-range=1-8, and there is one task for each "
     "GPU; choose one of them or leave it out"},
    {"--gpus-range=1-8 --ntasks-per-node=4",
     "gpus: --ntasks-per-node cannot be kept when the job is resized within --gpus-range=1-8; "
     "leave it out: there is one task for each GPU"},
    {"--gpus-range=1-8 --ntasks-per-gpu=2 -n4",
     "gpus: --ntasks-per-gpu cannot be kept when the job is resized within --gpus-range=1-8; leave "
     "it out: there is one task for each GPU"},
    {"--gpus-range=1-8 --gpus=4 --gpus-per-node=2",
     "gpus: a GPU request of several parts cannot be kept when the job is resized within "
     "--gpus-range=1-8; give one number with --gpus"},
    {"--gpus-range=1-8 --gres=gpu:a100:1,gpu:v100:1",
     "gpus: a GPU request of several parts cannot be kept when the job is resized within "
     "--gpus-range=1-8; give one number with --gpus"},
    {"--gpus-range=1-4 -N5",
     "gpus: --nodes=5 needs at least 5 GPUs, more than --gpus-range=1-4 allows; ask for fewer "
     "nodes"},
    {"--gpus-range=1 -N2",
     "gpus: --nodes=2 needs at least 2 GPUs, more than --gpus-range=1 allows; ask for fewer nodes"},
};

const Case kTexts[] = {
    {"--gpus-range=1-x",
     "option: GPU range \"1-x\": \"x\" is not a number; write N, MIN-MAX, MIN-MAX:STEP or a list "
     "such as 1,2,4,8"},
    {"--gpus-range=",
     "option: GPU range \"\": \"\" is not a number; write N, MIN-MAX, MIN-MAX:STEP or a list such "
     "as 1,2,4,8"},
    {"--gpus-range=0-4",
     "option: GPU range \"0-4\": 0 is not between 1 and 4096; write N, MIN-MAX, MIN-MAX:STEP or a "
     "list such as 1,2,4,8"},
    {"--gpus-range=8-2",
     "option: GPU range \"8-2\": 8 is larger than 2; write N, MIN-MAX, MIN-MAX:STEP or a list such "
     "as 1,2,4,8"},
    {"--gpus-range=4,2",
     "option: GPU range \"4,2\": the sizes in a list must ascend; write N, MIN-MAX, MIN-MAX:STEP "
     "or a list such as 1,2,4,8"},
    {"--gpus-range=1-8:0",
     "option: GPU range \"1-8:0\": 0 is not between 1 and 4096; write N, MIN-MAX, MIN-MAX:STEP or "
     "a list such as 1,2,4,8"},
    {"--gpus-range=1-9999",
     "option: GPU range \"1-9999\": 9999 is not between 1 and 4096; write N, MIN-MAX, MIN-MAX:STEP "
     "or a list such as 1,2,4,8"},
    {"--gpus-range=1-8 --gpus-per-socket=1",
     "gpus: --gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead"},
    {"--gpus-range=1-8 --gpus-per-task=1",
     "gpus: --gpus-per-task without --ntasks leaves the number of GPUs open; add --ntasks, or give "
     "the total with --gpus"},
    {"--gpus-range=1-8 --gpus-per-node=1 -N1-4",
     "gpus: --nodes=1-4 with GPUs for each node leaves the number of GPUs open; give the total "
     "with --gpus, or one number of nodes"},
    {"--gpus-range=1-8 --gpus=x:y:z",
     "gpus: \"gpu:x:y:z\" is not a GPU request such as gpu:2 or gpu:a100:2"},
    {"--gpus-range=1-8 --gpus=5000",
     "gpus: 5000 GPUs are more than the 4096 that Bellows can count"},
    {"--gpus-range=1-8 --gres=shard:4",
     "gpus: shares of a GPU (shard) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--gpus-range=1-8 --gres=gpu:1,mps:50",
     "gpus: shares of a GPU (mps) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--gpus-range=1-8 --gres=gpu:1g.10gb:2",
     "gpus: slices of a GPU (1g.10gb) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--gpus-range=1-8 --gpus=a100_3g.20gb:1",
     "gpus: slices of a GPU (a100_3g.20gb) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--framework=plain --gres=mig:1",
     "gpus: slices of a GPU (mig) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--gpus-range=1-8 --exclusive",
     "gpus: --exclusive and --core-spec give a job all GPUs of its nodes, whatever it asks for, so "
     "they cannot be combined with --framework and --gpus-range; leave them out, and ask for as "
     "many GPUs "
     "as the job needs"},
    {"--gpus-range=1-8 het",
     "option: a heterogeneous job cannot have --framework or --gpus-range; submit its parts as "
     "separate jobs"},
    {"--gpus-range=1-8 twice",
     "option: --framework or --gpus-range is given twice with different values; give it once"},
    {"--batch-range=1-8 twice",
     "option: --framework, --gpus-range or --batch-range is given twice with different values; "
     "give it once"},
    {"--job-class=a twice",
     "option: --framework, --gpus-range, --batch-range or --job-class is given twice with "
     "different "
     "values; give it once"},
};

// A field whose count is 0 is none for Slurm; the others count all the same.
const Case kZeros[] = {
    {"--framework=plain --gpus=0 --gpus-per-node=8 -N4",
     "policy: --gpus-per-node=8 on 4 nodes, but a job of tenant vision may have 1-8 GPUs; ask for "
     "sizes among these"},
    {"--framework=plain --gpus=0 --gpus-per-node=4 -N2",
     "vision framework=plain gpus=8 | tasks=8 cpus=8 requeue"},
    {"--framework=plain --gpus=0 --gres=gpu:0 --gpus-per-task=2 -n2",
     "vision framework=plain gpus=4 | requeue"},
    {"--framework=plain --gpus-per-node=0 --gpus=4",
     "vision framework=plain gpus=4 | tasks=4 cpus=4 requeue"},
    {"--framework=plain --gpus-per-socket=0 --gpus=4",
     "vision framework=plain gpus=4 | tasks=4 cpus=4 requeue"},
    {"--framework=plain --gpus-per-task=0",
     "vision framework=plain gpus=2 | job=gres:gpu:2 tasks=2 "
     "cpus=2 requeue"},
    {"--framework=plain --gpus=0 --gpus-per-socket=1",
     "gpus: --gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead"},
    {"--framework=plain --gpus=0 --ntasks-per-gpu=1 -n64",
     "policy: --ntasks-per-gpu=1 with --ntasks=64, but a job of tenant vision may have 1-8 GPUs; "
     "ask for sizes among these"},
    {"--gpus-range=1-8 --gpus=0 --gres=gpu:2,nic:1 -N2",
     "vision gpus=1-8 | job=gres:gpu:4 node=nic:1 tasks=4 cpus=4 requeue"},
    {"--gpus-range=1-8 --gpus-per-node=0 --gpus=4",
     "vision gpus=1-8 | job=gres:gpu:4 node= tasks=4 cpus=4 requeue"},
    {"--framework=plain --gpus=1k",
     "policy: --gpus=1024, but a job of tenant vision may have 1-8 GPUs; ask for sizes among "
     "these"},
};

// Fields beside each other: what they come to must be one number, and Slurm must keep it.
const Case kMixtures[] = {
    {"--framework=plain --gpus=4 --gpus-per-node=2",
     "vision framework=plain gpus=4 | tasks=4 cpus=4 minnodes=2 maxnodes=2 requeue"},
    {"--framework=plain --gpus=4 --gpus-per-node=2 -N2",
     "vision framework=plain gpus=4 | tasks=4 cpus=4 requeue"},
    {"--framework=plain --gpus=4 --gpus-per-node=2 -N1-4",
     "vision framework=plain gpus=4 | tasks=4 cpus=4 minnodes=2 maxnodes=2 requeue"},
    {"--framework=plain --gpus=4 --gpus-per-node=2 -N4",
     "gpus: --gpus=4 and --gpus-per-node=2 do not match on the nodes that the job asks for; "
     "give the total with --gpus alone"},
    {"--framework=plain --gpus=4 --gpus-per-node=3",
     "gpus: --gpus=4 and --gpus-per-node=3 do not match on the nodes that the job asks for; "
     "give the total with --gpus alone"},
    {"-Atwo --framework=plain --gpus=8 --gpus-per-node=2",
     "policy: the job's GPUs take 4 nodes, but a job of tenant two may have 2 nodes at most; ask "
     "for more GPUs on each"},
    {"-Awhole --framework=plain --gpus=8 --gpus-per-node=2",
     "gpus: a job of tenant whole has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; ask for them "
     "with --gpus=8 and without --nodes"},
    {"--framework=plain --gpus=4 --gpus-per-task=2 -n2", "vision framework=plain gpus=4 | requeue"},
    {"--framework=plain --gpus=4 --gpus-per-task=2 -n4",
     "gpus: --gpus=4 and --gpus-per-task=2 with --ntasks=4 are not the same number of GPUs; make "
     "them the same, or give the total with --gpus alone"},
    {"--framework=plain --gpus-per-node=2 --gpus-per-task=1 -n4 -N2",
     "vision framework=plain gpus=4 | requeue"},
    {"--framework=plain --gpus-per-node=2 --gpus-per-task=1 -n2 -N2",
     "gpus: --gpus-per-node=2 on 2 nodes and --gpus-per-task=1 with --ntasks=2 are not the same "
     "number of GPUs; make them the same, or give the total with --gpus alone"},
    {"--framework=plain --gpus=2 --gpus-per-socket=2",
     "gpus: --gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead"},
    {"--framework=plain --gpus-per-task=1 -n1 --ntasks-per-gpu=4",
     "gpus: --gpus-per-task and --ntasks-per-gpu exclude each other; leave one out"},
    {"--framework=plain --gpus-per-task=1 -n4 --ntasks-per-node=2",
     "vision framework=plain gpus=4 | minnodes=2 maxnodes=2 requeue"},
    {"--framework=plain --gpus-per-task=1 -n4 --ntasks-per-node=4 -N2",
     "gpus: --ntasks=4 is not --ntasks-per-node=4 on the nodes that the job asks for, so "
     "--gpus-per-task=1 leaves the number of GPUs open; give numbers that agree, or the total with "
     "--gpus"},
    {"--framework=plain --gpus-per-task=1 -n3 --ntasks-per-node=2",
     "gpus: --ntasks=3 is not --ntasks-per-node=2 on the nodes that the job asks for, so "
     "--gpus-per-task=1 leaves the number of GPUs open; give numbers that agree, or the total with "
     "--gpus"},
    {"--framework=plain --gpus-per-task=1 -n2 cpus=2", "vision framework=plain gpus=2 | requeue"},
    {"--framework=plain --gpus-per-task=1 -n2 -c4 cpus=8 --mincpus=4",
     "vision framework=plain gpus=2 | requeue"},
    {"--framework=plain --gpus-per-task=1 -n2 cpus=8",
     "gpus: --gpus-per-task=1 with more CPUs than 2 tasks with 1 CPU each need would give the job "
     "more GPUs; give the CPUs with --cpus-per-task and the memory with --mem-per-cpu, or give the "
     "total of GPUs with --gpus"},
    {"--framework=plain --gpus-per-task=1 -n2 --mincpus=6",
     "gpus: --gpus-per-task=1 with more CPUs than 2 tasks with 1 CPU each need would give the job "
     "more GPUs; give the CPUs with --cpus-per-task and the memory with --mem-per-cpu, or give the "
     "total of GPUs with --gpus"},
};

}  // namespace

Test(admission_cases, zeros, .timeout = 20) { check(kZeros, std::size(kZeros)); }

Test(admission_cases, mixtures, .timeout = 20) { check(kMixtures, std::size(kMixtures)); }

Test(admission_cases, ranges, .timeout = 20) { check(kRanges, std::size(kRanges)); }

Test(admission_cases, spellings, .timeout = 20) { check(kSpellings, std::size(kSpellings)); }

Test(admission_cases, clashes, .timeout = 20) { check(kClashes, std::size(kClashes)); }

Test(admission_cases, texts, .timeout = 20) { check(kTexts, std::size(kTexts)); }

// What is quadratic in these texts takes many minutes.
Test(admission, a_long_request_for_gpus_is_read_once, .timeout = 60) {
  std::string zeros;
  std::string types;
  for (std::size_t i = 0; i < 300000; ++i) {
    zeros += "gpu:0,";
    types += "gpu:t" + std::to_string(i) + ":1,";
  }
  bellows::Sizes sizes;
  sizes.per_node = zeros + BELLOWS_GRES "gpu:1";
  cr_expect(!bellows::count_gpus(sizes).ok(), "spelled in two ways");
  sizes.per_node = zeros + "gpu:2";
  const auto counted = bellows::count_gpus(sizes);
  cr_assert(counted.ok() && *counted);
  cr_expect((*counted)->gpus == 2);
  sizes.per_node = types;
  cr_expect(!bellows::count_gpus(sizes).ok(), "more than can be counted");
}

Test(admission, a_list_names_each_partition_once) {
  const auto list = [](std::string_view text) {
    std::string names;
    for (std::string_view name : bellows::names_in(text)) names += std::string(name) + ".";
    return names;
  };
  cr_expect(list("b,a,,b, a ,c,") == "b.a.c.");
  cr_expect(list(" ,,").empty());
  cr_expect(list("").empty());
}
