#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# bellows setup --print on a cluster with a configuration of its own: its lines make Slurm load
# Bellows, and are then all there.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

source_dir=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$source_dir/build}
bellows=$build/launcher/bellows
[[ -x $bellows ]] || skip_all "$bellows is not built"

cluster_up --no-plugins --nodes=1 --gpus=2
conf=$CLUSTER/etc/slurm.conf
log=$CLUSTER/log/slurmctld.log
plugins=$CLUSTER/shared/plugins
install -D -t "$plugins" "$build/jobsubmit/.libs/job_submit_bellows.so" "$build/spank/.libs/spank_bellows.so"

setup() { xc "$bellows" setup --print --plugin-dir "$plugins" "$@"; }

twice() { grep -c 'specified more than once' "$log"; }

sum_of_files() { cat "$CLUSTER"/etc/{slurm.conf,slurm.conf.bellows,cgroup.conf,plugstack.conf} | md5sum; }

# Does what the JSON on standard input says.
apply='
import json, sys
files = {}
for change in json.load(sys.stdin)["changes"]:
    files.setdefault(change["file"], []).append(change)
for path, changes in files.items():
    lines = open(path).read().splitlines()
    # From the end, so that the numbers stay right.
    for change in sorted(changes, key=lambda c: -(c["first_line"] or 1 << 30)):
        new = [change["new"]] if change["new"] else []
        if change["first_line"]:
            lines[change["first_line"] - 1:change["last_line"]] = new
        else:
            lines += new
    open(path, "w").write("\n".join(lines) + "\n")
'

### What a site may have, and the sample included into it.
mc stop-ctld
mc kill-node 1
sed -i 's/^PrologFlags=.*/PrologFlags=Serial/; s/^TaskPlugin=.*/TaskPlugin=affinity/; s/^GresTypes=.*//; /^SchedulerParameters/d' "$conf"
echo 'JobSubmitPlugins=all_partitions' >>"$conf"
echo 'SchedulerParameters=bf_continue,\
bf_interval=20' >>"$conf"
sed -i 's/^ConstrainDevices=.*/ConstrainDevices=no/' "$CLUSTER/etc/cgroup.conf"
cp "$source_dir/etc/slurm.conf.bellows" "$CLUSTER/etc/"
cp "$conf" "$CLUSTER/etc/slurm.conf.own"
sed -i "1iPluginDir=$(dirname "$(find /usr/lib -name select_cons_tres.so | head -n 1)"):$plugins" "$conf"
echo 'Include slurm.conf.bellows' >>"$conf"
: >"$log"
ok "slurmctld starts with the sample included into a file that has the keys" mc start-ctld
like "$(<"$log")" "JobSubmitPlugins 1 specified more than once" "and logs an error for each of them"
before=$(sum_of_files)
said=$(setup)
is "$?" 1 "there is something to do"
like "$said" "slurm.conf:[0-9]+: instead of JobSubmitPlugins=all_partitions .*"$'\n'"JobSubmitPlugins=all_partitions,bellows"$'\n' \
  "the line that is there is merged"
like "$said" "slurm.conf.bellows:[0-9]+: remove JobSubmitPlugins=bellows " "and the other one goes"
is "$(sum_of_files)" "$before" \
  "nothing is changed by itself"

### Without the sample, all is merged into the site's own files.
mc stop-ctld
cp "$CLUSTER/etc/slurm.conf.own" "$conf"
setup --json | python3 -c "$apply"
is "$(setup)" "# note: there is no $CLUSTER/etc/bellows.yaml on this machine; ctl needs it, see bellows.yaml(5)
# nothing to do" "with its lines there is nothing to do"
exits "which is a success" 0 setup
printf 'version: 1\nframeworks: {digits: }\ntenants: {vision: }\n' >"$CLUSTER/etc/bellows.yaml"
is "$(setup)" "# nothing to do" "and the policy was all that was left"
is "$(grep -c '^SchedulerParameters=bf_continue,bf_interval=20,batch_sched_delay=0,' "$conf")" 1 \
  "two lines that a backslash joined are one"
: >"$log"
ok "slurmctld starts" mc start-ctld
ok "and a node" mc start-node 1
is "$(twice)" 0 "no key appears twice"
ok "the node is idle" poll 30 node_is 1 idle
job=$(submit -- --account=vision --framework=digits --gpus=1 --output=/dev/null --wrap true)
like "$(job_field "$job" AdminComment)" '^bellows/1' "a job is admitted"
ok "and runs" poll 30 job_is "$job" COMPLETED
is "$(twice)" 0 "and still nothing is logged twice"

### What it cannot read.
said=$(xc --env SLURM_CONF=/nowhere/slurm.conf "$bellows" setup --print 2>&1)
is "$?:$said" "1:bellows setup: cannot open /nowhere/slurm.conf: No such file or directory" "no slurm.conf"
exits "without --print it does nothing" 2 xc "$bellows" setup
done_testing
