#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Jobs have models on their GPUs, and nobody else's, with a driver that is not real: admission, which GPUs a
# task tells of, what is left after a job, and what a killed bellows-modeld forgets.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/modelstore/models.sh
. "$TAP_HOME/modelstore/models.sh"

[[ ! -e /proc/driver/nvidia ]] || skip_all "there is a real driver here"
models_up --nodes=1 --gpus=2 <<'YAML'
  - {name: llama, tenant: vision, source: /shared/models/llama.safetensors, visible: [speech], user: alice}
YAML
on_node() { xc --user root --node 1 "$@"; }

# Any number of GPUs, whose memory processes share as memfds of these names.
driver=$CLUSTER/shared/driver/libcuda.so.1
mkdir "${driver%/*}" "$CLUSTER/shared/models"
gcc -shared -fPIC -DGPUS=2 -o "$driver" "$TAP_HOME/../gpu/fake_driver.c" || bail "the driver does not compile"
gpu_memory() { on_node sh -c "ls -l /proc/[0-9]*/fd 2>/dev/null" | grep -c 'memfd:gpu'; }
no_gpu_memory() { [[ $(gpu_memory) == 0 ]]; }
copies() { grep -c "modeld: copied " "$CLUSTER/log/modeld-n1.log"; }
has_copies() { [[ $(copies) == "$1" ]]; } # NUMBER

write_model "$CLUSTER/shared/models/llama.safetensors" 1000 3
# The kernel has this folder everywhere, and a driver makes the rest in it.
on_node sh -c 'mount -t tmpfs tmpfs /proc/driver
  minor=0
  for address in 0000:3b:00.0 0000:86:00.0; do
    mkdir -p /proc/driver/nvidia/gpus/$address
    printf "Model: none\nDevice Minor: \t %d\n" $minor >/proc/driver/nvidia/gpus/$address/information
    minor=$((minor + 1))
  done' || bail "the node gets no driver"

### Without consent of the administrator's.
on_gpus="$borrow --gpu $driver 0 llama; $borrow --gpu $driver 1 llama"
like "$(run --gpus=1 --model=llama --model-on=gpu sh -c "$on_gpus")" 'refused: .*--gpu-memory' \
  "where models are not on GPUs a program is told"
printf '%s\n' --gpu-memory=64M "--gpu-driver=$driver" >"$CLUSTER/etc/modeld.args"
mc stop-modeld 1
mc start-modeld 1

### Admission.
like "$(refusal --gpus=1 --model=llama --model-on=disk)" '--model-on: models can be on gpu or in memory' \
  "a wrong word fails at the prompt"
like "$(refusal --model=llama --model-on=gpu)" '--model-on=gpu needs GPUs' "a job without GPUs has no models there"
like "$(refusal --gpus=1 --model-on=gpu)" '--model-on=gpu needs --model' "nor has one without models"
id=$(submit -- --gpus=1 --model=llama --model-on=gpu --hold --wrap true)
like "$(xc scontrol show job "$id")" 'AdminComment=bellows/1 tenant=vision .*model_on=gpu' "the contract says so"
xc scancel "$id"

### Which GPUs.
got=$(run --gpus=1 --model=llama --model-on=gpu sh -c "$on_gpus")
is "$(grep -c '^llama: w 3000' <<<"$got") $(grep -c 'not for this job on this GPU' <<<"$got")" "1 1" \
  "a job of one GPU has models on that one"
ok "and nothing is left of them" no_gpu_memory
got=$(run --gpus=1 --model=llama sh -c "$on_gpus; $borrow llama")
is "$(grep -c 'not for this job on this GPU' <<<"$got") $(grep -c '^llama: w 3000' <<<"$got")" "2 1" \
  "a job that did not ask has them in memory alone"
before=$(copies)
cat >"$home/two.sh" <<S
#!/bin/bash
$on_gpus
bellows model list --json >seen.json
srun --quiet --mpi=none -n2 --gpus-per-task=1 sh -c "$on_gpus"
touch done
while [[ ! -e go ]]; do sleep 0.05; done
S
id=$(submit -- -n2 --gpus=2 --model=llama --model-on=gpu --output="$home/two.out" "$home/two.sh")
poll 60 test -e "$home/done"
is "$(said two.out | sort | uniq -c | sed 's/^ *//')" "6 llama: w 3000" \
  "a job of two GPUs has them on both, for its script and each task"
is "$(($(copies) - before))" 2 "in one copy on each"
on_gpus_of() { # PYTHON-EXPRESSION-OF-A-GPU
  python3 -c "import json, sys; print([$1 for g in json.load(sys.stdin)['gpus']])"
}
is "$(on_gpus_of '(g["gpu"], g["used"], [m["name"] for m in g["models"]], "job" in g)' <"$home/seen.json")" \
  "[('0000:3b:00.0', 2097152, ['llama'], False), ('0000:86:00.0', 2097152, ['llama'], False)]" \
  "a job sees its own copies alone"
is "$(on_node bellows model list --json | on_gpus_of '(g["job"], g["tenant"], g["left"], len(g["models"]))')" \
  "[('$id', 'vision', 65011712, 1), ('$id', 'vision', 65011712, 1)]" "and an administrator whose they are"

### Another tenant, and the end of the job.
before=$(copies)
next=$(submit --user carol -- -A speech --gpus=2 --model=llama --model-on=gpu \
  --output="$CLUSTER/shared/home/carol/next.out" --wrap "$on_gpus")
isnt "$(gpu_memory)" 0 "a job holds what it has"
touch "$home/go"
poll 60 job_is "$next" COMPLETED
is "$(cat "$CLUSTER/shared/home/carol/next.out")" "llama: w 3000"$'\n'"llama: w 3000" "the next tenant's job has its own"
is "$(($(copies) - before))" 2 "in new copies"
ok "of which nothing is left either" poll 10 no_gpu_memory

### bellows-modeld is killed while a job has models on GPUs.
rm -f "$home/go" "$home/done"
before=$(copies)
cat >"$home/killed.sh" <<S
#!/bin/bash
$borrow --gpu $driver 0 llama
touch done
while [[ ! -e go ]]; do sleep 0.05; done
$borrow --gpu $driver 0 llama
srun --quiet --mpi=none -n1 --gpus=2 $borrow --gpu $driver 0 llama
S
id=$(submit -- --gpus=2 --model=llama --model-on=gpu --output="$home/killed.out" "$home/killed.sh")
poll 60 test -e "$home/done"
ok "both GPUs have the model" poll 10 has_copies $((before + 2))
mc stop-modeld --signal=KILL 1
mc start-modeld 1
touch "$home/go"
poll 60 job_is "$id" COMPLETED
is "$(said killed.out | uniq -c | sed 's/^ *//')" "3 llama: w 3000" "a job goes on with what the keeper held"
is "$(($(copies) - before))" 2 "which is not copied again"
ok "and is free at its end" poll 10 no_gpu_memory

### And while one ends: what it had is given back by the next.
rm -f "$home/go" "$home/done"
id=$(submit -- --gpus=2 --model=llama --model-on=gpu --wrap "$on_gpus; touch $home/done; while [ ! -e $home/go ]; do sleep 0.05; done")
poll 60 test -e "$home/done"
mc stop-modeld --signal=KILL 1
touch "$home/go"
poll 60 job_is "$id" COMPLETED
mc start-modeld 1
ok "a job that ended without bellows-modeld leaves nothing on its GPUs" poll 10 no_gpu_memory
done_testing
