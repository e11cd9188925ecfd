// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <iterator>

#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows::admission_test;

namespace {

const UpdateCase kSizes[] = {
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 --signal", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job=gres/gpu:8 -n8 -N2",
     "job=gres:gpu:8 cpus=32 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=4 -n2", "job=gres:gpu:4 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -c8", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=32 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job=gpu:3",
     "job=gres:gpu:3 tasks=3 cpus=12 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -c4", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n4", "--gpus=4", "job=gres:gpu:4 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -N2", "--gpus=1",
     "job=gres:gpu:1 tasks=1 cpus=4 minnodes=1 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -N2", "--gpus=2",
     "job=gres:gpu:2 tasks=2 cpus=8 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=a100:2 -n2", "--gpus=4",
     "job=gres:gpu:a100:4 tasks=4 cpus=16 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=a100:2 -n2", "--gpus=a100:4",
     "job=gres:gpu:a100:4 tasks=4 cpus=16 factor=700"},
    {"tenant=vision gpus=1-8", "--gpus=a100:2 -n2", "--gpus=v100:2",
     "gpus: the GPU type of an admitted job cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=a100:2",
     "gpus: the GPU type of an admitted job cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=1", "--gpus=1", "job=gres:gpu:1,xgres:gpu:4",
     "gpus: \"xgres:gpu:4\" has \"gres:\" in the middle; write gres:gpu:N"},
    {"tenant=vision gpus=1", "--gpus=1", "--ntasks-per-gpu=1 -n4",
     "gpus: the job asked for GPUs and not for tasks on each, so that number cannot be changed; "
     "cancel it and submit it again"},
    {"tenant=vision gpus=1", "--gpus-per-task=1 -n1", "-N2",
     "policy: the job was admitted for 1 GPU, and 2 is not among these sizes"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=9",
     "policy: the job was admitted for 1-8 GPUs, and 9 is not among these sizes"},
    {"tenant=vision gpus=2,4", "--gpus=2 -n2", "--gpus=3",
     "policy: the job was admitted for 2,4 GPUs, and 3 is not among these sizes"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2",
     "job=", "policy: the job was admitted for 1-8 GPUs and cannot go without"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job=gres:nic:1",
     "policy: the job was admitted for 1-8 GPUs and cannot go without"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job=gres:shard:4",
     "gpus: shares of a GPU (shard) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus-per-node=4",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job= --gpus-per-node=4 -N1",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus-per-socket=1",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus-per-task=4",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "job= --gpus-per-task=4",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gres=gpu:16,nic:1",
     "gpus: an elastic job is resized with TresPerJob=gres:gpu:N alone"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gres=nic:1", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-n8", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-N2", ""},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "--gpus=4",
     "policy: the job was admitted for 2 GPUs, and 4 is not among these sizes"},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "--gpus=2", ""},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "-n8", ""},
    {"tenant=vision gpus=2", "--gpus=a100:2 -n2", "--gpus=2",
     "gpus: the GPU type of an admitted job cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=2", "--gpus=a100:2 -n2", "--gpus=h100:2",
     "gpus: the GPU type of an admitted job cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=4", "--gpus-per-node=2 -N2", "-N4",
     "policy: the job was admitted for 4 GPUs, and 8 is not among these sizes"},
    {"tenant=vision gpus=4", "--gpus-per-node=2 -N2", "--gpus-per-node=1 -N4", ""},
    {"tenant=vision gpus=4", "--gpus-per-node=2 -N2", "anynodes",
     "gpus: --nodes=2-0 with GPUs for each node leaves the number of GPUs open; give the total "
     "with --gpus, or one number of nodes"},
    {"tenant=vision gpus=4", "--gpus-per-task=2 -n2", "-n4",
     "policy: the job was admitted for 4 GPUs, and 8 is not among these sizes"},
    {"tenant=vision gpus=4", "--gpus-per-task=2 -n2", "--gpus-per-task=1 -n4", ""},
    {"tenant=vision gpus=4", "-n8 --ntasks-per-gpu=2", "--ntasks-per-gpu=1",
     "policy: the job was admitted for 4 GPUs, and 8 is not among these sizes"},
    {"tenant=vision gpus=4", "-n8 --ntasks-per-gpu=2", "--ntasks-per-gpu=1 -n4", ""},
};

