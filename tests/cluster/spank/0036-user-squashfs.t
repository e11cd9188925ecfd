#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 360
# A squashfs file of a user's own, outside of the site's directories: a server of the user's reads it,
# never the kernel; one for the steps of a job, and gone with it, whatever dies.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"
[[ -x /usr/bin/squashfuse_ll && -e /dev/fuse ]] || skip_all "needs squashfuse_ll and /dev/fuse"

conf=$(mktemp)
printf 'KillWait=%s\n' "$(seconds 8)" >"$conf"
container_cluster_up "" --nodes=1 --slurm-conf "$conf"
rm -f "$conf"
home=$CLUSTER/shared/home/alice
own=$home/own.sqsh
make_tree "$home/tree"
echo late >"$home/tree/etc/late"
make_squashfs "$home/tree" "$own"
chown -R 20001:20101 "$home/tree" "$own"
chmod 600 "$own"
sed -i "s#images: .*#images: [\"$CLUSTER/*\"]#" "$CLUSTER/etc/bellows.yaml"
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
node() { mc exec --user root --node 1 -- "$@"; }
server() { node pgrep -x squashfuse_ll | xargs; }
no_server() { [[ -z $(server) ]]; }
loops() { cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -cxF "$1"; }
# Whether the kernel reads FILE, to which IMAGE leads, while a step runs in it; it names the cluster's files from the mount on.
loops_of() { run --container-image="$1" sh -c "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -q '${CLUSTER##*/}/.*$2$' && echo yes; true"; }
works() { [[ $(run --container-image="$own" cat /etc/environment) == IMAGE_SAYS=hello ]]; }

ok "a step runs in a squashfs file of its user's" poll 20 works || diag "$(run --container-image="$own" true)"
ok "whose server goes with the job" poll 10 no_server
is "$(loops_of "$own" own.sqsh)" "" "the kernel has not mounted it"
is "$(cd "$home" && run --container-image=./own.sqsh --ntasks=2 --container-writable sh -c \
  'echo $SLURM_PROCID >/written && test -e /etc/environment && echo wrote' | xargs)" "wrote wrote" "it can be written over"
is "$(run --container-image="$own" --container-remap-root --container-writable sh -c \
  'id -u; stat -c %u /etc/environment; chmod 600 /etc/environment && echo mine >>/etc/environment && tail -n 1 /etc/environment' |
  xargs)" "0 0 mine" "and its user be root in it, whose files root's are"
is "$(run --container-image="$own" --container-writable sh -c \
  'stat -c %u /etc/environment; chmod 600 /etc/environment && cat /etc/environment' | xargs)" "20001 IMAGE_SAYS=hello" \
  "the user's they are, too, to a user who is not root"
xc mksquashfs "$home/tree" "$home/users.sqsh" -quiet -no-progress >/dev/null
is "$(run --container-image="$home/users.sqsh" --container-writable sh -c \
  'stat -c %u /etc/environment; chmod 600 /etc/environment && cat /etc/environment' | xargs)" "20001 IMAGE_SAYS=hello" \
  "and so are the user's in a file that says whose they are"
like "$(xc --user bob srun --quiet --mpi=none --container-image="$own" true 2>&1)" 'own.sqsh: Permission denied' \
  "to others it is as open as the file is"

# Links and directories.
ln -s "$images/busybox.sqsh" "$home/link.sqsh"
is "$(loops_of "$home/link.sqsh" busybox.sqsh)" yes "a link to a file of the site's is that file"
is "$(cd "$home" && run --container-image=./tree --container-writable sh -c 'cat /etc/environment; touch /made')" \
  "IMAGE_SAYS=hello" "a directory of the user's is an image too"

# A container is saved to such a file.
saved=$home/saved.sqsh
like "$(cd "$home" && run --container-image="$own" --container-writable --container-mounts="$home:/mounted" \
  --container-save=./saved.sqsh sh -c 'echo more >/more; echo ended')" 'ended.*container is saved to .*/saved.sqsh' "a container is saved"
