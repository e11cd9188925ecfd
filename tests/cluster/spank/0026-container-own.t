#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Named containers, what a container may have of its own besides files, being root in it, and
# TaskProlog.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "" --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
shared=$CLUSTER/shared
chmod 777 "$shared"
squash=$images/busybox.sqsh
run() { xc srun --quiet --mpi=none "$@" 2>&1; }
one() { run -w n1 --container-image="$squash" "$@"; }
script() { # FILE: a batch script from standard input
  {
    echo '#!/bin/bash'
    echo "squash=$squash tree=$images/busybox shared=$shared"
    echo 'step() { srun --quiet --mpi=none -N1 -n1 -w n1 --overlap "$@" 2>&1; }'
    echo 'ns=(readlink /proc/self/ns/mnt)'
    cat
  } >"$home/$1"
  chmod 755 "$home/$1"
}
batch() { # FILE OPTION-OF-SBATCH...: runs it; what it printed
  local file=$1
  shift
  xc sbatch --quiet --wait --output="$file.out" "$@" "$file" >/dev/null 2>&1
  cat "$home/$file.out"
}
line() { sed -n "s/^$1: //p" <<<"$said"; }
like_line() { like "$(line "$1")" "$2" "$3"; }

# Named containers.
script named.sh <<'S'
tell() { local name=$1; shift; "$@" 2>&1 | sed "s/^/$name: /"; }
tell exec-none step --container-name=a:exec true
tell no-image step --container-name=nowhere --container-image=/ sh -c 'echo host'
tell created step --container-name=a:create "${ns[@]}"
tell again step --container-name=a:create true
tell auto step --container-name=a "${ns[@]}"
tell exec-idle step --container-name=a:exec true
step --container-name=a sh -c 'touch /tmp/runs; sleep 300' &
until [[ -e /tmp/runs ]]; do sleep 0.1; done
tell exec step --container-name=a:exec "${ns[@]}"
tell no-exec step --container-name=a:no_exec "${ns[@]}"
tell other step --container-name=b "${ns[@]}"
tell unnamed step "${ns[@]}"
tell several srun --quiet --mpi=none -N1 -n3 -w n1 --overlap --container-name=c:create "${ns[@]}"
tell entered srun --quiet --mpi=none -N1 -n3 -w n1 --overlap --container-name=d:no_exec "${ns[@]}"
tell ignored srun --quiet --mpi=none -N1 -n2 -w n1 --overlap --container-name=a --container-mounts=$shared:/x ls /x
tell anew srun --quiet --mpi=none -N1 -n2 -w n1 --overlap --container-name=b --container-mounts=$shared:/x "${ns[@]}"
tell there srun --quiet --mpi=none -N1 -n1 -w n2 --overlap --container-name=a:exec true
tell write step --container-name=w --container-writable touch /kept
tell kept step --container-name=w ls /kept
S
said=$(batch named.sh -N2 -n6 --container-image="$squash")
like_line exec-none 'container: [^:]+: the container a does not exist on this node' "exec needs a container that is there"
is "$(line no-image)" host "image / is the host, whatever the name"
like_line created '^mnt:' "create creates"
like_line exec-idle 'the container a exists, but no step runs in it on this node, and the mode exec only joins one' \
  "exec needs one in which a step runs"
like_line again 'the container a exists on this node already' "and refuses one that is there"
is "$(line auto)" "$(line created)" "auto uses it"
is "$(line exec)" "$(line created)" "and exec, beside a step"
like_line no-exec '^mnt:' "no_exec begins anew with its files"
isnt "$(line no-exec)" "$(line created)" "in mounts of its own"
is "$(for which in created other unnamed; do line $which; done | grep '^mnt:' | sort -u | wc -l)" 3 \
  "another name, and none, are other containers"
for name in several entered; do
  is "$(line $name | sort | uniq -c | awk '{print $1}')" 3 "the tasks of the step that makes it share it ($name)"
done
is "$(line ignored | grep -c 'another step runs in the container a; ignoring --container-mounts')" 1 \
  "mounts given beside a running step are ignored, with one note"