const UpdateCase kHidden[] = {
    {"tenant=vision gpus=0", "", "job=gres:gpu:0 --gpus-per-node=8 -N4",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=0", "", "job=gres:gpu:0", ""},
    {"tenant=vision gpus=0", "", "job=gres:gpu:0 task=gres:gpu:1 -n1",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=0", "", "job=gres:gpu:0 socket=gres:gpu:1",
     "gpus: --gpus-per-socket leaves the number of GPUs open; give the total with --gpus instead"},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "job=gres:gpu:0 --gpus-per-node=8 -N4",
     "policy: the job was admitted for 2 GPUs, and 32 is not among these sizes"},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "job=gres:gpu:0",
     "policy: the job was admitted for 2 GPUs and cannot go without"},
    {"tenant=vision gpus=4", "--gpus=4 --gpus-per-node=2 -N2", "node=gres:nic:1",
     "gpus: Slurm keeps the GPUs of a field whose new text names none; clear the field with an "
     "empty text, or name them"},
    {"tenant=vision gpus=4", "--gpus=4 --gpus-per-node=2 -N2", "node=", ""},
    {"tenant=vision gpus=4", "--gpus=4 --gpus-per-node=2 -N2", "-N4",
     "gpus: --gpus=4 and --gpus-per-node=2 do not match on the nodes that the job asks for; "
     "give the total with --gpus alone"},
    {"tenant=vision gpus=4", "--gpus=4 --gpus-per-node=2 -N2", "-N1-4",
     "gpus: the job's 4 GPUs take 2 nodes; change the number of nodes with them"},
    {"tenant=vision gpus=4", "--gpus=4 --gpus-per-task=1 -n4", "-n8",
     "gpus: --gpus=4 and --gpus-per-task=1 with --ntasks=8 are not the same number of GPUs; make "
     "them the same, or give the total with --gpus alone"},
    {"tenant=vision gpus=4", "--gpus-per-task=1 -n4", "morecpus",
     "gpus: the job asked for GPUs for each task, and Slurm would give it more of them with more "
     "CPUs or memory on a node, so these cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=4", "--gpus=4 -n4", "morecpus", ""},
    {"tenant=vision gpus=4", "--gpus-per-task=1 -n4 cpus=4", "--gpus-per-task=2 -n2",
     "gpus: --gpus-per-task=2 with more CPUs than 2 tasks with 1 CPU each need would give the job "
     "more GPUs; give the CPUs with --cpus-per-task and the memory with --mem-per-cpu, or give the "
     "total of GPUs with --gpus"},
    {"tenant=vision gpus=4", "--gpus=4 -n4 -N1", "job= --gpus-per-task=1 morecpus",
     "gpus: the job asked for GPUs for each task, and Slurm would give it more of them with more "
     "CPUs or memory on a node, so these cannot be changed; cancel it and submit it again"},
    {"tenant=vision gpus=4", "--gpus-per-node=4 -N1", "node=gpu:2 -N2",
     "gpus: Slurm changes only GPUs that are spelled gres:gpu:N; write them so"},
    {"tenant=vision gpus=4", "-n8 --ntasks-per-gpu=2", "--gpus=4",
     "gpus: the job asked for tasks on each GPU and not for GPUs, so these cannot be changed; "
     "cancel it and submit it again"},
};

