#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# bellows explain says of a request what slurmctld then makes of it: the same contract or sentence.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
bellows=$build/launcher/bellows
[[ -x $bellows ]] || skip_all "$bellows is not built"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-explain-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  digits: {versions: ["1.0"]}
  pytorch: {versions: {"2.1": {}, "1.8": {state: deprecated, hint: use pytorch:2.1}}}
defaults: {sizing: {time: {default: 60, max: 2:00:00}}}
tenants:
  vision:
    gpus: {min: 1, max: 8, start: 2}
    sizing: {per_gpu: {cpus: 1, memory: 64M, snapshot: 16M}, signal_lead: 60, placement: pack}
  speech: {users: [bob], gpus: {max: 4}}
  members: {accounts: [speech], groups: [vision], gpus: {max: 2}}
YAML
cluster_up --nodes=2 --gpus=4 --bellows-conf "$work/bellows.yaml"
policy=$CLUSTER/etc/bellows.yaml
home=$CLUSTER/shared/home/alice

# The contract of a held job, or the sentence with which it was refused.
of_slurmctld() { # OPTION-OF-SBATCH...
  local id
  if id=$(xc sbatch --parsable --hold "$@" 2>"$work/err"); then
    xc scontrol show job "$id" | sed -n 's/^ *AdminComment=//p' | sed 's/ *$//'
    xc scancel "$id"
  else
    sed -n 's/^sbatch: error: \(Batch job submission failed: \)\{0,1\}//; s/^bellows: //p' "$work/err" |
      sed 's/^bellows: //' | head -n 1
  fi
}

explain() { xc "$bellows" explain --policy "$policy" "$@"; }

# The same of bellows explain.
of_explain() { # OPTION-OF-SBATCH...
  explain --json -- "$@" |
    python3 -c 'import json, sys; e = json.load(sys.stdin); print(e["refusal"] or e["contract"] or "")'
}

agree() { # NAME REGEX OPTION-OF-SBATCH...
  local name=$1 regex=$2 real
  shift 2
  real=$(of_slurmctld "$@")
  like "$real" "$regex" "slurmctld: $name"
  is "$(of_explain "$@")" "$real" "and explain agrees"
}

cat >"$home/job.sh" <<'SH'
#!/bin/sh
#SBATCH --account=vision
#SBATCH --framework=pytorch
#SBATCH --gpus-range=2-8:2
#SBATCH --nodes=2 # and what is said here is no option: --exclusive
true
SH
chmod 755 "$home/job.sh"

agree "a range" "gpus=1-8 " -A VISION --framework=digits --gpus-range=1-8 --wrap true
agree "a size" "gpus=3 " -A vision --framework=digits --gpus=3 --wrap true
agree "a size for each node" "gpus=4 " -A vision --framework=digits -N2 --gpus-per-node=2 --wrap true
agree "a size for each task" "gpus=4 " -A vision --framework=digits -N2 --gpus-per-task=1 \
  --ntasks-per-node=2 --wrap true
agree "tasks for each GPU" "gpus=2 " -A vision --framework=digits -n4 --ntasks-per-gpu=2 --wrap true
agree "a deprecated version" "framework=pytorch:1.8 " -A vision --framework=pytorch:1.8 --wrap true
agree "batch sizes" "batch=" -A vision --gpus-range=1-4 --batch-range=8-64 --wrap true
agree "a class" "class=bert-base" -A vision --gpus-range=1-4 --job-class=bert-base --wrap true
agree "a misspelled class" '^--job-class: ' -A vision --gpus-range=1-4 --job-class=a/b --wrap true
agree "a tenant by its group" "tenant=members" -A speech --framework=digits --wrap true
agree "a job without Bellows" '^$' -A vision -n2 --wrap true
agree "a script over the line" "gpus=2,4 " --gpus-range=2-4:2 job.sh
agree "a script's lines" "gpus=2-8:2 " job.sh
agree "tasks that are no GPUs" "one task for each GPU" --ntasks-per-node=1 -G4 job.sh
agree "a range too wide" "includes 9 GPUs" -A vision --gpus-range=1-16 --wrap true
agree "tasks out of the range" "is not one of the sizes" -A vision --gpus-range=1-2 -n4 --wrap true
agree "more than a member may have" "tenant members" -A speech --framework=digits --gpus=4 --wrap true
agree "an unknown framework" 'did you mean "digits"' -A vision --framework=digts --wrap true
agree "a misspelled framework" '^--framework: ' -A vision --framework=a@b --wrap true
agree "whole nodes" "exclusive and --core-spec" -A vision --gpus-range=1-2 --exclusive --wrap true
agree "too long a time" "longer than" -A vision --framework=digits -t 1-0 --wrap true
agree "no account" "no account" --framework=digits --wrap true

