#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 400
# Containers on two nodes: each option alone and those that interact, as ordinary users.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

container_cluster_up "" --nodes=2 --gpus=4
echo 'trial:x:20109:alice' >>"$CLUSTER/etc/group"
home=$CLUSTER/shared/home/alice
shared=$CLUSTER/shared
chmod 777 "$shared"
squash=$images/busybox.sqsh
tree=$images/busybox
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
one() { run -w n1 --container-image="$squash" "$@"; }
script() { # FILE: a batch script from standard input
  { echo '#!/bin/bash'; echo "squash=$squash tree=$tree shared=$shared"; cat; } >"$home/$1"
  chmod 755 "$home/$1"
}
batch() { # FILE OPTION-OF-SBATCH...: runs it; what it printed
  local file=$1
  shift
  xc sbatch --quiet --wait --output="$file.out" "$@" "$file" >/dev/null 2>&1
  cat "$home/$file.out"
}

# The images.
is "$(one cat /etc/environment)" "IMAGE_SAYS=hello" "a step runs in a squashfs image"
is "$(run -w n1 --container-image="$tree" cat /etc/environment)" "IMAGE_SAYS=hello" "and in a directory"
is "$(one ls / | xargs)" "bin dev etc proc run sys tmp var" "which has nothing of the host but what it must"
is "$(one id -u)" 20001 "as the user himself"
is "$(one pwd)" / "in the image's root"
like "$(one sh -c 'exit 7'; echo "status $?")" 'status 7' "its exit status is the step's"
is "$(one sh -c 'echo $IMAGE_SAYS')" hello "the image's variables are set"
is "$(cd / && run -w n1 --container-image="$squash" --export=ALL,IMAGE_SAYS=host sh -c 'echo $IMAGE_SAYS')" \
  hello "and win over the step's"
is "$(run -w n1 --export=ALL,IMAGE_SAYS=host --container-env=IMAGE_SAYS --container-image="$squash" \
  sh -c 'echo $IMAGE_SAYS')" host "unless --container-env keeps one"
is "$(run -w n1 --framework=boxed --gpus=1 cat /etc/environment)" "IMAGE_SAYS=hello" \
  "a framework brings its image of the catalogue"
like "$(one --container-verbose true)" 'container: mounting the image: [0-9]+ us' "--container-verbose lists phases"
mkdir "$images/static"
printf '#include <unistd.h>\nint main(void) { return write(1, "static\\n", 7) == 7 ? 0 : 1; }\n' >"$images/static.c"
gcc -static -O1 -o "$images/static/program" "$images/static.c"
is "$(run -w n1 --container-image="$images/static" /program)" static "an image needs no sh"
mkdir "$images/locked"
chmod 700 "$images/locked"
make_squashfs "$tree" "$images/locked.sqsh"
chmod 600 "$images/locked.sqsh"
for image in none.sqsh locked locked.sqsh; do
  said=$(run -w n1 --container-image="$images/$image" true)
  like "$said" "slurmstepd: error: bellows: container: [a-z ]+: .*$images/$image: (Permission denied|No such file).*; check that the image" \
    "$image is refused with a sentence that says what to do"
done
make_squashfs "$tree" "$images/trial.sqsh"
chgrp 20109 "$images/trial.sqsh"
chmod 640 "$images/trial.sqsh"
is "$(run -w n1 --container-image="$images/trial.sqsh" cat /etc/environment)" "IMAGE_SAYS=hello" \
  "an image of one of the user's further groups is open to him"
like "$(xc --user bob srun --quiet --mpi=none -w n1 --container-image="$images/trial.sqsh" true 2>&1)" \
  'trial.sqsh: Permission denied' "and not to who is not in it"
