#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# bellows tenants sync with a real slurmdbd: it is done, holds, and is then done no more.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

cluster_up --no-plugins --nodes=1 --gpus=4 --accounting
policy=$CLUSTER/etc/bellows.yaml

cat >"$policy" <<'YAML'
version: 1
frameworks: {plain: }
tenants:
  vision:
    accounts: [vision, vision-interns]
    quota: {gpus: 2, parent: vision-all}
    sizing: {qos: normal, qos_allowed: [normal, High, "x*"]}
  speech: {quota: {gpus: 1}}
YAML

tenants() { # USER OPTION...
  local user=$1
  shift
  xc --user "$user" bellows tenants sync --policy "$policy" "$@" 2>&1
}

accounts() {
  xc --user root sacctmgr --noheader --parsable2 show associations format=Account,User,ParentName,GrpTRES,QOS |
    awk -F'|' '$2 == ""' | sort
}

waits_for() { # JOB REASON
  [[ $(xc squeue --noheader --jobs="$1" --format=%r) == "$2" ]]
}

ended() { # JOB
  [[ $(xc --user root sacct --noheader --parsable2 --allocations --jobs="$1" --format=State) == COMPLETED ]]
}

field() { # EXPRESSION-ON-d; of the JSON on standard input
  python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"
}

### What is shown.
want='sacctmgr --immediate add qos name=high
sacctmgr --immediate add account name=vision-all cluster=bellows parent=root
sacctmgr --immediate modify account where name=vision cluster=bellows set parent=vision-all
sacctmgr --immediate add account name=vision-interns cluster=bellows parent=vision-all
sacctmgr --immediate modify account where name=vision-all cluster=bellows set GrpTRES=gres/gpu=2
sacctmgr --immediate modify account where name=vision cluster=bellows set QOS+=high
sacctmgr --immediate modify account where name=vision-interns cluster=bellows set QOS+=high
sacctmgr --immediate modify account where name=speech cluster=bellows set GrpTRES=gres/gpu=1'
before=$(accounts)
is "$(tenants alice | grep -v '^#')" "$want" "any user can see what would be done"
is "$(accounts)" "$before" "and nothing is done"
is "$(tenants alice --json | field '[d["applied"], len(d["changes"]), {c["state"] for c in d["changes"]}, d["error"]]')" \
  "[False, 8, {'planned'}, None]" "in JSON, too"
is "$(xc bellows tenants sync | grep -v '^#')" "$want" "the policy is the one beside slurm.conf"
is "$(tenants alice --cluster bellows | grep -v '^#')" "$want" "and for a cluster by its name"

### Who may not.
said=$(tenants alice --apply)
is "$?" 3 "a user may not do it"
like "$said" $'sacctmgr exited .*; 0 of 8 changes are done\n .*permission denied\n' "and is told so"
is "$(accounts)" "$before" "and it was not done"

### A job that runs while its account moves below the quota.
running=$(submit -- --gpus=1 --output=/dev/null --wrap 'sleep 1000')
poll 20 job_is "$running" RUNNING || bail "the first job does not run"
xc --user root sacctmgr --immediate modify account speech set GrpTRES=cpu=7 >/dev/null
said=$(tenants root --apply)
is "$?:$(grep -v '^#' <<<"$said")" "0:$want" "root does what was shown"
is "$(accounts)" "root||||normal
speech||root|cpu=7,gres/gpu=1|normal
vision-all||root|gres/gpu=2|normal
vision-interns||vision-all||high,normal
vision||vision-all||high,normal" "Slurm has the policy's accounts, and its own limits besides"
is "$(tenants root --apply)" "# nothing to change" "nothing is left for a second time"
is "$(tenants root --apply --json | field '[d["applied"], d["changes"], d["notes"]]')" \
  "[True, [], []]" "in JSON, too"

### Slurm holds the quota.
second=$(submit --user bob -- --gpus=1 --output=/dev/null --wrap 'sleep 1000')
ok "a job within the quota runs" poll 20 job_is "$second" RUNNING
third=$(submit -- --gpus=1 --output=/dev/null --qos=high --wrap true)
ok "one above the tenant's quota waits" poll 20 waits_for "$third" AssocGrpGRES
other=$(submit --user carol -- --gpus=1 --output=/dev/null --wrap true)
ok "one of another tenant runs" poll 20 ended "$other"
large=$(submit --user carol -- --gpus=2 --output=/dev/null --wrap true)
ok "and waits above its own quota" poll 20 waits_for "$large" AssocGrpGRES
xc scancel "$running"
ok "what waited runs when there is room, with the QOS that is new" poll 30 ended "$third"

### The policy changes, and Slurm has something of its own.
sed -i 's/gpus: 2/gpus: 3/; /interns/d' "$policy"
like "$(tenants root)" 'GrpTRES=gres/gpu=3.*# note: accounts that no tenant lists: .*vision-interns' \
  "another quota is a change, and an account that is gone a note"
