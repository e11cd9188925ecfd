#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# bellows status: each job's state and a reason that agrees with it, in the terminal's width.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice

line() { xc bellows status | grep -E "^ *$1 "; } # JOB
says() { [[ $(line "$1") =~ $2 ]]; }             # JOB REGEX
# `bellows status` on a terminal of so many columns: on_terminal WIDTH [JOB]
cat >"$CLUSTER/shared/on_terminal.py" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp("bellows", ["bellows", "status"] + sys.argv[2:])
try:
    while part := os.read(terminal, 4096):
        sys.stdout.write(part.decode().replace("\r", ""))
except OSError:
    pass
PYTHON
on_terminal() { xc python3 "$CLUSTER/shared/on_terminal.py" "$@"; }
longest() { awk 'length > most { most = length } END { print most + 0 }' <<<"$1"; }

is "$(xc bellows status)" "You have no jobs that Slurm still knows." "who has no jobs is told so"
is "$(xc bellows status --json)" "[]" "as JSON it is an empty list"

printf '#!/bin/bash\nsleep 120\n' >"$home/idle.sh"
bellows_job() { submit -- --framework=digits --gpus-range=1-8 --gpus=1 "$@"; } # OPTION-OR-SCRIPT...
trains=$(submit_counter trains --gpus=2 -- --steps 100000 --sleep-us 10000 --save-every 100)
idle=$(bellows_job idle.sh)
array=$(bellows_job --array=8-11,1-2%2 idle.sh)
later=$(bellows_job --begin=now+100 idle.sh)
printf '#!/bin/bash\nexit 3\n' >"$home/three.sh"
three=$(bellows_job --output="$home/three.out" three.sh)
poll 40 job_is "$three" FAILED
barred=$(submit_counter barred --gpus=1 --export=ALL,RUN_OPTIONS=--checkpoint-dir=/etc -- --steps 100)
poll 40 job_is "$barred" FAILED
poll 40 commits_past "$trains" 400

ok "a job without a launcher runs" says "$idle" "RUNNING +1 1-8 .*no 'bellows run' has started in it"
ok "one that waits for its time says how long" says "$later" 'QUEUED .*waits at least [0-9]+ s: BeginTime'
ok "and as JSON until when" python3 -c 'import json, sys
job = json.load(sys.stdin)[0]
assert job["waits_until"] - job["submitted"] in range(95, 106), job' <<<"$(xc bellows status --json "$later")"
ok "every reason of Slurm is a word" says "$array"'_\[8-11%2\]' 'waits: JobArrayTaskLimit'
is "$(xc bellows status | awk '{ print $1 }' | grep "^${array}_" | tr '\n' ' ')" \
  "${array}_1 ${array}_2 ${array}_[8-11%2] " "an array's tasks stand in order"
ok "a script that fails is told with its status and output" \
  says "$three" "FAILED .*exited with status 3; its output is in $home/three.out"
ok "so is why a launcher refused" says "$barred" 'FAILED .*cannot write to the checkpoint directory /etc: Permission denied'

for width in 60 80 200; do
  text=$(on_terminal "$width")
  ok "on $width columns no line is longer" test "$(longest "$text")" -le "$width"
  like "$text" "(^|"$'\n'") *$idle .*RUNNING .*no 'bellows run' has started" "and the sentence is there"
done
text=$(on_terminal 60 "$three")
ok "one job's lines are broken instead" test "$(longest "$text")" -le 60
like "$(tr -d ' \n' <<<"$text")" "itsoutputisin$home/three.out" "and nothing is left out"
text=$(xc bellows status "$trains")
is "$(grep -c ' PROCESSING .* committed steps 100 to ' <<<"$text") $(grep -c 'CHECKPOINTING.*step [1-3]00$' <<<"$text")" \
  "1 0" "consecutive saves are one line"
like "$text" 'node n1: 2 GPUs' "with the nodes"

like "$(xc bellows ckpt list "$trains")" ' committed, newest' "a job's id stands for its checkpoints"
like "$(xc bellows ckpt show "$trains" latest)" "step [0-9]+ in $CLUSTER/shared/checkpoints/alice/$trains" "of which a step can be shown"
exits "a job that keeps none has none" 1 xc bellows ckpt list "$idle"

xc scancel "$trains"
poll 40 job_is "$trains" CANCELLED
ok "a cancelled job's last words are not of its training" says "$trains" 'CANCELLED +2 .* [0-9:]+ (scancel|cancelled)$'
xc bash -c "rm $CLUSTER/shared/checkpoints/alice/$trains/events.jsonl"
ok "nor without its launcher's history" says "$trains" 'CANCELLED +2 .* [0-9:]+ cancelled$'

done_testing