echo "no image" >"$images/text.sqsh"
like "$(run -w n1 --container-image="$images/text.sqsh" true)" 'text.sqsh is not a squashfs image' "a file that is none"
mkdir "$CLUSTER/other"
cp "$squash" "$CLUSTER/other/"
sed -i "s#images: .*#images: [\"$CLUSTER/*\"]#" "$CLUSTER/etc/bellows.yaml"
spank_args "image_dirs=$images squashfuse=no"
elsewhere() { run -w n1 --container-image="$CLUSTER/other/busybox.sqsh" true; }
# shellcheck disable=SC2317
says_where() { [[ $(elsewhere) == *"squashfs images must lie in $images; or use a directory"* ]]; }
ok "a squashfs image elsewhere is refused, and told where it must lie" poll 20 says_where
spank_args "image_dirs=$images"

# Whose names for what is mounted are links.
cp -r "$tree" "$images/linked"
for name in dev proc tmp; do
  mkdir "$images/linked/of-$name"
  ln -s "of-$name" "$images/linked/$name"
done
make_squashfs "$images/linked" "$images/linked.sqsh"
gpus='for i in 0 1 2 3; do test -c /dev/nvidia$i && echo $i; done; true'
for image in linked linked.sqsh; do
  is "$(run -w n1 --gpus=2 --ntasks=2 --gpus-per-task=1 --container-image="$images/$image" sh -c \
    "[ -c /of-dev/null ] && [ -e /proc/self/status ] && >/tmp/\$SLURM_PROCID && $gpus" | sort | xargs)" \
    "0 1" "an image with links for names: $image"
done

# One container for all tasks of a job on a node.
script share.sh <<'S'
srun --quiet --mpi=none --ntasks=6 --overlap sh -c 'echo $SLURMD_NODENAME $(readlink /proc/self/ns/mnt)' >ns.first
srun --quiet --mpi=none --ntasks=2 --overlap sh -c 'echo $SLURMD_NODENAME $(readlink /proc/self/ns/mnt)' >ns.later
srun --quiet --mpi=none -N1 -n1 -w n1 --overlap --container-image=$tree sh -c 'echo $(readlink /proc/self/ns/mnt)' >ns.other
srun --quiet --mpi=none -N1 -n1 -w n1 --overlap --container-image=/ sh -c 'echo $(readlink /proc/self/ns/mnt); test -e /etc/debian_version && echo host'
test -e /etc/debian_version && echo the script on the host
S
said=$(batch share.sh -N2 --ntasks=6 --container-image="$squash")
is "$(sort -u "$home/ns.first" | awk '{print $1}' | xargs) $(wc -l <"$home/ns.first")" "n1 n2 6" \
  "the tasks on a node share one container" || diag "$said"
is "$(sort -u "$home/ns.first" "$home/ns.later" | wc -l)" 2 "later steps join it"
is "$(grep -c '^mnt:' "$home/ns.other") $(grep -cF -f "$home/ns.other" "$home/ns.first")" "1 0" \
  "another image is another container"
like "$said" 'host'$'\n''the script on the host' "the batch script runs on the host, and a step with image /"
other=$(xc --user bob srun --quiet --mpi=none -w n1 --container-image="$squash" --container-name=mine \
  sh -c 'echo $(id -u) $(readlink /proc/self/ns/mnt)' 2>&1)
like "$other" '^20002 mnt:' "another user runs in the same image"

# Mounts.
mkdir -p "$shared/data/below"
echo data >"$shared/data/file"
chmod -R 777 "$shared/data"
is "$(one --container-mounts="$shared/data:/data" cat /data/file)" data "a directory is mounted, its target created"
is "$(one --container-mounts="$shared/data/file:/opt/deep/file" cat /opt/deep/file)" data "and a file"
is "$(one --container-mounts="$shared/data" cat "$shared/data/file")" data "without a target at its own place"
is "$(one --container-mounts="$shared/data:/data" sh -c 'echo more >/data/new && cat /data/new')" more "which can be written"
is "$(cat "$shared/data/new")" more "for real"
like "$(one --container-mounts="$shared/data:/data:ro" sh -c 'touch /data/newer')" 'Read-only file system' "but not with ro"
is "$(one --container-mounts="tmpfs:/scratch:size=4M" sh -c 'touch /scratch/x; stat -f -c %T /scratch')" \
  tmpfs "tmpfs"
