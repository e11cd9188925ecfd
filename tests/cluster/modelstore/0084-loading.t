#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# A job whose models come from a slow server is DOWNLOADING until its nodes have them, and its programs list the models
# that its tenant sees.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/modelstore/models.sh
. "$TAP_HOME/modelstore/models.sh"

command -v nginx >/dev/null || skip_all "nginx is not installed"
models_up --nodes=2 --gpus=2 <<'YAML'
  - {name: llama, tenant: vision, source: "http://n1:8080/llama.safetensors"}
  - {name: other, tenant: vision, source: "http://n1:8080/other.safetensors"}
  - {name: secret, tenant: speech, source: "http://n1:8080/secret.safetensors"}
YAML
www=$CLUSTER/shared/www
bytes=60000000
mkdir "$www"
write_model "$www/llama.safetensors" "$bytes" 1
touch -d '10 seconds ago' "$www/llama.safetensors"

# In the member n1, with which it ends.
nginx_up() { # RATE; 0: as fast as it can
  cat >"$www/nginx.conf" <<END
daemon off;
master_process off;
user root;
pid $www/nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path $www; proxy_temp_path $www; fastcgi_temp_path $www; uwsgi_temp_path $www; scgi_temp_path $www;
  types {}
  server { listen 8080; root $www; limit_rate $1; }
}
END
  xc --user root --node 1 setsid nginx -p "$www" -c "$www/nginx.conf" -e stderr >"$CLUSTER/log/nginx.log" 2>&1 </dev/null &
  poll 10 xc --node 2 curl --silent --output /dev/null http://n1:8080/
}
nginx_down() { xc --user root --node 1 sh -c "kill \$(cat $www/nginx.pid)"; }
# A loader tells of its progress after each piece of 4 MiB.
nginx_up 600k || bail "nginx does not start"
printf 'host = n1\naddress = 198.18.0.0/15\n' >"$CLUSTER/etc/models-remote.conf"
chown daemon: "$CLUSTER/etc/models-remote.conf"
chmod 600 "$CLUSTER/etc/models-remote.conf"
for node in 1 2; do
  mc stop-modeld "$node"
  mc start-modeld "$node"
done

status() { xc bellows status "$id" "$@" 2>&1; }
# Of the job's JSON: read FIELD of Python's dict `job`.
field() { status --json | python3 -c 'import json, sys; job = json.load(sys.stdin)[0]; print('"$1"')'; }
is_state() { [[ $(field 'job["state"]') == "$1" ]]; }
# One reads from the server, and the other waits for it.
one_reads() { [[ $(field 'sorted((n["bytes"] > '"$bytes"' and 0 < n["read_bytes"] < n["bytes"]) for n in job["loading"])') == "[False, True]" ]]; }

cat >"$home/two.sh" <<S
#!/bin/bash
srun --quiet --mpi=none -N2 -n2 $borrow --hold go llama
S
id=$(submit -- -N2 -n2 --model=llama --output="$home/two.out" "$home/two.sh")
poll 30 job_is "$id" RUNNING
ok "a job whose models are being loaded is DOWNLOADING" poll 30 is_state DOWNLOADING
ok "and the bytes of the node that reads are told" poll 30 one_reads
like "$(status)" 'DOWNLOADING' "its table says so, too"
like "$(status)" 'its models are being loaded: .*[0-9.]+ MiB of [0-9.]+ MiB on n[12]' "with the bytes"
is "$(xc --user bob bellows status "$id" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["state"])')" \
  RUNNING "another user's command starts no step in it"

### What the job itself sees.
in_job() { xc srun --quiet --mpi=none --overlap --jobid="$id" -N1 -n1 "$@" 2>&1; }
is "$(in_job bellows model list --json | python3 -c 'import json, sys; print([(m["name"], m["state"], m["own"]) for m in json.load(sys.stdin)["models"]])')" \
  "[('llama', 'loading', True), ('other', 'absent', True)]" "in the job, bellows model list shows its tenant's models"
# Which of the job's nodes runs the step is Slurm's choice.
shown() { in_job bellows model show "$1" | sed 's/^srun: error: n[0-9]:/srun: error: n:/'; }
hidden=$(shown secret)
like "$hidden" 'there is no such model' "and no other tenant's"
is "$(shown absent | sed 's/absent/secret/')" "$hidden" "in the words for one that does not exist"

### All bytes come.
nginx_down
nginx_up 0
has_borrowed() { (($(grep -c '^llama: w' "$home/two.out") == 2)); }
ok "both nodes get the model" poll 60 has_borrowed
ok "then the job is RUNNING" poll 20 is_state RUNNING
is "$(field 'job["loading"]')" "[]" "and no node is loading"
touch "$home/go"
ok "it ends" poll 30 job_is "$id" COMPLETED
is "$(field 'job["state"]')" COMPLETED "and is COMPLETED"
done_testing
