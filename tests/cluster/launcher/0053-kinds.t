#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# The launch kinds on two nodes, as an ordinary user, on the host and in a container that has nothing of
# Bellows: what each rank is told, with hostile values of the variables around it; a kind that the
# framework lacks.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

policy=$(mktemp)
cat >"$policy" <<'YAML'
version: 1
checkpoint_dir: "/shared/checkpoints/%u/%j"
frameworks:
  any: {}
  pytorch: {versions: {"1.13": {launch: [torch, plain], prefix: "env WORDS=before"}}, default: "1.13"}
tenants:
  vision:
    accounts: [vision]
    gpus: {min: 1, max: 8}
default_tenant: vision
YAML
container_cluster_up "" --nodes=2 --gpus=4 --bellows-conf "$policy"
rm -f "$policy"
home=$CLUSTER/shared/home/alice
programs=$build/tests/cluster/programs

# A job whose ranks, three on n1 and one on n2 unless it says otherwise, run a command:
# run NAME "OPTIONS OF bellows run" "OPTIONS OF sbatch" COMMAND...
run() {
  local name=$1 how=$2 asked=$3
  shift 3
  printf '#!/bin/bash\n%s\nexec bellows run %s --' "${SETUP:-}" "$how" >"$home/$name.sh"
  printf ' %q' "$@" >>"$home/$name.sh"
  # shellcheck disable=SC2086
  submit -- --gpus-range=1-8 --gpus=4 --nodes=2 --job-name="$name" --output="$home/$name.out" \
    $asked "$name.sh"
}
ended() { # ID NAME
  poll 60 job_is "$1" COMPLETED || diag "$(tail -n 20 "$home/$2.out")"
}
# What the ranks said in lines that begin so: said NAME WORD
said() { out_of "$1" | sed -n "s/^.*\\<$2: //p" | sort; }

show='echo "told: rank=$RANK world=$WORLD_SIZE local=$LOCAL_RANK of=$LOCAL_WORLD_SIZE node=$GROUP_RANK"
echo "master: $MASTER_ADDR $MASTER_PORT"
echo "net: $NCCL_SOCKET_IFNAME $NCCL_IB_DISABLE $GLOO_SOCKET_IFNAME"
echo "words: $WORDS"
echo "gpus: $CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME"
echo "pmix: ${PMIX_RANK-none}"
echo "left: ${BELLOWS_LAUNCH-}${BELLOWS_MASTER_ADDR-}${BELLOWS_MASTER_PORT-}${BELLOWS_CPU_BIND-}"'
boxed="--container-image=$images/busybox.sqsh"
# All that the user, or whoever wrote his profile, could have said before.
hostile='export RANK=9 WORLD_SIZE=99 LOCAL_RANK=-1 LOCAL_WORLD_SIZE=x GROUP_RANK="$(id)" MASTER_ADDR=evil
export MASTER_PORT="1; id" BELLOWS_LAUNCH=mpi BELLOWS_MASTER_ADDR="a b" BELLOWS_MASTER_PORT=0'

torch=$(SETUP=$hostile run torch --kind=torch --framework=any sh -c "$show")
torch_boxed=$(SETUP=$hostile run torch-boxed "" "--framework=pytorch $boxed" sh -c "$show")
told=$(for i in 0 1 2 3; do echo "rank=$i"; done)
for name in torch torch-boxed; do
  case $name in torch) ended "$torch" torch ;; *) ended "$torch_boxed" torch-boxed ;; esac
  is "$(said $name told | sed 's/ .*//')" "$told" "$name: each rank has its number, whatever was said before" ||
    diag "$(out_of $name)"
  is "$(said $name told | sed 's/^[^ ]* //; s/ local.*//' | uniq)" "world=4" "$name: and that of all ranks"
  is "$(said $name told | sed 's/.*local=//; s/ of=.* node=/ /' | sort | xargs)" \
    "$(said $name gpus | sed 's/.* on n//' | sort | uniq -c |
      while read -r count node; do for ((i = 0; i < count; i++)); do echo "$i $((node - 1))"; done; done |
      sort | xargs)" "$name: its number on its node, and its node's"
  like "$(said $name master | uniq)" '^198\.18\.[0-9]+\.11 [1-9][0-9]{3,4}$' \
    "$name: all have one place to meet, on the first node"
  is "$(said $name net | uniq)" "=eth0 1 eth0" "$name: NCCL and Gloo use the interface of Slurm's address"
  is "$(said $name pmix | uniq) $(said $name left | uniq)" "none " "$name: nothing is left of how it was told"
