#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# What scripts written for pyxis find in a container: flags of mounts, $HOME, where tasks start, the variables of
# enroot's hooks, and what a name keeps.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "" --nodes=1
shared=$CLUSTER/shared
home=$shared/home/alice
torch=$images/torch
run() { xc srun --quiet --mpi=none --container-image="$torch" "$@" 2>&1; }

# As enroot leaves an image.
make_tree "$torch"
mkdir "$torch/work"
printf 'PYTORCH_VERSION=2.1\nONLY=image\nBOTH=image\n' >"$torch/etc/environment"
printf '# docker://none\n\nmkdir -p "/work" 2> /dev/null\ncd "/work" && unset OLDPWD || exit 1\ntouch /tmp/was-run\n' >"$torch/etc/rc"

said=$(xc env BOTH=job RANK=outer MASTER_ADDR=outer srun --quiet --mpi=none -n2 --overcommit --container-image="$torch" \
  --container-env=ONLY,BOTH sh -c 'echo $SLURM_JOB_ID $(pwd) $ONLY $BOTH $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT
    test ! -e /tmp/was-run || echo run' 2>&1)
id=${said%% *}
is "$(sort <<<"$said" | xargs)" "$(for rank in 0 1; do echo "$id /work image job $rank $rank 2 n1 $((id % 4536 + 61000))"; done | xargs)" \
  "tasks start in the image's WORKDIR, with its variables and those of PyTorch"

said=$(run --container-mounts="$shared:/a:unbindable+ro+noatime,tmpfs:/b:mode=700+huge=never+size=1048576,$shared:/c:rslave+relatime+defaults,/none:/d:nofail,$shared:/e:x-move" \
  sh -c 'grep -v " / / " /proc/self/mountinfo; ls -d /e/home')
like "$said" ' /a ro,nosuid,nodev,noatime unbindable - ' "mounts have the flags of enroot: unbindable"
like "$said" ' /b rw[^-]* - tmpfs [a-z]+ [^ ]*size=1024k[^ ]*mode=700' "of tmpfs"
like "$said" ' /c rw,[a-z,]+ - ' "and those that change nothing"
like "$said" 'container: the container is without the mount at /d \(nofail\): cannot open /none: No such file' "nofail goes without, and says so"
like "$said" '/e/home' "x-move is there"
like "$(run --container-mounts=/home:../home true)" 'srun: error: bellows: --container-mounts: .*leads out of the container' \
  "a target does not lead out of the container"
like "$(run --container-mounts=/etc/shadow:/x true)" 'cannot mount /etc/shadow: Permission denied' "nor a source to what is root's"

mkdir "$home/other"
touch "$home/other/mine"
is "$(xc env HOME="$home/other" srun --quiet --mpi=none --container-image="$torch" --container-mount-home --container-remap-root ls /root 2>&1)" \
  mine '--container-mount-home mounts $HOME'
mkdir -m 700 "$shared/closed"
like "$(xc env HOME="$shared/closed" srun --quiet --mpi=none --container-image="$torch" --container-mount-home true 2>&1)" \
  'closed: Permission denied' "with the user's rights"

# A name keeps the file tree, and what else there is as long as a step runs in it.
cat >"$home/named.sh" <<S
#!/bin/bash
tell() { local name=\$1; shift; srun --quiet --mpi=none -n1 --overlap "\$@" 2>&1 | sed "s/^/\$name: /"; }
tell made --container-name=t --container-image=$images/busybox.sqsh --container-writable sh -c 'echo kept >/kept; cat /kept'
tell mounted --container-name=t --container-mounts=$shared:/data ls -d /data/home /kept /data
tell closed --container-name=t --container-readonly touch /kept
tell open --container-name=t --container-writable sh -c 'cat /kept; ls /data; echo more >/more; cat /more'
tell home --container-name=t --container-mount-home ls \$HOME/named.sh
tell tree --container-name=d --container-image=$torch ls /more
tell trees --container-name=d --container-mounts=$shared:/data ls -d /data/home
tell runs --container-name=t --container-mounts=$home:/first sh -c '>/first/running; while ! test -e /first/stop; do sleep 0.1; done' &
for i in {1..300}; do [[ ! -e $home/running ]] || break; sleep 0.1; done
tell beside --container-name=t:exec --container-mounts=$shared:/second --container-writable sh -c 'ls -d /first/named.sh; ls -d /second; touch /first/here /kept'
tell apart --container-name=t:no_exec --container-mounts=$shared:/third ls -d /third/home /kept
touch $home/stop
wait
tell alone --container-image=$images/busybox.sqsh --container-writable --container-mounts=$home:/first sh -c \
  'echo own >/own; echo \$SLURM_JOB_ID.\$SLURM_STEP_ID >/first/step.new; ln /first/step.new /first/step; while ! test -e /first/end; do sleep 0.1; done' &
for i in {1..300}; do [[ ! -e $home/step ]] || break; sleep 0.1; done
tell joins --container-name=\$(<$home/step) --container-mounts=$shared:/second cat /own
touch $home/end
wait
tell ended --container-name=\$(<$home/step) true
tell exec --container-name=t:exec true
tell last --container-name=t cat /kept /more
S
chmod 755 "$home/named.sh"
xc sbatch --quiet --wait --output=named.out -n4 --overcommit --container-image="$torch" named.sh >/dev/null 2>&1
said=$(cat "$home/named.out")
line() { sed -n "s/^$1: //p" <<<"$said" | xargs; }
is "$(line made)" kept "a container with a name can be written to"
is "$(line mounted)" "/data /data/home /kept" "a later step has mounts of its own in it, and finds what was written" || diag "$said"
like "$(line closed)" 'Read-only file system' "or only reads it"
is "$(line open)" "kept more" "or writes again, without the mounts of the step before"
is "$(line home)" "$home/named.sh" "or has the home directory"
is "$(line trees)" /data/home "also in a directory" || diag "$said"
like "$(line beside)" 'another step runs in the container t; ignoring --container-mounts, --container-writable' "beside a running step it says what it ignores"
like "$(line beside)" '/first/named.sh.*/second: No such file.*/kept: Read-only' "and has what that one has"
is "$(line apart)" "/kept /third/home" "no_exec takes the file tree alone"
like "$(line joins)" 'step [0-9.]+ made the container; ignoring --container-mounts own$' "JOB.STEP is a step's container without a name"
like "$(sed -n 's/^ended: //p' <<<"$said")" 'step [0-9.]+ does not run in a container without a name on this node' "as long as it runs"
like "$(line exec)" 'the container t exists, but no step runs in it' "exec needs one that runs" || diag "$said"
is "$(line last)" "kept more" "and all of it stays until the job ends"

if [[ -z $has_pmix ]]; then
  skip "PMIx's modules are told" "this Slurm has no mpi/pmix"
else
  is "$(xc srun --quiet --mpi=pmix --container-image="$torch" sh -c \
    '[ -n "$PMIX_MCA_psec" ] && echo $([ "$PMIX_MCA_psec" = "$PMIX_SECURITY_MODE" ] && [ "$PMIX_MCA_gds" = "$PMIX_GDS_MODULE" ] && echo same)' 2>&1)" \
    same "PMIx's modules are told"
fi
done_testing
