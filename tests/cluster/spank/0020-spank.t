#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# spank_bellows.so: options, the contract on the node, forgery, sizes after a resize, rescues.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice

node() { mc exec --user root --node "$1" "${@:2}"; }
# Writes a batch script from standard input.
script() {
  local path=$home/$1
  {
    echo '#!/bin/bash'
    cat
  } >"$path"
  chmod 755 "$path"
}
out() { cat "$home/$1" 2>/dev/null; }
# What one job's output says of a variable: value FILE NAME
value() { sed -n "s/^$2=//p" "$home/$1" | head -n 1; }
slurmd_log() { grep -h -- "$1" "$CLUSTER"/log/slurmd-n*.log; }
elastic=(--framework=digits --gpus-range=1-8)

# The plugin exports what Slurm looks for and nothing else.
plugin=$(sed -n 's/^[a-z]* *\(.*spank_bellows.so\).*/\1/p' "$CLUSTER/etc/plugstack.conf")
is "$(nm -D --defined-only "$plugin" | awk '{print $3}' | sort | xargs)" \
  "plugin_name plugin_type plugin_version slurm_spank_exit slurm_spank_init slurm_spank_init_post_opt slurm_spank_job_prolog slurm_spank_task_exit slurm_spank_task_init slurm_spank_task_init_privileged slurm_spank_task_post_fork spank_plugin_version" \
  "the plugin exports only what Slurm calls"
unlike "$(readelf -d "$plugin")" 'NEEDED.*libslurm' "and brings no second libslurm"

# Options.
script true.sh <<<true
for command in sbatch salloc srun; do
  help=$(xc "$command" --help)
  like "$help" '--framework=NAME' "$command --help shows --framework"
  like "$help" '--gpus-range=RANGE' "and --gpus-range"
  for wrong in --gpus-range=8-1 --gpus-range=0 --gpus-range=two --gpus-range= --framework=a:b:c \
    --framework=../x; do
    status=0
    output=$(xc "$command" "$wrong" "$home/true.sh" 2>&1) || status=$?
    like "$status:$output" "^[1-9][0-9]*:.*error: bellows: --(gpus-range|framework): .+" \
      "$command refuses $wrong with a sentence"
  done
done
printf '#!/bin/sh\n#SBATCH --gpus-range=4-2\n' >"$home/wrong.sh"
like "$(xc sbatch wrong.sh 2>&1)" 'bellows: --gpus-range: .*4 is larger than 2' \
  "and so does a line of the script"
is "$(xc squeue --noheader --states=all | wc -l)" 0 "nothing wrong was submitted"

# The contract reaches batch script and tasks; what a user sets himself doesn't.
script show.sh <<'S'
#SBATCH --framework=digits:1.0
#SBATCH --gpus-range=1-8
env | grep -E '^(BELLOWS|_?SLURM_SPANK|SPANK)_' | sort
S
forged=(BELLOWS_TENANT=evil BELLOWS_CONTRACT=evil BELLOWS_RUN_DIR=/tmp BELLOWS_FRAMEWORK=evil
  BELLOWS_FRAMEWORK_VERSION=6 BELLOWS_GPUS_RANGE=1-4096 BELLOWS_CHECKPOINT_DIR=/evil BELLOWS_RUN=7)
wanted="BELLOWS_CHECKPOINT_DIR=$CLUSTER/shared/checkpoints/alice/JOB
BELLOWS_CONTRACT=bellows/1 tenant=vision framework=digits:1.0 gpus=1-8 ckpt=$CLUSTER/shared/checkpoints/%25u/%25j
BELLOWS_FRAMEWORK=digits
BELLOWS_FRAMEWORK_VERSION=1.0
BELLOWS_GPUS_RANGE=1-8
BELLOWS_RUN=0
BELLOWS_RUN_DIR=/run/bellows/JOB/user
BELLOWS_SIZE=1/1
BELLOWS_TENANT=vision"
for export in ALL NONE; do
  rm -f "$home/show.out"
  job=$(xc env "${forged[@]}" sbatch --wait --parsable --export=$export --output=show.out show.sh)
  is "$(out show.out)" "${wanted//JOB/$job}" "the batch script has the contract, --export=$export"
done
is "$(node 1 stat -c '%U:%a' "/run/bellows/$job" "/run/bellows/$job/contract" | xargs)" \
  "root:755 root:644" "the contract on the node is root's"
