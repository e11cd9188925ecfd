#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The digits training in a job whose batch changes with its size: each order is held to the contract, lasts
# until the next one, and every sample of every epoch is used once.
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
home=$shared/home/alice
install -m 644 "$data" "$shared/digits.csv.gz"
install -m 755 "$top/examples/digits/digits.sbatch" "$shared/digits.sbatch"

step_of() { # JOB: of the newest committed checkpoint
  local newest
  newest=$(readlink "$shared/checkpoints/alice/$1/latest") && echo "$((10#${newest##*step-}))"
}
past() { (($(step_of "$1") >= $2)); } # JOB STEP
trains_on() { poll 60 past "$1" "$(($(step_of "$1") + 15))" || diag "$(tail -n 5 "$home/digits.out")"; }
record() { cat "$shared/checkpoints/alice/$job/batch.json" 2>/dev/null; }

job=$(submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" --env DIGITS="$digits" \
  --env DIGITS_LEDGER="$home/ledger" --env BELLOWS_BATCH=48 -- --gpus=2 --batch-range=32-256 \
  --output=digits.out "$shared/digits.sbatch" --epochs 30 --hidden 160)
like "$job" '^[0-9]+$' "alice submits the example with a range of batches" || bail "no job"
ok "it trains" poll 30 past "$job" 40
is "$(record)" "" "nothing is ordered"

refused=$(xc bellows resize "$job" 4 --batch 512 2>&1)
is "$?" 3 "a batch that the contract does not have is refused"
like "$refused" 'may use a batch of 32-256, not 512; nothing was changed' "in a sentence"
ok "size and batch change together" xc bellows resize "$job" 4 --batch 128
is "$(record)" '{"batch":128}' "the order is recorded beside the checkpoints"
ok "it trains on" trains_on "$job"
said=$(xc bellows resize --json "$job" 4 --batch 256 2>/dev/null)
is "$?" 0 "the batch alone changes"
like "$said" '"from":4,"to":4,.*"batch":256' "and the command says so"
ok "it trains on" trains_on "$job"
ok "the size alone changes" xc bellows resize "$job" 3
ok "it trains on" trains_on "$job"
ok "a smaller batch again" xc bellows resize "$job" 1 --batch 32
ok "it completes" poll 160 job_is "$job" COMPLETED || diag "$(tail -n 5 "$home/digits.out")"

out=$(<"$home/digits.out")
is "$(grep -o 'resumed at .*' <<<"$out" | sed -E 's/.*with ([0-9]+) ranks.*batch ([0-9]+)/\1:\2/' | xargs)" \
  "4:128 4:256 3:256 1:32" "each start had its size, and the batch that was ordered last"
like "$(xc bellows history "$job" 2>&1)" 'to 4 GPUs, batch 128' "the history has the orders"
like "$out" 'accuracy: 9[5-9]\.[0-9] %' "it reads 95 % of the held-out digits"
ledger=$("$top/tests/lib/check-ledger" "$home/ledger" 2>&1)
is "$?" 0 "every sample of every epoch was used once" || diag "$ledger"
like "$ledger" ', 0 steps done again' "and no step was done twice"

cat >"$shared/own.sh" <<EOF
#!/bin/bash
mkdir own && echo '{"batch":100000}' >own/batch.json
exec bellows run --checkpoint-dir=own -- "$digits" --epochs 2
EOF
other=$(submit --env BELLOWS_DIGITS="$shared/digits.csv.gz" -- --framework=digits --gpus=1 \
  --batch-range=32-256 --output=other.out "$shared/own.sh")
ok "a job whose record has a batch that it may not use" poll 60 job_is "$other" COMPLETED || diag "$(<"$home/other.out")"
like "$(<"$home/other.out")" 'batch.json has a batch of 100000, and the job.s contract has 32-256; it is not used' \
  "trains with its own, and says why"
done_testing
