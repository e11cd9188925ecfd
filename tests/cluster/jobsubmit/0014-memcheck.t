#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# slurmctld under valgrind, from its start through submissions, updates and reloads to its end. It has
# reports of its own; none may come from job_submit_bellows.so.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

command -v valgrind >/dev/null || skip_all "valgrind is not installed"
plugin=${BELLOWS_BUILDDIR:-$TAP_HOME/../../build}/jobsubmit/.libs/job_submit_bellows.so
! ldd "$plugin" 2>/dev/null | grep -qE 'lib(asan|tsan|ubsan)' || skip_all "the plugin has a sanitizer in it"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-memcheck-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
lua: {script: bellows.lua}
frameworks:
  digits: {versions: ["1.0"], env: {MODE: fast}}
tenants:
  vision:
    gpus: {min: 1, max: 4, start: 2}
    sizing: {per_gpu: {cpus: 1}, time: {default: 10, max: 60}}
  speech: {users: [carol], gpus: {max: 2}}
YAML
cat >"$work/bellows.lua" <<'LUA'
function submit(job, tenant)
  if job.name == "refused" then refuse("a job of this name") end
  if job.name == "failing" then error("the script breaks") end
  job.comment = "seen by " .. (tenant and tenant.name or "nobody")
end

function modify(job, change, tenant)
  if change.time_limit == 7 then return "not 7 minutes" end
end
LUA
cluster_up --nodes=1 --gpus=4 --bellows-conf "$work/bellows.yaml"
cp "$work/bellows.lua" "$CLUSTER/etc/bellows.lua"
policy=$CLUSTER/etc/bellows.yaml
mc stop-ctld

log() { cat "$CLUSTER/log/slurmctld.log"; }
answers() { xc scontrol ping | grep -q ' is UP'; }
finished() { grep -q '<state>FINISHED' "$CLUSTER"/shared/valgrind.*.xml && ! pgrep -f "memcheck.*$CLUSTER" >/dev/null; }

# Names in the plugin are still wanted after its unloading. What Slurm still holds at its end looks
# "possibly lost", since its pointers lie behind a header; what nobody holds is definitely lost.
# A copy: from 24.11 slurmctld, which knows itself by this name, executes /proc/self/exe, and under
# valgrind that is not found when it is a link to another name, as Debian has it.
cp -L "$(command -v slurmctld)" "$CLUSTER/shared/slurmctld"
xc --user root valgrind --quiet --tool=memcheck --leak-check=full --show-leak-kinds=definite \
  --keep-debuginfo=yes --num-callers=40 --xml=yes --xml-file="$CLUSTER/shared/valgrind.%p.xml" \
  "$CLUSTER/shared/slurmctld" -f "$CLUSTER/etc/slurm.conf" </dev/null >"$work/start" 2>&1
ok "slurmctld starts under valgrind" poll 90 answers

### Submissions.
options=(-A vision --framework=digits --gpus-range=1-4)
id=$(submit -- "${options[@]}" --hold --wrap true)
like "$(job_field "$id" AdminComment)" "bellows/1" "a job is admitted"
like "$(xc sbatch "${options[@]}" --gpus=5 --wrap true 2>&1)" "5 is not one of the sizes" "one is refused"
like "$(xc sbatch -A nobody --framework=digits --wrap true 2>&1)" "belongs to no tenant" "one of no tenant too"
like "$(xc sbatch "${options[@]}" --job-name=refused --wrap true 2>&1)" "a job of this name" \
  "one is refused by the site's script"
like "$(xc sbatch "${options[@]}" --job-name=failing --wrap true 2>&1)" "could not be applied" "one fails in it"
ok "and one that asks for nothing passes" submit -- --hold --wrap true
for _ in {1..10}; do submit -- "${options[@]}" --hold --wrap true; done >"$work/ids"

### Updates.
update() { xc scontrol update job="$id" "$@" 2>&1; }
is "$(update "TresPerJob=${gres}gpu:3")" "" "an update within the range is done"
like "$(update "TresPerJob=${gres}gpu:9")" "violates" "one beyond it is refused"
like "$(update Account=speech)" "Invalid account" "one of the account too"
like "$(update TimeLimit=7)" "violates" "one that the site's script does not want too"
like "$(update Requeue=0)" "Invalid argument" "and one that would make it fixed"

### Reloads.
changed() { log | grep -c 'policy read from'; }
read_again() { (($(changed) > before)); }
before=$(changed)
sed 's/max: 4/max: 3/' "$work/bellows.yaml" >"$policy"
ok "the policy is read again" poll 30 read_again
before=$(changed)
echo "-- changed" >>"$CLUSTER/etc/bellows.lua"
poll 30 read_again || diag "a change of the script alone is not seen"
echo "tenants: [" >"$policy"
broke() { log | grep -q 'stays in force'; }
ok "a broken one is reported" poll 30 broke
like "$(xc sbatch "${options[@]}" --wrap true 2>&1)" "1-3 GPUs" "the one before it stays in force"
ok "slurmctld reads its configuration again" xc --user root scontrol reconfigure
ok "and answers" poll 30 answers

### The end.
mc stop-ctld >/dev/null 2>&1
ok "slurmctld ends" poll 60 finished
# Prints the reports in which a function of ours occurs.
ours() {
  awk '/<error>/ { text = ""; within = 1 } within { text = text $0 "\n" }
       /<\/error>/ { if (text ~ /job_submit_bellows\.so/) printf "%s", text; within = 0 }' "$CLUSTER"/shared/valgrind.*.xml |
    sed -nE 's/.*<(kind|what|text|fn|file|line)>(.*)<.*/\1 \2/p'
}
is "$(ours)" "" "valgrind reports nothing of ours"
diag "$(cat "$CLUSTER"/shared/valgrind.*.xml | grep -c '<error>') reports of Slurm's own"
done_testing
