// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <iterator>

#include "tests/unit/jobsubmit/admission_support.h"

using namespace bellows::admission_test;

namespace {

const Case kFrameworks[] = {
    {"--framework=pytorch",
     "vision framework=pytorch:2.1 gpus=2 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:2 tasks=2 "
     "cpus=2 requeue NCCL_DEBUG=WARN"},
    {"--framework=pytorch:2.0",
     "vision framework=pytorch:2.0 gpus=2 image=/images/old.sqsh env=NCCL_DEBUG,OMP_NUM_THREADS | "
     "job=gres:gpu:2 tasks=2 cpus=2 "
     "requeue NCCL_DEBUG=WARN OMP_NUM_THREADS=4"},
    {"--framework=pytorch:1.13",
     "vision framework=pytorch:1.13 gpus=2 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:2 tasks=2 "
     "cpus=2 requeue NCCL_DEBUG=WARN | framework pytorch:1.13 is deprecated; use pytorch:2.1"},
    {"--framework=pytorch:1.13 --gpus-range=1-8 salloc",
     "vision framework=pytorch:1.13 gpus=2 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:2 tasks=2 "
     "cpus=2 NCCL_DEBUG=WARN | framework pytorch:1.13 is deprecated; use pytorch:2.1; the job "
     "keeps 2 GPUs: only jobs submitted with sbatch can be resized"},
    {"--framework=pytorch:1.8", "option: framework pytorch:1.8 was removed; use pytorch:2.1"},
    {"--framework=pytorch:2.2",
     "option: framework pytorch has no version \"2.2\"; did you mean \"2.1\"?"},
    {"--framework=pytorch:9.9.9.9",
     "option: framework pytorch has no version \"9.9.9.9\"; known are 2.1, 2.0, 1.13"},
    {"--framework=pytorch:",
     "option: framework pytorch has no version \"\"; known are 2.1, 2.0, 1.13"},
    {"--framework=plain:1",
     "option: framework plain has no versions to choose from; write --framework=plain"},
    {"--framework=plain:",
     "option: framework plain has no versions to choose from; write --framework=plain"},
    {"--framework=pytroch",
     "option: framework \"pytroch\" is not known here; did you mean \"pytorch\"?"},
    {"--framework=",
     "option: framework \"\" is not known here; known are digits, gone, jax, plain, pytorch, "
     "served"},
    {"--framework=:2",
     "option: framework \"\" is not known here; known are digits, gone, jax, plain, pytorch, "
     "served"},
    {"--framework=nothinglikeit",
     "option: framework \"nothinglikeit\" is not known here; known are digits, gone, jax, plain, "
     "pytorch, served"},
    {"--framework=jax",
     "vision framework=jax:0.4 gpus=2 prefix=apptainer%20run launch=mpi,plain "
     "mounts=/data:/data:ro,/a%252Cb:/c | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=gone", "vision framework=gone:2 gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=gone:1", "option: framework gone:1 was removed; use plain"},
    {"--framework=gone:3", "option: framework gone has no version \"3\"; known are 2"},
    {"-Asome --framework=pytorch",
     "some framework=pytorch:2.0 gpus=1 image=/images/old.sqsh env=NCCL_DEBUG,OMP_NUM_THREADS | "
     "job=gres:gpu:1 tasks=1 cpus=1 "
     "requeue NCCL_DEBUG=WARN OMP_NUM_THREADS=4"},
    {"-Asome --framework=pytorch:2.1",
     "policy: tenant some may not use framework pytorch:2.1; of pytorch it may use version 2.0, "
     "1.13"},
    {"-Asome --framework=pytorch:1.13",
     "some framework=pytorch:1.13 gpus=1 image=/images/pytorch.sqsh env=NCCL_DEBUG | "
     "job=gres:gpu:1 tasks=1 "
     "cpus=1 requeue NCCL_DEBUG=WARN | framework pytorch:1.13 is deprecated; use pytorch:2.1"},
    {"-Asome --framework=pytorch:1.8",
     "option: framework pytorch:1.8 was removed; use pytorch:2.1"},
    {"-Asome --framework=gone",
     "policy: tenant some may not use framework gone; it may use pytorch:2.0, pytorch:1.*, gone:1"},
    {"-Asome --framework=gone:2",
     "policy: tenant some may not use framework gone:2; it may use pytorch:2.0, pytorch:1.*, "
     "gone:1"},
    {"-Asome --framework=plain",
     "policy: tenant some may not use framework plain; it may use pytorch:2.0, pytorch:1.*, "
     "gone:1"},
    {"-Asome --gpus-range=1-4", "some gpus=1-4 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Aspeech --framework=pytorch",
     "policy: tenant speech may not use framework pytorch; it may use digits"},
    {"-Anone --framework=plain",
     "policy: tenant none may not use framework plain; it may use none"},
    {"-Anone --gpus-range=2", "none gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
};

const Case kTenants[] = {
    {"-Aphysics --gpus-range=1",
     "account: account \"physics\" belongs to no tenant of Bellows; name another account with "
     "--account, or ask the administrator to add it to bellows.yaml"},
    {"-ANONE --gpus-range=1",
     "account: the job has no account and you have no default one, so it belongs to no tenant; "
     "name an account with --account"},
    {"-Ashut --gpus-range=1",
     "policy: tenant shut is suspended: over budget until December; ask ops@example.org"},
    {"-Ashut --framework=nothing",
     "policy: tenant shut is suspended: over budget until December; ask ops@example.org"},
    {"-Alab --gpus-range=2", "lab gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Alab --gpus-range=1-16",
     "policy: --gpus-range=1-16 includes 3 GPUs, but a job of tenant lab may have 1-2 GPUs; ask "
     "for sizes among these"},
    {"-Alab --gpus-range=1-16 user=alice",
     "alice gpus=1-16 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-8 user=bob groups=crew",
     "crew gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-16 user=bob groups=crew",
     "policy: --gpus-range=1-16 includes 9 GPUs, but a job of tenant crew may have 1-8 GPUs; ask "
     "for sizes among these"},
    {"-Alab --gpus-range=1-8 user=alice groups=crew",
     "alice gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-4 groups=other",
     "policy: --gpus-range=1-4 includes 3 GPUs, but a job of tenant lab may have 1-2 GPUs; ask for "
     "sizes among these"},
    {"-Alab --gpus-range=1-4 -pfast", "fast gpus=1-4 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-4 -pfast1,fast2",
     "fast gpus=1-4 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-2 -pfast,slow",
     "account: the partitions fast and slow belong to different tenants, fast and lab; name "
     "partitions of one of them with --partition"},
    {"-Alab --gpus-range=1-2 -pslow", "lab gpus=1-2 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-4 default=fast",
     "fast gpus=1-4 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Alab --gpus-range=1-4 default=slow",
     "policy: --gpus-range=1-4 includes 3 GPUs, but a job of tenant lab may have 1-2 GPUs; ask for "
     "sizes among these"},
    {"-Alab --gpus-range=1-2 nobody-known",
     "unavailable: the users and groups of bellows.yaml are still being looked up; try again in a "
     "moment, and tell the administrator if this persists"},
    {"--gpus-range=1-2 nobody-known", "vision gpus=1-2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Asent --gpus-range=1", "sent gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu requeue"},
    {"-Asent --gpus-range=1 -pgpu", "sent gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Asent --gpus-range=1 -pcpu",
     "account: account \"sent\" has tenants of Bellows, but none that accepts you in partition "
     "cpu; "
     "name another account with --account or another partition with --partition, or ask the "
     "administrator"},
    {"-Asent --gpus-range=1 default=cpu",
     "sent gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu requeue"},
    {"-Asent --gpus-range=1 default=gpu",
     "sent gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu requeue"},
    {"-Asub --gpus-range=1-6 parents=team,dept,root",
     "dept gpus=1-6 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Asub --gpus-range=1-6 parents=team,vision,root",
     "account: account \"sub\" belongs to no tenant of Bellows; name another account with "
     "--account, or ask the administrator to add it to bellows.yaml"},
    {"-Asub --gpus-range=1-6",
     "account: account \"sub\" belongs to no tenant of Bellows; name another account with "
     "--account, or ask the administrator to add it to bellows.yaml"},
    {"-Adept --gpus-range=1-8",
     "policy: --gpus-range=1-8 includes 7 GPUs, but a job of tenant dept may have 1-6 GPUs; ask "
     "for sizes among these"},
};

const Case kBatchRanges[] = {
    {"--batch-range=256-4096",
     "vision gpus=2 batch=256-4096 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--batch-range=256-4096 --gpus-range=1-8",
     "vision gpus=1-8 batch=256-4096 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--batch-range=1-2147483648 --framework=plain",
     "vision framework=plain gpus=2 batch=1-2147483648 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--batch-range=64-64", "vision gpus=2 batch=64-64 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--batch-range=64",
     "option: batch range \"64\": it has no \"-\"; write MIN-MAX, such as 256-4096"},
    {"--batch-range=0-64",
     "option: batch range \"0-64\": MIN and MAX must be from 1 to 2147483648; write MIN-MAX, such "
     "as 256-4096"},
    {"--batch-range=64-32",
     "option: batch range \"64-32\": 64 is larger than 32; write MIN-MAX, such as 256-4096"},
    {"--batch-range=64-",
     "option: batch range \"64-\": MIN and MAX must be whole numbers; write MIN-MAX, such as "
     "256-4096"},
    {"--batch-range=1-2147483649",
     "option: batch range \"1-2147483649\": MIN and MAX must be from 1 to 2147483648; write "
     "MIN-MAX, such as 256-4096"},
    {"--batch-range=1-99999999999999999999",
     "option: batch range \"1-99999999999999999999\": MIN and MAX must be whole numbers; write "
     "MIN-MAX, such as 256-4096"},
    {"--batch-range=-1-64",
     "option: batch range \"-1-64\": MIN and MAX must be whole numbers; write MIN-MAX, such as "
     "256-4096"},
    {"-Anarrow --batch-range=1-64",
     "policy: tenant narrow may not use --batch-range; leave it out"},
    {"-Anarrow --batch-range=x",
     "option: batch range \"x\": it has no \"-\"; write MIN-MAX, such as 256-4096"},
    {"--gpus-range=1-8 --job-class=Bert-base_2.1+x",
     "vision gpus=1-8 class=Bert-base_2.1+x | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--job-class=a/b",
     "option: job class \"a/b\": write at most 64 letters, digits and ._+- that begin with a "
     "letter "
     "or digit, such as resnet50"},
    {"-Anarrow --gpus-range=1-2", "narrow gpus=1-2 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
};

const Case kModels[] = {
    {"--model=llama/8b", "vision gpus=0 models=llama/8b | requeue"},
    {"--model=llama/8b,digits --gpus=2",
     "vision gpus=2 models=llama/8b,digits | tasks=2 cpus=2 requeue"},
    {"-Aspeech --model=digits,llama/8b --gpus-range=2,4",
     "speech gpus=2,4 models=digits,llama/8b | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=served",
     "vision framework=served:1 gpus=2 models=llama/8b,digits | job=gres:gpu:2 tasks=2 cpus=2 "
     "requeue"},
    {"--framework=served:2",
     "vision framework=served:2 gpus=2 models=digits | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=served:3",
     "vision framework=served:3 gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"--framework=served --model=digits",
     "vision framework=served:1 gpus=2 models=digits | job=gres:gpu:2 tasks=2 cpus=2 requeue"},
    {"-Alab --framework=served",
     "lab framework=served:1 gpus=1 models=secret,digits | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"--model=secret",
     "policy: there is no model secret for tenant vision; ask the administrator which models it "
     "may "
     "use"},
    {"--model=absent",
     "policy: there is no model absent for tenant vision; ask the administrator which models it "
     "may "
     "use"},
    {"-Alab --model=llama/8b",
     "policy: there is no model llama/8b for tenant lab; ask the administrator which models it may "
     "use"},
    {"-Alab --model=secert",
     "policy: there is no model secert for tenant lab; did you mean \"secret\"?"},
    {"--model=llama/8b --model-on=gpu --gpus=1",
     "vision gpus=1 models=llama/8b model_on=gpu | tasks=1 cpus=1 requeue"},
    {"--model=llama/8b --model-on=memory", "vision gpus=0 models=llama/8b | requeue"},
    {"--model=llama/8b --model-on=gpu",
     "option: --model-on=gpu needs GPUs, and the job asks for none: see --gpus"},
    {"--model-on=gpu --gpus=1", "option: --model-on=gpu needs --model, which names models"},
    {"--model=llama/8b --model-on=disk",
     "option: --model-on: models can be on gpu or in memory, not on \"disk\""},
    {"--model=digits,digits", "option: --model: model digits is named twice"},
    {"--model=",
     "option: --model: no model can have the name \"\"; write NAME[,NAME...], such as llama/8b"},
    {"--model=../x",
     "option: --model: no model can have the name \"../x\"; write NAME[,NAME...], such as "
     "llama/8b"},
    {"--model=digits --exclusive",
     "gpus: --exclusive and --core-spec give a job all GPUs of its nodes, whatever it asks for, so "
     "they cannot be combined with --model; leave them out, and ask for as many GPUs as the job "
     "needs"},
};

const Case kPools[] = {
    {"--pool=web:1-8", "vision gpus=0 pool=web:1-8 | requeue"},
    {"--pool=web:01-8 -n1", "vision gpus=0 pool=web:1-8 | requeue"},
    {"-Awhole --pool=web:1-8", "whole gpus=0 pool=web:1-8 | maxnodes=3 requeue"},
    {"-Aranged --pool=web:1-8", "ranged gpus=0 pool=web:1-8 | requeue"},
    {"--pool=web", "vision gpus=0 pool=web | requeue"},
    {"--pool=web --no-requeue", "vision gpus=0 pool=web |"},
    {"--pool=web salloc", "vision gpus=0 pool=web |"},
    {"--pool=web --gpus=1 --no-requeue", "vision gpus=1 pool=web | tasks=1 cpus=1"},
    {"--pool=web --gpus=32",
     "policy: --gpus=32, but a job of tenant vision may have 1-8 GPUs; ask for sizes among these"},
    {"--pool=web --framework=digits --gpus=2 --no-requeue",
     "vision framework=digits:1.0 gpus=2 pool=web | tasks=2 cpus=2"},
    {"--pool=web:1-8 --gpus=1",
     "gpus: --pool=web:1-8 is for the keeper of a pool, which has no GPUs; leave out --gpus=1"},
    {"--pool=web:1-8 --gres=gpu:a100:1",
     "gpus: --pool=web:1-8 is for the keeper of a pool, which has no GPUs; leave out "
     "--gpus-per-node=a100:1 on 1 node"},
    {"--pool=web:1-8 --ntasks-per-gpu=1",
     "gpus: --pool=web:1-8 is for the keeper of a pool, which has no GPUs; leave out "
     "--ntasks-per-gpu"},
    {"--pool=web:1-8 --framework=digits",
     "option: --pool=web:1-8 is for the keeper of a pool, which has no GPUs; leave out "
     "--framework, --gpus-range, --batch-range and --job-class"},
    {"--pool=web:1-8 --gpus-range=1-2",
     "option: --pool=web:1-8 is for the keeper of a pool, which has no GPUs; leave out "
     "--framework, --gpus-range, --batch-range and --job-class"},
    {"--pool=web:1-8 salloc",
     "option: --pool=web:1-8 is for the keeper of a pool, which is requeued when it loses its "
     "node; submit it with sbatch"},
    {"--pool=web:1-8 --no-requeue",
     "option: --no-requeue contradicts --pool=web:1-8: the keeper of a pool is requeued when it "
     "loses its node; leave out --no-requeue"},
    {"--pool=web array",
     "option: a job array cannot have --pool, which is for one job; leave out --array"},
    {"--pool=web:1-8 array",
     "option: a job array cannot have --pool, which is for one job; leave out --array"},
    {"--pool=web het",
     "option: a heterogeneous job cannot have --pool; submit its parts as separate jobs"},
    {"-Aserved --pool=web:0-4", "served gpus=0 pool=web:0-4 | requeue"},
    {"-Aserved --pool=web:0-5",
     "policy: --pool=web:0-5 is for 5 members, but a pool of tenant served may have 4 at most; ask "
     "for no more"},
    {"-Aserved --pool=web", "served gpus=0 pool=web | requeue"},
    {"-Alonely --pool=web:0-1", "policy: tenant lonely may have no pools; leave out --pool"},
    {"-Alonely --pool=web", "policy: tenant lonely may have no pools; leave out --pool"},
    {"--pool=", "option: --pool: the name of a pool has letters, digits, \"-\" and \"_\": "},
    {"--pool=../x",
     "option: --pool: the name of a pool has letters, digits, \"-\" and \"_\": ../x"},
    {"--pool=web:8-1",
     "option: --pool: \"8-1\" is no range of members; write NAME:MIN-MAX, such as web:1-8, with "
     "at most 10000"},
    {"--pool=web --exclusive",
     "gpus: --exclusive and --core-spec give a job all GPUs of its nodes, whatever it asks for, so "
     "they cannot be combined with --pool; leave them out, and ask for as many GPUs as the job "
     "needs"},
};

const Case kShares[] = {
    {"-Ashares --gpus-range=1-8",
     "shares gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 cpus/gpu=gres:gpu:4 mem/gpu=gres:gpu:20480 "
     "requeue"},
    {"-Ashares --gpus-range=1-8 -c2",
     "shares gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=2 mem/gpu=gres:gpu:20480 requeue"},
    {"-Ashares --gpus-range=1-8 --mem=4G",
     "shares gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 cpus/gpu=gres:gpu:4 requeue"},
    {"-Ashares --gpus-range=1-8 --mem=4G -c2",
     "shares gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=2 requeue"},
    {"-Ashares --framework=plain --gpus=a100:2",
     "shares framework=plain gpus=2 | tasks=2 cpus=2 cpus/gpu=gres:gpu:4 mem/gpu=gres:gpu:20480 "
     "requeue"},
    {"-Ashares --gpus-range=2 salloc",
     "shares gpus=2 | job=gres:gpu:2 tasks=2 cpus=2 cpus/gpu=gres:gpu:4 mem/gpu=gres:gpu:20480"},
    {"-Akinds --gpus-range=1-8",
     "kinds gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 cpus/gpu=gres:gpu:2 requeue"},
    {"-Akinds --gpus-range=1-8 --gpus=a100:2",
     "kinds gpus=1-8 | job=gres:gpu:a100:2 tasks=2 cpus=2 cpus/gpu=gres:gpu:8 "
     "mem/gpu=gres:gpu:1024 requeue"},
    {"-Akinds --gpus-range=1-8 --gpus=h100:2",
     "kinds gpus=1-8 | job=gres:gpu:h100:2 tasks=2 cpus=2 cpus/gpu=gres:gpu:2 requeue"},
};

const Case kTimes[] = {
    {"-Atimed --gpus-range=1-8", "timed gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 time=240 requeue"},
    {"-Atimed --gpus-range=1-8 -t60", "timed gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Atimed --gpus-range=1-8 -t2880", "timed gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Atimed --gpus-range=1-8 -t2881",
     "policy: --time=2-00:01:00 is longer than the 2-00:00:00 that a job of tenant timed may run; "
     "ask for less"},
    {"-Atimed --gpus-range=1-8 -tUNLIMITED",
     "policy: --time=unlimited is longer than the 2-00:00:00 that a job of tenant timed may run; "
     "ask for less"},
    {"-Atimed --gpus-range=1-8 -t4300 salloc",
     "policy: --time=2-23:40:00 is longer than the 2-00:00:00 that a job of tenant timed may run; "
     "ask for less"},
    {"-Acapped --gpus-range=1-8",
     "capped gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 time=60 usr1=120 requeue"},
    {"-Acapped --gpus-range=1-8 -t61",
     "policy: --time=1:01:00 is longer than the 1:00:00 that a job of tenant capped may run; ask "
     "for less"},
    {"-Acapped --gpus-range=1-8 -t2", "capped gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Acapped --gpus-range=1-8 -t3",
     "capped gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 usr1=120 requeue"},
    {"-Acapped --gpus-range=1-8 --signal=USR2",
     "capped gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 time=60 requeue"},
    {"-Acapped --gpus-range=1-8 salloc",
     "capped gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 time=60 | the job keeps 1 GPU: only jobs "
     "submitted with sbatch can be resized"},
    {"-Awarned --gpus-range=1-8",
     "warned gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 usr1=300 requeue"},
    {"-Awarned --gpus-range=1-8 -tUNLIMITED",
     "warned gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 usr1=300 requeue"},
    {"-t10000 --gpus-range=1", "vision gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
};

const Case kPlacement[] = {
    {"-Apacked --gpus-range=1-8", "packed gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 pack requeue"},
    {"-Apacked --gpus-range=1-8 --spread-job",
     "packed gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Awide --gpus-range=1-8", "wide gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 spread requeue"},
    {"-Awide --gpus-range=1-8 salloc",
     "wide gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 spread | the job keeps 1 GPU: only jobs "
     "submitted with sbatch can be resized"},
};

const Case kPartitions[] = {
    {"-Aplaced --gpus-range=1",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu qos=normal requeue"},
    {"-Aplaced --gpus-range=1 default=cpu",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu qos=normal requeue"},
    {"-Aplaced --gpus-range=1 -pgpu2,gpu3 -qhigh",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Aplaced --gpus-range=1 -pgpu,cpu",
     "policy: partition \"cpu\" is not open to tenant placed; it may use gpu*"},
    {"-Aplaced --gpus-range=1 -pcpu",
     "policy: partition \"cpu\" is not open to tenant placed; it may use gpu*"},
    {"-Aplaced --gpus-range=1 -p,",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu qos=normal requeue"},
    {"-Aplaced --gpus-range=1 -qHIGH",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu requeue"},
    {"-Aplaced --gpus-range=1 -qlow",
     "policy: QOS \"low\" is not open to tenant placed; it may use normal, hi*"},
    {"-Aplaced --gpus-range=1 -qnormal,low",
     "policy: QOS \"low\" is not open to tenant placed; it may use normal, hi*"},
    {"-Afenced --gpus-range=1",
     "policy: the job names no partition, and tenant fenced may use gpu*, long; name one of these "
     "with --partition"},
    {"-Afenced --gpus-range=1 default=gpu",
     "fenced gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Afenced --gpus-range=1 default=cpu",
     "policy: partition \"cpu\" is not open to tenant fenced; it may use gpu*, long"},
    {"-Afenced --gpus-range=1 -plong -qnormal",
     "fenced gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Afenced --gpus-range=1 -plong -qNormal",
     "fenced gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Afenced --gpus-range=1 -plong -qhigh",
     "policy: QOS \"high\" is not open to tenant fenced; it may use normal"},
    {"-Afenced --gpus-range=1 default=gpu --reservation=r",
     "policy: the job names a reservation and no partition, so Slurm would use the reservation's "
     "partition, which is not known here; name the partition too, with --partition"},
    {"-Afenced --gpus-range=1 default=gpu -pgpu,long --reservation=r",
     "fenced gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Aplaced --gpus-range=1 --reservation=r",
     "placed gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 partition=gpu qos=normal requeue"},
    {"--gpus-range=1 default=gpu --reservation=r",
     "policy: the job names a reservation and no partition, so Slurm would use the reservation's "
     "partition, which is not known here; name the partition too, with --partition"},
    {"-pany -qany --gpus-range=1", "vision gpus=1 | job=gres:gpu:1 tasks=1 cpus=1 requeue"},
    {"-Afirst --gpus-range=1-8",
     "first gpus=1-8 | job=gres:gpu:1 tasks=1 cpus=1 factor=40 requeue"},
};

}  // namespace

Test(admission_cases, frameworks, .timeout = 20) { check(kFrameworks, std::size(kFrameworks)); }

Test(admission_cases, tenants, .timeout = 20) { check(kTenants, std::size(kTenants)); }

Test(admission_cases, batch_ranges, .timeout = 20) { check(kBatchRanges, std::size(kBatchRanges)); }

Test(admission_cases, models, .timeout = 20) { check(kModels, std::size(kModels)); }

Test(admission_cases, pools, .timeout = 20) { check(kPools, std::size(kPools)); }

Test(admission_cases, shares, .timeout = 20) { check(kShares, std::size(kShares)); }

Test(admission_cases, times, .timeout = 20) { check(kTimes, std::size(kTimes)); }

Test(admission_cases, placement, .timeout = 20) { check(kPlacement, std::size(kPlacement)); }

Test(admission_cases, partitions, .timeout = 20) { check(kPartitions, std::size(kPartitions)); }
