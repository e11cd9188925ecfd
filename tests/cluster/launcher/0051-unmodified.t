#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Programs that know nothing of Bellows, an MPI program and DistributedDataParallel as written for
# torchrun: resized, and through the death of a node, from their own files to the right end. With
# BELLOWS_LONG=1 on twice as many ranks.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

# In the end each job has more than a node and less than two, so that they share one.
gpus=2 first=2 more=3
[[ -z ${BELLOWS_LONG:-} ]] || gpus=4 first=4 more=6
top=$(dirname "$(dirname "$TAP_HOME")")
heat=$build/examples/unmodified/heat
python=/usr/bin/python3
# The one that starts slowly comes first: the other one would end meanwhile.
have=()
! "$python" -c 'import torch.distributed' 2>/dev/null || have+=(ddp)
[[ -z $has_pmix || ! -x $heat ]] || have+=(heat)
((${#have[@]} > 0)) || skip_all "built without MPI, and there is no PyTorch"

impatient_cluster_up --nodes=3 --gpus="$gpus"
home=$CLUSTER/shared/home/alice
install -m 755 "$top/examples/unmodified/ddp.py" "$CLUSTER/shared/ddp.py"

declare -A ids
submit_as() { # NAME KIND COMMAND...
  local name=$1 kind=$2
  shift 2
  printf '#!/bin/bash\nexport USE_LIBUV=0\nexec bellows run --kind=%s --checkpoint-signal=USR1 --' "$kind" >"$home/$name.sh"
  printf ' %q' "$@" >>"$home/$name.sh"
  ids[$name]=$(submit -- --framework=plain --gpus-range=1-6 --gpus="$first" --job-name="$name" \
    --output="$home/$name.out" --open-mode=append "$name.sh")
}
begun() { out_of "$1" | grep -c 'start step'; }
has_begun() { (($(begun "$1") >= $2)); } # NAME TIMES
# Where the newest start went on, and with how many ranks: at NAME
at() { out_of "$1" | sed -n 's/^.*start step \([0-9]*\) ranks \([0-9]*\).*/\1 \2/p' | tail -n 1; }

for name in "${have[@]}"; do
  case $name in
    heat) submit_as heat mpi "$heat" "$home/heat.state" 3000 50 8000 ;;
    ddp) submit_as ddp torch "$python" "$CLUSTER/shared/ddp.py" --file "$home/ddp.pt" --steps 400 \
      --pause 0.1 ;;
  esac
  poll 60 has_begun "$name" 1
  is "$(at "$name")" "0 $first" "$name begins on $first GPUs" || diag "$(out_of "$name" | tail -n 20)"
  ok "$name is resized to $more" xc bellows resize --timeout 60 "${ids[$name]}" "$more"
  poll 60 has_begun "$name" 2
  like "$(at "$name")" "^[1-9][0-9]* $more\$" "$name continues from its own file, on $more"
done

# All GPUs are in use now, so the jobs share a node: the one that dies.
declare -A kept
for name in "${have[@]}"; do kept[$name]=$(at "$name" | cut -d ' ' -f 1); done
victim=$(for name in "${have[@]}"; do nodes_of "${ids[$name]}"; done | sort | uniq -c | sort -n |
  awk -v jobs="${#have[@]}" '$1 == jobs { print $2 }' | tail -n 1)
like "$victim" '^n[123]$' "there is a node of all jobs" || bail "$(for name in "${have[@]}"; do nodes_of "${ids[$name]}"; done)"
mc kill-node "${victim#n}"
poll 40 node_is "${victim#n}" 'down.*'
mc start-node "${victim#n}"
for name in "${have[@]}"; do
  poll 90 has_begun "$name" 3
  ok "$name survives the death of a node" has_begun "$name" 3 || diag "$(out_of "$name" | tail -n 20)"
  ok "and continues from its own file" test "$(at "$name" | cut -d ' ' -f 1)" -ge "${kept[$name]}"
  poll 90 job_is "${ids[$name]}" COMPLETED
  is "$(job_field "${ids[$name]}" JobState)" COMPLETED "$name comes to its end" ||
    diag "$(out_of "$name" | tail -n 20)"
done
[[ -z ${ids[heat]:-} ]] || like "$(out_of heat)" 'end step 3000 middle 10300\.' "with the right result" ||
  diag "$(out_of heat | tail -n 3)"
[[ -z ${ids[ddp]:-} ]] || like "$(out_of ddp)" 'end step 400 loss 0\.000' "and having learned" ||
  diag "$(out_of ddp | tail -n 3)"
done_testing