like "$(one --container-mounts="tmpfs:/scratch:size=4M" sh -c 'cat /proc/mounts')" '/scratch tmpfs rw,nosuid,nodev,[^ ]*size=4096k' \
  "has the size that was asked for"
is "$(one --container-mounts=umount:/sys sh -c 'grep -c " /sys " /proc/mounts; echo ran' | xargs)" "0 ran" "umount"
cp /bin/busybox "$shared/data/"
is "$(one --container-mounts="$shared/data:/x:exec" /x/busybox echo ran)" ran "programs of a mount run"
like "$(one --container-mounts="$shared/data:/x:noexec" /x/busybox echo ran)" 'Permission denied' "with noexec they do not"
is "$(one --container-mounts="$shared/data:/x:bind" cat /x/file)" data "bind"
like "$(one --container-mounts=/dev:/x:bind true)" '/dev has other file systems mounted in it; mount it with rbind' \
  "which hides nothing that is mounted below"
is "$(one --container-mounts="$shared/data:/a:ro,$shared/data/file:/b,tmpfs:/c" sh -c 'cat /a/file /b; stat -f -c %T /c' | xargs)" \
  "data data tmpfs" "several"
is "$(run -w n1 --container-image="$squash" --container-mounts="$shared/data:/a" --container-mounts="$shared/data:/b" \
  sh -c 'cat /a/file /b/file' | xargs)" "data data" "and in several options"
like "$(one --container-mounts=/not/there:/x true)" 'bellows: container: [a-z ]+: .*/not/there: No such file.*; check that .*the sources of --container-mounts' "a missing source"
like "$(one --container-mounts="$shared/data:/x:x-create=none" true)" 'bellows: container: [^:]+: .* /x[)]' "a target that shall not be created"
install -d -m 700 "$shared/closed"
like "$(one --container-mounts="$shared/closed:/x" ls /x)" 'Permission denied' "what the user may not see stays closed"

# The working directory and home.
is "$(one --container-workdir=/etc pwd)" /etc "--container-workdir"
like "$(one --container-workdir=/none true)" 'bellows: container: [^:]+: .*/none: No such file.*; name another directory in --container-workdir' "a missing one"
is "$(one --container-mount-home sh -c 'test -e $HOME/share.sh && echo home')" home "--container-mount-home"
is "$(one sh -c 'ls $HOME/share.sh 2>/dev/null; echo ran')" ran "without it there is none"
spank_args "image_dirs=$images mount_home=yes"
is "$(one sh -c 'test -e $HOME/share.sh && echo home')" home "the site may have it mounted"
is "$(one --no-container-mount-home sh -c 'ls $HOME/share.sh 2>/dev/null; echo ran')" ran "--no-container-mount-home"
spank_args "image_dirs=$images"

# Writing.
for image in "$squash" "$tree"; do
  like "$(run -w n1 --container-image="$image" touch /new)" 'Read-only file system' "${image##*/} can't be written to"
done
is "$(one --container-writable sh -c 'echo x >/new; cat /new')" x "--container-writable"
# Squashfs lets the owners of its files be mapped since Linux 6.2.
if linux_is_from 6.2; then
  is "$(one --container-writable sh -c 'echo y >>/etc/environment; rm /bin/ps; tail -n1 /etc/environment; ls /bin/ps 2>&1 | wc -l' | xargs)" \
    "y 1" "what root owns in the image is the user's there"
else
  like "$(one --container-writable sh -c 'echo y >>/etc/environment')" 'Permission denied' \
    "what root owns in the image stays root's, before Linux 6.2"
  is "$(one --container-writable sh -c 'echo y >/etc/more && rm /bin/ps && cat /etc/more; ls /bin/ps 2>&1 | wc -l' | xargs)" "y 1" \
    "but its directories are the user's"