const UpdateCase kRights[] = {
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-Aspeech",
     "account: the job was admitted for tenant vision, and account \"speech\" is not one of its "
     "accounts; cancel the job and submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-Anobody",
     "account: the job was admitted for tenant vision, and account \"nobody\" is not one of its "
     "accounts; cancel the job and submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-Avision", ""},
    {"tenant=dept gpus=1-6", "-Adept --gpus=2 -n2", "-Asub parents=team,dept", ""},
    {"tenant=dept gpus=1-6", "-Adept --gpus=2 -n2", "-Asub parents=team",
     "account: the job was admitted for tenant dept, and account \"sub\" is not one of its "
     "accounts; cancel the job and submit it again"},
    {"tenant=dept gpus=1-6", "-Adept --gpus=2 -n2", "-Asub parents=vision",
     "account: the job was admitted for tenant dept, and account \"sub\" is not one of its "
     "accounts; cancel the job and submit it again"},
    {"tenant=lab gpus=1-2", "-Alab -pslow --gpus=2 -n2", "-pfast",
     "policy: the job was admitted for tenant lab, and partition \"fast\" is not one of its "
     "partitions; cancel the job and submit it again"},
    {"tenant=lab gpus=1-2", "-Alab -pslow --gpus=2 -n2", "-pslower", ""},
    {"tenant=lab gpus=1-2", "-Alab -pslow --gpus=2 -n2", "-pslow,fast",
     "policy: the job was admitted for tenant lab, and partition \"slow,fast\" is not one of its "
     "partitions; cancel the job and submit it again"},
    {"tenant=fast gpus=1-4", "-Alab -pfast --gpus=2 -n2", "-pfast2", ""},
    {"tenant=fast gpus=1-4", "-Alab -pfast --gpus=2 -n2", "-pslow",
     "policy: the job was admitted for tenant fast, and partition \"slow\" is not one of its "
     "partitions; cancel the job and submit it again"},
    {"tenant=lab gpus=1-2", "-Alab -pslow --gpus=2 -n2 nobody-known", "-pslower",
     "unavailable: the users and groups of bellows.yaml are still being looked up; try again in a "
     "moment, and tell the administrator if this persists"},
    {"tenant=placed gpus=1-8", "-Aplaced -pgpu --gpus=2 -n2", "-pgpu7", ""},
    {"tenant=placed gpus=1-8", "-Aplaced -pgpu --gpus=2 -n2", "-pgpu,cpu",
     "policy: partition \"cpu\" is not open to tenant placed; it may use gpu*"},
    {"tenant=fenced gpus=1-8", "-Afenced put=gpu --gpus=2 -n2", "--reservation=r,s",
     "policy: the job was submitted without a partition, so Slurm would move it to those of "
     "several "
     "reservations; name one reservation, or cancel the job and submit it again with --partition"},
    {"tenant=fenced gpus=1-8", "-Afenced put=gpu --gpus=2 -n2", "--reservation=r, -plong",
     "policy: the job was submitted without a partition, so Slurm would move it to those of "
     "several "
     "reservations; name one reservation, or cancel the job and submit it again with --partition"},
    {"tenant=fenced gpus=1-8", "-Afenced put=gpu --gpus=2 -n2", "--reservation=r", ""},
    {"tenant=fenced gpus=1-8", "-Afenced -pgpu --gpus=2 -n2", "--reservation=r,s", ""},
    {"tenant=ended gpus=1-8", "put=gpu --gpus=2 -n2", "--reservation=r,s",
     "unavailable: tenant ended, for which the job was admitted, is no longer in bellows.yaml, so "
     "its reservation cannot be changed; cancel it and submit it again"},
    {"tenant=placed gpus=1-8", "-Aplaced -pgpu --gpus=2 -n2", "-qHigh", ""},
    {"tenant=placed gpus=1-8", "-Aplaced -pgpu --gpus=2 -n2", "-qlow",
     "policy: QOS \"low\" is not open to tenant placed; it may use normal, hi*"},
    {"tenant=placed gpus=1-8", "-Aplaced -pgpu --gpus=2 -n2", "-q", ""},
    {"tenant=ended gpus=1-8", "--gpus=2 -n2", "-qlow",
     "unavailable: tenant ended, for which the job was admitted, is no longer in bellows.yaml, so "
     "its QOS cannot be changed; cancel it and submit it again"},
    {"tenant=ended gpus=1-8", "--gpus=2 -n2", "-pgpu",
     "unavailable: tenant ended, for which the job was admitted, is no longer in bellows.yaml, so "
     "its partition cannot be changed; cancel it and submit it again"},
    {"tenant=ended gpus=1-8", "--gpus=2 -n2", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16 factor=700"},
    {"tenant=shut gpus=1-8", "-Ashut --gpus=2 -n2", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16 factor=700"},
    {"tenant=timed gpus=1-8", "-Atimed --gpus=2 -n2 -t240", "-t2880", ""},
    {"tenant=timed gpus=1-8", "-Atimed --gpus=2 -n2 -t240", "-t2881",
     "policy: TimeLimit=2-00:01:00 is longer than the 2-00:00:00 that a job of tenant timed may "
     "run; ask for less"},
    {"tenant=timed gpus=1-8", "-Atimed --gpus=2 -n2 -t240", "-tUNLIMITED",
     "policy: TimeLimit=unlimited is longer than the 2-00:00:00 that a job of tenant timed may "
     "run; ask for less"},
    {"tenant=timed gpus=1-8", "-Atimed --gpus=2 -n2 -t9000", "-t8000", ""},
    {"tenant=timed gpus=1-8", "-Atimed --gpus=2 -n2", "-t60", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -t60", "-tUNLIMITED", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--no-requeue",
     "option: the job was admitted for 1-8 GPUs and is resized by requeueing it, so requeueing "
     "stays on"},
    {"tenant=vision gpus=2", "--gpus=2 -n2", "--no-requeue", ""},
    {"tenant=vision gpus=0 pool=web", "", "--no-requeue", ""},
    {"tenant=vision gpus=0 pool=web:1-8", "", "--no-requeue",
     "option: the keeper of a pool is requeued when it loses its node, so requeueing stays on"},
    {"tenant=vision gpus=0 pool=web:1-8", "", "--gpus=1",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "cpus/gpu=gres:gpu:4", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "cpus/gpu=gres:gpu:64",
     "policy: the CPUs and the memory for each GPU of an admitted job cannot be changed; cancel it "
     "and submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "cpus/gpu=",
     "policy: the CPUs and the memory for each GPU of an admitted job cannot be changed; cancel it "
     "and submit it again"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "mem/gpu=gres:gpu:9999",
     "policy: the CPUs and the memory for each GPU of an admitted job cannot be changed; cancel it "
     "and submit it again"},
};

const UpdateCase kNodes[] = {
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-2", "-N2", ""},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-2", "-N3",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-2", "anynodes",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-2", "-N1-4",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=8 -n8 -N4", "-N3", ""},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-2", "-N1 anynodes",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1", "--gpus=4 -N1 anynodes",
     "job=gres:gpu:4 tasks=4 cpus=16 maxnodes=2 factor=700"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=8 -n8 -N4", "--gpus=4 -N1 anynodes",
     "job=gres:gpu:4 tasks=4 cpus=16 maxnodes=4 factor=700"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1", "--gpus=4 -N3 anynodes",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -N1", "--gpus=4 -N1 anynodes",
     "job=gres:gpu:4 tasks=4 cpus=16 factor=700"},
    {"tenant=ended gpus=1-8", "--gpus=2 -n2 -N1", "--gpus=4 -N1 anynodes",
     "job=gres:gpu:4 tasks=4 cpus=16 maxnodes=1 factor=700"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=4 -n4 -N1", "--gpus=8 -N1 anynodes",
     "job=gres:gpu:8 tasks=8 cpus=32 minnodes=2 maxnodes=2 factor=700"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=8 -n8 -N2", "-N1-",
     "minnodes=2 maxnodes=2"},
    {"tenant=two gpus=1-64", "-Atwo --gpus=2 -n2 -N1-", "-N3-",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=4 -n4 -N1", "--gpus=12",
     "job=gres:gpu:12 tasks=12 cpus=48 minnodes=3 maxnodes=3 factor=700"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=12 -n12 -N3", "--gpus=4",
     "job=gres:gpu:4 tasks=4 cpus=16 minnodes=1 maxnodes=1 factor=700"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=12 -n12 -N3", "--gpus=8 -N2",
     "job=gres:gpu:8 tasks=8 cpus=32 minnodes=2 maxnodes=2 factor=700"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=12 -n12 -N3", "--gpus=8 -N4",
     "policy: a job of tenant whole may have 3 nodes at most; ask for no more"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=8 -n8 -N2", "-N1",
     "gpus: the job has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; leave out the nodes"},
    {"tenant=whole gpus=8 node_gpus=4", "-Awhole --gpus=8 -n8 -N2", "-N1",
     "gpus: the job has whole nodes of 4 GPUs, so 8 GPUs are 2 nodes; leave out the nodes"},
};