is "$(stat -c '%u %a' "$saved") $(run --container-image="$saved" sh -c 'cat /more /etc/late; ls -A /mounted')" \
  "20001 644 more"$'\n'late "to a file of its user's, with what was written and without what was mounted" || diag "$(ls -lA "$home")"
like "$(run --container-image="$saved" --container-save="$saved" --container-writable sh -c 'echo again >/again')" \
  'container is saved to ' "also over the file from which it starts"
is "$(run --container-image="$saved" cat /again /more | xargs)" "again more" "with what that had"
like "$(run --container-image="$own" --container-save=/etc/saved.sqsh echo ran)" \
  'slurmstepd: error: bellows: container: looking at .* to /etc/saved.sqsh: Permission denied; name a file' "a file that cannot be written is refused first"
# Stopped by its user, what saves would take for ever.
run --job-name=saved --container-image="$own" --container-save="$home/killed.sqsh" --container-writable sh -c \
  'cat /proc/self/cgroup; head -c 200000000 /dev/urandom >/large' >"$home/killed.out" &
# It may be there for a moment only.
stopped() { xc --node 1 timeout "$(seconds 30)" sh -c 'until pkill -STOP -x mksquashfs; do sleep 0.02; done'; }
ok "what saves a container can be stopped by its user" stopped
saver=$(node pgrep -x mksquashfs)
is "$(node cat "/proc/$saver/cgroup" "/proc/$saver/oom_score_adj")" "$(cat "$home/killed.out")"$'\n'0 "it is in the step's cgroups"
xc scancel --name=saved
wait $! || true
no_saver() { [[ -z $(xc squeue -h) && -z $(node pgrep -x mksquashfs) ]]; }
ok "and ends with its job" poll "$(seconds 20)" no_saver
is "$(cd "$home" && printf '%s\n' ./*killed* ./.*killed*)" "./killed.out"$'\n'"./.*killed*" "which leaves no file"
run --container-image="$own" --container-save="$home/killed.sqsh" sh -c 'kill $$' >/dev/null
unsaved() { grep -q 'container was not saved, since signal 15 ended a task' "$CLUSTER/log/slurmd-n1.log"; }
ok "a step whose task is killed is not saved" poll 10 unsaved
is "$(cd "$home" && echo ./*killed.sqsh)" "./*killed.sqsh" "at all"

# What is none.
head -c 100000 /dev/urandom >"$home/noise.sqsh"
{ head -c 96 "$own"; head -c 100000000 /dev/zero; } >"$home/hollow.sqsh"
head -c 3000 "$own" >"$home/cut.sqsh"
like "$(run --container-image="$home/noise.sqsh" true)" 'noise.sqsh is not a squashfs image' "noise is no image"
like "$(run --container-image="$home/cut.sqsh" true)" 'cut.sqsh is truncated: 3000 of' "nor is half of one"
like "$(run --container-image="$home/hollow.sqsh" true)" 'mounting the image: .*hollow.sqsh.*; ' \
  "what its server can't read is an error"
spank_args "image_dirs=$images squashfuse=/no/such/program"
like "$(run --container-image="$own" true)" 'ask the administrator to install squashfuse, or use a directory' \
  "a node without the program says so"
spank_args "image_dirs=$images squashfuse=no"
like "$(run --container-image="$own" true)" "squashfs images must lie in $images" "a site may refuse such files"
spank_args "image_dirs=$images phase_seconds=$(seconds 3)"
ok "and nothing is left of any of these" poll 15 no_server

# One server for a job, which lives as long.
id=$(xc salloc --no-shell --container-image="$own" -n2 2>&1 | sed -n 's/.*Granted job allocation //p')
[[ -n $id ]] || bail "no allocation"
step() { run --jobid="$id" --overlap "$@"; }
step -n1 true
first=$(server)
like "$first" '^[0-9]+$' "a step's end is not its server's"
is "$(node stat -c %U "/proc/$first") $(node awk '/^(CapPrm|NoNewPrivs|Seccomp:)/ { print $2 }' "/proc/$first/status" | xargs)" \
  "alice 0000000000000000 1 0" "which is the user's, without any right"