fi
is "$(one --container-writable ls /new /bin/ps 2>&1 | grep -c 'No such')" 1 "and the next job sees none of it"
script write.sh <<'S'
srun --quiet --mpi=none -n1 --container-writable touch /kept
srun --quiet --mpi=none -n1 --container-writable ls /kept
S
like "$(batch write.sh -w n1 -n1 --container-image="$squash")" '/kept: No such file' "nor does a later step of the job"
# A directory is changed itself, and for good.
names() { find "$1" -mindepth 1 -maxdepth 1 ! -name usr -printf '%f\n' | sort | xargs; }
mkdir "$home/image"
cp -r "$tree/." "$home/image/"
chown -R 20001:20101 "$home/image"
like "$(run -w n1 --container-image="$home/image" touch /new)" 'Read-only file system' "a directory of one's own is read-only"
is "$(names "$home/image")" "bin etc" "and nothing is made in it"
is "$(run -w n1 --container-image="$home/image" --container-writable sh -c 'echo x >/new; cat /new')" x "unless with --container-writable"
is "$(run -w n1 --container-image="$home/image" cat /new)" x "for good"
is "$(names "$home/image")" "bin dev etc new proc run sys tmp var" "with places for what is mounted"
like "$(run -w n1 --container-image="$tree" --container-writable true)" \
  "mounting the system's directories: .*Permission denied.*; give the image directories at /proc" "where its user may write"
spank_args "image_dirs=$images writable=yes devices=/dev/loop-contr*"
is "$(one sh -c 'echo x >/new; cat /new; ls /dev/loop-control' | xargs)" "x /dev/loop-control" "the site may have it so, and further devices"
like "$(one --container-readonly touch /new)" 'Read-only file system' "--container-readonly"
spank_args "image_dirs=$images"
is "$(one sh -c 'ls /dev/loop-control 2>/dev/null; echo ran')" ran "without them there are none"
is "$(one --container-tmp=16M sh -c 'cat /proc/mounts' | grep -c ' /tmp tmpfs .*size=16384k')" 1 "--container-tmp"

# Each option alone and several, with two tasks on each of two nodes.
all="--container-name=all --container-mounts=$shared/data:/a:ro,tmpfs:/c --container-workdir=/a --container-mount-home"
all+=" --container-remap-root --container-writable --container-env=IMAGE_SAYS --container-unshare=net,uts --container-tmp=16M"
while IFS='|' read -r -u 3 options command each; do
  # shellcheck disable=SC2086
  is "$(run -N2 -n4 --ntasks-per-node=2 --export=ALL,IMAGE_SAYS=host --container-image="$squash" $options \
    sh -c 'echo $SLURMD_NODENAME $('"$command"')' | sort | uniq -c | xargs)" "2 n1 $each 2 n2 $each" "everywhere: ${options:-no option}"
done 3<<TABLE
|cat /etc/environment|IMAGE_SAYS=hello
--framework=boxed --gpus=2|cat /etc/environment|IMAGE_SAYS=hello
--container-mounts=$shared/data:/a:ro|cat /a/file; touch /a/x 2>/dev/null; echo ran|data ran
--container-workdir=/etc|pwd|/etc
--container-name=each|cat /etc/environment|IMAGE_SAYS=hello
--no-container-mount-home --no-container-remap-root|echo \$(id -u) \$HOME; ls \$HOME/share.sh 2>/dev/null|20001 $home
--container-mount-home|id -u; ls \$HOME/share.sh|20001 $home/share.sh
--container-remap-root|echo \$(id -u) \$HOME; ls \$HOME/share.sh 2>/dev/null|0 /root
--container-mount-home --container-remap-root|id -u; ls \$HOME/share.sh|0 /root/share.sh
--container-writable|echo x >/new.\$SLURM_PROCID; cat /new.\$SLURM_PROCID|x
--container-readonly|touch /new 2>/dev/null; echo \$?|1
--container-env=IMAGE_SAYS|echo \$IMAGE_SAYS|host
--container-unshare=net,ipc,uts|grep -c : /proc/net/dev|1
--container-tmp=16M|grep -c ' /tmp tmpfs .*size=16384k' /proc/mounts|1
$all|id -u; pwd; cat file; touch /c/x /new.\$SLURM_PROCID \$HOME/x; echo \$IMAGE_SAYS; grep -c : /proc/net/dev|0 /a data host 1
TABLE
is "$(run -N2 -n4 --container-image="$squash" --container-verbose true | grep -c 'giving up the capabilities: [0-9]* us')" 4 \
  "everywhere: --container-verbose"

