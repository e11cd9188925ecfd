#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Jobs borrow models: admission, sockets on all nodes of a job, containers, tenants, and what happens to
# a job when its node's bellows-modeld is restarted, gone or stopped.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"
# shellcheck source=tests/cluster/modelstore/models.sh
. "$TAP_HOME/modelstore/models.sh"

models_up --nodes=2 --gpus=2 <<'YAML'
  - {name: llama, tenant: vision, source: /shared/models/llama.safetensors, user: alice}
  - {name: shown/1b, tenant: vision, source: /shared/models/shown.safetensors, visible: [speech], user: alice}
  - {name: secret, tenant: speech, source: /shared/models/secret.safetensors, user: carol}
YAML
allow_images ""

# A model that only its user may read.
write_model_of() { # USER FILE VALUE
  write_model "$2" 1000 "$3"
  chown "$(awk -F: -v user="$1" '$1 == user { print $3 }' "$CLUSTER/etc/passwd")" "$2"
  chmod 600 "$2"
}
mkdir "$CLUSTER/shared/models"
write_model_of alice "$CLUSTER/shared/models/llama.safetensors" 3
write_model_of alice "$CLUSTER/shared/models/shown.safetensors" 5
write_model_of carol "$CLUSTER/shared/models/secret.safetensors" 7

root_on() { # NODE COMMAND...
  local node=$1
  shift
  xc --user root --node "$node" "$@"
}
socket_of() { echo "/run/bellows/$1/models.sock"; } # JOB
has_socket() { root_on "$1" test -S "$(socket_of "$2")"; } # NODE JOB
has_no_socket() { root_on "$1" test ! -e "$(socket_of "$2")"; }
evict() { root_on "$1" "$TAP_HOME/modelstore/control.py" evict "$2" "$3" 2>&1; } # NODE TENANT MODEL

### Admission.
like "$(refusal --model=llama,)" '--model: no model can have the name ""' "a wrong name fails at the prompt"
hidden=$(refusal --model=secret)
like "$hidden" 'there is no model secret for tenant vision' "a model of another tenant is refused"
is "$(refusal --model=absent | sed 's/absent/secret/')" "$hidden" "in the words for one that does not exist"
like "$(xc bellows explain --policy "$CLUSTER/etc/bellows.yaml" -- --model=secret --wrap true 2>&1)" 'there is no model secret' "bellows explain says so, too"
id=$(submit -- --model=llama,shown/1b --hold --wrap true)
like "$(xc scontrol show job "$id")" 'AdminComment=bellows/1 tenant=vision gpus=0 .*models=llama,shown/1b' \
  "the contract of a job has its models"
xc scancel "$id"

### Two nodes, a batch script, and the socket's life.
cat >"$home/two.sh" <<S
#!/bin/bash
echo "script \$($borrow llama)"
srun --quiet --mpi=none -N2 -n2 $borrow llama shown/1b
touch done
while [[ ! -e go ]]; do sleep 0.05; done
S
id=$(submit -- -N2 -n2 --model=llama,shown/1b --output="$home/two.out" "$home/two.sh")
poll 60 says two.out '^shown' && poll 60 test -e "$home/done"
is "$(said two.out | sort | uniq -c | sed 's/^ *//')" \
  "2 llama: w 3000"$'\n'"1 script llama: w 3000"$'\n'"2 shown/1b: w 5000" \
  "a job's script and its tasks on both nodes borrow its models"
for node in 1 2; do
  ok "node $node has the job's socket" has_socket "$node" "$id"
  is "$(root_on "$node" stat -c '%U %a' "$(socket_of "$id")")" "alice 600" "which is its user's alone"
done
other=$(xc --user bob --node 1 env BELLOWS_MODEL_SOCKET="$(socket_of "$id")" "$borrow" llama)
like "$other" 'Permission denied' "another user's process can't connect to it"
like "$(root_on 1 env BELLOWS_MODEL_SOCKET="$(socket_of "$id")" "$borrow" llama)" 'closed the connection' \
  "nor is root served"
touch "$home/go"
poll 30 job_is "$id" COMPLETED
ok "the socket is gone after the job" poll 10 has_no_socket 1 "$id"
ok "on each node" poll 10 has_no_socket 2 "$id"
is "$(run -w n1 sh -c 'echo "${BELLOWS_MODEL_SOCKET-none}"')" none "a job without models has no socket"

### Another tenant.
got=$(as_carol -w n1 --model=shown/1b "$borrow" shown/1b llama absent)
like "$got" 'shown/1b: w 5000' "a tenant borrows what is shown to it"
is "$(grep llama <<<"$got")" "$(sed -n 's/absent/llama/gp' <<<"$got")" \
  "what it may not see is refused like what does not exist"

### A container.
libraries=/usr/lib:/lib:ro,/usr/lib64:/lib64:ro,$build:$build:ro
got=$(run -w n1 --model=llama --container-image="$images/busybox.sqsh" --container-mounts="$libraries" \
  sh -c "env | grep MODEL_SOCKET; ls /run; $borrow llama; unset BELLOWS_MODEL_SOCKET; $borrow llama")
is "$got" "BELLOWS_MODEL_SOCKET=/run/bellows/models.sock"$'\n'"bellows"$'\n'"llama: w 3000"$'\n'"llama: w 3000" \
  "a container has the socket in its usual place, and nothing else of the store"