like_line ignored '/x: No such file' "really"
is "$(line anew | sort | uniq -c | awk '{print $1}')" 2 "so do those of one that mounts something anew in it"
like_line there 'does not exist on this node' "a container is a node's"
is "$(line write)$(line kept)" /kept "what is written in it stays for those who join"
script attach.sh <<'S'
step --container-name=a --container-image=$squash true
step --container-name=a cat /etc/environment
step --container-name=none true
step test -e /etc/debian_version && echo on the host
S
said=$(batch attach.sh -w n1 --framework=plain --gpus=1)
like "$said" '^IMAGE_SAYS=hello' "a named container is joined without an image"
like "$said" 'the container none does not exist on this node; give --container-image' "if it is there"
like "$said" 'on the host$' "and a step without name or image is on the host"

# A name of the whole job.
script job.sh <<'S'
tell() { local name=$1; shift; "$@" 2>&1 | sed "s/^/$name: /"; }
tell first step "${ns[@]}"
tell second step "${ns[@]}"
tell tree step --container-image=$tree sh -c 'test -e /etc/environment; readlink /proc/self/ns/mnt'
tell named step --container-name=other "${ns[@]}"
S
said=$(batch job.sh -w n1 --container-image="$squash" --container-name=a:create)
like_line first '^mnt:' "the first step makes the container of the job's name"
is "$(line second)" "$(line first)" "and the next ones join it, though the job says create"
is "$(for which in first tree named; do line $which; done | grep '^mnt:' | sort -u | wc -l)" 3 \
  "a step with another image, or another name, is in a container of its own"

# No more than so many.
spank_args "image_dirs=$images max_containers=2"
script many.sh <<'S'
for name in a b c a; do step --container-name=$name echo "is $name" | sed "s/^/$name: /"; done
step --container-mounts=/etc:/mnt echo 'is unnamed' | sed 's/^/unnamed: /'
S
said=$(batch many.sh -w n1 --container-image="$squash")
is "$(line a)$(line b)" "is a"$'\n'"is ais b" "a job may have two containers where the site says two"
like_line c 'container: [^:]+: the job has 2 containers on this node already, the maximum .max_containers' "and not a third"
like_line unnamed 'has 2 containers on this node already' "without a name either"
spank_args "image_dirs=$images"

# Namespaces of its own.
script unshare.sh <<'S'
own() { for kind in net ipc uts; do readlink /proc/self/ns/$kind; done | xargs; }
echo "host: $(own)"
for kinds in net ipc uts net,ipc,uts; do
  srun --quiet --mpi=none -N1 -n2 --overlap --container-unshare=$kinds \
    sh -c 'for kind in net ipc uts; do readlink /proc/self/ns/$kind; done; hostname; ip link show lo | head -n 1; ip link | wc -l' >own.$kinds 2>&1
  srun --quiet --mpi=none -N1 -n1 --overlap --container-unshare=$kinds \
    sh -c 'for kind in net ipc uts; do readlink /proc/self/ns/$kind; done' >later.$kinds 2>&1
done
step --container-name=lacks true
step --container-name=lacks --container-unshare=net true | sed 's/^/lacks: /'
step --container-name=has --container-unshare=net readlink /proc/self/ns/net | sed 's/^/has: /'
step --container-name=has readlink /proc/self/ns/net | sed 's/^/joined: /'
step --container-unshare=net grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | sed 's/^/caps: /'
step --container-unshare=net ip link set lo down | sed 's/^/down: /'
S
said=$(batch unshare.sh -w n1 -n2 --container-image="$squash")
read -ra host <<<"$(line host)"
differ() { # KINDS: which namespaces of both tasks are not the host's
  local i kinds=(net ipc uts) differing=""
  for i in 0 1 2; do
    grep -qF "${host[i]}" "$home/own.$1" || differing+=,${kinds[i]}
  done
  echo "${differing#,}"
}
for kinds in net ipc uts net,ipc,uts; do
  is "$(differ $kinds)" $kinds "--container-unshare=$kinds" || diag "$(<"$home/own.$kinds")"
  is "$(grep -h : "$home/own.$kinds" | grep '^[a-z]*:\[' | sort -u | wc -l)" 3 "is shared by its tasks ($kinds)"
  is "$(grep -cxF -f <(printf '%s\n' "${host[@]}") "$home/later.$kinds")" "$((3 - $(tr , '\n' <<<"$kinds" | wc -l)))" \
    "and later steps have their own ($kinds)"
