#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Nodes ask one another for models before they ask their server, a real nginx that counts what it sends: all at once,
# after a restart of a node, and without a node that is away.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/modelstore/models.sh
. "$TAP_HOME/modelstore/models.sh"

command -v nginx > /dev/null || skip_all "nginx is not installed"
models=(one two three four five six seven eight)
models_up --nodes=4 --gpus=1 < <(for model in "${models[@]}"; do
  echo "  - {name: $model, tenant: vision, source: \"http://ctl:8080/$model.safetensors\"}"
done)
www=$CLUSTER/shared/www
access=$CLUSTER/log/access
mkdir "$www"
bytes=9000000

value=0
for model in "${models[@]}"; do write_model "$www/$model.safetensors" "$bytes" $((++value)); done
touch -d '10 seconds ago' "$www"/*
cat > "$CLUSTER/etc/nginx.conf" << END
user root;
worker_processes 1;
pid /run/nginx.pid;
events {}
http {
  log_format sent '\$remote_addr \$request_uri \$status \$body_bytes_sent';
  access_log $access sent;
  client_body_temp_path /run; proxy_temp_path /run; fastcgi_temp_path /run; uwsgi_temp_path /run; scgi_temp_path /run;
  types {}
  server { listen 8080; root $www; }
}
END
echo 'address = 198.18.0.0/16' > "$CLUSTER/etc/models-remote.conf"
chown daemon "$CLUSTER/etc/models-remote.conf"
chmod 600 "$CLUSTER/etc/models-remote.conf"
xc --user root nginx -c "$CLUSTER/etc/nginx.conf" -e "$CLUSTER/log/nginx.log" < /dev/null > /dev/null 2>&1
poll 20 xc --node 1 curl --silent --fail --output /dev/null --range 0-0 http://ctl:8080/one.safetensors

sent_of() { awk -v uri="/$1.safetensors" '$2 == uri { sum += $4 } END { print sum + 0 }' "$access"; } # MODEL
# What all nodes' questions for the version take besides, a byte each.
size_of() { echo $(($(stat -c %s "$www/$1.safetensors") + 1000)); } # MODEL
from_nodes() { cat "$CLUSTER"/log/modeld-n*.log | grep -c ", from node n"; }
lines() { sort | uniq -c | sed 's/^ *//'; }

is "$(run -N4 -n4 --model=one "$borrow" one | lines)" "4 one: w $bytes" "a job's four nodes borrow a model at once"
ok "which its server sent once" test "$(sent_of one)" -le "$(size_of one)"
is "$(from_nodes)" 3 "and three of them got from another node"

xc --user root --node 1 bellows model prefetch --tenant=vision two > "$CLUSTER/log/prefetch-1" 2>&1 &
first=$!
xc --user root --node 2 bellows model prefetch --tenant=vision two > "$CLUSTER/log/prefetch-2" 2>&1
second=$?
wait "$first"
is "$? $second" "0 0" "two nodes load a model ahead"
has_two() { xc --user root --node "$1" bellows model show two | grep -q 'state.*memory'; }
ok "both have it" poll 30 eval 'has_two 1 && has_two 2'
ok "and its server sent it once" test "$(sent_of two)" -le "$(size_of two)"

for node in 1 2; do
  mc kill-node "$node"
  mc start-node "$node"
  poll 60 eval "xc sinfo -h -n n$node -o %t | grep -q idle"
  is "$(run -w "n$node" --model=one "$borrow" one)" "one: w $bytes" "node $node borrows it after a boot"
done
ok "and got it from the others" test "$(sent_of one)" -le "$(size_of one)"
like "$(xc --user root --node 1 bellows model list)" 'loaded: .* [1-9][0-9]* from other nodes' "which bellows model says"

# The home of some of these is away.
mc kill-node 4
sent=0 most=0
for model in three four five six seven eight; do
  got=$(run -w "n1,n2,n3" -N3 -n3 --model="$model" "$borrow" "$model" | cut -d' ' -f1 | lines)
  is "$got" "3 $model:" "three nodes borrow $model while the fourth is away"
  sent=$((sent + $(sent_of "$model")))
  most=$((most + $(size_of "$model")))
done
ok "and the server sent each once" test "$sent" -le "$most"
ok "of a node that is away it is said" grep -q "node n4 is asked for no models" "$CLUSTER"/log/modeld-n*.log

# Anybody on a node can reach the port.
as_alice() { # NODE
  xc --node "$1" python3 - "$1" "$CLUSTER/run/munge.socket" << 'PY'
import socket, struct, subprocess, sys
call = socket.create_connection(("127.0.0.1", 6831), 10)
challenge = call.recv(37, socket.MSG_WAITALL)[5:].decode()
question = ("bellows-model-peer/2 question\nnumber %s\nchallenge %s\nto n%s\nfrom n9\nmode load\ntenant vision\n"
            "model one\nsource %s\ndigest -\n" % ("0" * 32, challenge, sys.argv[1], "0" * 64))
sealed = subprocess.run(["munge", "-S", sys.argv[2], "-s", question, "-u", "daemon"], stdout=subprocess.PIPE).stdout.strip()
call.sendall(b"Q" + struct.pack(">I", len(sealed)) + sealed)
try:
    got = len(call.recv(100))
except ConnectionResetError:
    got = 0
print(sealed[:5].decode(), got)
PY
}
is "$(as_alice 1 2>&1 | tail -n 1)" "MUNGE 0" "a user who asks for a model gets no answer"
done_testing