is "$(xc srun "${elastic[@]}" sh -c 'stat -c %u:%a $BELLOWS_RUN_DIR; df --output=size,itotal $BELLOWS_RUN_DIR' | xargs)" \
  "20001:700 1K-blocks Inodes 16384 4096" "its user directory is the user's, and small"
exits "and gone with the job" 1 node 1 test -e "/run/bellows/$job/user"

step_vars='env | grep ^BELLOWS_ | grep -v _SIZE | sort'
script step.sh <<S
export ${forged[*]}
exec 2>/dev/null
srun --export=ALL sh -c '$step_vars'
echo ---
srun --export=NONE /bin/bash -lc '$step_vars'
S
job=$(xc sbatch --wait --parsable "${elastic[@]}" --output=step.out step.sh)
truth=$(grep -vE "_SIZE|_RUN=" <<<"${wanted//JOB/$job}")
is "$(out step.out)" "$truth"$'\n'"---"$'\n'"$truth" "a step can't change it"

is "$(xc srun "${elastic[@]}" sh -c 'echo $BELLOWS_TENANT $BELLOWS_FRAMEWORK')" "vision digits" \
  "srun takes the options"
is "$(xc salloc --quiet "${elastic[@]}" srun sh -c 'echo $BELLOWS_TENANT $BELLOWS_FRAMEWORK')" \
  "vision digits" "salloc takes the options"

# A job that asks for nothing has nothing.
script plain.sh <<'S'
env | grep -E '^(BELLOWS|_?SLURM_SPANK|SPANK)_'
echo end
S
job=$(xc env "${forged[@]}" "SLURM_SPANK_BELLOWS_CONTRACT=bellows/1 tenant=evil gpus=1" \
  sbatch --wait --parsable --output=plain.out plain.sh)
is "$(grep -v '^SLURM_SPANK_BELLOWS_CONTRACT' "$home/plain.out")" end "a plain job has no contract"
is "$(node 1 stat -c '%F:%U' "/run/bellows/$job")" "regular empty file:root" "and the node notes that"
is "$(xc env "${forged[@]}" "SLURM_SPANK_BELLOWS_CONTRACT=bellows/1 tenant=evil gpus=1" \
  srun sh -c 'echo "[$BELLOWS_TENANT$BELLOWS_CONTRACT]"')" "[]" \
  "nor can srun send one of its own"

# Nested submissions are jobs of their own.
script nested.sh <<'S'
sbatch --wait --output=inner.out plain.sh >inner.id
S
ok "a job submits another" xc sbatch --wait "${elastic[@]}" --output=nested.out nested.sh
is "$(out inner.out)" end "which does not inherit the options"
like "$(xc --user root scontrol show job "$(sed 's/[^0-9]//g' "$home/inner.id")")" \
  'JobState=COMPLETED' "and is a plain job"
is "$(xc salloc --quiet "${elastic[@]}" sh -c \
  'sbatch --wait --output=inner2.out plain.sh >/dev/null; cat inner2.out')" end \
  "nor does one submitted from salloc's shell"

# A job of one size keeps what it says about tasks.
script fixed.sh <<'S'
srun --overcommit sh -c 'echo task of $SLURM_NTASKS' | sort | uniq -c
S
ok "a job of one GPU has three tasks" xc sbatch --wait --framework=digits --gpus=1 --ntasks=3 \
  --output=fixed.out fixed.sh
is "$(tr -s ' ' <"$home/fixed.out")" " 3 task of 3" "and a plain srun starts them"

# Sizes after a resize.
script size.sh <<'S'
#SBATCH --gpus-range=1-8
exec 2>/dev/null
echo "batch $SLURM_NTASKS/$SLURM_NPROCS gpus=$SLURM_GPUS pernode=$SLURM_GPUS_PER_NODE"
srun sh -c 'echo task of $SLURM_NTASKS' | sort | uniq -c
srun --ntasks=1 --gpus=1 sh -c 'echo one of $SLURM_NTASKS'
(export SLURM_NTASKS=2; srun sh -c 'echo two of $SLURM_NTASKS' | sort | uniq -c)
(unset BELLOWS_SIZE; export SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_NTASKS_PER_NODE=1
 srun sh -c 'echo stale of $SLURM_NTASKS' | sort | uniq -c)
echo finished
[[ -n ${SLURM_RESTART_COUNT:-} ]] || sleep 300
S
job=$(xc sbatch --parsable --output=size.out --ntasks=2 size.sh)
poll 30 grep -q finished "$home/size.out"
is "$(tr -s ' ' <"$home/size.out")" "batch 2/2 gpus= pernode=
 2 task of 2
