// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <iterator>

#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows::admission_test;

namespace {

const Case kSteps[] = {
    {"-Apowers --gpus-range=1,2,4,8",
     "powers gpus=1,2,4,8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Apowers --gpus-range=1-4",
     "policy: --gpus-range=1-4 includes 3 GPUs, but a job of tenant powers may have 1,2,4,8,16 "
     "GPUs; ask for sizes among these"},
    {"-Apowers --gpus=16 --framework=plain",
     "powers framework=plain gpus=16 | tasks=16 cpus=16 requeue"},
    {"-Apowers --gpus=12 --framework=plain",
     "policy: --gpus=12, but a job of tenant powers may have 1,2,4,8,16 GPUs; ask for sizes among "
     "these"},
    {"-Alisted --gpus-range=1,3,5", "listed gpus=1-5:2 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"-Alisted --gpus-range=1-5",
     "policy: --gpus-range=1-5 includes 2 GPUs, but a job of tenant listed may have 1-5:2 GPUs; "
     "ask for sizes among these"},
    {"-Alisted --framework=plain",
     "listed framework=plain gpus=3 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
};

const Case kTypes[] = {
    {"-Atyped --gpus-range=1-8",
     "gpus: a job of tenant typed is for GPUs of the types a100, h100; name one of them, such as "
     "--gpus=a100:2"},
    {"-Atyped --gpus-range=1-8 --gpus=4",
     "gpus: a job of tenant typed is for GPUs of the types a100, h100; name one of them, such as "
     "--gpus=a100:4"},
    {"-Atyped --gpus-range=1-8 --gpus=a100:4",
     "typed gpus=1-8 | job=gres:gpu:a100:4 tasks=4 cpus=4 requeue"},
    {"-Atyped --framework=plain --gpus=h100:1",
     "typed framework=plain gpus=1 | tasks=1 cpus=1 requeue"},
    {"-Atyped --framework=plain --gpus=v100:1",
     "policy: GPU type \"v100\" is not open to a job of tenant typed; it may use a100, h100"},
    {"-Atyped --framework=plain --gres=gpu:a100:1,gpu:h100:1",
     "typed framework=plain gpus=2 | tasks=2 cpus=2 minnodes=1 maxnodes=1 requeue"},
    {"-Atyped --framework=plain --gres=gpu:a100:1,gpu:v100:1",
     "policy: GPU type \"v100\" is not open to a job of tenant typed; it may use a100, h100"},
    {"-Atyped --framework=plain --gres=gpu:a100:1,gpu:1",
     "gpus: --gpus-per-node=2 on 1 node has parts with and without a GPU type; name a type in "
     "each"},
    {"-Atyped --framework=plain",
     "gpus: a job of tenant typed is for GPUs of the types a100, h100; name one of them, such as "
     "--gpus=a100:2"},
    {"-Aa100 --gpus-range=1-8", "a100 gpus=1-8 | job=gres:gpu:a100:1 tasks=1 cpus=1 requeue"},
    {"-Aa100 --framework=plain",
     "a100 framework=plain gpus=1 | job=gres:gpu:a100:1 tasks=1 cpus=1 requeue"},
    {"-Aa100 --framework=plain --gpus=2",
     "a100 framework=plain gpus=2 | job=gres:gpu:a100:2 tasks=2 cpus=2 requeue"},
    {"-Aa100 --framework=plain --gres=gpu:2,nic:1 -N2",
     "a100 framework=plain gpus=4 | node=gres:gpu:a100:2,nic:1 tasks=4 cpus=4 requeue"},
    {"-Aa100 --framework=plain --gpus-per-task=1 -n4",
     "a100 framework=plain gpus=4 | task=gres:gpu:a100:1 requeue"},
    {"-Aa100 --framework=plain --ntasks-per-gpu=2 -n4",
     "a100 framework=plain gpus=2 | job=gres:gpu:a100:2 requeue"},
    {"-Aa100 --gpus-range=1-8 --gpus=a100:2",
     "a100 gpus=1-8 | job=gres:gpu:a100:2 tasks=2 cpus=2 requeue"},
    {"-Aa100 --gpus-range=1-8 --gpus=h100:2",
     "policy: GPU type \"h100\" is not open to a job of tenant a100; it may use a100"},
};

const Case kDefaultRanges[] = {
    {"-Aranged --framework=plain",
     "ranged framework=plain gpus=1-4 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Aranged --framework=plain --gpus=6",
     "ranged framework=plain gpus=6 | tasks=6 cpus=6 requeue"},
    {"-Aranged --framework=plain -n3",
     "ranged framework=plain gpus=1-4 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"-Aranged --framework=plain -n6",
     "gpus: --ntasks=6 is not one of the sizes of the range 1-4 of tenant ranged, and there is one "
     "task for each GPU; choose one of them or leave it out"},
    {"-Aranged --framework=plain -N6",
     "gpus: --nodes=6 needs at least 6 GPUs, more than the range 1-4 of tenant ranged allows; ask "
     "for fewer nodes"},
    {"-Aranged --framework=plain salloc",
     "ranged framework=plain gpus=2 | job=gres:gpu:2 tasks=2 cpus=2"},
    {"-Aranged --framework=plain --no-requeue",
     "ranged framework=plain gpus=2 | job=gres:gpu:2 tasks=2 cpus=2"},
    {"-Aranged --framework=plain --ntasks-per-node=2",
     "ranged framework=plain gpus=2 | job=gres:gpu:2 requeue"},
    {"-Aranged --gpus-range=1-8", "ranged gpus=1-8 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Agrow --gpus-range=2-8", "grow gpus=2-8 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Agrow --gpus-range=1-8",
     "policy: --gpus-range=1-8 goes below the 2 GPUs that the job starts with, and a job of tenant "
     "grow may not; ask for a range from 2 up, or start with fewer with --gpus"},
    {"-Agrow --gpus-range=1-8 --gpus=1", "grow gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Agrow --gpus-range=4-8 --gpus=8",
     "policy: --gpus-range=4-8 goes below the 8 GPUs that the job starts with, and a job of tenant "
     "grow may not; ask for a range from 8 up, or start with fewer with --gpus"},
    {"-Agrow --gpus-range=1-8 salloc",
     "grow gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 | the job keeps 2 GPUs: only jobs submitted with "
     "sbatch can be resized"},
    {"-Agrowing --framework=plain",
     "growing framework=plain gpus=2-4 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Agrowing --framework=plain -n3",
     "growing framework=plain gpus=3-4 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"-Agrowing --framework=plain -n4", "growing framework=plain gpus=4 | job=gres:gpu:4 requeue"},
};

const Case kRules[] = {
    {"-Arules --framework=pytorch --gpus-range=1-4",
     "rules framework=pytorch:2.1 gpus=1-4 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:3 tasks=3 "
     "cpus=3 requeue NCCL_DEBUG=WARN"},
    {"-Arules --framework=pytorch --gpus-range=1-8",
     "policy: --gpus-range=1-8 includes 5 GPUs, but a job of tenant rules with framework pytorch "
     "may have 1-4 GPUs; ask for sizes among these"},
    {"-Arules --framework=pytorch:2.0 --gpus-range=1-4",
     "policy: --gpus-range=1-4 includes 3 GPUs, but a job of tenant rules with framework pytorch "
     "may have 1-2 GPUs; ask for sizes among these"},
    {"-Arules --framework=plain --gpus-range=1-16",
     "rules framework=plain gpus=1-16 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Arules --gpus-range=1-16", "rules gpus=1-16 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Arules --framework=pytorch",
     "rules framework=pytorch:2.1 gpus=3 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:3 tasks=3 "
     "cpus=3 requeue NCCL_DEBUG=WARN"},
};

const Case kNodes[] = {
    {"-Atwo --gpus-range=1-8", "two gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 maxnodes=2 requeue"},
    {"-Atwo --gpus-range=1-8 -N1-2", "two gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Atwo --gpus-range=1-8 -N1-8",
     "two gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 maxnodes=2 requeue"},
    {"-Atwo --gpus-range=1-8 -N2", "two gpus=1-8 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Atwo --gpus-range=1-8 -N3",
     "policy: --nodes=3, but a job of tenant two may have 2 nodes at most; ask for fewer nodes"},
    {"-Atwo --framework=plain --gpus=8",
     "two framework=plain gpus=8 | tasks=8 cpus=8 maxnodes=2 requeue"},
    {"-Atwo --framework=plain --gpus-per-node=4",
     "two framework=plain gpus=4 | tasks=4 cpus=4 minnodes=1 maxnodes=1 requeue"},
    {"-Atwo --framework=plain --gpus-per-node=4 -N3",
     "policy: --nodes=3, but a job of tenant two may have 2 nodes at most; ask for fewer nodes"},
    {"-Awhole --gpus-range=4-12:4",
     "whole gpus=4-12:4 node_gpus=4 | job=gres:gpu:4 tasks=4 cpus=4 minnodes=1 maxnodes=1 requeue"},
    {"-Awhole --gpus-range=4-12:4 --gpus=12",
     "whole gpus=4-12:4 node_gpus=4 | job=gres:gpu:12 tasks=12 cpus=12 minnodes=3 maxnodes=3 "
     "requeue"},
    {"-Awhole --gpus-range=4-12:4 -N2",
     "whole gpus=4-12:4 node_gpus=4 | job=gres:gpu:8 tasks=8 cpus=8 minnodes=2 maxnodes=2 requeue"},
    {"-Awhole --gpus-range=4-12:4 --gpus=8 -N1",
     "gpus: a job of tenant whole has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; ask for them "
     "with --gpus=8 and without --nodes"},
    {"-Awhole --gpus-range=4-12:4 --gpus=8 -N1-4",
     "whole gpus=4-12:4 node_gpus=4 | job=gres:gpu:8 tasks=8 cpus=8 minnodes=2 maxnodes=2 requeue"},
    {"-Awhole --gpus-range=4-12:4 --gpus=8 -N3",
     "gpus: a job of tenant whole has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; ask for them "
     "with --gpus=8 and without --nodes"},
    {"-Awhole --gpus-range=4-16:4",
     "policy: 16 GPUs are 4 nodes, but a job of tenant whole may have 3 nodes at most; ask for "
     "fewer GPUs"},
    {"-Awhole --gpus-range=4-8",
     "policy: --gpus-range=4-8 includes 5 GPUs, but a job of tenant whole may have 4-16:4 GPUs; "
     "ask for sizes among these"},
    {"-Awhole --framework=plain --gpus=8",
     "whole framework=plain gpus=8 node_gpus=4 | tasks=8 cpus=8 minnodes=2 maxnodes=2 requeue"},
    {"-Awhole --framework=plain --gpus=6",
     "policy: --gpus=6, but a job of tenant whole may have 4-16:4 GPUs; ask for sizes among these"},
    {"-Awhole --framework=plain --gpus-per-node=4 -N2",
     "whole framework=plain gpus=8 node_gpus=4 | tasks=8 cpus=8 minnodes=2 maxnodes=2 requeue"},
    {"-Awhole --framework=plain --gpus-per-node=2 -N2",
     "gpus: a job of tenant whole has whole nodes of 4 GPUs, so 4 GPUs are 1 node; ask for them "
     "with --gpus=4 and without --nodes"},
    {"-Awhole --framework=plain --gres=gpu:8",
     "gpus: a job of tenant whole has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; ask for them "
     "with --gpus=8 and without --nodes"},
    {"-Awhole --framework=plain -N3",
     "whole framework=plain gpus=12 node_gpus=4 | job=gres:gpu:12 tasks=12 cpus=12 minnodes=3 "
     "maxnodes=3 requeue"},
    {"-Awhole --framework=plain -N4",
     "policy: 16 GPUs are 4 nodes, but a job of tenant whole may have 3 nodes at most; ask for "
     "fewer GPUs"},
};

const Case kNodesWithoutSize[] = {
    {"--framework=plain -N3",
     "vision framework=plain gpus=3 | job=gres:gpu:3 tasks=3 cpus=3 requeue"},
    {"--framework=plain -N9",
     "gpus: --nodes=9 needs at least 9 GPUs, more than a job of tenant vision may have; ask for "
     "fewer nodes"},
    {"-Awhole --framework=plain -N3",
     "whole framework=plain gpus=12 node_gpus=4 | job=gres:gpu:12 tasks=12 cpus=12 minnodes=3 "
     "maxnodes=3 requeue"},
    {"-Awhole --framework=plain -N4",
     "policy: 16 GPUs are 4 nodes, but a job of tenant whole may have 3 nodes at most; ask for "
     "fewer GPUs"},
    {"-Awhole --framework=plain -N5",
     "gpus: --nodes=5 needs at least 20 GPUs, more than a job of tenant whole may have; ask for "
     "fewer nodes"},
    {"-Aspeech --framework=digits -N3",
     "speech framework=digits:1.0 gpus=4 | job=gres:gpu:4 tasks=4 cpus=4 requeue"},
    {"-Aranged --framework=plain -N6",
     "gpus: --nodes=6 needs at least 6 GPUs, more than the range 1-4 of tenant ranged allows; ask "
     "for fewer nodes"},
};

}  // namespace

Test(admission_cases, steps, .timeout = 20) { check(kSteps, std::size(kSteps)); }

Test(admission_cases, types, .timeout = 20) { check(kTypes, std::size(kTypes)); }

Test(admission_cases, default_ranges, .timeout = 20) {
  check(kDefaultRanges, std::size(kDefaultRanges));
}

Test(admission_cases, rules, .timeout = 20) { check(kRules, std::size(kRules)); }

Test(admission_cases, nodes, .timeout = 20) { check(kNodes, std::size(kNodes)); }

Test(admission_cases, nodes_without_size, .timeout = 20) {
  check(kNodesWithoutSize, std::size(kNodesWithoutSize));
}