const UpdateCase kWithoutPolicy[] = {
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=4", "job=gres:gpu:4 tasks=4 cpus=16"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--gpus=9",
     "policy: the job was admitted for 1-8 GPUs, and 9 is not among these sizes"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-Avision",
     "account: there is no policy to check a change of the account against; tell the "
     "administrator"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-pgpu",
     "unavailable: there is no policy to check a change of the partition against; tell the "
     "administrator"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-qhigh",
     "unavailable: there is no policy to check a change of the QOS against; tell the "
     "administrator"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -t60", "-t61",
     "unavailable: there is no policy to check a change of the time limit against; tell the "
     "administrator"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -t60", "-t59", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "-N2", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -N1-2", "-N1", ""},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2 -N1-2", "-N3",
     "unavailable: there is no policy to check a change of the number of nodes against; tell the "
     "administrator"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "--no-requeue",
     "option: the job was admitted for 1-8 GPUs and is resized by requeueing it, so requeueing "
     "stays on"},
    {"tenant=vision gpus=1-8", "--gpus=2 -n2", "cpus/gpu=gres:gpu:64",
     "policy: the CPUs and the memory for each GPU of an admitted job cannot be changed; cancel it "
     "and submit it again"},
    {"tenant=whole gpus=4-12:4 node_gpus=4", "-Awhole --gpus=4 -n4 -N1", "--gpus=12",
     "job=gres:gpu:12 tasks=12 cpus=48 minnodes=3 maxnodes=3"},
};

}  // namespace

Test(update_cases, sizes, .timeout = 20) { check(kSizes, std::size(kSizes), &policy()); }

Test(update_cases, hidden, .timeout = 20) { check(kHidden, std::size(kHidden), &policy()); }

Test(update_cases, rights, .timeout = 20) { check(kRights, std::size(kRights), &policy()); }

Test(update_cases, nodes, .timeout = 20) { check(kNodes, std::size(kNodes), &policy()); }

Test(update_cases, without_policy, .timeout = 20) {
  check(kWithoutPolicy, std::size(kWithoutPolicy), nullptr);
}