one of 1
 2 two of 2
 2 stale of 2
finished" "before a resize"
ok "the job is requeued" xc scontrol requeue "$job"
: >"$home/size.out"
ok "and resized" xc scontrol update "jobid=$job" "tresperjob=${gres}gpu:6" numtasks=6 numcpus=6 numnodes=2
poll 20 job_is "$job" PENDING
ok "and released" xc scontrol update "jobid=$job" starttime=now+2
poll 60 job_is "$job" COMPLETED
is "$(grep -v CANCELLED "$home/size.out" | tr -s ' ')" "batch 6/6 gpus= pernode=
 6 task of 6
one of 1
 2 two of 2
 6 stale of 6
finished" "after it a plain srun starts one task for each GPU, and explicit numbers win"
if slurm_is_from 25.11; then
  skip "it came back with a new credential" "this slurmd knows each run by an id of its own"
else
  isnt "$(slurmd_log "reissued job credential for job $job")" "" "it came back with a new credential"
fi

# A killed launcher. Each script shows its run, and the first one ends without an outcome.
marker='echo "{}" >"$BELLOWS_RUN_DIR/launcher.active"'
first='echo "run ${SLURM_RESTART_COUNT:-0}"; if [[ -z ${SLURM_RESTART_COUNT:-} ]]; then'
script shell-killed.sh <<<"$first $marker; kill -9 \$\$; fi"
script child-killed.sh <<<"$first (exec sh -c '$marker; kill -9 \$\$'); exit 1; fi"
script requeued.sh <<<"$first $marker; scontrol requeue \$SLURM_JOB_ID; sleep 300; fi"
script cancelled.sh <<<"$marker; echo marked; sleep 300"
script outcome.sh <<<"$marker; rm \"\$BELLOWS_RUN_DIR/launcher.active\"; exit 3"
script hostile.sh <<<'rm -rf "$BELLOWS_RUN_DIR"/*; mkfifo "$BELLOWS_RUN_DIR/launcher.active"; exit 3'
script stale.sh <<<"if [[ -z \${SLURM_RESTART_COUNT:-} ]]; then $marker; echo marked; sleep 300; fi; exit 3"
declare -A jobs
for name in shell-killed child-killed requeued cancelled outcome hostile stale; do
  jobs[$name]=$(xc sbatch --parsable "${elastic[@]}" --output="$name.out" "$name.sh")
done
poll 20 grep -q marked "$home/cancelled.out"
xc scancel "${jobs[cancelled]}"
poll 20 grep -q marked "$home/stale.out"
xc scontrol requeue "${jobs[stale]}"
poll 20 job_is "${jobs[stale]}" PENDING
xc scontrol update "jobid=${jobs[stale]}" starttime=now+2
for name in shell-killed child-killed requeued; do
  poll 60 job_is "${jobs[$name]}" COMPLETED
  is "$(grep ^run "$home/$name.out")" $'run 0\nrun 1' "$name: the job ran again"
  is "$(job_field "${jobs[$name]}" JobState):$(job_field "${jobs[$name]}" Restarts)" COMPLETED:1 \
    "once, and completed"
done
is "$(node 1 cat "/run/bellows/${jobs[shell-killed]}/rescues")" 1 "the rescue was counted"
poll 30 job_is "${jobs[cancelled]}" CANCELLED
is "$(job_field "${jobs[cancelled]}" JobState):$(job_field "${jobs[cancelled]}" Restarts)" \
  CANCELLED:0 "a cancelled job stays cancelled"
for name in outcome hostile; do
  poll 30 job_is "${jobs[$name]}" FAILED
  is "$(job_field "${jobs[$name]}" JobState):$(job_field "${jobs[$name]}" Restarts)" FAILED:0 \
    "$name: the job fails as it should"
done
poll 60 job_is "${jobs[stale]}" FAILED
is "$(job_field "${jobs[stale]}" JobState):$(job_field "${jobs[stale]}" Restarts)" FAILED:1 \
  "a marker of an earlier run does not count"

# What an earlier job of the same number left, as after slurmctld lost its state.
last=${jobs[stale]}
left_behind() { # JOB OWNER
  node 1 sh -c "mkdir -p /run/bellows/$1/user; echo 'bellows/1 tenant=old gpus=3' >/run/bellows/$1/contract
    echo 16 >/run/bellows/$1/rescues; touch /run/bellows/$1/user/old; chown -R $2 /run/bellows/$1/user"
}
left_behind $((last + 1)) alice
left_behind $((last + 2)) alice
left_behind $((last + 3)) carol
is "$(xc srun --nodelist=n1 sh -c 'echo $SLURM_JOB_ID[$BELLOWS_TENANT]')" "$((last + 1))[]" \
  "a plain job does not get a contract that was left behind"