done
like "$(<"$home/own.net")" 'LOOPBACK,UP' "a network of its own has a loopback device that is up"
is "$(grep -c '^n1$' "$home/own.uts")" 2 "the host name stays"
for i in 1 2; do ok "nothing of it stays on n$i" poll 20 no_views $i && ok "or is mounted" nothing_mounted $i; done
like_line lacks 'is not in a separate network namespace, since it was created without --container-unshare=net' "a named container that lacks one is not joined with it"
is "$(line joined)" "$(line has)" "one that has it is joined in all"
is "$(line caps | awk '{print $2}' | sort -u)" 0000000000000000 "no capability is left"
like_line down 'not permitted' "not over the network either"

# Root.
root=(--container-remap-root --container-image="$squash")
# Before Linux 6.2 squashfs can't be mounted with other owners.
remaps_image=""
! linux_is_from 6.2 || remaps_image=1
is "$(run -w n1 "${root[@]}" sh -c 'id -u; id -g; echo $HOME; stat -c %u /etc/environment' | xargs)" \
  "0 0 /root $([[ $remaps_image ]] && echo 0 || echo 65534)" "--container-remap-root makes the user root"
is "$(run -w n1 "${root[@]}" cat /proc/self/uid_map | xargs)" "0 20001 1" "and nobody else"
is "$(run -w n1 "${root[@]}" grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | awk '{print $2}' | sort -u)" \
  0000000000000000$'\n'00000000802401fb "with few capabilities, and none beyond that"
like "$(run -w n1 "${root[@]}" umount /sys)" 'Operation not permitted|Invalid argument|denied' "nothing can be unmounted"
like "$(run -w n1 "${root[@]}" --container-mounts="$shared:/data:ro" mount -o remount,rw /data)" 'denied|permitted' "nor made writable"
is "$(run -w n1 "${root[@]}" --container-mounts="$shared:/data" sh -c 'echo x >/data/by-root && stat -c %u /data/by-root')" \
  0 "files of his are root's within"
is "$(stat -c %u "$shared/by-root")" 20001 "and his own outside"
is "$(run -w n1 "${root[@]}" --container-mount-home sh -c 'ls $HOME/attach.sh')" /root/attach.sh "his home is root's"
like "$(run -w n1 "${root[@]}" --container-writable sh -c 'echo x >>/etc/environment && tail -n 1 /etc/environment')" \
  "$([[ $remaps_image ]] && echo '^x$' || echo denied)" "where the image's files are root's he writes in them"
mapfile -t spaces < <(run -w n1 -n3 "${root[@]}" readlink /proc/self/ns/user | sort | uniq -c | awk '{print $1}')
is "${spaces[*]}" 3 "the tasks of a container share one user namespace"
# Whose the namespace is has all capabilities in it, where the site lets users make none too.
run -w n1 "${root[@]}" --container-mounts="$shared:/data" sh -c 'echo $SLURM_JOB_ID $$ >/data/held; exec sleep 300' >/dev/null &
holder=$!
poll 30 test -s "$shared/held"
read -r job pid <"$shared/held"
owner='import fcntl, os, struct, sys
space = os.open("/proc/%s/ns/user" % sys.argv[1], os.O_RDONLY)
print(struct.unpack("I", fcntl.ioctl(space, 0xb704, bytes(4)))[0])'
is "$(xc --user root --node 1 python3 -c "$owner" "$pid")" 0 "the user namespace is root's"
like "$(xc --node 1 nsenter --user --target "$pid" id -u 2>&1)" 'not permitted|denied' \
  "so no process of his enters it with its capabilities"
xc scancel "$job"
wait "$holder"
is "$(run -w n1 --gpus=1 "${root[@]}" sh -c 'for i in 0 1 2 3; do test -c /dev/nvidia$i && echo $i; done | wc -l')" 1 "GPUs are as before"
spank_args "image_dirs=$images remap_root=yes"
is "$(one id -u)" 0 "the site may have it so"
is "$(one --no-container-remap-root id -u)" 20001 "--no-container-remap-root"
is "$(run -w n1 --framework=plain --gpus=1 id -u)" 20001 "not on the host"
spank_args "image_dirs=$images"

