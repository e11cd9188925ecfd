#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Jobs of kind ps, whose learners push a gradient for each element of the weights: all run, one of
# whatever there is is killed, and in the end each gradient was applied once.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

ledger=$build/tests/cluster/programs/ps_ledger
[[ -x $ledger ]] || skip_all "$ledger is not built"
container_cluster_up "" --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
shm=$(ls /dev/shm)

# A job with a ledger of its own for each attempt: learn NAME "OPTIONS OF bellows run" "OPTIONS OF sbatch" COUNT OPTION...
learn() {
  local name=$1 how=$2 asked=$3
  shift 3
  cat >"$home/$name.sh" <<S
#!/bin/bash
exec bellows run --kind=ps $how -- sh -c 'mkdir -p "\$0/\$BELLOWS_ATTEMPT" && exec $ledger "\$0/\$BELLOWS_ATTEMPT" $*' $home/$name
S
  # shellcheck disable=SC2086
  submit -- --framework=digits --gpus-range=1-4 --nodes=1 --job-name="$name" --output="$home/$name.out" $asked "$name.sh"
}
trains() { (($(out_of "$1" | grep -c ': learner [0-9] joins') >= $2)); } # NAME LEARNERS
is_exact() { # NAME JOB REGEX WHAT
  poll 60 job_is "$2" '(COMPLETED|FAILED)'
  like "$(job_field "$2" JobState) $(out_of "$1" | grep -o 'ledger .*')" "^COMPLETED ledger exact: $3" "$4" ||
    diag "$(out_of "$1" | tail -n 20)"
}
# The server is a child of the process that starts it again.
server_of() { # JOB
  local pid stat parents
  parents=" $(pids_of "$1" bellows-ps . | xargs) "
  for pid in $parents; do
    read -r stat 2>/dev/null <"/proc/$pid/stat" || continue
    stat=${stat##*) ? }
    [[ $parents != *" ${stat%% *} "* ]] || echo "$pid"
  done
}
nobody_left() { [[ -z $(pids_of "$1" 'ps_ledger|bellows-ps|ps-guard' .) ]]; } # JOB

# Two jobs on one node.
first=$(learn first --ps-threads=2 --gpus=3 2000)
second=$(learn second "" --gpus=1 500 --pause 1000)
is_exact first "$first" "3 learners in 3 lives, 6000 gradients, 0 in doubt" "one learner for each GPU, in one rank"
is_exact second "$second" "1 learners in 1 lives, 500 gradients, 0 in doubt" "and another job at the same time"
is "$(out_of first | sed -n 's/.*life 1, device //p' | sort -u | grep -cx '[0-9]*')" 3 "each has a GPU to itself" ||
  diag "$(out_of first)"
like "$(out_of first)" '\[learner 2\] learner 2 of 3, life 1' "their output says whose it is"

# In a container of libc and a shell: bellows-ps and the library come from where the node has them installed.
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
small=$images/small
cp -a "$images/busybox" "$small"
mkdir -p "$CLUSTER/shared/bin" "$CLUSTER/shared/lib"
for path in $(ldd "$ledger" | grep -o '/[^ ]*/\(libc\.so\|ld-linux\)[^ ]*'); do
  mkdir -p "$small${path%/*}" && cp -L "$path" "$small$path"
done
cp "$ledger" "$small/bin/"
cp "$build/paramserver/bellows-ps" "$CLUSTER/shared/bin/"
cp -L "$build/paramserver/.libs/libbellows_ps.so.0" "$CLUSTER/shared/lib/"
if [[ -d $prefix/bin && -d $prefix/lib ]]; then
  for folder in bin lib; do
    for node in 1 2; do xc --node $node --user root mount --bind "$CLUSTER/shared/$folder" "$prefix/$folder"; done
  done
  printf '#!/bin/bash\nPATH=%s:/usr/bin:/bin\nexec bellows run --kind=ps -- ps_ledger /tmp 500\n' "$build/launcher" >"$home/boxed.sh"
  id=$(submit -- --framework=digits --gpus-range=2 --nodes=1 --container-image="$small" --output="$home/boxed.out" boxed.sh)
  is_exact boxed "$id" "2 learners in 2 lives, 1000 gradients, 0 in doubt" "a container that has nothing of Bellows"
  for folder in bin lib; do
    for node in 1 2; do xc --node $node --user root umount "$prefix/$folder"; done
  done
else
  skip "a container that has nothing of Bellows" "there is no $prefix/bin"
fi

# Faults that the step itself repairs.
id=$(learn learner "" --gpus=2 2500 --pause 1000)
poll 30 trains learner 2 || bail "the job does not train: $(out_of learner)"
kill -KILL "$(pids_of "$id" ps_ledger . | tail -n 1)"
is_exact learner "$id" "2 learners in 3 lives, 5000 gradients" "kill -9 of a learner: it is started again"
like "$(out_of learner)" 'learner [01] was killed by signal 9 \(Killed\); it is started again' "with a sentence"
id=$(learn server "" --gpus=2 2500 --pause 1000)
poll 30 trains server 2 || bail "the job does not train: $(out_of server)"
kill -KILL "$(server_of "$id")"
is_exact server "$id" "2 learners in 2 lives, 5000 gradients, 0 in doubt" "kill -9 of the server: all go on"
like "$(out_of server)" 'the server was killed; another goes on with its memory' "with a sentence"

# A learner that cannot go on.
id=$(learn failing --max-restarts=0 --gpus=2 100000 --pause 1000 --fail 1)
poll 60 job_is "$id" FAILED
like "$(out_of failing)" 'gives up: learner 1 exited with status 3; it failed 4 times in a row' "a learner that always fails ends all"
is "$(job_field "$id" ExitCode)" "3:0" "with its status"
ok "and leaves nobody" poll 10 nobody_left "$id"
id=$(learn cancelled "" --gpus=2 100000 --pause 1000)
poll 30 trains cancelled 2 || bail "the job does not train: $(out_of cancelled)"
shown() { xc bellows status "$id" | grep -qE 'parameter server: 2 learners, [1-9][0-9]* updates/s, staleness [0-9.]+ \(at most [0-9]+\)'; }
ok "bellows status shows how the training goes" poll 20 shown || diag "$(xc bellows status "$id")"
like "$(xc bellows status --json "$id" | tr -d ' \n')" '"parameter_server":\{"learners":2,"updates":[1-9]' "also as JSON"
xc scancel "$id"
ok "scancel leaves nobody" poll 20 nobody_left "$id"

# What is refused.
id=$(learn wide "" "--gpus=2 --nodes=2" 10)
poll 40 job_is "$id" FAILED
like "$(job_field "$id" ExitCode) $(out_of wide)" '^3:0 .*has 2 nodes, and .*submit it with --nodes=1' "more than one node is refused"
printf '#!/bin/bash\nexec bellows run --kind=plain --ps-staleness=8 -- true\n' >"$home/plain.sh"
id=$(submit -- --gpus-range=1 --output="$home/plain.out" plain.sh)
poll 40 job_is "$id" FAILED
like "$(out_of plain)" 'ps-threads and .* are for --kind=ps' "options of kind ps are refused with another"

# Other tests come and go there, too.
is "$(comm -13 <(printf '%s\n' "$shm") <(ls /dev/shm) | grep bellows)" "" "nothing is left in /dev/shm"
done_testing