exits "and what was left is gone" 1 node 1 test -d "/run/bellows/$((last + 1))"
for i in 2 3; do
  is "$(xc srun --nodelist=n1 "${elastic[@]}" sh -c 'echo $SLURM_JOB_ID $BELLOWS_TENANT; ls $BELLOWS_RUN_DIR' |
    xargs)" "$((last + i)) vision" "an elastic job gets its own"
  exits "without the rescues of the other" 1 node 1 test -e "/run/bellows/$((last + i))/rescues"
done

# The budget.
script again.sh <<<"if [[ \${SLURM_RESTART_COUNT:-0} == 0 ]]; then
  $marker; echo marked; until [[ -e go ]]; do sleep 0.1; done; kill -9 \$\$; fi"
job=$(xc sbatch --parsable "${elastic[@]}" --output=again.out again.sh)
poll 20 grep -q marked "$home/again.out"
node 1 sh -c "echo 16 >/run/bellows/$job/rescues"
touch "$home/go"
poll 30 job_is "$job" FAILED
is "$(job_field "$job" JobState):$(job_field "$job" Restarts)" FAILED:0 "a job is rescued 16 times, no more"
isnt "$(slurmd_log "job $job: .*rescued 16 times")" "" "and the log says so"

# The size that a killed launcher had planned is its user's word: the policy and the site's rules hold.
policy=$CLUSTER/etc/bellows.yaml
cp "$policy" "$policy.before"
policy_reads() { grep -c "policy read from $policy" "$CLUSTER/log/slurmctld.log"; }
reads_more_than() { (($(policy_reads) > $1)); }
reads=$(policy_reads)
cat >"$CLUSTER/etc/site.lua" <<'L'
function modify(job, change)
  if change.gpus == 4 then refuse("not four") end
end
L
sed -i '/^version:/a lua: {script: site.lua}' "$policy"
ok "a policy with a rule for updates is read" poll 20 reads_more_than "$reads"
for gpus in 3 4; do
  script "plan$gpus.sh" <<<"echo \"run \$BELLOWS_SIZE\"
if [[ -z \${SLURM_RESTART_COUNT:-} ]]; then ln -s $gpus \"\$BELLOWS_RUN_DIR/launcher.plan\"; $marker; kill -9 \$\$; fi"
  jobs[plan$gpus]=$(xc sbatch --parsable "${elastic[@]}" --output="plan$gpus.out" "plan$gpus.sh")
done
for gpus in 3 4; do poll 60 job_is "${jobs[plan$gpus]}" COMPLETED; done
is "$(out plan3.out)" $'run 1/1\nrun 3/1' "a rescued job has the size that was planned"
# Slurm 24.11 tells the job, too.
said=
! slurm_is_from 24.11 || said=$'slurmstepd: error: bellows: not four\n'
is "$(out plan4.out | sed 's/^slurmstepd-n[0-9]*:/slurmstepd:/; s/^\[[^]]*\] error/slurmstepd: error/')" "run 1/1"$'\n'"${said}run 1/1" "but none that an update of its owner's could not have"
like "$(cat "$CLUSTER/log/slurmctld.log")" \
  "refused an update of JobId=${jobs[plan4]} by uid 20001: .*not four" "which is in whose name it is asked for"
unlike "$(cat "$CLUSTER/log/slurmctld.log")" "JobId=${jobs[plan3]} changed by uid 0" "and never in root's"
reads=$(policy_reads)
mv "$policy.before" "$policy"
ok "the policy is as before" poll 20 reads_more_than "$reads"

# Contracts that can't be trusted, and directories that can't be written.
script tamper.sh <<<'exec 2>/dev/null
until [[ -e tampered ]]; do sleep 0.1; done
srun sh -c "echo [\$BELLOWS_TENANT]"; srun sh -c "echo [\$BELLOWS_TENANT]" | head -n 1'
job=$(xc sbatch --parsable "${elastic[@]}" --output=tamper.out tamper.sh)
poll 20 node 1 test -e "/run/bellows/$job/contract"
node 1 sh -c "chmod o+w /run/bellows/$job/contract"
touch "$home/tampered"
poll 30 job_is "$job" COMPLETED
is "$(out tamper.out)" $'[vision]\n[vision]' "a contract that others may write is written again"
is "$(node 1 stat -c '%U:%a' "/run/bellows/$job/contract")" "root:644" "as slurmctld has it"
isnt "$(slurmd_log "/run/bellows/$job/contract: not trusted")" "" "and the log names the file"