# As MPI's ranks on one node do.
cat >"$shared/peek.c" <<'C'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
int main(void) {
  static int mine = 42;
  char name[64];
  int theirs = 0, pid = 0;
  long where = 0;
  int self = atoi(getenv("SLURM_LOCALID"));
  snprintf(name, sizeof name, "/tmp/rank%d.new", self);
  FILE *file = fopen(name, "w");
  fprintf(file, "%d %ld", getpid(), (long)&mine);
  fclose(file);
  char last[64];
  snprintf(last, sizeof last, "/tmp/rank%d", self);
  rename(name, last);
  snprintf(name, sizeof name, "/tmp/rank%d", 1 - self);
  for (int i = 0; i < 500 && !(file = fopen(name, "r")); i++) usleep(10000);
  if (!file || fscanf(file, "%d %ld", &pid, &where) != 2) return 2;
  struct iovec to = {&theirs, sizeof theirs}, from = {(void *)where, sizeof theirs};
  ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);
  printf("%zd %d\n", n, theirs);
  fflush(stdout);
  sleep(1);
  return 0;
}
C
gcc -static -w -O1 -o "$shared/peek" "$shared/peek.c"
is "$(run -w n1 -n2 "${root[@]}" --container-mounts="$shared:/data" /data/peek | sort -u)" "4 42" \
  "and may read each other's memory"

# TaskProlog.
prolog=$CLUSTER/task-prolog
task_prolog() {
  { echo '#!/bin/bash'; cat; } >"$prolog.new"
  chmod 755 "$prolog.new"
  mv "$prolog.new" "$prolog"
}
task_prolog <<'S'
[[ -e /etc/debian_version ]] && echo "print  on the host as $(id -u) task $SLURM_LOCALID $SLURM_SCRIPT_CONTEXT"
grep CapEff /proc/self/status | sed 's/^/print /'
echo "export SAID=by the prolog"
echo "export IMAGE_SAYS=prolog"
echo "unset GONE"
echo "nonsense"
touch /tmp/prolog-was-here
S
echo "TaskProlog=$prolog" >>"$CLUSTER/etc/slurm.conf"
xc --user root scontrol reconfigure
# shellcheck disable=SC2317
prologs_run() { [[ $(run -w n1 --framework=plain --gpus=1 sh -c 'echo $SAID') == *'by the prolog' ]]; }
ok "slurmd takes a TaskProlog" poll 20 prologs_run
shows='echo "said $SAID, gone ${GONE:-not}, image $IMAGE_SAYS"; ls /tmp/prolog-was-here'
said=$(run -w n1 --export=ALL,GONE=there --container-image="$squash" sh -c "$shows")
is "$said" "on the host as 20001 task 0 prolog_task
CapEff:	0000000000000000
said by the prolog, gone not, image prolog
/tmp/prolog-was-here" "TaskProlog runs on the host, in the job's view, and changes the task's environment"
is "$(run -w n1 -n3 --container-image="$squash" sh -c 'echo $SAID' | grep -c '^on the host as 20001 task [012]')" 3 "once for each task"
like "$(run -w n1 --framework=plain --gpus=1 sh -c 'echo $SAID')" 'by the prolog' "a task without a container has Slurm's"
is "$(run -w n1 --framework=plain --gpus=1 true | grep -c 'on the host')" 1 "once"
task_prolog <<<'exit 3'
like "$(one echo ran)" 'container: running TaskProlog: TaskProlog .*task-prolog failed with status 3' "one that fails ends the task"
unlike "$(one echo ran)" '(^|'$'\n'')ran' "before the program"
spank_args "image_dirs=$images phase_seconds=$(seconds 2)"
task_prolog <<<'sleep 300'
like "$(one echo ran)" 'TaskProlog .*task-prolog did not end within [0-9]+ s' "one that hangs ends at its time"
task_prolog <<<'yes print nonsense'
like "$(one echo ran)" 'TaskProlog .*task-prolog wrote more than 65536 bytes' "one that does not stop talking too"
task_prolog <<<'sleep 300 & echo export SAID=quick'
is "$(one sh -c 'echo $SAID')" quick "what it leaves in the background is not waited for"
spank_args "image_dirs=$images task_prolog=container"
like "$(one true)" 'task_prolog|TaskProlog' "task_prolog=container leaves it to Slurm, in the container"
mkdir -p "$images/prologued"
cp -r "$images/busybox/." "$images/prologued/"
mkdir -p "$images/prologued$CLUSTER"
printf '#!/bin/sh\necho export SAID=within\n' >"$images/prologued$prolog"
chmod 755 "$images/prologued$prolog"
if slurm_is_from 24.11; then
  skip "where the image must have it" "this Slurm runs it with its own slurmstepd, which no image has"
else
  is "$(run -w n1 --container-image="$images/prologued" sh -c 'echo $SAID')" within "where the image must have it"
fi
done_testing
