#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 220
# A PyTorch training in a job, DistributedDataParallel over gloo: resized from 2 ranks to 4 and to 1,
# it has used every sample once, and its loss is that of a training that was left alone. Another one
# changes its batch with its size.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$top/build}
data=$build/data/digits.csv.gz
# Debian's own: another python3 earlier in PATH lacks its packages.
python=/usr/bin/python3
"$python" -c 'import torch.distributed' 2>/dev/null ||
  skip_all "there is no PyTorch: apt-get install python3-torch, a download of 200 MB"
[[ -r $data ]] || skip_all "$data is missing"

policy=$(mktemp)
cat >"$policy" <<'YAML'
version: 1
checkpoint_dir: "/shared/checkpoints/%u/%j"
frameworks: {pytorch: {versions: ["1.13"], default: "1.13"}}
tenants: {vision: {gpus: {min: 1, max: 8}}}
default_tenant: vision
YAML
cluster_up --nodes=2 --gpus=4 --bellows-conf "$policy"
rm -f "$policy"
shared=$CLUSTER/shared
home=$shared/home/alice
install -m 644 "$data" "$shared/digits.csv.gz"
cp -r "$top/examples/pytorch" "$top/python/bellows" "$shared/"
chmod -R a+rX "$shared/pytorch" "$shared/bellows"
training=(--epochs 20 --save-every 10)

step_of() { # JOB: of the newest committed checkpoint
  local newest
  newest=$(readlink "$shared/checkpoints/alice/$1/latest") && echo "$((10#${newest##*step-}))"
}
past() { (($(step_of "$1") >= $2)); } # JOB STEP

# Submits the example on 2 GPUs: submit_training OPTION-OF-SBATCH... -- OPTION-OF-TRAINING...
submit_training() {
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" --env PYTHON="$python" \
    --env TRAIN="$shared/pytorch/train.py" --env PYTHONPATH="$shared" \
    --env BELLOWS_LIBRARY="$build/checkpoint/.libs/libbellows.so.0" \
    -- --gpus=2 "${options[@]}" "$shared/pytorch/train.sbatch" "${training[@]}" "$@"
}

job=$(submit_training --output=train.out -- --ledger ledger --losses losses)
like "$job" '^[0-9]+$' "alice submits the example's batch script" || bail "no job"
ok "it trains on 2 ranks" poll 30 past "$job" 40 || diag "$(tail -n 20 "$home/train.out")"
ok "it is resized to 4" xc bellows resize "$job" 4
ok "it trains on" poll 40 past "$job" "$(($(step_of "$job") + 30))" || diag "$(tail -n 20 "$home/train.out")"
ok "it is resized to 1" xc bellows resize "$job" 1
ok "it completes" poll 60 job_is "$job" COMPLETED || diag "$(tail -n 20 "$home/train.out")"
like "$(<"$home/train.out")" 'step 460 ranks 1 accuracy 9[0-9]\.[0-9] %' \
  "it reads 90 % of the held-out digits"
ledger=$("$top/tests/lib/check-ledger" "$home/ledger" 2>&1)
is "$?" 0 "every sample of every epoch was used once" || diag "$ledger"
is "$(grep -o '[124] ranks' <<<"$ledger" | xargs)" "1 ranks 4 ranks 2 ranks" "on 2, on 4 and on 1 rank"
like "$ledger" ', 0 steps done again' "and no step was done twice"

job=$(submit_training --output=batch.out --batch-range=32-256 -- --ledger batch-ledger)
ok "one with a range of batches trains" poll 30 past "$job" 40 || diag "$(tail -n 20 "$home/batch.out")"
ok "batch and size change together" xc bellows resize "$job" 4 --batch 128
ok "it completes" poll 60 job_is "$job" COMPLETED || diag "$(tail -n 20 "$home/batch.out")"
like "$(<"$home/batch.out")" 'step [0-9]+ ranks 4 accuracy 9[0-9]\.[0-9] %' "it reads 90 % of the digits, too"
ledger=$("$top/tests/lib/check-ledger" "$home/batch-ledger" 2>&1)
is "$?" 0 "and every sample of every epoch was used once" || diag "$ledger"
steps=$(sed -n 's/^20 epochs of [0-9]* samples, \([0-9]*\) steps.*/\1/p' <<<"$ledger")
ok "in fewer steps than with the first batch alone" test "$steps" -lt 460

alone=$(mktemp -d "${TMPDIR:-/tmp}/bellows-test-XXXXXX")
tap_clusters+=("$alone")
export BELLOWS_AGENT=$build/launcher/bellows BELLOWS_LIBRARY=$build/checkpoint/.libs/libbellows.so.0
export PYTHONPATH=$top/python PYTHONDONTWRITEBYTECODE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 USE_LIBUV=0
ok "the same training on 1 rank, left alone" timeout 60 "$python" "$top/examples/pytorch/train.py" \
  "${training[@]}" --data "$data" --checkpoint-dir "$alone/ckpt" --losses "$alone/losses"
compare=("$top/tests/lib/compare-losses" 460)
ok "has the same loss at each step, within rounding" "${compare[@]}" "$home/losses" "$alone/losses"
diag "the most apart: $("${compare[@]}" "$home/losses" "$alone/losses" 2>&1 | head -n 1)"
done_testing
