// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <iterator>
#include <string>

#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows;
using namespace bellows::admission_test;

namespace {

const Case kContainers[] = {
    // Images of the tenant's own.
    {"-Abrings --container=image:/own/a.sqsh",
     "brings gpus=0 image=/own/a.sqsh script=image images=/own/%2A,/home/%2A/%2A.sqsh | requeue"},
    {"-Abrings --container=image:/home/ann/b.sqsh --gpus=a100:2",
     "brings gpus=2 image=/home/ann/b.sqsh script=image images=/own/%2A,/home/%2A/%2A.sqsh | "
     "tasks=2 cpus=2 "
     "requeue"},
    {"-Abrings --container=image:/own/deep/er/a.sqsh",
     "brings gpus=0 image=/own/deep/er/a.sqsh script=image images=/own/%2A,/home/%2A/%2A.sqsh | "
     "requeue"},
    {"-Abrings --container=image:/home/ann/dir",
     "policy: tenant brings may not bring image /home/ann/dir; it may bring /own/*, "
     "/home/*/*.sqsh"},
    {"-Abrings --container=image:/own",
     "policy: tenant brings may not bring image /own; it may bring /own/*, /home/*/*.sqsh"},
    {"--container=image:/own/a.sqsh",
     "policy: tenant vision may not bring image /own/a.sqsh; it may bring none, so choose a "
     "framework with --framework"},
    // Only paths, and only clean ones.
    {"-Abrings --container=image:/own/../etc/a.sqsh",
     "option: --container-image: \"/own/../etc/a.sqsh\" is not an absolute path without \"..\""},
    {"-Abrings --container=image:own/a.sqsh",
     "option: --container-image: \"own/a.sqsh\" is not an absolute path without \"..\""},
    {"-Abrings --container=image:/own//a.sqsh",
     "option: --container-image: \"/own//a.sqsh\" is not an absolute path without \"..\""},
    {"-Abrings --container=image:docker://alpine",
     "option: --container-image: \"docker://alpine\" is not the full name of an image"},
    {"-Abrings --container=image:/",
     "option: --container-image=/ is for a step that is to run outside its job's container; give "
     "the "
     "job the path of a squashfs file or a directory"},
    {"-Abrings --container=image:", "option: --container-image: it has no value"},
    {"-Abrings --container=mystery", "option: \"mystery\" is not an option of a container"},
    {"-Abrings --container=save:/x/../y.sqsh",
     "option: --container-save: \"/x/../y.sqsh\" is not an absolute path without \"..\""},
    {"-Abrings --container=image:/own/a.sqsh,save:/x.sqsh",
     "brings gpus=0 image=/own/a.sqsh script=image images=/own/%2A,/home/%2A/%2A.sqsh "
     "container=save:/x.sqsh | requeue"},
    {"-Abrings --framework=digits --gpus=a100:1 --container=image:/own/a.sqsh,save:/x.sqsh",
     "option: --container-save would save nothing, since the batch script runs on the host; give "
     "it to the srun whose container it is to save"},
    {"-Abrings --container=mount:/a:/b:suid",
     "option: mount \"/a:/b:suid\": suid cannot be given: every mount is nosuid and nodev; leave "
     "it out"},
    // The framework's image, and another one over it.
    {"--framework=pytorch --container=mount:/data:/data:ro,writable",
     "vision framework=pytorch:2.1 gpus=2 image=/images/pytorch.sqsh env=NCCL_DEBUG "
     "container=mount:/data:/data:ro,writable | job=gres:gpu:2 tasks=2 cpus=2 requeue "
     "NCCL_DEBUG=WARN"},
    {"--framework=pytorch --container=image:/images/pytorch.sqsh",
     "vision framework=pytorch:2.1 gpus=2 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:2 tasks=2 cpus=2 requeue NCCL_DEBUG=WARN | the batch script runs on the host, "
     "since the job has --framework; what it starts with srun runs in the image"},
    {"--framework=pytorch --container=image:/images/old.sqsh",
     "policy: tenant vision may not bring image /images/old.sqsh; it may bring none, so leave out "
     "--container-image; framework pytorch has its own"},
    {"--framework=digits --container=image:/own/a.sqsh",
     "policy: tenant vision may not bring image /own/a.sqsh; it may bring none, so leave out "
     "--container-image; framework digits runs without one"},
    {"-Abrings --framework=digits --gpus=a100:1 --container=image:/own/a.sqsh,no-mount-home",
     "brings framework=digits:1.0 gpus=1 image=/own/a.sqsh images=/own/%2A,/home/%2A/%2A.sqsh "
     "container=no-mount-home | tasks=1 cpus=1 requeue | the batch script runs on the host, since "
     "the job has --framework; what it starts with srun runs in the image"},
    {"-Abrings --framework=pytorch --gpus=a100:1 --container=image:/own/a.sqsh",
     "brings framework=pytorch:2.1 gpus=1 image=/own/a.sqsh env=NCCL_DEBUG "
     "images=/own/%2A,/home/%2A/%2A.sqsh | tasks=1 cpus=1 requeue NCCL_DEBUG=WARN | the batch "
     "script runs on the host, since the job has --framework; what it starts with srun runs in the "
     "image"},
    {"-Abrings --container=image:/own/a.sqsh salloc",
     "brings gpus=0 image=/own/a.sqsh images=/own/%2A,/home/%2A/%2A.sqsh |"},
    // Without an image steps may still name one.
    {"-Abrings --container=tmp:4096M",
     "brings gpus=0 images=/own/%2A,/home/%2A/%2A.sqsh container=tmp:4096M | requeue"},
    {"--container=verbose", "vision gpus=0 container=verbose | requeue"},
    // No GPUs: nothing that is meant for GPUs.
    {"-Anodes --container=image:/i -n3 -N2",
     "nodes gpus=0 image=/i script=image images=%2A | requeue"},
    {"-Anodes --container=image:/i -N4",
     "policy: --nodes=4, but a job of tenant nodes may have 3 nodes at most; ask for fewer nodes"},
    {"-Anodes --container=image:/i --gpus=8",
     "nodes gpus=8 image=/i script=image images=%2A node_gpus=4 | tasks=8 cpus=8 minnodes=2 "
     "maxnodes=2 "
     "cpus/gpu=gres:gpu:4 mem/gpu=gres:gpu:16384 requeue"},
    {"-Anodes --container=image:/i --gpus=2",
     "policy: --gpus=2, but a job of tenant nodes may have 4-16:4 GPUs; ask for sizes among "
     "these"},
    {"-Aranged --container=verbose", "ranged gpus=0 container=verbose | requeue"},
    {"-Aranged --container=verbose salloc", "ranged gpus=0 container=verbose |"},
    {"-Aranged --container=verbose --gpus-range=0",
     "option: GPU range \"0\": 0 is not between 1 and 4096; write N, MIN-MAX, MIN-MAX:STEP or a "
     "list such as 1,2,4,8"},
    {"-Aranged --container=verbose --gpus-range=1-2",
     "ranged gpus=1-2 container=verbose | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Atwo --container=verbose --gres=gpu:0,nic:1 -N1", "two gpus=0 container=verbose | requeue"},
    {"--container=verbose --ntasks-per-gpu=1",
     "vision gpus=2 container=verbose | job=gres:gpu:2 requeue"},
    {"--container=verbose --gres=shard:2",
     "gpus: shares of a GPU (shard) cannot be combined with --framework, --gpus-range and "
     "--container options, which count whole GPUs; ask for some, as with --gpus=1, or leave these "
     "options out"},
    {"--container=verbose --exclusive",
     "gpus: --exclusive and --core-spec give a job all GPUs of its nodes, whatever it asks for, so "
     "they cannot be combined with --container options; leave them out, and ask for as many GPUs "
     "as the job "
     "needs"},
    {"--container=verbose het",
     "option: a heterogeneous job cannot have --container options; submit its parts as separate "
     "jobs"},
    {"--container=verbose twice",
     "option: an option of Bellows is given twice with different values; give it once"},
    {"-Ashut --container=verbose",
     "policy: tenant shut is suspended: over budget until December; ask ops@example.org"},
};

const UpdateCase kUpdates[] = {
    {"tenant=vision gpus=0 image=/i", "-n2", "--gpus=1",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=0", "-n2", "--gres=gpu:1 -N1",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=0", "-n2", "--gpus-per-task=1",
     "policy: the job was admitted without GPUs, and an update cannot give it any; cancel it and "
     "submit it again"},
    {"tenant=vision gpus=0", "", "--gpus-per-task=1",
     "gpus: --gpus-per-task without --ntasks leaves the number of GPUs open; add --ntasks, or give "
     "the total with --gpus"},
    {"tenant=vision gpus=0", "-n2", "--ntasks-per-gpu=1",
     "gpus: the job asked for GPUs and not for tasks on each, so that number cannot be changed; "
     "cancel it and submit it again"},
    {"tenant=vision gpus=0", "-n2", "-n4", ""},
    {"tenant=two gpus=0", "-n2 -N2", "-N3",
     "policy: a job of tenant two may have 2 nodes at most; ask for no more"},
    {"tenant=nodes gpus=0", "-N1", "-N2", ""},
    {"tenant=vision gpus=1", "--gpus=1",
     "job=", "policy: the job was admitted for 1 GPU and cannot go without"},
};

}  // namespace

Test(admission_cases, containers) { check(kContainers, std::size(kContainers)); }
Test(admission_cases, updates_without_gpus) { check(kUpdates, std::size(kUpdates), &policy()); }

Test(admission, without_a_policy_containers_are_refused) {
  const Decision decision = decide(nullptr, "none", parse_job("--container=verbose"));
  cr_expect(decision.message ==
            "there is no policy to admit this job by (none); tell the administrator, or submit it "
            "without --container options");
}

Test(admission, container_options_that_do_not_fit_the_contract) {
  std::string options = "mount:/a:/b";
  while (options.size() < 2400)
    options += fmt::format(",mount:/{}\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", options.size());
  const Request request = parse_job("--container=" + options);
  cr_expect(decide(&policy(), "", request).message ==
            "the --container options are too long for a job contract of 4096 bytes; shorten paths, "
            "or mount a directory above several");
}
