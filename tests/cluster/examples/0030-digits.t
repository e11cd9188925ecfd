#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 150
# The digits training on one machine, without Slurm: stopped, killed and resized, it ends with the
# same weights, bit for bit, and has used every sample once.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=$(dirname "$(dirname "$TAP_HOME")")
build=${BELLOWS_BUILDDIR:-$top/build}
digits=$build/examples/digits/digits
export BELLOWS_AGENT=$build/launcher/bellows BELLOWS_DIGITS=$build/data/digits.csv.gz
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[[ -x $digits ]] || skip_all "there is no MPI, or digits is not built"
[[ -r $BELLOWS_DIGITS ]] || skip_all "$BELLOWS_DIGITS is missing"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/bellows-test-XXXXXX")
tap_clusters+=("$scratch")

# Trains in $scratch/RUN: train RUN RANKS OPTION...
train() {
  local run=$1 ranks=$2
  shift 2
  timeout 60 mpirun --oversubscribe --bind-to none -n "$ranks" "$digits" --epochs 12 --hidden 128 \
    --checkpoint-every 10 --checkpoint-dir "$scratch/$run.ckpt" --ledger "$scratch/$run.ledger" \
    --weights-out "$scratch/$run.weights" "$@" >>"$scratch/$run.out" 2>&1
}

committed() { # RUN STEP: a checkpoint of this step or a later one is there
  local newest
  newest=$(readlink "$scratch/$1.ckpt/latest") && ((10#${newest##*step-} >= $2))
}

# Trains, and kills one rank with SIGKILL when a checkpoint of STEP is there: train_and_kill RUN RANKS STEP
train_and_kill() {
  local run=$1 ranks=$2 step=$3 mpirun victim
  # Not through train(): $! must be mpirun, whose children are the ranks.
  mpirun --oversubscribe --bind-to none -n "$ranks" "$digits" --epochs 12 --hidden 128 \
    --checkpoint-every 10 --checkpoint-dir "$scratch/$run.ckpt" --ledger "$scratch/$run.ledger" \
    >>"$scratch/$run.out" 2>&1 &
  mpirun=$!
  poll 30 committed "$run" "$step" || diag "$(tail -n 5 "$scratch/$run.out")"
  victim=$(pgrep -P "$mpirun" -x digits | tail -n 1)
  kill -KILL "$victim"
  ! wait "$mpirun" 2>/dev/null
}

# Trains, and tells the agent to stop when a checkpoint of STEP is there: train_and_stop RUN RANKS STEP
train_and_stop() {
  train "$1" "$2" &
  local training=$!
  poll 30 committed "$1" "$3" || diag "$(tail -n 5 "$scratch/$1.out")"
  pkill -TERM -f "agent .*$scratch/$1.ckpt"
  wait "$training"
}

same_weights() { cmp "$scratch/$1.weights" "$scratch/$2.weights"; }
ledger() { "$top/tests/lib/check-ledger" "$scratch/$1.ledger"; }
no_agent() { ! pgrep -f "agent .*$scratch/" >/dev/null; }

ok "a training on 2 ranks" train whole 2 || diag "$(tail -n 5 "$scratch/whole.out")"
like "$(tail -n 1 "$scratch/whole.out")" '^accuracy: 9[5-9]\.[0-9] %$' "reads 95 % of the held-out digits"
ok "it used every sample of every epoch once" ledger whole

ok "one rank is killed" train_and_kill killed 2 40
ok "the training continues" train killed 2
like "$(<"$scratch/killed.out")" 'resumed at step (4[0-9]|[5-9][0-9]|[12][0-9]{2}) with 2 ranks' "from a checkpoint"
ok "and ends with the same bits" same_weights whole killed
ok "the weights descend from every sample of every epoch once" ledger killed

ok "a stopped training ends without an error" train_and_stop stopped 2 30
like "$(tail -n 1 "$scratch/stopped.out")" '^stopped at step [0-9]+ with 2 ranks' "and says where"
ok "it continues" train stopped 2
ok "and ends with the same bits" same_weights whole stopped
ok "and with every sample of every epoch once" ledger stopped
is "$("$top/tests/lib/check-ledger" "$scratch/stopped.ledger" | grep -o ', [0-9]* steps done again')" \
  ", 0 steps done again" "and no step was done twice"

ok "a training on 2 ranks is killed" train_and_kill resized 2 21
ok "continues with 3 ranks and is killed again" train_and_kill resized 3 90
ok "and ends with 1 rank" train resized 1
is "$(grep -c '^resumed' "$scratch/resized.out")" 2 "each from a checkpoint"
ok "with the same bits still" same_weights whole resized
ok "and with every sample of every epoch once" ledger resized

ok "a finished training has nothing more to do" train killed 2
ok "and keeps its weights" same_weights whole killed

exits "another chunk is another training" 1 train killed 2 --chunk 4
like "$(<"$scratch/killed.out")" 'made with another --seed, --chunk' "and the message says so"
exits "so is another width" 1 train killed 2 --hidden 64
exits "bad numbers are wrong usage" 2 "$digits" --epochs 0
exits "unknown options are wrong usage" 2 "$digits" --fast
exits "a missing data file is an error" 1 "$digits" --data /nonexistent
ok "--help is not" "$digits" --help
ok "no agent is left" poll 10 no_agent
done_testing
