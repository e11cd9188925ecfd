#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The digits training in a job: resized up and down over two nodes, it ends with the very weights
# of a training that was left alone, and has used every sample once.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$top/build}
digits=$build/examples/digits/digits
data=$build/data/digits.csv.gz
[[ -n $has_pmix ]] || skip_all "this Slurm has no mpi/pmix"
[[ -x $digits ]] || skip_all "there is no MPI, or digits is not built"
[[ -r $data ]] || skip_all "$data is missing"

cluster_up --nodes=2 --gpus=4
shared=$CLUSTER/shared
install -m 644 "$data" "$shared/digits.csv.gz"
install -m 755 "$top/examples/digits/digits.sbatch" "$shared/digits.sbatch"
training=(--epochs 40 --hidden 160)

step_of() { # JOB: of the newest committed checkpoint
  local newest
  newest=$(readlink "$shared/checkpoints/alice/$1/latest") && echo "$((10#${newest##*step-}))"
}
past() { (($(step_of "$1") >= $2)); } # JOB STEP
gpus_of() { # JOB: what it holds, not what it asks for
  xc --user root scontrol --details show job "$1" | grep -o 'JOB_GRES=gpu:[0-9]*' | cut -d: -f2
}

job=$(submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" --env DIGITS="$digits" \
  --env DIGITS_LEDGER="$shared/home/alice/ledger" -- --gpus=2 --output=digits.out \
  "$shared/digits.sbatch" "${training[@]}" --weights-out resized.weights)
like "$job" '^[0-9]+$' "alice submits the example's batch script" || bail "no job"
ok "it trains" poll 30 past "$job" 40
is "$(gpus_of "$job")" 2 "on 2 GPUs"
ok "it is resized to 8" xc bellows resize "$job" 8
is "$(gpus_of "$job")" 8 "and holds 8"
ok "it trains on" poll 40 past "$job" "$(($(step_of "$job") + 30))"
ok "it is resized to 3" xc bellows resize "$job" 3
is "$(gpus_of "$job")" 3 "and holds 3"
ok "it completes" poll 160 job_is "$job" COMPLETED || diag "$(tail -n 5 "$shared/home/alice/digits.out")"

out=$(<"$shared/home/alice/digits.out")
like "$out" 'accuracy: 9[5-9]\.[0-9] %' "it reads 95 % of the held-out digits"
is "$(grep -o 'resumed at step [0-9]* with [0-9]* ranks' <<<"$out" | awk '{print $6}' | xargs)" "8 3" \
  "it was resumed with 8 and with 3 ranks"
ledger=$("$top/tests/lib/check-ledger" "$shared/home/alice/ledger" 2>&1)
is "$?" 0 "every sample of every epoch was used once" || diag "$ledger"
like "$ledger" ', 0 steps done again' "and no step was done twice"

alone=$(mktemp -d "${TMPDIR:-/tmp}/bellows-test-XXXXXX")
tap_clusters+=("$alone")
BELLOWS_AGENT=$build/launcher/bellows OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  ok "the same training on 1 rank, left alone" timeout 120 mpirun -n 1 "$digits" --data "$data" \
  "${training[@]}" --checkpoint-every 0 --checkpoint-dir "$alone/ckpt" --weights-out "$alone/weights"
ok "ends with the same bits" cmp "$alone/weights" "$shared/home/alice/resized.weights"
done_testing
