#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The example of a service that knows nothing of pools, a network that reads digits over HTTP, grows from one
# member to eight and back behind HAProxy while a load generator calls it. No call fails.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch' 2>/dev/null || skip_all "$python has no PyTorch"
[[ -r $build/data/digits.csv.gz ]] || skip_all "there are no digits: ./quickstart makes them"
cluster_up --nodes=4 --gpus=1
home=$CLUSTER/shared/home/alice
install -m 644 "$build/data/digits.csv.gz" "$home"
install -m 755 "$TAP_HOME/../../examples/pool/"serve.{py,sbatch} "$home"

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show digits --json | jq .ready) == "$1" ]]; }
running() { [[ $(ask_slurm squeue --noheader --states=R --name=digits.member | wc -l) == "$1" ]]; }

ok "a pool of them is made" xc env PYTHON="$python" bellows pool create digits --min 1 --max 8 --http 8080 serve.sbatch
ok "and has a member" poll 60 ready 1
at=$(pool endpoint digits --proxy)
like "$at" "^n[1-4]:8080$" "it has one address"
like "$(xc curl -sS --max-time 10 "http://$at/17")" '^\{"digit": [0-9]\}$' "which answers"
is "$(xc curl -sS --max-time 10 -d '[1, 2]' -o /dev/null -w '%{http_code}' "http://$at/")" 400 "and passes refusals on"

xc --node 2 hey -z 50s -c 8 -q 10 -t 10 "http://$at/17" >"$home/load.txt" &
load=$!
ok "it grows" pool scale digits 8
ok "to eight" poll 60 ready 8
is "$(pool endpoint digits | wc -l)" 8 "each with an address of its own"
ok "it shrinks" pool scale digits 1
ok "to one" poll 30 running 1
kill -9 "$(pool_pids 'bellows-pool keeper digits$' | tail -n 1)"
ok "a killed keeper is there again at once" poll 10 ready 1
is "$(ask_slurm scontrol -o show job "$(pool show digits --json | jq .keeper_job)" | grep -o 'Restarts=[0-9]*')" Restarts=0 \
  "without the queue"
wait "$load"
diag "$(grep -E 'Requests/sec|Slowest|9[59]%' "$home/load.txt" | xargs)"
is "$(sed -n '/Status code/,/^$/p' "$home/load.txt" | grep -o '\[[0-9]*\]')" "[200]" "every call was answered"
unlike "$(<"$home/load.txt")" "Error distribution" "and none was lost"

# Between two requests: those under way in a HAProxy are lost with it.
kill -9 "$(pool_pids '^/?[a-z/]*haproxy -db' | tail -n 1)"
is "$(xc curl -sS --max-time 10 -o /dev/null -w '%{http_code}' "http://$at/17")" 200 "a killed HAProxy makes callers wait"
ok "the pool is deleted" pool delete digits
is "$(pool_pids 'bellows-pool (member|keeper)|serve.py|haproxy -db')" "" "and leaves nobody"
done_testing
