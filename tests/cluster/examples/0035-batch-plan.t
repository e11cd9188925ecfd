#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 600
# bellowsd changes the batches of trainings with their sizes, as the noise of their gradients suggests, and every
# sample of every epoch is used once.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$top/build}
digits=$build/examples/digits/digits
data=$build/data/digits.csv.gz
python=/usr/bin/python3
[[ -n $has_pmix ]] || skip_all "this Slurm has no mpi/pmix"
[[ -x $digits ]] || skip_all "there is no MPI, or digits is not built"
[[ -x $build/elastic/bellowsd ]] || skip_all "bellowsd is not built"
[[ -r $data ]] || skip_all "$data is missing"

policy=$(mktemp)
cat >"$policy" <<'YAML'
version: 1
checkpoint_dir: "/shared/checkpoints/%u/%j"
controller: {addresses: ["ctl:6830"], dwell: 10, restarts_per_hour: 60}
defaults: {gpus: {elastic: auto}}
frameworks:
  digits: {versions: ["1.0"], default: "1.0"}
  pytorch: {versions: ["1.13"], default: "1.13"}
tenants: {vision: {gpus: {min: 1, max: 8}}}
default_tenant: vision
YAML
chmod 644 "$policy"  # bellowsd and this slurmctld are not root
cluster_up --nodes=2 --gpus=4 --elastic --bellows-conf "$policy"
rm -f "$policy"
shared=$CLUSTER/shared
home=$shared/home/alice
install -m 644 "$data" "$shared/digits.csv.gz"
install -m 755 "$top/examples/digits/digits.sbatch" "$shared/digits.sbatch"
cp -r "$top/examples/pytorch" "$top/python/bellows" "$shared/"
cp "$top/tests/cluster/programs/paced_train.py" "$shared/pytorch/"
chmod -R a+rX "$shared/pytorch" "$shared/bellows"

starts() { # OUTPUT: "RANKS:BATCH" of each start that has a batch of bellowsd
  sed -nE '/^bellows run: the program is to use batch/{s/.* ([0-9]+)$/\1/;h}
    /^bellows run: job .* holds /{s/.*: ([0-9]+) ranks?;.*/\1/;G;s/\n/:/p;s/.*//;x}' "$home/$1" | grep ':.'
}
has_grown_batch() { starts "$1" | awk -F: '$1 > 1 && $2 > 64 { found = 1 } END { exit !found }'; }
# No rank has more samples than at first, when there was one with 64; and all are in the range.
are_sensible() { starts "$1" | awk -F: '$2 > 64 * $1 || $2 < 32 || $2 > 512 { exit 1 }'; }
record_of() { cat "$shared/checkpoints/alice/$1/batch.json" 2>/dev/null; }

check() { # JOB NAME WHAT
  ok "$3 gets another size and a larger batch together" poll 120 has_grown_batch "$2.out" ||
    diag "$(tail -n 5 "$home/$2.out")" "$(record_of "$1")" "$(xc bellows plan)" "$(grep plan "$CLUSTER/log/bellowsd.log" | tail -n 5)"
  like "$(record_of "$1")" '"planned":\{"batch":[0-9]+,"gpus":[0-9]+\}' "its record says for which size"
  like "$(xc bellows history "$1" 2>&1)" 'resize by bellowsd to [0-9]+ GPUs, batch [0-9]+' "its history has the order"
  ok "it completes" poll 240 job_is "$1" COMPLETED || diag "$(tail -n 5 "$home/$2.out")"
  diag "ranks:batch of its starts: $(starts "$2.out" | xargs)"
  ok "no rank ever had more samples than one had before" are_sensible "$2.out"
  local ledger
  ledger=$("$top/tests/lib/check-ledger" "$home/$2.ledger" 2>&1)
  is "$?" 0 "every sample of every epoch was used once" || diag "$ledger"
  like "$ledger" ', 0 steps done again' "and no step was done twice"
}

job=$(submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" --env DIGITS="$digits" --env DIGITS_LEDGER="$home/digits.ledger" \
  -- --gpus=1 --gpus-range=1-4 --batch-range=32-512 --output=digits.out "$shared/digits.sbatch" --epochs 300 --hidden 160)
like "$job" '^[0-9]+$' "alice submits the digits training with a range of batches" || bail "no job"
check "$job" digits "the digits training"
like "$(<"$home/digits.out")" 'accuracy: 9[5-9]\.[0-9] %' "it reads 95 % of the held-out digits"

if ! "$python" -c 'import torch.distributed' 2>/dev/null; then
  skip "PyTorch" "there is none: apt-get install python3-torch, a download of 200 MB"
else
  job=$(submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" --env PYTHON="$python" --env TRAIN="$shared/pytorch/paced_train.py" \
    --env PYTHONPATH="$shared" --env BELLOWS_LIBRARY="$build/checkpoint/.libs/libbellows.so.0" \
    -- --gpus=1 --gpus-range=1-4 --batch-range=32-512 --output=pytorch.out "$shared/pytorch/train.sbatch" \
    --epochs 200 --save-every 50 --ledger pytorch.ledger)
  like "$job" '^[0-9]+$' "alice submits the PyTorch training with a range of batches" || bail "no job"
  check "$job" pytorch "the PyTorch training"
  like "$(<"$home/pytorch.out")" 'accuracy 9[5-9]\.[0-9] %' "it reads 95 % of the held-out digits"
fi
done_testing
