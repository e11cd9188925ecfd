#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# A reservation is no way into a partition that the policy keeps closed, however it is asked for.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-reservation-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks: {digits: {versions: ["1.0"]}}
tenants:
  vision: {gpus: {max: 4}, sizing: {partitions: [main]}}
  speech: {gpus: {max: 4}, sizing: {partition: main}}
plain_jobs: {partitions: {closed: refuse, shut: refuse}}
YAML
cluster_up --nodes=1 --gpus=4 --bellows-conf "$work/bellows.yaml"
client=$CLUSTER/shared/hostile_client
cc -O1 -o "$client" "$TAP_HOME/hostile_client.c" -lslurm 2>"$work/cc" || bail "$(<"$work/cc")"
chmod 755 "$client"

# Both are for alice, each in a partition that is closed to her jobs.
reserve() { # NAME [FLAG]
  xc --user root scontrol create reservation ReservationName="$1" PartitionName="$1" Nodes=n1 Users=alice \
    StartTime=now Duration=60 Flags="OVERLAP${2:+,$2}" >/dev/null
}
for name in closed shut; do
  xc --user root scontrol create PartitionName="$name" Nodes=ALL State=UP
  reserve "$name"
done
contracted=(-A vision --framework=digits --gpus=1)
not_elsewhere() { [[ -z $(ask_slurm squeue --noheader --partition=closed,shut --states=all) ]]; }
refusal() { xc sbatch --parsable "$@" --wrap true 2>&1; }

### At submission.
for reservation in closed closed,shut "closed,"; do
  like "$(refusal "${contracted[@]}" --reservation="$reservation")" \
    "bellows: the job names a reservation and no partition, .*; name the partition too, with --partition" \
    "--reservation=$reservation alone is refused"
  like "$(refusal --reservation="$reservation")" "bellows: the job names a reservation and no partition" \
    "also of a job that uses nothing of Bellows"
done
id=$(submit -- "${contracted[@]}" --partition=main --reservation=closed,shut --wrap true)
ok "with the partition named it runs" poll 30 job_is "$id" COMPLETED
is "$(job_field "$id" Partition)" main "there"
id=$(submit -- -A speech --framework=digits --gpus=1 --reservation=closed --wrap true)
ok "so does a job whose tenant has a partition of its own" poll 30 job_is "$id" COMPLETED
is "$(job_field "$id" Partition)" main "in that"

### A client that says that Slurm had chosen the partition (JOB_PART_ASSIGNED).
forge() { # FIELD=VALUE...
  local IFS=$'\t'
  printf '%s\n' "submit	begin_time=0	partition=main	reservation=closed,shut	bitflags=0x80000000	$*" |
    xc "$client" 2>/dev/null
}
for fields in "comment=plain" \
  "account=vision	tres_per_job=${gres}gpu:1	spank=_SLURM_SPANK_OPTION_bellows_framework=digits"; do
  id=$(forge "$fields")
  ok "a forged flag does not hurt ($id)" poll 30 job_is "${id#* }" COMPLETED
  is "$(job_field "${id#* }" Partition)" main "nor move the job"
done

### By an update.
for options in "${contracted[*]}" ""; do
  # shellcheck disable=SC2086 # several options, or none
  id=$(submit -- $options --hold --wrap true)
  like "$(xc scontrol update job="$id" ReservationName=closed,shut 2>&1)" "violates" \
    "an update to several reservations is refused where Slurm chose the partition"
  is "$(xc scontrol update job="$id" ReservationName=shut 2>&1)" "" "a single reservation does not concern it"
  xc scontrol release "$id"
  ok "and the job runs" poll 30 job_is "$id" COMPLETED
  is "$(job_field "$id" Partition)" main "where it was"
done
like "$(<"$CLUSTER/log/slurmctld.log")" "refused an update .*the job was submitted without a partition" \
  "slurmctld's log has the sentence"

### A reservation that attracts jobs by itself.
xc --user root scontrol delete ReservationName=closed
reserve closed MAGNETIC
id=$(submit -- "${contracted[@]}" --wrap true)
if slurm_is_from 26.05; then
  skip "a job runs beside a magnetic reservation" "this Slurm keeps its nodes from any job, also without Bellows"
  xc scancel "$id"
else
  ok "a job runs beside a magnetic reservation" poll 30 job_is "$id" COMPLETED
fi
is "$(job_field "$id" Partition)" main "in its own partition"

ok "no job has ever been elsewhere" not_elsewhere
done_testing
