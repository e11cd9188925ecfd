#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# What bellows-operate(7) tells an administrator to do while jobs run: upgrade, recover, uninstall.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4
opt=$CLUSTER/shared/opt
conf=$CLUSTER/etc/slurm.conf
plugins=lib/slurm-bellows

node() { # I COMMAND...
  local i=$1
  shift
  xc --user root --node "$i" "$@"
}
place() { # VERSION
  make -s -C "$build" install prefix="$opt/$1" >"$CLUSTER/install" 2>&1 || bail "$(tail -n 5 "$CLUSTER/install")"
}
switch() { # VERSION
  ln -sfn "$1" "$opt/new"
  mv -T "$opt/new" "$opt/current"
}
restart_ctld() { mc stop-ctld && mc start-ctld; }
no_slurmd() { ! node "$1" pgrep -x slurmd; }
restart_slurmd() { # I
  node "$1" pkill -x slurmd
  poll 20 no_slurmd "$1" && node "$1" slurmd -N "n$1" -f "$conf"
}
restart_all() { restart_ctld && restart_slurmd 1 && restart_slurmd 2 && poll 30 xc sinfo; }
submit_long() { # NAME
  printf '#!/bin/bash\nexec %s/current/bin/bellows run'"$run_kind"' -- %s --log %s.log --until %s.last --steps 1000000 --sleep-us 5000 --save-every 50\n' \
    "$opt" "$counter" "$1" "$1" >"$CLUSTER/shared/home/alice/$1.sh"
  submit -- --framework=digits --gpus-range=1-8 --gpus=2 --job-name="$1" --output="$1.out" "$1.sh"
}
launcher_is_of() { # JOB VERSION
  local pid
  for pid in $(pids_of "$1" bellows 'bellows run '); do
    [[ $(readlink "/proc/$pid/exe") == */opt/$2/bin/bellows ]] || return 1
  done
  [[ -n $pid ]]
}
uses_of() { # VERSION: the programs of it that node 1 runs, without doubles
  node 1 bash -c 'ls -l /proc/[0-9]*/exe 2>/dev/null' | grep -o "/opt/$1/bin/.*" | sort -u
}
# Which versions' plugins slurmctld has open.
plugin_of_ctld() {
  xc --user root bash -c 'grep -o "opt/[0-9]*/lib/slurm-bellows/job_submit_bellows.so" "/proc/$(pgrep -x slurmctld)/maps"' | sort -u
}
# Makes version 3's plugin one that was built for another Slurm, and says for which.
built_for() { # PLUGIN "MAJOR MINOR MICRO", more
  cp "$opt/2/$plugins/$1_bellows.so" "$opt/3/$plugins"
  # shellcheck disable=SC2086
  "$TAP_HOME/other_release.py" "$opt/3/$plugins/$1_bellows.so" $2
}
# The jobs that have a contract, as the manual finds them.
with_contract() {
  xc --user root scontrol --oneliner show job | sed -n 's/^JobId=\([0-9]*\) .* JobState=\(PENDING\|RUNNING\) .* AdminComment=bellows\/1 .*/\1/p'
}
goes_on() { # JOB
  local from
  from=$(committed "$1")
  poll 30 commits_past "$1" "$((from + 99))" && job_is "$1" RUNNING
}

### An upgrade of Bellows, each version in a folder of its own.
place 1
switch 1
sed -i "s,^\(PluginDir=.*\):[^:]*$,\1:$opt/current/$plugins," "$conf"
sed -i "s,[^ ]*spank_bellows.so,$opt/current/$plugins/spank_bellows.so," "$CLUSTER/etc/plugstack.conf"
ok "a cluster runs version 1" restart_all
id=$(submit_long long)
poll 40 commits_past "$id" 49 || bail "the job does not commit"
ok "so does a job" launcher_is_of "$id" 1

place 2
switch 2
ok "version 2 comes, and the daemons start again" restart_all
ok "the job continues" goes_on "$id"
is "$(plugin_of_ctld)" opt/2/lib/slurm-bellows/job_submit_bellows.so "slurmctld has the plugin of version 2"
ok "a rank of it dies" kill_one "$id" counter "$counter"
poll 40 has_starts long 2
ok "and is started again" goes_on "$id"
ok "by the launcher that it had" launcher_is_of "$id" 1
is "$(uses_of 1 | wc -l)" 1 "as the manual finds on the node"
ok "it is resized" xc "$opt/current/bin/bellows" resize --timeout 100 "$id" 3
ok "and is run by version 2 then" poll 20 launcher_is_of "$id" 2
like "$(last_start long step)" '^[1-9]' "from its checkpoint"
is "$(uses_of 1)" "" "and the manual finds none of version 1"
rm -r "${opt:?}/1"
ok "version 1 can go" goes_on "$id"

