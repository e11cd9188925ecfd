#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 480
# Every way to ask for CPUs, memory, nodes and tasks, resized up and down while the job runs, while
# it waits, and after Slurm has tried to place it: a job then holds what it would hold had it been
# submitted at that size.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-sizes-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT
cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks: {digits: {versions: ["1.0"]}}
tenants:
  vision: {gpus: {min: 1, max: 8}}
  shares: {gpus: {min: 1, max: 8}, sizing: {per_gpu: {cpus: 2, memory: 512M}}}
  packed: {gpus: {min: 1, max: 8}, sizing: {placement: pack}}
  capped: {gpus: {min: 1, max: 8, max_nodes: 1}}
  whole: {gpus: {max: 8, sizes: whole_nodes, gpus_per_node: 4}}
default_tenant: vision
YAML
cat >"$work/slurm.conf" <<'CONF'
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=16
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,bf_interval=1
PartitionName=shared Nodes=n[1-2] MaxTime=INFINITE State=UP DefCpuPerGPU=2 DefMemPerGPU=256
CONF
cluster_up --nodes=2 --gpus=4 --bellows-conf "$work/bellows.yaml" --slurm-conf "$work/slurm.conf"
home=$CLUSTER/shared/home/alice
export TAP_LIMIT=120

# What a job holds on all its nodes: "GPUS CPUS MEMORY NODES"
holds() { # ID
  ask_slurm scontrol --details show job "$1" | awk '
    match($0, / NumCPUs=[0-9]+/) { cpus = substr($0, RSTART + 9, RLENGTH - 9) }
    /^ *Nodes=.* CPU_IDs=/ {
      n = $1 ~ /\[/ ? 2 : 1
      for (i = 2; i <= NF; i++) {
        split($i, part, /[=:(]/)
        if (part[1] == "Mem") memory += n * part[2]
        if (part[1] == "GRES") gpus += n * part[3]
      }
      nodes += n
    }
    END { print gpus + 0, cpus + 0, memory + 0, nodes + 0 }'
}

# What it should hold: CPUs for each GPU, and MEMORY as NUMBER/gpu, NUMBER/cpu or NUMBER/node.
holds_right() { # ID GPUS CPUS MEMORY
  local gpus cpus memory nodes wanted cpus_wanted=$(($2 * $3))
  read -r gpus cpus memory nodes < <(holds "$1")
  # From 24.11, Slurm gives any job that says CPUs for each GPU all those of its nodes where its GPUs
  # lie unevenly on them, as five do here.
  if slurm_is_from 24.11 && (($2 == 5 && $3 > 1 && cpus == 16)); then cpus_wanted=16; fi
  case $4 in
    */gpu) wanted=$((${4%/*} * $2)) ;;
    */cpu) wanted=$((${4%/*} * cpus_wanted)) ;;
    */node) wanted=$((${4%/*} * nodes)) ;;
  esac
  [[ "$gpus $cpus $memory" == "$2 $cpus_wanted $wanted" ]] ||
    { echo "holds $gpus GPUs, $cpus CPUs, $memory MiB on $nodes nodes; not $2, $cpus_wanted, $wanted"; return 1; }
}

# CPUs of each GPU, memory, options of sbatch; each begins with two GPUs.
table=(
  "1 16/cpu --gpus=2"
  "2 512/gpu -A shares --gpus=2"
  "2 16/cpu --gpus=2 --cpus-per-gpu=2"
  "1 300/gpu --gpus=2 --mem-per-gpu=300"
  "2 300/gpu --gpus=2 --mem-per-gpu=300 --cpus-per-gpu=2"
  "2 256/gpu --gpus=2 --partition=shared"
  "1 1000/node --gpus=2 --mem=1000"
  "1 100/cpu --gpus=2 --mem-per-cpu=100"
  "2 100/cpu --gpus=2 --cpus-per-task=2 --mem-per-cpu=100"
  "1 16/cpu --gpus=2 --ntasks=2"
  "1 16/cpu --gpus=2 --nodes=2"
  "1 16/cpu --gpus=2 --nodes=1"
  "2 16/cpu --gpus-per-node=2 --nodes=1 --cpus-per-gpu=2"
  "2 16/cpu --gpus-per-task=1 --ntasks=2 --cpus-per-gpu=2"
  "2 16/cpu --gres=gpu:2 --cpus-per-gpu=2"
  "1 16/cpu -A packed --gpus=2 --ntasks-per-core=1"
)
# All of them take minutes.
[[ -n ${BELLOWS_LONG:-} ]] || table=("${table[@]:0:5}")

submit_row() { # NAME MORE-OPTIONS...; of $asked
  local name=$1 more
  shift
  # shellcheck disable=SC2206 # words
  more=($asked)
  submit_counter "$name" "$@" "${more[@]}" -- --steps 1000000 --sleep-us 20000 --save-every 20
}

### While they run.
through_sizes() { # NAME ID CPUS MEMORY
  local gpus starts=0
  for gpus in 5 1 8; do
    poll 30 has_starts "$1" $((++starts)) || { echo "its ranks do not start"; return 1; }
    xc bellows resize --from-scratch --timeout 60 "$2" "$gpus" || return 1
    holds_right "$2" "$gpus" "$3" "$4" || return 1
  done
}
i=0
for row in "${table[@]}"; do
  read -r cpus memory asked <<<"$row"
  i=$((i + 1))
  id=$(submit_row running$i)
  ok "$asked: runs with 2, 5, 1 and 8 GPUs" through_sizes running$i "$id" "$cpus" "$memory"
  xc scancel "$id"
  poll 30 nodes_idle
done

### Options that nobody counts by hand: as a job that was submitted with that many GPUs.
odd=("--mincpus=3" "--overcommit" "--ntasks-per-socket=4" "--cpus-per-task=2 --overcommit")
[[ -n ${BELLOWS_LONG:-} ]] || odd=("${odd[@]:0:1}")
# What a job holds that is submitted with so many GPUs; nothing, if Slurm refuses it.
fresh() { # GPUS
  local job
  asked="--gpus=$1 $option"
  job=$(submit_row fresh) && [[ -n $job ]] || return
  poll 30 job_is "$job" RUNNING && holds "$job"
  xc scancel "$job"
  poll 30 nodes_idle
}
as_if_fresh() { # NAME ID GPUS WANTED
  local now
  xc bellows resize --from-scratch --timeout 60 "$2" "$3" || return 1
  now=$(holds "$2")
  [[ $now == "$4" ]] || { echo "holds $now; a fresh one $4"; return 1; }
}
for option in "${odd[@]}"; do
  # 24.11 refuses --mincpus=3 with two tasks.
  if slurm_is_from 24.11 && [[ -z $(fresh 2) ]]; then
    skip "$option at other sizes" "this Slurm does not take it with two GPUs"
    continue
  fi
  four=$(fresh 4)
  one=$(fresh 1)
  asked="--gpus=2 $option"
  i=$((i + 1))
  id=$(submit_row running$i)
  poll 30 has_starts running$i 1
  ok "$option: with 4 GPUs it holds what a job of 4 holds" as_if_fresh running$i "$id" 4 "$four"
  poll 30 has_starts running$i 2
  ok "$option: and with 1 what a job of 1 holds" as_if_fresh running$i "$id" 1 "$one"
  xc scancel "$id"
  poll 30 nodes_idle
done

### While they wait, and Slurm has looked for a place.
ids=()
planned() { [[ $(job_field "$1" StartTime) == 20* ]]; }
submit_waiting() {
  local row i
  blocker=$(submit -- --nodes=2 --exclusive --ntasks=2 --time=10 --wrap 'sleep 1000')
  poll 30 job_is "$blocker" RUNNING
  ids=()
  for row in "${table[@]}"; do
    read -r cpus memory asked <<<"$row"
    ids+=("$(submit_row waiting --time=10)")
  done
  for ((i = 0; i < ${#ids[@]}; i++)); do poll 60 planned "${ids[i]}" || diag "job ${ids[i]} has no planned start"; done
}
run_to_check() { # GPUS
  local i
  xc scancel "$blocker"
  for ((i = 0; i < ${#ids[@]}; i++)); do
    read -r cpus memory asked <<<"${table[i]}"
    poll 60 job_is "${ids[i]}" RUNNING
    ok "$asked: waits for 2 GPUs, then for $1, and gets them" holds_right "${ids[i]}" "$1" "$cpus" "$memory"
    xc scancel "${ids[i]}"
  done
  poll 30 nodes_idle
}
for gpus in 5 1; do
  submit_waiting
  for id in "${ids[@]}"; do xc bellows resize "$id" "$gpus" >/dev/null 2>>"$home/waiting.err"; done
  run_to_check "$gpus"
done
is "$(cat "$home/waiting.err")" "" "and every one of them was accepted"
done_testing
