#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# bellows-modeld lends models that lie on real servers, https from nginx and S3 from Ceph, and keeps them on a disk
# that may be full. Each server is skipped where it is not installed.

# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# Ports, processes and mounts of its own: what is started here is gone with this test, whatever ends it. Its first
# process is not timeout(1), which coreutils 9.10 refuses to be.
[[ -n ${TIERS_NAMESPACE:-} ]] ||
  TIERS_NAMESPACE=1 TAP_UNDER_TIMEOUT=1 exec unshare --net --pid --mount --fork --kill-child --mount-proc "$0" "$@"
# shellcheck source=tests/cluster/modelstore/small_ceph.sh
. "$TAP_HOME/modelstore/small_ceph.sh"
# shellcheck source=tests/cluster/modelstore/small_nginx.sh
. "$TAP_HOME/modelstore/small_nginx.sh"

build=${BELLOWS_BUILDDIR:-$TAP_HOME/../../build}
program=$build/tests/cluster/programs/model_open
dir=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-tiers-XXXXXX")
cleanup() {
  local status=$?
  trap - EXIT
  if ((tap_failed)); then tail -n 8 "$dir"/*.log "$dir"/ceph/log/* 2> /dev/null >&2; fi
  umount "$dir/small" 2> /dev/null
  rm -rf -- "$dir"
  (exit "$status")
  tap_end
}
trap cleanup EXIT
ip link set lo up || skip_all "no loopback in a network namespace"

www=$dir/www
mkdir "$www" "$dir/small"
bytes=20000003

# A safetensors file of one tensor "w", with these bytes.
make_model() { # BYTES-FILE MODEL
  local size header
  size=$(stat -c %s "$1")
  header=$(printf '{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' "$size" "$size")
  {
    printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    cat "$1"
  } > "$2"
}
head -c "$bytes" /dev/urandom > "$dir/data"
make_model "$dir/data" "$www/m.safetensors"
size=$(stat -c %s "$www/m.safetensors")
head -c 1000000 "$dir/data" > "$dir/small-data"
make_model "$dir/small-data" "$www/small.safetensors"
cp "$www/small.safetensors" "$dir/local.safetensors"
touch -d '10 seconds ago' "$www"/*

nginx_up() {
  configure_nginx "$dir" "log_format sent '\$request_uri \$status \$body_bytes_sent'; access_log $dir/access sent;" << END
    location /slow/ { alias $www/; limit_rate 500k; }
    location /stalls/ { alias $www/; limit_rate 10; limit_rate_after 200; }
END
  start_nginx "$dir"
}
sent_bytes() { awk -v uri="$1" '$1 == uri { sum += $3 } END { print sum + 0 }' "$dir/access"; } # URI

settings() { # LINE...
  rm -f "$dir/remote.conf"
  (umask 077 && printf '%s\n' 'address = 127.0.0.1' "ca_file = $dir/ca.pem" "$@" > "$dir/remote.conf")
}

daemon_up() { # OPTION...
  : > "$dir/modeld.log"
  "$build/modelstore/bellows-modeld" --run="$dir/run" --budget=1G --helpers="$build/modelstore" --alone=1 \
    --remote="$dir/remote.conf" --socket="$dir/a.sock,tenant=a" --socket="$dir/b.sock,tenant=b" "$@" \
    > "$dir/modeld.log" 2>&1 &
  modeld=$!
  poll 10 grep -q "is ready" "$dir/modeld.log"
}
children() { ps -o pid=,comm= --ppid "$modeld" | awk -v name="$1" '$2 ~ "^" name { print $1 }'; } # NAME
# Nothing of it stays in memory, as after a boot.
daemon_down() {
  local keeper
  keeper=$(children bellows-model-k)
  kill -KILL "$modeld"
  wait "$modeld" 2> /dev/null
  [[ -z $keeper ]] || kill -KILL "$keeper"
  poll 10 eval '! pgrep -x bellows-model-d > /dev/null'
}
open_model() { timeout --foreground "$(seconds 100)" "$program" "$@"; } # SOCKET NAME [TIMES [FILE]]
has_image() { [[ -e $1/$2 ]]; }                                        # DIR DIGEST

test_once() {
  local digest
  settings
  daemon_up --disk="$dir/disk=100M" --model=m=https://127.0.0.1:8443/m.safetensors,tenant=a || {
    fail "bellows-modeld starts" "$(cat "$dir/modeld.log")"
    return
  }
  ok "a hundred open a model that lies at an https server" open_model "$dir/a.sock" m 100
  ok "which sent it once" test "$(sent_bytes /m.safetensors)" -le $((size + 1000))
  digest=$(open_model "$dir/a.sock" m 1 "$dir/out")
  ok "it has the server's bytes" cmp "$dir/data" "$dir/out"
  ok "its image is stored" poll 20 has_image "$dir/disk" "$digest"
  daemon_down
  : > "$dir/access"
  daemon_up --disk="$dir/disk=100M" --model=m=https://127.0.0.1:8443/m.safetensors,tenant=a
  is "$(open_model "$dir/a.sock" m 1 "$dir/out")" "$digest" "after a boot it is the same"
  ok "with the same bytes" cmp "$dir/data" "$dir/out"
  is "$(cat "$dir/access")" "/m.safetensors 206 1" "and the server was asked for nothing but its version"
  daemon_down
}

has_requests() { (($(grep -c "$1" "$dir/access") >= $2)); } # URI NUMBER

test_faults() {
  local slow stalled
  settings 'slow_seconds = 2' 'tries = 1' 'whole_seconds = 60'
  : > "$dir/access"
  daemon_up --model=slow=http://127.0.0.1:8080/slow/m.safetensors,tenant=a \
    --model=stalls=http://127.0.0.1:8080/stalls/m.safetensors,tenant=a \
    --model=small=http://127.0.0.1:8080/small.safetensors,tenant=b \
    --model=local="$dir/local.safetensors,tenant=a"
  open_model "$dir/a.sock" stalls > "$dir/stalled" 2>&1 &
  stalled=$!
  poll 10 has_requests /stalls/ 1
  ok "another tenant's model is read while a server stalls" open_model "$dir/b.sock" small
  ok "and one of the same tenant" open_model "$dir/a.sock" local
  wait "$stalled"
  like "$? $(cat "$dir/stalled")" "^1 .*stalls/m.safetensors: .*(slow|bytes a second)" "the one that stalls is given up with a sentence"
  open_model "$dir/a.sock" slow 1 "$dir/out" > "$dir/slow" 2>&1 &
  slow=$!
  poll 20 has_requests /slow/ 4
  kill -KILL "$(children bellows-model-l)"
  wait "$slow"
  is "$?" 0 "a loader that is killed while it reads is replaced"
  ok "and reads the right bytes" cmp "$dir/data" "$dir/out"
  daemon_down
}

test_full_disk() {
  local digest small
  settings
  mount -t tmpfs -o size=8m none "$dir/small" || {
    skip "a full disk" "no tmpfs may be mounted"
    return
  }
  daemon_up --disk="$dir/small/images=100M" --model=m=http://127.0.0.1:8080/m.safetensors,tenant=a \
    --model=small=http://127.0.0.1:8080/small.safetensors,tenant=a
  digest=$(open_model "$dir/a.sock" m 1 "$dir/out")
  ok "a model is lent though the disk has no room for its image" cmp "$dir/data" "$dir/out"
  ok "which is said" poll 10 grep -q "the file system has no room" "$dir/modeld.log"
  ok "nothing of it is left" eval "! ls $dir/small/images | grep -q $digest"
  small=$(open_model "$dir/a.sock" small)
  ok "one that has room is stored after it" poll 10 has_image "$dir/small/images" "$small"
  daemon_down
  umount "$dir/small"
}

put() { # FILE PATH
  curl --silent --show-error --fail --max-time 30 --aws-sigv4 aws:amz:us-east-1:s3 --user "$access:$secret" \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --upload-file "$1" "http://127.0.0.1:9000/$2"
}

test_s3() {
  local access=AKIATESTACCESS secret=0123456789abcdefSECRET digest
  mkdir "$dir/ceph"
  ceph_up "$dir/ceph" "$access" "$secret" || {
    fail "Ceph starts" "$(tail "$dir/ceph/log/commands")"
    return
  }
  echo '{"weight_map": {"w": "part 1.safetensors"}}' > "$dir/index"
  ok "a bucket is made" put /dev/null models
  ok "and a model of an index and a file is put there" put "$www/m.safetensors" 'models/big/part%201.safetensors'
  put "$dir/index" models/big/model.safetensors.index.json
  settings 's3_endpoint = http://127.0.0.1:9000' "s3_access_key = $access" "s3_secret_key = $secret"
  daemon_up --disk="$dir/disk=100M" --model=m=s3://models/big/model.safetensors.index.json,tenant=a \
    --model=none=s3://models/none.safetensors,tenant=a
  digest=$(open_model "$dir/a.sock" m 1 "$dir/out")
  ok "it is read by its index" cmp "$dir/data" "$dir/out"
  like "$(open_model "$dir/a.sock" none)" "404 \(NoSuchKey" "an object that is not there is told"
  unlike "$(cat "$dir/modeld.log" "/proc/$modeld/cmdline" "/proc/$modeld/environ" | tr '\0' ' ')" "$secret|$access" \
    "the keys are in no log and no command line"
  ok "its image is there" poll 20 has_image "$dir/disk" "$digest"
  daemon_down
  settings 's3_endpoint = http://127.0.0.1:9000' "s3_access_key = $access" "s3_secret_key = ${secret}x"
  daemon_up --disk="$dir/disk=100M" --model=m=s3://models/big/model.safetensors.index.json,tenant=a \
    --model="k=s3://models/big/model.safetensors.index.json,tenant=a,digest=$digest" \
    --model="others=s3://models/big/model.safetensors.index.json,tenant=b,digest=$digest"
  like "$(open_model "$dir/a.sock" m)" "403 \(SignatureDoesNotMatch" "a wrong key is told, without the key"
  is "$(open_model "$dir/a.sock" k)" "$digest" "with its digest given, nobody is asked"
  like "$(open_model "$dir/b.sock" others)" "403 \(SignatureDoesNotMatch" "but another tenant's image is not found"
  daemon_down
}

if command -v nginx > /dev/null && nginx_up; then
  test_once
  test_faults
  test_full_disk
else
  skip "https from nginx" "nginx is not installed, or does not start"
fi
if has_ceph; then test_s3; else skip "S3 from Ceph" "ceph-mon, ceph-osd and radosgw are not installed"; fi
done_testing
