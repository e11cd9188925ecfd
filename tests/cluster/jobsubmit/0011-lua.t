#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# A site's Lua hooks in a real slurmctld: the examples, a hostile script, changes of the script, updates.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-lua-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT
examples=$TAP_HOME/../../lua

cat >"$work/bellows.yaml" <<'YAML'
version: 1
lua: {script: site.lua, instructions: 10000000, memory: 16M}
frameworks:
  digits: {versions: ["1.0"]}
  plain:
tenants:
  vision:
    gpus: {min: 1, max: 64, start: 2}
    sizing: {partitions: [main, small]}
plain_jobs: {partitions: {closed: refuse}}
YAML
cluster_up --nodes=1 --gpus=4 --bellows-conf "$work/bellows.yaml"
for partition in small closed; do
  xc --user root scontrol create PartitionName="$partition" Nodes=ALL State=UP
done
policy=$CLUSTER/etc/bellows.yaml
script=$CLUSTER/etc/site.lua

log() { cat "$CLUSTER/log/slurmctld.log"; }
good_reads() { log | grep -c "policy read from $policy"; }
reads_more_than() { (($(good_reads) > $1)); }

# Puts a script in force, and waits until slurmctld has it.
put_script() { # NAME-OF-A-POINT; the script on stdin
  local before
  before=$(good_reads)
  cat >"$work/new.lua"
  mv "$work/new.lua" "$script"
  ok "$1" poll 10 reads_more_than "$before"
}

