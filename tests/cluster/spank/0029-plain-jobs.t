#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# As pyxis has it: steps in containers of jobs that were submitted without options, containers of a step's own, and batch
# scripts in images.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "batch_in_container=yes" --nodes=1 --gpus=2
home=$CLUSTER/shared/home/alice
chmod 777 "$CLUSTER/shared"
script() { # FILE: a script from standard input
  {
    echo '#!/bin/bash'
    echo "squash=$images/busybox.sqsh tree=$images/busybox"
    echo 'tell() { local name=$1; shift; "$@" 2>&1 | sed "s/^/$name: /"; }'
    echo 'step() { srun --quiet --mpi=none -n1 --overlap "$@"; }'
    cat
  } >"$home/$1"
  chmod 755 "$home/$1"
}
line() { sed -n "s/^$1: //p" <<<"$said" | xargs; }

# A plain job.
xc --user root --node 1 touch /tmp/host
script plain.sh <<'S2'
touch /tmp/of-the-script
tell image step --container-image=$squash cat /etc/environment
tell host step sh -c 'ls -d /tmp/host /tmp/of-the-script; env | grep -c BELLOWS_CONTRACT; true'
tell tmp step --container-image=$squash ls /tmp
tell source step --container-image=$squash --container-mounts=/tmp/of-the-script:/etc/mounted ls /etc/mounted
tell gpus step --gpus=1 --container-image=$tree sh -c 'ls /dev | grep -c nvidia[0-9]'
tell refused step --container-image=/etc true
tell named step --container-image=$squash --container-name=n --container-writable touch /kept
tell again step --container-name=n ls /kept
tell several srun --quiet --mpi=none -n2 --overcommit --overlap --container-image=$squash sh -c 'echo $SLURM_PROCID'
tell written step --container-image=$squash --container-writable sh -c 'touch /written; ls /written'
tell later step --container-image=$squash --container-writable ls /written
for i in 1 2 3; do step --container-image=$squash --container-writable sh -c 'touch /x; echo ran' & done >at-once
wait
tell at-once cat at-once
touch plain.ready
until [[ -e plain.go ]]; do sleep 0.1; done
S2
xc sbatch --quiet --output=plain.out --gpus=1 -w n1 plain.sh
ok "a plain batch job has steps in containers" poll 60 test -e "$home/plain.ready"
said=$(<"$home/plain.out")
id=$(ask_slurm squeue --noheader --format=%A)
is "$(line image)" "IMAGE_SAYS=hello" "a step of it runs in an image"
is "$(line host)" "/tmp/host /tmp/of-the-script 0" "one without a container is as Slurm has it"
is "$(line tmp | grep -vE "$tmp_strangers")" "" "a container has nothing of the host's /tmp"
is "$(line source)" /etc/mounted "but for what is mounted from there"
is "$(line gpus)" 1 "it has the step's GPU"
like "$said" 'refused: [^:]+: error: bellows: [^'$'\n'']*this job may not use image /etc; its contract allows' "another image is refused"
is "$(line again)" /kept "a container with a name is there for later steps" || diag "$said"
is "$(sed -n 's/^several: //p' <<<"$said" | sort | xargs)" "0 1" "tasks share one"
like "$(line written) $(line later)" '^/written .*/written: No such file' "a container without a name is its step's own"
is "$(mc exec --user root --node 1 -- ls "/run/bellows/views/$id/ns" | grep -c ^step-)" 0 "and gone with it"
is "$(line at-once)" "ran ran ran" "several steps at once"
is "$(job_field "$id" AdminComment)" "" "Slurm shows nothing of this"
is "$(views_of 1)" "/run/bellows/views/$id" "the node keeps its containers"
xc scontrol update "job=$id" account=speech 2>/dev/null
like "$(<"$CLUSTER/log/slurmctld.log")" "JobId=$id by [^:]*: the job's steps may use the container images of tenant vision, and account \"speech\"" \
  "an update moves a plain job to no other tenant"