exits "which is done" 0 xc --user root bellows tenants sync --apply --policy "$policy"
like "$(accounts)" 'vision-all\|\|root\|gres/gpu=3\|.*vision-interns\|\|vision-all' "and nothing is removed"

### Changes that fail, that do nothing, and that are interrupted.
fake() { # COMMAND-FOR-THE-SHELL-THAT-RUNS-INSTEAD-OF-CHANGES-OF-QOS+
  mkdir -p "$CLUSTER/shared/bin"
  printf '#!/bin/sh\ncase "$*" in *QOS+=*) %s ;; esac\nexec /usr/bin/sacctmgr "$@"\n' "$1" \
    >"$CLUSTER/shared/bin/sacctmgr"
  chmod -R a+rx "$CLUSTER/shared/bin"
  said=$(xc --user root sh -c 'PATH=$1:$PATH exec bellows tenants sync --apply --policy "$2" 2>&1' \
    sync "$CLUSTER/shared/bin" "$policy")
}

sed -i 's/normal, High/normal, High, rare, so+me/' "$policy"
last="sacctmgr --immediate modify account where name=vision cluster=bellows set QOS+=rare,so+me"
fake 'echo " Error with request: out of order" >&2; exit 1'
is "$?" 1 "a change that fails ends it"
like "$said" 'with status 1: Error with request: out of order; 2 of 3 changes are done$' "and says what was done"
fake 'printf " Error with request: out of order\n  account = vision\n" >&2; exit 1'
like "$said" $'with status 1; 0 of 1 changes are done\n   Error with request: out of order\n    account = vision$' \
  "what sacctmgr says in several lines keeps them"
fake 'exit 0'
is "$?" 1 "one that did nothing is noticed"
like "$said" "still to be done: ${last//+/[+]}; 1 of 1 changes is done\$" "and named"
is "$(tenants root --apply | grep -v '^#')" "$last" "another call continues from there"
is "$(tenants root --apply | grep -v '^#')" "" "to the end"
sed -i 's/normal, High/normal, High, one/; s/gpus: 1/gpus: 4/' "$policy"
fake 'kill -TERM $PPID'
is "$?" 130 "a signal ends it"
like "$said" 'interrupted; 2 of 3 changes are done$' "after the change that is under way"
is "$(tenants root --apply | grep -v '^#')" \
  "sacctmgr --immediate modify account where name=speech cluster=bellows set GrpTRES=gres/gpu=4" "which was made"

### What it cannot work with.
exits "a policy that is wrong" 1 xc bellows tenants sync --policy /dev/null
exits "sacctmgr's odd answer" 1 xc sh -c \
  'mkdir -p bin && printf "#!/bin/sh\necho odd\n" >bin/sacctmgr && chmod +x bin/sacctmgr && PATH=$PWD/bin:$PATH exec bellows tenants sync --policy "$1"' sync "$policy"
exits "no sacctmgr" 1 xc sh -c \
  'mkdir -p few && ln -sf /usr/bin/scontrol few && b=$(command -v bellows) && PATH=$PWD/few exec "$b" tenants sync --policy "$1"' sync "$policy"
exits "no name of a command" 2 xc bellows tenants

# Prints what root is told, and then the exit status.
told() {
  local said status=0
  said=$(xc --user root bellows tenants sync --apply --policy "$policy" 2>&1) || status=$?
  echo "$said ($status)"
}

restart_without() { # EXPRESSION-OF-SED
  mc stop-ctld
  sed -i "$1" "$CLUSTER/etc/slurm.conf"
  ok "slurmctld starts with $1" mc start-ctld
}

restart_without 's/,limits,qos//'
like "$(told)" "AccountingStorageEnforce lacks limits"$'\n'".*AccountingStorageEnforce lacks qos"$'\n'".* \(0\)$" \
  "limits that are not enforced are noted"
restart_without '/^AccountingStorageTRES/d'
like "$(told)" 'add gres/gpu to AccountingStorageTRES.*; nothing was changed \(3\)$' "GPUs that are not counted"
ok "slurmdbd can be killed" xc --user root sh -c 'kill -KILL "$(cat /run/slurmdbd.pid)"'
sed -i '/quota/d; /speech/d' "$policy"
like "$(told)" $'sacctmgr exited .*; nothing was changed\n .*Connection refused.* \\(4\\)$' "no slurmdbd"
restart_without '/^Accounting/d'
like "$(told)" 'needs accounting_storage/slurmdbd; nothing was changed \(3\)$' "no accounting"
mc stop-ctld
like "$(told)" 'scontrol exited .*; nothing was changed \(4\)$' "no slurmctld"
done_testing
