#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# An elastic pool where Slurm has no plugin of Bellows.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
cluster_up --nodes=1 --gpus=0 --no-plugins
home=$CLUSTER/shared/home/alice

cat >"$home/web.sbatch" <<'S'
#!/bin/bash
#SBATCH --cpus-per-task=1
port=$((20000 + SLURM_JOB_ID % 20000))
exec bellows pool member --port $port -- python3 -m http.server $port
S

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show web --json | jq .ready) == "$1" ]]; }

ok "a pool is made without the plugins" pool create web --max 2 "$home/web.sbatch"
ok "and has a member that takes calls" poll 30 ready 1
like "$(xc curl -s "http://$(pool endpoint web)/")" "Directory listing" "which answers"
victim=$(pool show web --json | jq -r '.members[0].job')
xc scancel "$victim"
replaced() { ready 1 && [[ $(pool show web --json | jq -r '.members[0].job') != "$victim" ]]; }
ok "a lost member is replaced" poll 30 replaced
# Only slurmctld's plugin could write one, but a keeper must not need it.
unlike "$(ask_slurm scontrol --oneliner show job "$(pool show web --json | jq .keeper_job)")" bellows/1 \
  "the keeper has no contract"
ok "the pool is deleted" pool delete web
idle() { [[ -z $(ask_slurm squeue --noheader) ]]; }
ok "with all of its jobs" poll 20 idle
done_testing