touch "$home/plain.go"
ok "the job ends" poll 30 job_is "$id" COMPLETED
ok "its containers go with it" poll 10 no_views 1
ok "and nothing stays mounted" nothing_mounted 1

# What a killed slurmstepd leaves goes with the next step.
script killed.sh <<'S2'
step --container-image=$squash --container-writable sleep 300 &
until [[ -e killed.go ]]; do sleep 0.1; done
tell next step --container-image=$squash --container-writable ls /
S2
own_containers() { mc exec --user root --node 1 -- sh -c 'ls /run/bellows/views/*/ns' | grep -c '^step-[0-9]*$'; }
# shellcheck disable=SC2317
there_is_one() { [[ $(own_containers) == 1 ]]; }
# shellcheck disable=SC2317
there_is_none() { [[ $(own_containers) == 0 ]]; }
xc sbatch --quiet --output=killed.out -w n1 killed.sh
ok "a step has a container of its own" poll 30 there_is_one
stepd=$(mc exec --user root --node 1 -- sh -c 'ls /run/bellows/views/*/ns' | sed -n 's/^step-\([0-9]*\)$/\1/p')
mc exec --user root --node 1 -- kill -KILL "$stepd"
touch "$home/killed.go"
ok "the next step runs" poll 60 grep -qs ^next: "$home/killed.out"
ok "and nothing is left of a step whose slurmstepd was killed" poll 20 there_is_none
xc scancel --user=alice --name=killed.sh

# The batch script of a job that was submitted with an image.
printf '#!/bin/sh\ncat /etc/environment; pwd; ls /etc/debian_version\n' >"$home/script.sh"
chmod 755 "$home/script.sh"
script_of() { # OPTION...: what sbatch and the script say
  xc sbatch --wait --output=script.out -w n1 --container-image="$images/busybox.sqsh" "$@" script.sh 2>&1
  cat "$home/script.out"
}
like "$(script_of)" '^Submitted [^:]*IMAGE_SAYS=hello'$'\n''/'$'\n''ls: /etc/debian_version: No such' "it runs in the image"
said=$(script_of --framework=plain --gpus=1)
like "$said" 'bellows: [^:]*the batch script runs on the host, since the job has --framework; what it starts with srun runs in the image' \
  "unless the job has services of Bellows, as sbatch says"
like "$said" $'\n''/etc/debian_version' "and so it does"
spank_args "image_dirs=$images batch_in_container=no"
said=$(script_of)
like "$said" 'sbatch: bellows: the batch script runs on the host here; what it starts with srun runs in the image' "or the site has it so, as sbatch says"
like "$said" $'\n''/etc/debian_version' "and so it does"
said=$(xc sbatch --container-image="$images/busybox.sqsh" --container-save="$home/saved.sqsh" script.sh 2>&1)
like "$said" 'container-save: it would save nothing, since batch scripts run on the host here' "where nothing can be saved"
spank_args "image_dirs=$images batch_in_container=yes"
said=$(xc sbatch --framework=plain --gpus=1 --container-image="$images/busybox.sqsh" \
  --container-save="$home/saved.sqsh" script.sh 2>&1)
like "$said" 'container-save would save nothing, since the batch script runs on the host' "nor for such a job"

# As pyxis's own tests run: commands of a shell that salloc starts.
script inside.sh <<'S2'
tell image srun --quiet --mpi=none --container-image=$squash cat /etc/environment
tell host srun --quiet --mpi=none sh -c 'test -e /etc/debian_version && echo host'
S2
said=$(xc --user alice sh -c "cd $home && salloc --quiet --overcommit ./inside.sh" 2>&1)
is "$(line image) $(line host)" "IMAGE_SAYS=hello host" "salloc, and srun in its shell" || diag "$said"
said=$(xc --user carol sh -c "cd / && salloc --quiet --account=speech srun --quiet --mpi=none --container-image=$images/busybox true" 2>&1)
like "$said" 'a step of this job cannot have --container options' "not for a tenant that may bring no images"
done_testing