### What the job then has is what was said.
id=$(submit -- -A vision --gpus-range=1-8 --hold --wrap true)
said=$(explain -- -A vision --gpus-range=1-8 --wrap true)
like "$said" "changes +--gpus=$(job_field "$id" TresPerJob | sed "s|${gres}gpu:||") --ntasks=$(job_field "$id" NumTasks) " \
  "the size that is said is the job's"
like "$said" "--time=1:00:00 " "the time limit"
is "$(job_field "$id" TimeLimit)" 01:00:00 "is the job's"
xc scancel "$id"

### Who asks, and how it ends.
exits "admitted: 0" 0 explain -- -A vision --gpus-range=1-8
exits "refused: 3" 3 explain -- -A vision --gpus-range=1-9
exits "no option of sbatch: 2" 2 explain -- --gpu-range=1-9
exits "no policy: 1" 1 xc "$bellows" explain --policy "$work/none.yaml" -- -n1
like "$(explain --user bob -- -A speech --gpus-range=1-4)" "tenant +speech, by account speech, user bob" \
  "another user"
like "$(explain --group none -- -A speech --gpus-range=1)" "none that accepts you" "other groups"
like "$(explain --account vision -- --gpus-range=1-8)" "ADMITTED" "a default account"
like "$(xc --env SBATCH_ACCOUNT=vision "$bellows" explain --policy "$policy" -- --gpus-range=1-8)" \
  "option +--account=vision \(SBATCH_ACCOUNT\)" "sbatch's environment counts"

### Which policy it is, and where there is none.
with() { xc --env "$1" "$bellows" "${@:2}" 2>&1; } # NAME=VALUE ARGUMENT...
like "$(xc "$bellows" explain --account=vision -- --gpus-range=1-8)" "^policy +$policy, digest .*ADMITTED" \
  "the policy is the one beside the slurm.conf that SLURM_CONF names"
like "$(xc "$bellows" check-config)" "^$policy: good" "also for check-config"
sed 's/vision:/else:/' "$policy" >"$CLUSTER/etc/other.yaml"
like "$(with "BELLOWS_CONF=$CLUSTER/etc/other.yaml" check-config)" "other.yaml: good.*tenant else:" \
  "or the one that BELLOWS_CONF names, as for slurmctld"
install -D -m 644 "$CLUSTER/etc/slurm.conf" "$CLUSTER/shared/client/slurm.conf"
client=SLURM_CONF=$CLUSTER/shared/client/slurm.conf
said=$(with "$client" explain -- -A vision --gpus-range=1-16)
is "$?" 1 "on a machine without the policy nothing is explained"
like "$said" "there is no $CLUSTER/shared/client/bellows.yaml on this machine; the policy is on the controllers only: run this on ctl, or .*sbatch --test-only" \
  "but it says where, and what can be done here"
like "$(xc --env "$client" sbatch --test-only -A vision --gpus-range=1-16 --wrap true 2>&1)" "includes 9 GPUs" \
  "there sbatch --test-only has the sentence of a refusal"
like "$(xc --env "$client" sbatch --test-only -A vision --gpus-range=1-8 --wrap true 2>&1)" "to start at" \
  "or says when an admitted job could start"
for command in check-config "tenants sync"; do
  # shellcheck disable=SC2086 # two words
  like "$(with "$client" $command)" "bellows.yaml on this machine; .*: run this on ctl, or name a copy" "and $command says where, too"
done
is "$(xc "$bellows" explain --policy "$work/none.yaml" -- -n1 2>&1)" \
  "bellows explain: cannot open $work/none.yaml: No such file or directory" "a file that was named is just not there"
like "$(xc "$bellows" setup --print)" "^# nothing to do$" "this cluster's Slurm has every line that Bellows needs"

done_testing