### slurmctld does not load the plugin.
# Its ABI may differ from one micro release to the next.
mkdir -p "$opt/3/$plugins"
cp "$opt/2/$plugins/spank_bellows.so" "$opt/3/$plugins"
switch 3
mc stop-ctld
for more in "0 0 1" "0 0 -1" "0 1 0"; do
  version=$(built_for job_submit "$more")
  exits "with a plugin that was built for $version slurmctld does not start" 1 xc --user root slurmctld -D -f "$conf"
  like "$(tail -n 5 "$CLUSTER/log/slurmctld.log")" \
    "Incompatible Slurm plugin [^ ]*job_submit_bellows.so version .$version.*fatal: failed to initialize job_submit plugin" \
    "and says why, in words that the manual has"
done
sed -i 's/^JobSubmitPlugins=bellows/#&/' "$conf"
ok "without its line slurmctld starts" mc start-ctld
ok "the job continues" goes_on "$id"
is "$(job_field "$(submit -- --framework=digits --gpus=1 --hold --wrap true)" AdminComment)" "" "new jobs get no contract"
switch 2
sed -i 's/^#\(JobSubmitPlugins=bellows\)/\1/' "$conf"
ok "with the right plugin and its line slurmctld starts again" restart_ctld
is "$(job_field "$id" AdminComment)" bellows/1 "the job still has its contract"
exits "which holds" 3 xc "$opt/current/bin/bellows" resize "$id" 9

### A node does not load the SPANK plugin, which plugstack.conf says is required.
node_is() { [[ $(xc sinfo --noheader --Node --nodes="$1" --format='%T %E') =~ $2 ]]; }
held=$(submit -- --framework=digits --gpus=1 --hold --nodelist=n2 --output=held.out --wrap 'touch ran')
built_for spank "0 1 0" >/dev/null || bail "its version is not found"
switch 3
xc --user root scontrol release "$held"
ok "the node is drained" poll 20 node_is n2 '^drain(ed|ing) Prolog error'
switch 2
is "$(job_field "$held" JobState):$(job_field "$held" Reason)" PENDING:launch_failed_requeued_held "the job that came to it waits, held"
ok "and has run nowhere" test ! -e "$CLUSTER/shared/home/alice/ran"
like "$(tail -n 20 "$CLUSTER/log/slurmd-n2.log")" "Failed to load plugin .*spank_bellows.so. Aborting" "slurmd's log says why"
xc --user root scontrol update node=n2 state=resume
xc --user root scontrol release "$held"
ok "both are well again with the plugin" poll 40 job_is "$held" COMPLETED
# Slurm asks nothing more of a SPANK plugin than that it is for the same release, such as 22.05.
version=$(built_for spank "0 0 1")
micro=$(submit -- --framework=digits --gpus=1 --hold --nodelist=n2 --output=micro.out --wrap 'stat -c %d:%i /tmp')
switch 3
xc --user root scontrol release "$micro"
ok "a job runs with a plugin that was built for $version" poll 40 job_is "$micro" COMPLETED
isnt "$(xc cat micro.out)" "$(node 2 stat -c %d:%i /tmp)" "and has a /tmp of its own"
switch 2

### Bellows goes.
sed -i 's/^version: 1$/&\nenabled: false/' "$CLUSTER/etc/bellows.yaml"
has_no_contract() { [[ -z $(job_field "$(submit -- --gpus=1 --framework=digits --hold --wrap true)" AdminComment) ]]; }
ok "switched off, it gives no job a contract" poll 20 has_no_contract
xc --user root scancel --state=PENDING
ok "what it has admitted continues" goes_on "$id"
is "$(with_contract)" "$id" "and is found by its contract"
let_end long "$id" 100
ok "to its end" poll 40 job_is "$id" COMPLETED
is "$(with_contract)" "" "after which there is none"
sed -i "/^JobSubmitPlugins=/d; s,:$opt/current/$plugins,," "$conf"
: >"$CLUSTER/etc/plugstack.conf"
rm -r "$opt"
ok "the daemons start again without it" restart_all
like "$(xc sbatch --framework=digits --wrap true 2>&1)" "unrecognized option '--framework" "sbatch knows nothing of it"
plain=$(submit -- --gpus=1 --wrap true)
ok "plain jobs run" poll 20 job_is "$plain" COMPLETED
for i in 1 2; do
  node "$i" umount /run/bellows/views
  node "$i" rm -r --one-file-system /run/bellows
  is "$(node "$i" findmnt --noheadings --output TARGET --raw | grep bellows/)" "" "nothing of it is left on node $i"
done
done_testing
