#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Admission in a real slurmctld: contracts, refusals, forgeries, updates, and a policy that breaks.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-admission-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  digits: {versions: ["1.0"]}
  pytorch: {versions: ["2.1", "1.13"], env: {NCCL_DEBUG: WARN}}
  plain:
tenants:
  vision:
    frameworks: [digits, plain, "pytorch:2.*"]
    gpus: {min: 1, max: 8, start: 2}
  speech: {gpus: {max: 4}}
resize_site_factor: 5000
YAML
echo PriorityType=priority/multifactor >"$work/slurm.conf"
cluster_up --nodes=2 --gpus=4 --bellows-conf "$work/bellows.yaml" --slurm-conf "$work/slurm.conf"
home=$CLUSTER/shared/home/alice
policy=$CLUSTER/etc/bellows.yaml
ended='COMPLETED|FAILED|CANCELLED|NODE_FAIL|TIMEOUT'

output_of() { # ID; waits for the job's end
  poll 20 job_is "$1" "$ended" || echo "job $1 did not end"
  cat "$home/slurm-$1.out"
}

# Both streams of a submission that must fail; what it says otherwise would not match.
refusal() { # OPTION-OF-SBATCH...
  if xc sbatch --parsable "$@" --wrap true 2>&1; then echo "was accepted"; fi
}

update() { # USER ID KEY=VALUE...
  local user=$1 id=$2
  shift 2
  xc --user "$user" scontrol update job="$id" "$@" 2>&1
}

log() { cat "$CLUSTER/log/slurmctld.log"; }

### The contract.
show='env; cat /run/bellows/$SLURM_JOB_ID/contract'
line="bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=/shared/checkpoints/%25u/%25j"
id=$(submit -- -A VISION --framework=digits --gpus-range=1-8 --wrap "$show")
got=$(output_of "$id")
like "$got" $'\n'"$line" "the node has the contract of a job of -A VISION"
is "$(xc scontrol show job "$id" | sed -n 's/^ *AdminComment=//p' | sed 's/ *$//')" "$line" \
  "and AdminComment shows it"
is "$(job_field "$id" Account)" vision "the account is settled in lower case"
is "$(job_field "$id" TresPerJob):$(job_field "$id" NumTasks)" "${gres}gpu:2:2" \
  "it starts at the tenant's first size, one task for each GPU"
is "$(job_field "$id" Requeue)" 1 "it can be requeued"
like "$got" 'SLURM_NTASKS=2' "and the job sees that size"

cat >"$home/job.sh" <<'SH'
#!/bin/sh
#SBATCH --account=vision
#SBATCH --framework=pytorch
#SBATCH --gpus-range=2-8:2
env
cat /run/bellows/$SLURM_JOB_ID/contract
SH
chmod 755 "$home/job.sh"
id=$(submit -- --export=NONE job.sh)
got=$(output_of "$id")
like "$got" "gpus=2-8:2" "options in #SBATCH lines count, with --export=NONE too"
like "$got" "framework=pytorch:2.1" "the default version is the tenant's"
like "$got" "NCCL_DEBUG=WARN" "the framework's variables are set"
id=$(submit -- --array=1-2 job.sh)
poll 20 job_is "${id}_2" "$ended"
like "$(cat "$home/slurm-${id}_2.out")" "gpus=2-8:2" "every task of an array has the contract"

### Ways to ask for GPUs.
size_of() { # OPTION-OF-SBATCH...
  local id
  id=$(submit -- -A vision --framework=plain --gpus-range=1-8 "$@" --hold --wrap true) || return
  echo "$(job_field "$id" TresPerJob) $(job_field "$id" TresPerNode)$(job_field "$id" NumTasks)"
  xc scancel "$id"
}
is "$(size_of --gpus=3)" "${gres}gpu:3 3" "--gpus"
is "$(size_of -N2 --gpus-per-node=2)" "${gres}gpu:4 4" "--gpus-per-node"
is "$(size_of --gres=gpu:2)" "${gres}gpu:2 2" "--gres"
is "$(size_of --gpus-per-task=1 -n5)" "${gres}gpu:5 5" "--gpus-per-task"
is "$(size_of -n6)" "${gres}gpu:6 6" "--ntasks"
like "$(xc srun -A vision --framework=plain --gpus-range=2-8 true 2>&1)" \
  "the job keeps 2 GPUs: only jobs submitted with sbatch can be resized" "srun gets a fixed size, and says so"