script lost.sh <<<'exec 2>/dev/null
echo here; until [[ -e lost ]]; do sleep 0.1; done; unset BELLOWS_TENANT
for keep in --export=ALL --export=NONE; do
  env -u BELLOWS_CONTRACT srun $keep /bin/bash -c "echo \$BELLOWS_TENANT
    test -d \$BELLOWS_RUN_DIR && echo \$BELLOWS_CHECKPOINT_DIR"
  touch asked; until [[ -e again ]]; do sleep 0.1; done
done'
job=$(xc sbatch --parsable "${elastic[@]}" --output=lost.out lost.sh)
poll 20 grep -q here "$home/lost.out"
lose() { node 1 sh -c "umount -ql '/run/bellows/$1/user'; rm -rf '/run/bellows/$1'"; } # JOB
lose "$job"
touch "$home/lost"
poll 20 test -e "$home/asked"
lose "$job"
touch "$home/again"
poll 30 job_is "$job" COMPLETED
told=$'\nvision\n'"$CLUSTER/shared/checkpoints/alice/$job"
is "$(out lost.out)" "here$told$told" \
  "a node that lost its /run gets the contract again from slurmctld, whatever the step's environment"
is "$(node 1 cat "/run/bellows/$job/contract" | cut -d' ' -f1-4)" \
  "bellows/1 tenant=vision framework=digits:1.0 gpus=1-8" "and keeps it"

# An operator who rewrites AdminComment, with Bellows in slurmctld and without.
script rewritten.sh <<'S'
exec 2>/dev/null
for turn in 1 2; do
  echo "here $turn"; until [[ -e rewritten.$turn ]]; do sleep 0.1; done
  srun --overlap sh -c 'echo "[$BELLOWS_TENANT] $(ls /tmp | grep -c host)"'
done
S
job=$(xc sbatch --parsable -w n1 "${elastic[@]}" --output=rewritten.out rewritten.sh)
poll 20 grep -q 'here 1' "$home/rewritten.out"
node 1 touch /tmp/host
line=$(xc scontrol show job "$job" | sed -n 's/^ *AdminComment=//p' | sed 's/ *$//')
comment_is() { # TEXT
  [[ $(xc scontrol show job "$job" | sed -n 's/^ *AdminComment=//p' | sed 's/ *$//') == "$1" ]]
}
rewrite() { xc --user root scontrol update "jobid=$job" "admincomment=$1"; } # TEXT
ok "an operator rewrites AdminComment" rewrite JS1:H4sI
ok "which keeps the contract before what is written" comment_is "$line ; JS1:H4sI"
rewrite ''
ok "also where he empties it" comment_is "$line"
lose "$job"
touch "$home/rewritten.1"
poll 30 grep -q 'here 2' "$home/rewritten.out"
is "$(sed -n 2p "$home/rewritten.out")" "[vision] 0" "a node that has lost the contract isolates the job"
mc stop-ctld
sed -i.before 's/^JobSubmitPlugins=/#&/' "$CLUSTER/etc/slurm.conf"
mc start-ctld
ok "without the plugin in slurmctld the rewrite is all there is" rewrite JS1:other
ok "and holds" comment_is JS1:other
mc stop-ctld
mv "$CLUSTER/etc/slurm.conf.before" "$CLUSTER/etc/slurm.conf"
mc start-ctld
# slurmctld takes no steps until the node has answered it, and an srun that came before waits for long.
takes_steps() { TAP_LIMIT=5 xc srun --quiet --jobid="$job" --overlap true; }
poll 60 takes_steps
lose "$job"
touch "$home/rewritten.2"
poll 40 job_is "$job" COMPLETED
is "$(sed -n 4p "$home/rewritten.out")" "[vision] 0" "yet the node asks slurmctld, which has the contract elsewhere"
ok "and puts it back" comment_is "$line ; JS1:other"
node 1 rm /tmp/host