# Variables in the place of options.
for prefix in BELLOWS PYXIS; do
  is "$(xc env ${prefix}_CONTAINER_IMAGE="$squash" ${prefix}_CONTAINER_WORKDIR=/etc ${prefix}_CONTAINER_MOUNTS="$shared/data:/data" \
    srun --quiet --mpi=none -w n1 sh -c 'pwd; cat /data/file' 2>&1 | xargs)" "/etc data" "variables ${prefix}_CONTAINER_..."
  p=${prefix}_CONTAINER
  others=("${p}_ENV=IMAGE_SAYS" IMAGE_SAYS=host "${p}_UNSHARE=net" "${p}_TMP=16M" "${p}_VERBOSE=1" "${p}_MOUNT_HOME=1"
    "${p}_REMAP_ROOT=1" "${p}_WRITABLE=1")
  said=$(xc env "${p}_IMAGE=$squash" "${others[@]}" srun --quiet --mpi=none -w n1 sh -c 'echo "is $(id -u)" \
    $(ls $HOME/share.sh) $IMAGE_SAYS $(grep -c : /proc/net/dev) $(grep -c " /tmp tmpfs .*size=16384k" /proc/mounts) \
    $(touch /new && echo written)' 2>&1)
  is "$(grep '^is' <<<"$said")" "is 0 /root/share.sh host 1 1 written" "all of them (${p}_...)" || diag "$said"
  for told in "$squash on / .rw,overlay" 'tmpfs on /tmp and /var/tmp .16 MiB together' 'device /dev/null' 'mounting the image: [0-9]+ us'; do
    like "$said" "slurmstepd: bellows: container: $told" "and ${p}_VERBOSE tells it ($told)"
  done
  like "$(xc env "${p}_IMAGE=$squash" "${p}_NAME=vars:exec" srun --quiet --mpi=none -w n1 true 2>&1)" \
    'the container vars does not exist on this node' "and ${p}_NAME"
done
is "$(xc env BELLOWS_CONTAINER_WORKDIR=/bin srun --quiet --mpi=none -w n1 --container-image="$squash" --container-workdir=/etc pwd 2>&1)" \
  /etc "the command line wins"
script where.sh <<'S'
srun --quiet --mpi=none pwd
srun --quiet --mpi=none --container-workdir=/bin pwd
srun --quiet --mpi=none --container-tmp=1G pwd
S
xc env PYXIS_CONTAINER_WORKDIR=/proc sbatch --quiet --wait --output=where.out -w n1 -n1 --container-image="$squash" \
  --container-workdir=/etc --container-tmp=16M where.sh >/dev/null 2>&1
is "$(grep ^/ "$home/where.out" | xargs)" "/etc /bin /etc" "of sbatch over its variables, in its steps too" || diag "$(cat "$home/where.out")"
is "$(grep -c "container: the job's /tmp on this node is there already; --container-tmp is ignored" "$home/where.out")" 1 \
  "a step can't change the size of the job's /tmp, and is told"
is "$(run -w n1 --container-image="$squash" --export=ALL,LANG=a,LANGUAGE=b,LC_ALL=c --container-env=LC_ALL --container-env=HOME \
  sh -c 'echo ${LANG:-none} ${LANGUAGE:-none} $LC_ALL')" "none none c" "a container has the host's language only where it is asked for"

