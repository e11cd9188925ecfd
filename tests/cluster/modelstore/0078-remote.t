#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# Remote files are read from real servers: http and https from nginx, S3 from Ceph, which checks signatures.
# Each is skipped where it is not installed.

# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# Ports and processes of its own: what is started here is gone with this test, whatever ends it. Its first
# process is not timeout(1), which coreutils 9.10 refuses to be.
[[ -n ${REMOTE_NAMESPACE:-} ]] ||
  REMOTE_NAMESPACE=1 TAP_UNDER_TIMEOUT=1 exec unshare --net --pid --fork --kill-child --mount-proc "$0" "$@"
# shellcheck source=tests/cluster/modelstore/small_ceph.sh
. "$TAP_HOME/modelstore/small_ceph.sh"
# shellcheck source=tests/cluster/modelstore/small_nginx.sh
. "$TAP_HOME/modelstore/small_nginx.sh"

program=${BELLOWS_BUILDDIR:-$TAP_HOME/../../build}/tests/cluster/programs/remote_read
dir=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-remote-XXXXXX")
cleanup() {
  local status=$?
  trap - EXIT
  if ((tap_failed)); then tail -n 8 "$dir"/*.log "$dir"/ceph/log/* 2> /dev/null >&2; fi
  rm -rf -- "$dir"
  (exit "$status")
  tap_end
}
trap cleanup EXIT
ip link set lo up || skip_all "no loopback in a network namespace"

read_remote() { timeout --foreground "$(seconds 60)" "$program" --allow 127.0.0.1 "$@"; }
# The bytes of URL are those of the file.
reads() { # FILE OPTION... URL
  local file=$1
  shift
  rm -f "$dir/out"
  read_remote --out "$dir/out" "$@" && cmp "$file" "$dir/out"
}
# What is said of what can't be read.
refusal() { # OPTION... URL
  if read_remote "$@" 2>&1; then echo "it was read"; fi
}

www=$dir/www
mkdir "$www"
head -c 20000003 /dev/urandom > "$www/m.bin"

prepare_nginx() {
  touch "$www/empty"
  echo secret > "$www/forbidden"
  configure_nginx "$dir" "access_log $dir/access; gzip on; gzip_types *;" << END
    location /slow/ { alias $www/; limit_rate 2m; }
    location /whole/ { alias $www/; max_ranges 0; }
    location /forbidden { deny all; }
    location /moved/ { return 302 https://127.0.0.1:8443/m.bin; }
    location /down/ { return 302 http://127.0.0.1:8080/m.bin; }
END
}

requests() { wc -l < "$dir/access"; }
has_requests() { (($(requests) >= $1)); }

# Reads slowly in the background, and waits until it is in the middle.
begin_slow_read() {
  local before
  before=$(requests)
  reads "$www/m.bin" --threads 2 --piece 500000 http://127.0.0.1:8080/slow/m.bin > "$dir/slow" 2>&1 &
  slow=$!
  poll 20 has_requests $((before + 4))
}

test_nginx() {
  local url=http://127.0.0.1:8080
  prepare_nginx
  start_nginx "$dir" || {
    fail "nginx starts" "$(tail "$dir/nginx.log")"
    return
  }
  ok "a file is read by http" reads "$www/m.bin" "$url/m.bin"
  ok "with pieces of any size" reads "$www/m.bin" --threads 3 --piece 777777 "$url/m.bin"
  ok "a file is read by https" reads "$www/m.bin" --ca "$dir/ca.pem" https://127.0.0.1:8443/m.bin
  ok "a redirect to https is followed" reads "$www/m.bin" --ca "$dir/ca.pem" "$url/moved/"
  like "$(refusal --ca "$dir/ca.pem" https://127.0.0.1:8443/down/)" "which is not encrypted" "one from https to http is not"
  like "$(refusal https://127.0.0.1:8443/m.bin)" "certificate is not good" "a certificate that nobody vouches for is refused"
  like "$(refusal "$url/no")" "no such file, and says 404" "a file that is not there is told"
  like "$(refusal "$url/forbidden")" "refuses to give it, with 403" "so is one that may not be read"
  like "$(refusal "$url/empty")" "the file is empty" "and an empty one"
  like "$(refusal "$url/whole/m.bin")" "sends the whole file" "a server that knows no ranges is refused"
  like "$(timeout 30 "$program" --allow public "$url/m.bin" 2>&1)" "127.0.0.1 is none that this site" "the loopback is not asked unless a site says so"

  begin_slow_read
  kill -KILL "$nginx"
  wait "$nginx" 2> /dev/null
  start_nginx "$dir"
  wait "$slow"
  like "$? $(cat "$dir/slow")" "^0 $(stat -c %s "$www/m.bin") " "a server that dies and comes back meanwhile loses nothing"
  begin_slow_read
  head -c 20000003 /dev/urandom > "$www/new"
  mv "$www/new" "$www/m.bin"
  wait "$slow"
  like "$(cat "$dir/slow")" "changed while it was read" "a file that is replaced meanwhile is refused"
}

put() { # FILE PATH
  curl --silent --show-error --fail --max-time 30 --aws-sigv4 aws:amz:us-east-1:s3 --user "$access:$secret" \
    --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --upload-file "$1" "http://127.0.0.1:9000/$2"
}

read_s3() { # ACCESS SECRET FUNCTION ARGUMENT...
  local access_key=$1 secret_key=$2
  shift 2
  ACCESS_KEY=$access_key SECRET_KEY=$secret_key "$@"
}

test_s3() {
  local access=AKIATESTACCESS secret=0123456789abcdefSECRET said endpoint=http://127.0.0.1:9000
  mkdir "$dir/ceph"
  ceph_up "$dir/ceph" "$access" "$secret" || {
    fail "Ceph starts" "$(tail "$dir/ceph/log/commands")"
    return
  }
  ok "a bucket is made" put /dev/null models
  ok "and a model is put there" put "$www/m.bin" 'models/a%20b/%C3%A9%2B%3D.bin'
  ok "it is read with signatures" read_s3 "$access" "$secret" reads "$www/m.bin" --endpoint "$endpoint" 's3://models/a b/é+=.bin'
  said=$(read_s3 "$access" "${secret}x" refusal --endpoint "$endpoint" 's3://models/a b/é+=.bin')
  like "$said" "403 \(SignatureDoesNotMatch" "a wrong secret key is refused"
  unlike "$said" "$secret|$access" "and no key is shown"
  like "$(read_s3 NOBODY "$secret" refusal --endpoint "$endpoint" s3://models/x)" "403 \(InvalidAccessKeyId" "an unknown access key too"
  like "$(refusal --endpoint "$endpoint" 's3://models/a b/é+=.bin')" "403 \(AccessDenied" "and none"
  like "$(read_s3 "$access" "$secret" refusal --endpoint "$endpoint" s3://models/none)" "404 \(NoSuchKey" "an object that is not there is told"
}

if command -v nginx > /dev/null; then test_nginx; else skip "http from nginx" "nginx is not installed"; fi
if has_ceph; then test_s3; else skip "S3 from Ceph" "ceph-mon, ceph-osd and radosgw are not installed"; fi
done_testing