is "$(xc salloc -Q -A vision --framework=plain --gpus-range=3-8 srun -n3 sh -c 'echo $BELLOWS_GPUS_RANGE' 2>/dev/null | xargs)" \
  "3 3 3" "salloc too"
id=$(submit -- -A vision --framework=digits -N2 --gpus-per-node=4 --wrap "$show")
like "$(output_of "$id")" "gpus=8 " "without a range the size is what was asked for"

### Refusals, at the prompt.
like "$(refusal -A vision --framework=digts)" 'framework "digts" is not known here; did you mean "digits"\?' \
  "unknown framework"
like "$(refusal -A vision --framework=pytorch:1.13)" 'tenant vision may not use framework pytorch:1.13; of pytorch it may use version 2.1' \
  "a version of other tenants"
like "$(refusal -A physics --framework=digits)" 'account "physics" belongs to no tenant' "an account of no tenant"
like "$(refusal --framework=digits)" "the job has no account and you have no default one" "no account"
like "$(refusal -A vision --gpus-range=1-16)" 'gpus-range=1-16 includes 9 GPUs, but a job of tenant vision may have 1-8 GPUs' \
  "a range beyond the tenant's"
like "$(refusal -A speech --framework=digits --gpus=8)" '--gpus=8, but a job of tenant speech may have 1-4 GPUs' \
  "a size beyond the tenant's"
like "$(refusal -A vision --gpus-range=1-4 --gpus=8)" '--gpus=8 is not one of the sizes of --gpus-range=1-4' \
  "a size outside the job's own range"
like "$(refusal -A vision --gpus-range=1-8 --no-requeue)" '--no-requeue contradicts --gpus-range=1-8' "--no-requeue"
like "$(refusal -A vision --gpus-range=1-8 --ntasks-per-node=2)" '--ntasks-per-node cannot be kept' "--ntasks-per-node"
like "$(refusal -A vision --framework=plain -n1 : -n1)" 'a heterogeneous job cannot have' "heterogeneous jobs"
is "$(xc squeue --noheader | wc -l)" 0 "none of them left a job behind"

### Forgeries.
id=$(submit -- -A vision --framework=digits --export=ALL,BELLOWS_CONTRACT=forged,BELLOWS_TENANT=root --wrap "$show")
got=$(output_of "$id")
is "$(grep -E '^BELLOWS_.*(forged|root)' <<<"$got")" "" "a contract in --export has no effect"
like "$got" "BELLOWS_TENANT=vision" "the true one does"
id=$(xc --env _SLURM_SPANK_OPTION_bellows_gpus_range=1-64 sbatch --parsable --hold -A vision --wrap true 2>"$work/err")
is "$(job_field "${id:-0}" AdminComment)" "" "an option in the environment grants nothing more"
[[ -z $id ]] || xc scancel "$id"
if cc -o "$CLUSTER/shared/forge" "$TAP_HOME/forge.c" -lslurm 2>"$work/cc"; then
  chmod 755 "$CLUSTER/shared/forge"
  forge() { xc "$CLUSTER/shared/forge" "$@"; }
  fake="BELLOWS_CONTRACT=bellows/1 tenant=root gpus=1-4096"
  id=$(forge vision "$fake" "SPANK_$fake" _SLURM_SPANK_OPTION_bellows_framework=digits \
    SPANK__SLURM_SPANK_OPTION_bellows_framework=digits)
  got=$(output_of "$id")
  unlike "$got" "forged|tenant=root|TENANT=root|4096" "a contract in spank_job_env is stripped"
  like "$got" "tenant=vision" "and the true one takes its place"
  id=$(forge vision "$fake" OTHER=1)
  unlike "$(output_of "$id")" "tenant=root" "also from a job that asks for nothing"
  is "$(job_field "$id" AdminComment)" "" "which gets no contract"
  exits "two different values of an option are refused" 1 \
    forge vision _SLURM_SPANK_OPTION_bellows_gpus_range=1 SPANK__SLURM_SPANK_OPTION_bellows_gpus_range=2
else
  fail "the forging client compiles" "$(<"$work/cc")"
fi

### Jobs that ask for nothing.
id=$(submit -- --no-requeue -n2 -N2 -A Physics --export=ALL,BELLOWS_CONTRACT=mine --wrap "env")
like "$(output_of "$id")" "BELLOWS_CONTRACT=mine" "a job that asks for nothing keeps its environment"
is "$(job_field "$id" Requeue):$(job_field "$id" NumTasks):$(job_field "$id" AdminComment)$(job_field "$id" TresPerJob)" \
  "0:2:" "and everything else"