# GPUs.
is "$(one --gpus=2 sh -c "$gpus" | wc -l)" 2 "a container has the job's GPUs"
is "$(run -w n1 --ntasks=3 --gpus-per-task=1 --container-image="$squash" sh -c "$gpus" | sort | xargs)" "0 1 2" \
  "with --gpus-per-task a task sees one"
script steps.sh <<'S'
one='for i in 0 1 2 3; do test -c /dev/nvidia$i && echo $i; done; true'
srun --quiet --mpi=none --exact --ntasks=1 --gpus=1 sh -c "$one; sleep 2" >first.out &
srun --quiet --mpi=none --exact --ntasks=1 --gpus=1 sh -c "$one; sleep 2" >second.out &
wait
srun --quiet --mpi=none --ntasks=1 --gpus=2 sh -c "$one" >both.out
S
batch steps.sh -w n1 --ntasks=2 --gpus=2 --container-image="$squash" >/dev/null
is "$(sort "$home/first.out" "$home/second.out" | xargs)" "$(xargs <"$home/both.out")" \
  "steps with different GPUs of one job see each its own"
is "$(wc -l <"$home/both.out")" 2 "and a step with both sees both"
script twice.sh <<'S'
one='for i in 0 1 2 3; do test -c /dev/nvidia$i && echo $i; done; true'
twice=$(sh -c "$one" | sed 's#.*#/dev/nvidia&:/dev/nvidia&#' | paste -sd,)
in_twice="srun --quiet --mpi=none --ntasks=1 --container-name=twice"
: >both.out
$in_twice --overlap --gpus=2 --container-mounts=$twice sh -c "$one; while ! test -e /tmp/seen; do sleep 0.1; done" >both.out &
for i in {1..300}; do [[ $(wc -l <both.out) != 2 ]] || break; sleep 0.1; done
$in_twice --exact --gpus=1 sh -c "$one; sleep 2" >first.out &
first=$!
$in_twice --exact --gpus=1 sh -c "$one; sleep 2" >second.out
wait "$first"
touch /tmp/seen
wait
S
batch twice.sh -w n1 --ntasks=2 --gpus=2 --container-image="$squash" >/dev/null
is "$(sort "$home/first.out" "$home/second.out" | xargs)" "$(xargs <"$home/both.out")" \
  "also where they were mounted upon themselves"

# Programs of the host in a container: MPI and bellows run.
mkdir -p "$images/hostlike"/{usr,etc}
ln -s usr/bin usr/lib usr/lib64 usr/sbin "$images/hostlike/"
mounts=/usr:/usr:ro
for path in /etc/alternatives /etc/ld.so.cache /etc/openmpi /etc/pmix-mca-params.conf; do
  [[ ! -e $path ]] || mounts+=,$path:$path:ro
done
cat >"$shared/sum.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, sum %d\n", size, sum);
  MPI_Finalize();
  return 0;
}
C
if [[ -z $has_pmix ]]; then
  skip "MPI in containers" "this Slurm has no mpi/pmix"
elif mpicc -o "$shared/sum" "$shared/sum.c" 2>/dev/null; then
  is "$(xc srun --quiet --mpi=pmix --nodes=2 --ntasks=4 --container-image="$images/hostlike" --container-mounts="$mounts,$shared:/shared" \
    /shared/sum 2>&1)" "4 ranks, sum 10" "MPI runs over both nodes, in containers"
else
  skip "MPI in containers" "mpicc can't build"
fi
script counted.sh <<S
exec bellows run$run_kind -- $counter --log $home/counted.log --steps 60 --sleep-us 10000 --save-every 20
S
id=$(submit -- --gpus-range=2 --container-image="$images/hostlike" \
  --container-mounts="$mounts,$build,$shared" --output="$home/counted.out" counted.sh)
poll 60 job_is "$id" '(COMPLETED|FAILED)'
is "$(job_field "$id" JobState)" COMPLETED "bellows run runs its ranks in the job's container" || diag "$(out_of counted)"
is "$(last_start counted world) $(committed "$id")" "2 40" "with checkpoints by agents on the host"
done_testing