### A job that is cancelled gives back what it holds.
hold() { # NAME OPTION-OF-SBATCH...
  local name=$1
  shift
  rm -f "$home/$name.end"
  submit -- -w n1 --model=llama --output="$home/$name.out" "$@" --wrap "$borrow --hold $name.end llama"
}
id=$(hold held)
poll 30 says held.out '3000'
like "$(evict 1 vision llama)" 'in use' "a model that a job holds is not evicted"
xc scancel "$id"
ok "when the job was cancelled, it is" poll 30 evict 1 vision llama
ok "and the socket is gone" poll 10 has_no_socket 1 "$id"

### So does one whose slurmstepds were all killed, at the latest with the next job.
id=$(hold orphaned)
poll 30 says orphaned.out '3000'
root_on 1 pkill -KILL --exact slurmstepd
next_job_cleans() { run -w n1 true && has_no_socket 1 "$id"; }
ok "a job whose slurmstepds were killed leaves no socket" poll 30 next_job_cleans
ok "and holds no model" poll 10 evict 1 vision llama
xc scancel "$id"
touch "$home/orphaned.end"

### bellows-modeld is killed while a job has a model.
cat >"$home/steps.sh" <<S
#!/bin/bash
for n in 1 2 3 4; do
  while [[ ! -e step\$n ]]; do sleep 0.05; done
  srun --quiet --mpi=none -n1 --overlap $borrow llama 2>&1 | sed "s/^/\$n /"
done
S
start_steps() {
  rm -f "$home"/step?
  submit -- -w n1 --model=llama --output="$home/steps.out" "$home/steps.sh"
}
id=$(start_steps)
touch "$home/step1"
poll 30 says steps.out '^1 llama: w 3000'
mc stop-modeld --signal=KILL 1
mc start-modeld 1
touch "$home/step2"
poll 30 says steps.out '^2 '
is "$(said steps.out | grep "^2 llama")" "2 llama: w 3000" "the socket of a job outlives its bellows-modeld"
mc stop-modeld --signal=KILL 1
root_on 1 pkill -KILL bellows-model-k
touch "$home/step3"
poll 30 says steps.out '^3 '
like "$(said steps.out | grep "^3 llama")" '^3 llama: refused: the model store of this node, [^:]*: there is no' \
  "without its keeper, a job is told"
mc start-modeld 1
touch "$home/step4"
poll 30 says steps.out '^4 '
is "$(said steps.out | grep "^4 llama")" "4 llama: w 3000" "the next step has a socket again"
poll 30 job_is "$id" COMPLETED

### No bellows-modeld, and one that hangs.
mc stop-modeld 1
root_on 1 pkill -KILL bellows-model-k
like "$(run -w n1 --model=llama "$borrow" llama)" 'refused: the model store of this node' \
  "a job starts on a node without bellows-modeld"
like "$(cat "$CLUSTER/log/slurmd-n1.log")" 'models: bellows-modeld: ' "and slurmd's log says why it has no models"
mc start-modeld 1
mc stop-modeld --signal=STOP 1
began=${EPOCHREALTIME/[.,]/}
got=$(TAP_LIMIT=30 run -w n1 --model=llama "$borrow" llama)
like "$got" 'refused: the model store of this node' "and on one whose bellows-modeld hangs"
diag "after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
mc stop-modeld --signal=CONT 1
is "$(run -w n1 --model=llama "$borrow" llama)" "llama: w 3000" "it serves the next one when it goes on"

### Many short jobs of two tenants.
ids=()
for i in {1..8}; do
  ids+=("$(submit -- -w n1 --model=llama,shown/1b --output="$home/many-$i.out" --wrap "$borrow llama shown/1b")")
  ids+=("$(submit --user carol -- -A speech -w n1 --model=shown/1b,secret \
    --output="$CLUSTER/shared/home/carol/many-$i.out" --wrap "$borrow secret shown/1b")")
done
for id in "${ids[@]}"; do poll 60 job_is "$id" 'COMPLETED|FAILED'; done
is "$(cat "$home"/many-*.out "$CLUSTER"/shared/home/carol/many-*.out | sort | uniq -c | sed 's/^ *//')" \
  "8 llama: w 3000"$'\n'"8 secret: w 7000"$'\n'"16 shown/1b: w 5000" "16 short jobs of two tenants borrow theirs"
none_left() { ! root_on 1 sh -c 'ls /run/bellows/*/models.sock'; }
ok "and leave no socket" poll 10 none_left
for model in llama shown/1b; do
  ok "nor a reference to $model" poll 10 evict 1 vision "$model"
done

### A new list.
sed -i 's/name: llama/name: renamed/' "$CLUSTER/etc/bellows.yaml"
root_on 1 pkill -HUP --exact bellows-modeld
poll 10 xc sbatch --test-only --model=renamed --wrap true
ok "a model that the file calls otherwise is found after SIGHUP" \
  poll 10 run -w n1 --model=renamed "$borrow" renamed
echo "models: [" >>"$CLUSTER/etc/bellows.yaml"
root_on 1 pkill -HUP --exact bellows-modeld
ok "a file with an error is reported" poll 10 grep -q 'bellows.yaml:.*stay as they were' "$CLUSTER/log/modeld-n1.log"
is "$(run -w n1 --model=renamed "$borrow" renamed)" "renamed: w 3000" "and the models stay"
done_testing