# What a submission says; held jobs, so that nothing runs.
say() { # OPTION-OF-SBATCH...
  local output
  if output=$(xc sbatch --parsable --hold "$@" --wrap true 2>&1); then
    id=${output##*$'\n'}
    echo "accepted in $(job_field "$id" Partition) by account $(job_field "$id" Account)"
    xc scancel "$id"
  else
    echo "$output"
  fi
}
digits=(-A VISION --framework=digits)
elastic=("${digits[@]}" --gpus-range=1-8)

update() { # USER ID KEY=VALUE...
  local user=$1 id=$2
  shift 2
  xc --user "$user" scontrol update job="$id" "$@" 2>&1
}

### A script that is not there yet.
like "$(say "${elastic[@]}")" "no policy to admit this job by .*site.lua" "a policy without its script is not in force"

### The examples.
put_script "user-cap.lua is read" <"$examples/user-cap.lua"
like "$(say "${digits[@]}" --gpus-range=1-64)" \
  "bellows: alice may use at most 32 GPUs in a job, and this one could grow to 64" "user-cap: alice's cap"
like "$(say "${elastic[@]}")" "accepted" "user-cap: what is below it passes"
like "$(xc --user carol sbatch -A vision --framework=digits --gpus=9 --wrap true 2>&1)" \
  "carol may use at most 8 GPUs in a job, and this one could grow to 9" "user-cap: and everyone else's"
like "$(say --gpus=33)" "alice may use at most 32 GPUs" "user-cap: also for jobs that use nothing of Bellows"

sed 's/digits = "small"/digits = "small", plain = "closed"/' "$examples/route-by-framework.lua" >"$work/route.lua"
put_script "route-by-framework.lua is read" <"$work/route.lua"
like "$(say "${elastic[@]}")" "accepted in small by account vision" "route-by-framework: it chooses the partition"
like "$(log)" "lua, for a job of uid [0-9]*: alice: partition small for digits" "route-by-framework: and logs it"
like "$(say "${elastic[@]}" --partition=main)" "accepted in main" "route-by-framework: the user's own stays"
like "$(say -A VISION --framework=plain)" \
  'partition "closed" is not open to tenant vision; .*this site.s rules had changed: partition' \
  "what it writes is checked against the policy"
like "$(say)" "accepted in main" "route-by-framework: other jobs stay where they are"

sed 's/opens, closes = 8, 18/opens, closes = 0, 24/; s/now.wday >= 2 and now.wday <= 6/now.wday >= 1/' \
  "$examples/office-hours.lua" >"$work/hours.lua"
put_script "office-hours.lua is read" <"$work/hours.lua"
like "$(say "${digits[@]}" --gpus-range=1-9)" "a job may have at most 8 GPUs, and this one asks for 9" \
  "office-hours: no large jobs"
id=$(submit -- "${elastic[@]}" --hold --wrap true)
ok "office-hours: a small one" test -n "$id"
xc scancel "$id"

### Updates.
put_script "a modify hook is read" <<'LUA'
function modify(job, change, tenant)
  if change.gpus then
    return ("%s: no more than %d GPUs for %s, not %d"):format(tenant.name, job.gpus, job.user_name, change.gpus)
  end
  if change.name == "far" then change.partition = "closed" end
  if change.name == "near" then change.partition, change.comment = "small", "moved" end
end
LUA
id=$(submit -- "${elastic[@]}" --hold --wrap true)
like "$(update alice "$id" "TresPerJob=${gres}gpu:4")" "violates" "the owner's update is refused"
like "$(log)" "refused an update of JobId=$id by uid [0-9]*: vision: no more than 2 GPUs for alice, not 4" \
  "slurmctld's log says why"
is "$(job_field "$id" TresPerJob)" "${gres}gpu:2" "and nothing of it was done"
like "$(update alice "$id" JobName=far)" "violates" "what the hook writes is checked against the policy"
is "$(job_field "$id" Partition):$(job_field "$id" JobName)" "main:wrap" "and nothing of that either"
is "$(update alice "$id" JobName=near)" "" "another change passes"
is "$(job_field "$id" Partition):$(job_field "$id" JobName):$(job_field "$id" Comment)" "small:near:moved" \
  "with what the hook adds"
is "$(update root "$id" "TresPerJob=${gres}gpu:4")" "" "an administrator is not asked"
plain=$(submit -- -A vision --gpus=1 --hold --wrap true)
like "$(update alice "$plain" "TresPerJob=${gres}gpu:2")" "violates" "jobs that use nothing of Bellows are shown too"
xc scancel "$id" "$plain"

### A hostile script.
hostile() { # BODY
  printf 'function submit(job)\n  job.partition = "small"\n  %s\nend\n' "$1"
}
milliseconds() { # COMMAND...
  local before=${EPOCHREALTIME/[.,]/}
  "$@" >/dev/null 2>&1
  echo $(((${EPOCHREALTIME/[.,]/} - before) / 1000))
}
bodies=('while true do end'
  'while true do pcall(function() while true do end end) end'
  'local s = "x" while true do s = s .. s end'
  'local t = {} for i = 1, 1e9 do t[i] = {i} end'
  'local function f() return f() + 1 end f()'
  'error(job.nme)')
for body in "${bodies[@]}"; do
  put_script "a hostile script is read: $body" < <(hostile "$body")
  like "$(say "${elastic[@]}")" "this site's rules could not be applied; try again later" "it refuses jobs"
done
took=$(milliseconds say "${elastic[@]}")
ok "at once, in $took ms" test "$took" -lt 3000
for _ in 1 2 3 4 5 6 7 8 9 10; do say "${elastic[@]}" >/dev/null; done
took=$(milliseconds xc scontrol ping)
ok "slurmctld answers, in $took ms" test "$took" -lt 3000
is "$(log | grep -c 'slurmctld version .* started')" 1 "and was never restarted"
like "$(log)" "error: .*lua failed for a job of uid [0-9]*: .*site.lua:3: job has no field nme" "its log has the reason"
like "$(log)" "error: .*lua failed for a job of uid [0-9]*:.*in function" "and where it was"
like "$(log)" "site.lua:3: it takes (more than 10000000 instructions|longer than 3 milliseconds)" "also of a limit"

sed 's/site.lua,/site.lua, on_error: pass,/' "$work/bellows.yaml" >"$work/pass.yaml"
before=$(good_reads)
cp "$work/pass.yaml" "$policy"
ok "on_error: pass is read" poll 10 reads_more_than "$before"
like "$(say "${elastic[@]}")" "accepted in main by account vision" "jobs then pass as if there were no script"

### Changes of the script.
put_script "a good script is read" <<<'function submit(job) return "the first" end'
like "$(say)" "bellows: the first" "it is in force"
put_script "a changed one is read" <<<'function submit(job) return "the second" end'
like "$(say)" "bellows: the second" "it takes effect without a restart"
echo 'function submit(' >"$script"
broke() { log | grep -q "$script:2: .*; the policy before it, if any, stays in force"; }
ok "one with an error is reported" poll 10 broke
like "$(say)" "bellows: the second" "and the one before stays"
exits "check-config finds it too" 1 xc bellows check-config "$policy"
like "$(xc bellows check-config "$policy" 2>&1)" "site.lua:2: " "and says where"
sed 's/^version: 1/&\nenabled: false/' "$work/bellows.yaml" >"$policy"
passes() { [[ $(say) == accepted* ]]; }
ok "the kill switch works with any script, even a broken one" poll 10 passes
cp "$work/bellows.yaml" "$policy"
put_script "a repaired one is read" <<<'function submit(job) end'
ok "and jobs pass" passes
ok "check-config takes it" xc bellows check-config "$policy"

### What only a call shows is found before slurmctld has the script.
try_script() { # SCRIPT; its answer and exit status
  local said status=0
  mkdir -p "$CLUSTER/shared/try"
  cp "$work/bellows.yaml" "$CLUSTER/shared/try/"
  printf '%s\n' "$1" >"$CLUSTER/shared/try/site.lua"
  said=$(xc bellows check-config "$CLUSTER/shared/try/bellows.yaml" 2>&1) || status=$?
  echo "$status $said"
}
like "$(try_script 'function submit(job) if job.gpu > 4 then return "no" end end')" \
  "^1 .*site.lua:1: job has no field gpu; did you mean gpus\? \(submit of a sample job: tenant vision" \
  "check-config finds a misspelled field"
like "$(try_script 'function submit(job, tenant) if tenant == "vision" then job.qos = "high" end end')" \
  "^1 .*site.lua:1: tenant is not a text and never equals one; did you mean tenant.name\?" \
  "and a comparison that is never true"
like "$(try_script 'function modify(job, change) if change.gpus and change.time > 4 then end end')" \
  "^1 .*site.lua:1: change has no field time.*\(modify of a sample job" "in modify, too"
like "$(try_script "$(<"$examples/user-cap.lua")")" "^0 .*good" "an example is good"
like "$(try_script 'function submit(job) if job.comment == "stop" then return "not today" end end')" "^0 .*good" \
  "and so is what refuses"
explain() { xc bellows explain --policy "$CLUSTER/shared/try/bellows.yaml" "$@" 2>&1; }
like "$(explain -- -A vision --framework=digits -p main --comment=stop)" "refused by +Lua.*REFUSED.*because +not today" \
  "explain shows what the script refuses"
like "$(explain -- -A vision --framework=digits -p main)" "Lua +changes nothing.*ADMITTED" "and what it lets pass"

done_testing
