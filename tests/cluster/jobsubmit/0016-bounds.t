#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Requests that are too large, from clients of their users' own making: slurmctld refuses them at once and
# serves others meanwhile, and no node is drained by them. What honest jobs carry has room.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-bounds-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks: {digits: {versions: ["1.0"], env: {MODE: fast}}}
tenants: {vision: {gpus: {max: 8, start: 2}}}
YAML
cluster_up --nodes=2 --gpus=4 --bellows-conf "$work/bellows.yaml"
client=$CLUSTER/shared/hostile_client
cc -O1 -o "$client" "$TAP_HOME/hostile_client.c" -lslurm 2>"$work/cc" || bail "$(<"$work/cc")"
chmod 755 "$client"
before=$(xc --user root pgrep -x slurmctld)

# The answer to a request: ask VERB FIELD=VALUE...
ask() {
  local IFS=$'\t'
  printf '%s\n' "$*" | xc "$client" 2>/dev/null
}
now=begin_time=0
too_long='^no [0-9]+ (bellows: |Pathname of a file, directory or other parameter too long)'
none_is_drained() { [[ -z $(ask_slurm sinfo --noheader --list-reasons) ]]; }
settled() { [[ -z $(ask_slurm squeue --noheader) ]] && { ! none_is_drained || nodes_idle; }; }

### No prolog starts whose environment is too large.
large=$(printf '%0200000d' 0)
like "$(ask submit $now "spank=ANY=$large")" "$too_long" "one entry of 200 KB for SPANK plugins is refused"
like "$(ask submit $now "spank=SPANK_OTHER=$large")" "$too_long" "whatever its name"
like "$(ask submit $now 'spank*20000=NAME_#=value')" "$too_long" "so are 20,000 small entries"
like "$(ask submit $now "spank*5=NAME_#=${large:0:60000}")" "$too_long" "and five that are large together"
ok "nothing of them runs" poll 60 settled
ok "and no node is drained" none_is_drained
# What a job may have at most, with the longest of what else users put into a prolog's environment.
id=$(ask submit $now account=vision "spank*3=NAME_#=${large:0:65000}" "spank*250=SMALL_#=${large:0:240}" \
  'name*1024=n' 'comment*1024=c' spank=_SLURM_SPANK_OPTION_bellows_framework=digits)
ok "a job with as much as there may be is accepted ($id)" test "${id% *}" = ok
ok "and runs" poll 60 job_is "${id#* }" COMPLETED
id=$(ask submit $now "spank*50=_SLURM_SPANK_OPTION_other_#=${large:0:4060}")
ok "so does a plain job with 50 options of 4 KB of other plugins" poll 60 job_is "${id#* }" COMPLETED
id=$(submit -- -N2 --wrap 'srun hostname')
ok "and one without any, on both nodes" poll 60 job_is "$id" COMPLETED
ok "no node is drained" none_is_drained

### slurmctld answers meanwhile.
victim=$(submit --user bob -- --gpus=1 --hold --wrap true)
mine=$(submit -- --gpus=1 --hold --wrap true)
contracted=$(submit -- -A vision --framework=digits --gpus-range=1-8 --hold --wrap true)
each='_SLURM_SPANK_OPTION_bellows_#=x'
hostile() {
  printf '%s\n' "update	job_id=$victim	tres_per_node*100000=gpu:0," \
    "update	job_id=$mine	tres_per_node*100000=gpu:0," "update	job_id=$contracted	tres_per_node*100000=gpu:0," \
    "update	job_id=$victim	partition*20000000=," "update	job_id=$contracted	partition*5000000=a,b," \
    "update	job_id=$mine	qos*5000000=a,b," "submit	spank*100000=$each" \
    "submit	account=vision	spank=_SLURM_SPANK_OPTION_bellows_framework=digits	environment*1000000=A#=1" \
    "submit	partition*20000000=," "submit	partition*5000000=a,b," \
    "submit	account=vision	spank=_SLURM_SPANK_OPTION_bellows_gpus_range=1	tres_per_job*100000=gpu:0," \
    "submit	account=vision	spank*1000000=$each" "submit	array_inx*5000000=1," | xc "$client" 2>/dev/null
}
hostile >"$work/answers" &
attack=$!
answered=0 late=0
while kill -0 $attack 2>/dev/null; do
  if TAP_LIMIT=5 ask_slurm squeue --noheader >/dev/null 2>&1; then answered=$((answered + 1)); else late=$((late + 1)); fi
done
wait "$attack"
# 24.11 looks first at whose job it is, in the two requests of a stranger.
strangers=0
! slurm_is_from 24.11 || strangers=2
is "$(grep -cE "$too_long" "$work/answers") $(grep -c '^no 2010 Invalid user id' "$work/answers")" \
  "$((13 - strangers)) $strangers" "every hostile request is refused for its size"
diag "$(grep -vE "$too_long" "$work/answers")"
ok "squeue answers meanwhile ($answered times)" test "$answered" -gt 0 -a "$late" = 0
is "$(xc --user root pgrep -x slurmctld)" "$before" "and slurmctld is still the same"
like "$(ask update "job_id=$victim" comment=mine)" "^no .*Invalid user id" "a job of others is Slurm's to refuse"
is "$(ask update "job_id=$victim" "tres_per_job=${gres}gpu:3"; job_field "$victim" TresPerJob)" \
  "$(ask update "job_id=$victim" comment=mine)
${gres}gpu:1" "whatever is asked of it"
xc --user root scancel "$victim" "$mine" "$contracted"

### The prompt says what is too large.
long=${large:0:2000}
like "$(xc sbatch --comment="$long" --wrap true 2>&1)" \
  'bellows: --comment is longer than the 1024 bytes that a job may have there; shorten it' "a text"
cat >"$CLUSTER/shared/many" <<'SH'
#!/bin/bash
for ((i = 0; i < 17000; i++)); do export "V$i=1"; done
exec sbatch --wrap true
SH
chmod 755 "$CLUSTER/shared/many"
like "$(xc "$CLUSTER/shared/many" 2>&1)" \
  "bellows: the job's environment has 17[0-9]+ variables, and at most 16384 are allowed; name those it needs with --export" \
  "an environment"
done_testing
