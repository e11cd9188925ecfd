#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Containers with a name that outlive their jobs (container_scope=global): what is written stays for the next job, one job
# at a time has it, and nothing in the user's directory gives anybody more than the user has.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

conf=$(mktemp)
echo KillWait=2 >"$conf"
container_cluster_up "" --nodes=1 --slurm-conf "$conf"
rm -f "$conf"
kept=$CLUSTER/containers
spank_args "image_dirs=$images container_scope=global containers_dir=$kept"
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
node() { mc exec --user root --node 1 -- "$@"; }
squash=$images/busybox.sqsh
alice=$kept/20001
mine=$alice/t

is "$(run --container-image="$squash" --container-name=t --container-writable sh -c 'echo first >/written; rm /bin/tr')" "" \
  "a job makes a container"
is "$(stat -c '%u %a' "$kept" "$alice" "$mine" | xargs)" "0 755 20001 700 20001 700" "in a directory of its user's"
is "$(run --container-name=t sh -c 'cat /written /etc/environment; ls /bin/tr; touch /none; true' 2>&1)" \
  "first"$'\n'"IMAGE_SAYS=hello"$'\n'"ls: /bin/tr: No such file or directory"$'\n'"touch: /none: Read-only file system" \
  "the next one finds it without an image, and reads it where it does not ask to write"
is "$(run --container-name=t --container-remap-root --container-writable --container-mounts=/etc:/data sh -c \
  'id -u; stat -c %u /written; echo second >>/written; test -e /data/passwd && echo mounted' | xargs)" "0 0 mounted" \
  "root in a container has it too, with mounts of its own"
is "$(run --container-name=t sh -c 'stat -c %u /written; cat /written; ls -A /data' | xargs)" "20001 first second" \
  "whose files are the user's again"
like "$(run --container-image="$squash" --container-name=t:create true)" 'the container t exists on this node already' \
  "create does not take it"
like "$(run --container-name=t:exec true)" 'no step runs in it on this node' "nor exec, since no step runs in it"
like "$(run --container-image="$images/busybox" --container-name=t cat /written)" \
  'the container t has the image .*busybox.sqsh; ignoring --container-image'$'\n'first$'\n'second "its image stays its own"
like "$(xc --user bob srun --quiet --mpi=none --container-name=t true 2>&1)" 'the container t does not exist on this node' \
  "other users have others"

saved=$CLUSTER/shared/home/alice/saved.sqsh
run --container-name=t --container-save="$saved" true >/dev/null
is "$(unsquashfs -cat "$saved" written 2>&1 | xargs)" "first second" "it is saved with what was written to it"

# One job at a time.
run --job-name=first --container-name=t --container-writable sh -c "echo third >>/written; sleep 300" >"$CLUSTER/first.out" &
runs() { grep -q third "$mine/upper/written"; }
ok "a job has it" poll 30 runs
first=$(ask_slurm squeue --noheader --name=first --format=%A)
like "$(run --container-name=t true)" "the container t is in use by job $first on this node" "a second job is told of the first"
holder() { node pgrep -x bellows-holder; }
is "$(node ps -o user:20=,args= -p "$(holder)" | awk '{ print $1 }')" alice "what keeps it for the job is the user's"
# Whatever ends a job: here all of it that runs on the node.
node pkill -KILL -x slurmstepd
xc scancel "$first"
wait
again() { [[ $(run --container-name=t cat /written | xargs) == "first second third" ]]; }
ok "it is whole and free when the slurmstepds of the job were killed" poll 60 again
no_holder() { ! holder; }
ok "and nothing keeps it" poll 20 no_holder
ok "nothing stays mounted" poll 20 nothing_mounted 1

# What its user sees and removes, and what the site does.
bellows=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}/launcher/bellows
own() { xc "$bellows" container "$@" --dir "$kept" 2>&1; }
like "$(own list)" "NAME .*"$'\n'"t +.* - +$squash" "a user sees the containers of a node"
like "$(run sh -c 'echo $BELLOWS_CONTAINERS_DIR')" "^$kept\$" "and a task where they are"
spank_args "image_dirs=$images container_scope=global containers_dir=$kept containers_budget=1M"
run --container-name=t --container-writable sh -c 'head -c 2000000 /dev/zero >/large'
like "$(run --container-image="$squash" --container-name=u true)" 'your containers on this node hold [0-9]+ MiB' \
  "who has too much in them gets no further one"
is "$(ls "$alice")$(run --container-name=t cat /written | head -n 1)" "tfirst" "nor is anything left of it, and the others go on"
spank_args "image_dirs=$images container_scope=global containers_dir=$kept containers_days=2"
is "$(run --container-image="$squash" --container-name=u sleep 0)$(own list --json | grep -c '"name"')" 2 "with more room there is another"
is "$(own remove u)" "removed u" "which its user removes"
run --container-image="$squash" --container-name=old true
touch -d '3 days ago' "$alice/old/lock" "$kept/.swept"
run true
removed() { [[ $(ls "$alice") == t ]]; }
ok "one that no job has used for long goes at the end of a job" poll 20 removed

# The user's own word for the image is none that binds the site.
forge() { rm "$mine/made-from" && ln -s "$1" "$mine/made-from"; }
truth=$(readlink "$mine/made-from")
forge "1 directory /etc"
like "$(run --container-name=t true)" 'this job may not use image /etc; its contract allows' "a forged record gives no image that the job may not use"
forge "1 directory ../etc"
like "$(run --container-name=t true)" 'the container t cannot be used' "nor one that no option could name"
forge "$truth"

# Another image under the layer.
touch "$squash"
like "$(run --container-name=t true)" 'the container t was made from .*busybox.sqsh as it was then, which is another image now' \
  "a file that was replaced is another image"
done_testing