script unnoted.sh <<'S'
until [[ -e unnoted ]]; do sleep 0.1; done
srun sh -c 'echo "[$BELLOWS_TENANT]"'
S
job=$(xc sbatch --parsable -w n1 --output=unnoted.out unnoted.sh)
poll 20 node 1 test -e "/run/bellows/$job"
node 1 rm "/run/bellows/$job"
touch "$home/unnoted"
poll 30 job_is "$job" COMPLETED
is "$(out unnoted.out)" "[]" "a plain job whose node has forgotten it continues"
is "$(node 1 stat -c %F "/run/bellows/$job")" "regular empty file" "and is noted again"

# A user who fills his directory, and a node without room.
node 1 mount -o remount,size=96m,nr_inodes=20000 /run
node 1 touch /tmp/host
script fill.sh <<'S'
cd "$BELLOWS_RUN_DIR"
head -c 200000000 /dev/zero >big
while : >"$((++i))"; do :; done
echo filled
sleep 300
S
filler=$(xc sbatch --parsable -w n1 "${elastic[@]}" --output=fill.out fill.sh)
poll 30 grep -q filled "$home/fill.out"
see='test -e /tmp/host && echo on the host; echo "[$BELLOWS_TENANT]"; touch "$BELLOWS_RUN_DIR/mine" && echo writes'
bobs() { xc --user bob srun -w n1 --framework=digits --gpus=1 sh -c "$see" 2>&1; }
isolated=$'[vision]\nwrites'
is "$(bobs)" "$isolated" "a user who fills his directory takes no room from others"
node 1 sh -c 'cat /dev/zero >/run/full' 2>/dev/null
is "$(bobs)" "$isolated" "a job is isolated even if the node has no room for its contract"
node 1 bash -c 'mkdir /run/names; while : >"/run/names/$((++i))"; do :; done' 2>/dev/null
like "$(bobs)" "bellows: container: preparing the job's view: .*/run/bellows/[0-9]*(/user)?: No such file" \
  "one for which it has no room at all is refused"
is "$(xc srun -w n1 echo plain)" plain "and plain jobs run"
node 1 rm -r /run/full /run/names /tmp/host

# What is kept for a job goes long after it.
node 1 sh -c "mkdir /run/bellows/9999; cp /run/bellows/$filler/contract /run/bellows/9999
  touch -d '8 days ago' /run/bellows/9999 /run/bellows/$filler; touch -d '2 hours ago' /run/bellows/$job"
ok "a job starts" xc srun -w n1 true
exits "what was kept for a job that slurmctld no longer knows is removed" 1 node 1 test -e /run/bellows/9999
ok "but not what is kept for one that runs" node 1 test -e "/run/bellows/$filler/contract"
exits "and notes go sooner" 1 node 1 test -e "/run/bellows/$job"
xc scancel "$filler"
poll 30 job_is "$filler" CANCELLED

# The launcher dies while slurmctld is away.
script away.sh <<<"if [[ -z \${SLURM_RESTART_COUNT:-} ]]; then
  $marker; echo marked; until [[ -e away ]]; do sleep 0.1; done; kill -9 \$\$; fi; echo again"
job=$(xc sbatch --parsable "${elastic[@]}" --output=away.out away.sh)
poll 20 grep -q marked "$home/away.out"
mc stop-ctld
touch "$home/away"
sleep 2
mc start-ctld
poll 60 job_is "$job" COMPLETED
is "$(out away.out)" $'marked\nagain' "a job whose launcher dies while slurmctld is down is rescued later"

for i in 1 2; do
  node "$i" sh -c 'umount -l /run/bellows/views; rm -rf /run/bellows && echo >/run/bellows'
done
is "$(xc srun sh -c 'echo plain')" plain "without a place for contracts plain jobs run"
like "$(xc srun "${elastic[@]}" sh -c 'echo started' 2>&1)" \
  "bellows: container: preparing the job's view: .*/run/bellows.*Not a directory" \
  "and elastic ones are refused, since they can't be isolated"
isnt "$(slurmd_log "the contract can't be kept")" "" "with a line in the log"
ok "and no node is drained" poll 10 nodes_idle
for i in 1 2; do node "$i" rm /run/bellows; done

sed -i 's|spank_bellows.so.*|spank_bellows.so debug run_dir=here|' "$CLUSTER/etc/plugstack.conf"
is "$(xc srun --quiet sh -c 'echo plain' 2>&1)" plain "wrong arguments in plugstack.conf stop nobody"
is "$(xc srun "${elastic[@]}" sh -c 'echo $BELLOWS_TENANT')" vision "and the defaults hold"
isnt "$(slurmd_log 'plugstack.conf: run_dir must be an absolute path')" "" "the log says what is wrong"
ok "and no node is drained" poll 10 nodes_idle
done_testing