like "$(node cat "/proc/$first/cgroup")" "job_$id" "it counts for the job"
unlike "$(node cat "/proc/$first/cgroup")" "step_" "and for none of its steps"
# It may have several connections, one for each thread.
is "$(node ls -l "/proc/$first/fd" | sed -nE 's,.* -> .*/(fuse|own.sqsh|null|memfd:said).*,\1,p; t; s,.* -> ,,p' | sort -u | xargs)" \
  "fuse memfd:said null own.sqsh" \
  "it has the file, and nothing that it does not need"
step -n2 true
step -n1 --container-writable true
is "$(server)" "$first" "later steps share it"

# Nobody else can be made to wait for it.
(step -n1 sh -c 'mknod /tmp/leave p; read x </tmp/leave; cat /etc/late') \
  >"$home/left.out" 2>&1 &
ok "a step that runs when the server is killed" poll 10 node pgrep -f 'sh -c mknod'

# Its user may end or stop it.
xc --node 1 kill -9 "$first"
ok "the server can be killed by its user" poll 10 no_server
leave() { step -n1 --container-image=/ sh -c 'test -p /tmp/leave && echo >/tmp/leave'; }
ok "a step on the host still starts" poll 5 leave
wait $!
like "$(<"$home/left.out")" 'not connected|Bus error' "tasks are told that the server is gone"
is "$(step -n1 cat /etc/environment)" "IMAGE_SAYS=hello" "the next step has a new one"
second=$(server)
isnt "$second" "$first" "which is another process"
xc --node 1 kill -STOP "$second"
begin=$SECONDS
like "$(step -n1 true)" 'took longer than [0-9]+ s, so the task was ended' "a stopped one costs a step its deadline"
ok "and no more" test $((SECONDS - begin)) -le "$(seconds 15)"
xc --node 1 kill -CONT "$second"
is "$(step -n1 cat /etc/environment)" "IMAGE_SAYS=hello" "and nothing once it goes on"

xc scancel "$id"
ok "a job's end is its server's" poll 15 no_server
ok "and its views'" poll 15 nothing_mounted 1

# A job that is told to end still has its files: those too that it reads for the first time.
cat >"$home/grace.sh" <<'S'
#!/bin/bash
srun --quiet --mpi=none sh -c 'trap "sleep 2; cat /etc/late >/out/late; exit" TERM
  touch /out/ready; while :; do sleep 0.2; done'
S
mkdir "$home/out"
chown 20001 "$home/out"
id=$(xc sbatch --parsable --output=/dev/null --container-image="$own" --container-mounts="$home/out:/out" "$home/grace.sh")
ok "a job that does something at its end" poll 20 test -e "$home/out/ready"
xc scancel "$id"
ok "reads its image after it was told to end" poll "$(seconds 8)" grep -qsx late "$home/out/late"
ok "and then its server goes" poll 20 no_server

# A job that was submitted without such options: only its steps have them.
id=$(xc salloc --no-shell -n1 2>&1 | sed -n 's/.*Granted job allocation //p')
is "$(step -n1 --container-image="$own" cat /etc/environment)" "IMAGE_SAYS=hello" "a step of a plain job has one too"
xc --node 1 kill -STOP "$(server)"
xc scancel "$id"
ok "which goes with the job, even when it is stopped" poll 15 no_server

# slurmstepd is killed: Slurm leaves the step's process to itself, and after it the next job leaves nothing.
id=$(xc salloc --no-shell --container-image="$own" -n1 2>&1 | sed -n 's/.*Granted job allocation //p')
(step -n1 sleep 15) >/dev/null 2>&1 &
ok "a server for a job whose slurmstepd is killed" poll 10 node pgrep -x squashfuse_ll
node pkill -KILL -x slurmstepd
wait $! || true
xc scancel "$id"
idle() { run true; nothing_mounted 1 && no_server; }
ok "is gone after the next job" poll 45 idle || diag "$(node ps -eo pid,ppid,user,args)"
is "$(loops "$own")" 0 "and nothing is bound to a loop device"
done_testing