### Updates.
id=$(submit -- -A vision --framework=digits --gpus-range=1-8 --hold --wrap true)
is "$(update alice "$id" "TresPerJob=${gres}gpu:8")" "" "the owner may change the size within the range"
is "$(job_field "$id" TresPerJob):$(job_field "$id" NumTasks)" "${gres}gpu:8:8" "and the tasks follow"
is "$(update alice "$id" TresPerJob=gres/gpu:4 NumTasks=4 NumNodes=1)" "" "also spelled otherwise"
is "$(job_field "$id" TresPerJob)" "${gres}gpu:4" "in the spelling that counts"
like "$(update alice "$id" "TresPerJob=${gres}gpu:9")" "violates" "but not outside"
like "$(log)" "the job was admitted for 1-8 GPUs, and 9 is not among these sizes" "slurmctld's log says why"
like "$(update alice "$id" TresPerNode=gpu:4)" "Invalid generic resource" "nor spelled for each node"
like "$(update alice "$id" Account=speech)" "Invalid account" "nor move to another tenant"
is "$(update alice "$id" Account=VISION)" "" "its own account is not another one"
like "$(update alice "$id" Requeue=0)" "Invalid argument" "nor switch requeueing off"
like "$(update alice "$id" AdminComment=x)" "denied" "nor touch the contract that people see"
is "$(job_field "$id" TresPerJob):$(job_field "$id" Account)" "${gres}gpu:4:vision" "nothing of it was done"
is "$(update root "$id" "TresPerJob=${gres}gpu:16")" "" "an administrator may"
like "$(log)" "changed by uid 0, who is not bound by its contract" "and the log says so"
xc scancel "$id"
plain=$(submit -- --gpus=1 --hold --wrap true)
is "$(update alice "$plain" "TresPerJob=${gres}gpu:6")" "" "other jobs may be changed freely"
xc scancel "$plain"

### A resize keeps its place.
id=$(submit -- -A vision --framework=digits --gpus-range=1-8 --wrap 'sleep 60')
poll 10 job_is "$id" RUNNING
before=$(job_field "$id" Priority)
xc scontrol requeue "$id"
is "$(update alice "$id" "TresPerJob=${gres}gpu:1" NumTasks=1 MinCPUsNode=1 StartTime=now+1hour)" "" \
  "the update of a resize passes"
poll 10 job_is "$id" PENDING
ok "and gets the policy's site factor" test "$(job_field "$id" Priority)" -ge $((before + 4000))
xc scancel "$id"

### A policy that breaks.
try() { xc sbatch --test-only -A vision --framework="$1" --wrap true 2>&1; }
says() { [[ $(try "$1") =~ $2 ]]; }
admits() { says "$1" "to start at"; }
admits digits || diag "$(try digits)"
sed 's/^  plain:/  newone:/; s/plain,/newone,/' "$work/bellows.yaml" >"$policy"
ok "a changed policy takes effect without a restart" poll 10 admits newone
echo "tenants: [" >"$policy"
broke() { log | grep -q "$policy:.*the policy before it, if any, stays in force"; }
ok "a broken one is reported" poll 10 broke
ok "and the old one stays" admits newone
rm "$policy"
gone() { log | grep -q "cannot open $policy: No such file"; }
ok "a missing one is reported" poll 10 gone
ok "and the old one stays" admits newone

for state in missing broken unreadable; do
  mc stop-ctld
  rm -rf "$policy"
  case $state in
    broken) printf 'version: 1\ntenants:\n  vision: {gpu: {}}\n' >"$policy" ;;
    unreadable) mkdir "$policy" ;;
  esac
  ok "slurmctld starts with a $state policy" mc start-ctld
  case $state in
    missing) why="cannot open $policy: No such file" ;;
    broken) why="$policy:3:12: unknown key \"gpu\" in tenant vision; did you mean \"gpus\"\?" ;;
    unreadable) why="$policy: Is a directory" ;;
  esac
  like "$(try digits)" "no policy to admit this job by \(.*$why" "it refuses what asks for Bellows, and says why"
  id=$(submit -- --wrap true)
  ok "and lets other jobs pass" poll 20 job_is "$id" COMPLETED
done
rmdir "$policy"
cp "$work/bellows.yaml" "$policy"
ok "a repaired policy takes effect without a restart" poll 10 admits digits

done_testing
