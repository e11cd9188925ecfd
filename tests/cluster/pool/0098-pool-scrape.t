#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 200
# A pool that has the size which its policy finds in what an unmodified program tells Prometheus, and that does not shrink
# when the program hangs.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
cluster_up --nodes=2
home=$CLUSTER/shared/home/alice

# Each has its part of the load, and hangs while there is a file.
cat >"$home/serve.py" <<'S'
import http.server
import os
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while os.path.exists("hangs"):
            time.sleep(0.1)
        with open("load") as file:
            load = float(file.read())
        text = f'# TYPE m:running gauge\nm:running{{engine="0"}} {load}\nm:running{{engine="1"}} {load}\n'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())


http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
S
cat >"$home/serve.sbatch" <<'S'
#!/bin/bash
port=$((20000 + SLURM_JOB_ID % 20000))
exec bellows pool member --port $port --scrape http://127.0.0.1:$port/metrics -- python3 serve.py $port
S
cat >"$home/policy.yaml" <<'S'
max: 3
stale: 5
stabilisation: 3
panic_window: 2
targets: [{metric: "m:running", per_member: 10}]
S
echo 2 >"$home/load"

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show serve --json | jq .ready) == "$1" ]]; }
hears_nothing() { pool explain serve | grep -q "say how they are"; }

ok "a pool is made" pool create serve --policy "$home/policy.yaml" "$home/serve.sbatch"
ok "and has its least size" poll 30 ready 1
echo 7.5 >"$home/load"
ok "it grows by the sum of what a program tells" poll 40 ready 3
touch "$home/hangs"
ok "what a program that hangs said before does not count for long" poll 30 hears_nothing
echo 1 >"$home/load"
is "$(pool show serve --json | jq .wanted)" 3 "and the pool does not shrink"
rm "$home/hangs"
ok "until it is told that less is enough" poll 40 ready 1
touch "$home/hangs"
ok "members that hang are drained, too" pool delete serve
is "$(pool_pids 'bellows-pool (member|keeper)')" "" "and nobody is left"
done_testing