done

again=$(run again "--kind=torch --max-restarts=3" --framework=any \
  sh -c 'echo "port: $MASTER_PORT"; [ -e again ] || { [ "$RANK" -gt 0 ] || touch again; sleep 1; exit 1; }')
plain=$(run plain --kind=plain --framework=pytorch sh -c "$show")
if [[ -n $has_pmix ]]; then
  nccl=$(SETUP='export NCCL_IB_DISABLE=0' run nccl --kind=nccl "--framework=any $boxed" sh -c "$show")
fi
mpi=$(run mpi "" "--framework=any $boxed" sh -c "$show")
ended "$plain" plain
is "$(said plain gpus | sort | uniq -d)" "" "plain: each rank has a GPU to itself"
is "$(said plain words | uniq)" before "and the framework's words come before the command"
is "$(said plain told | uniq) $(said plain pmix | uniq)" "rank= world= local= of= node= none" "and is told nothing"
ended "$again" again
is "$(said again port | uniq | wc -l)" 2 "each attempt has a port of its own" || diag "$(out_of again)"
if [[ -z $has_pmix ]]; then
  skip "kinds nccl and mpi" "this Slurm has no mpi/pmix"
  poll 40 job_is "$mpi" FAILED
  is "$(job_field "$mpi" ExitCode)" 3:0 "mpi without mpi/pmix is refused"
  like "$(out_of mpi)" 'kind mpi needs PMIx, and this Slurm has no mpi/pmix plugin.*--kind=plain' "with a sentence"
else
  ended "$nccl" nccl
  is "$(said nccl net | uniq)" "=eth0 0 " "nccl: NCCL's variables, but what the user has set"
  is "$(said nccl pmix | xargs)" "0 1 2 3" "and PMIx"
  ended "$mpi" mpi
  is "$(said mpi pmix | xargs) $(said mpi net | uniq)" "0 1 2 3   " "mpi, where nothing is said: PMIx, and no more"
  if [[ -x $programs/pmix_id ]]; then
    id=$(run pmix --kind=nccl --framework=any "$programs/pmix_id")
    ended "$id" pmix
    is "$(out_of pmix | sed -n 's/^.*pmix rank \([0-9]\) of 4 local .*: right$/\1/p' | sort | xargs)" "0 1 2 3" \
      "nccl: ranks without MPI exchange what NCCL needs" || diag "$(out_of pmix)"
  else
    skip "nccl: ranks without MPI exchange what NCCL needs" "built without PMIx"
  fi
fi

# A node on which Slurm can't start a step any more: the ranks of the other are not left to wait for it.
gap=$(run gap --kind=plain --framework=any sh -c 'echo "here: $$"; until [ -e gap-go ]; do sleep 0.1; done')
all_here() { (($(out_of gap | grep -c 'here: ') >= 4)); }
poll 30 all_here || bail "the job does not start: $(out_of gap)"
plugstack=$(xc --node 2 readlink -f "$CLUSTER/etc/plugstack.conf")
echo "required /no/such/plugin.so" >"$CLUSTER/shared/bad-plugstack"
xc --node 2 --user root mount --bind "$CLUSTER/shared/bad-plugstack" "$plugstack"
kill_one "$gap" sh 'gap-go'
ok "a step that one of two nodes does not start is ended" poll 20 grep -q 'rank 3 on n2 could not be started: ' "$home/gap.out" ||
  diag "$(out_of gap)"
xc --node 2 --user root umount "$plugstack"
touch "$home/gap-go"
ended "$gap" gap
ok "and started again once it can be" job_is "$gap" COMPLETED

# Kinds that are not there.
id=$(run forbidden --kind=mpi --framework=pytorch true)
poll 40 job_is "$id" FAILED
is "$(job_field "$id" ExitCode)" 3:0 "a kind that the framework lacks is refused"
like "$(out_of forbidden)" 'framework pytorch:1.13 has no launch kind mpi; use --kind=torch or --kind=plain' \
  "with a sentence"
printf '#!/bin/bash\nexec bellows run --kind=torch -- true\n' >"$home/bare.sh"
id=$(submit -- --ntasks=2 --output="$home/bare.out" bare.sh)
poll 40 job_is "$id" FAILED
like "$(out_of bare)" 'kind=torch needs a job with a Bellows contract .* spank_bellows' \
  "torch without the plugin's part says what is missing"
exits "a kind that nobody has" 2 xc bellows run --kind=warp -- true
done_testing
