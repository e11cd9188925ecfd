#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# Images out of a registry with a certificate of the site's own, and out of a mirror: without a cluster, in a network
# namespace in which only this registry is.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

for program in skopeo docker-registry openssl; do
  command -v "$program" >/dev/null || skip_all "$program is not installed"
done
importer=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}/image/bellows-image
[[ -x $importer ]] || skip_all "$importer is not built"
if [[ -z ${TAP_OWN_NETWORK-} ]]; then
  export TAP_UNDER_TIMEOUT=1 TAP_OWN_NETWORK=1
  exec unshare --net "$0" "$@"
fi
ip link set lo up

work=$(mktemp -d)
registry=
at_end() {
  local status=$?
  [[ -z $registry ]] || kill "$registry"
  rm -rf "$work"
  (exit "$status")
  tap_end
}
trap at_end EXIT
chmod 755 "$work"
# Where it was built, the user may not get to.
cp "$importer" "$work/bellows-image"
importer=$work/bellows-image
home=$work/home
mkdir -p "$work"/{data,top} "$home/.config/containers"
echo upper >"$work/top/layer"
"$TAP_HOME/programs/oci_image.py" "$work/box" "$work/top"

place=127.0.0.1:5000
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=registry \
  -addext "subjectAltName=IP:127.0.0.1" -keyout "$work/key.pem" -out "$work/ca.crt" 2>/dev/null
cat >"$work/registry.yml" <<END
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $work/data}}
http: {addr: "$place", tls: {certificate: $work/ca.crt, key: $work/key.pem}}
END
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
registry=$!
# A name that no network has: it has a mirror.
cat >"$home/.config/containers/registries.conf" <<END
[[registry]]
location = "images.example.org/team"
[[registry.mirror]]
location = "$place/team"
END
chown -R 20001:20001 "$home"
push() { skopeo --insecure-policy copy --dest-tls-verify=false "oci:$work/box" "docker://$place/team/box:1"; }
poll 20 push || bail "the registry takes no image: $(push 2>&1; cat "$work/registry.log")"

as_user() { setpriv --reuid 20001 --regid 20001 --clear-groups env -i PATH="$PATH" HOME="$home" "$@" 2>&1; }
import() { as_user "$importer" import "$@"; }

like "$(import "$place#team/box:1"; echo "status $?")" 'certificate signed by unknown authority.*status 4' \
  "a certificate that nobody vouches for is refused"
is "$(find "$home/.cache/bellows/images/"{images,partial} -mindepth 1)" "" "and nothing is kept of it"
mkdir -p "$home/.config/containers/certs.d/$place"
cp "$work/ca.crt" "$home/.config/containers/certs.d/$place"
path=$(import "$place#team/box:1" | tail -n 1)
is "$(cat "$path/layer")" upper "one whose authority the user trusts is taken"
like "$(import --json images.example.org#team/box:1)" "\"path\": \"$path\".*\"reused\": true" \
  "a registry's mirror says what its name stands for, and what is there by its digest is not fetched again"
ok "without it" as_user "$importer" remove "$place#team/box:1"
is "$(cat "$(import images.example.org#team/box:1 | tail -n 1)/layer")" upper "the mirror gives the image"

# What somebody else has put in the cache's place.
for kind in "mkdir -m 1777" mkfifo touch "ln -s $work/data"; do
  $kind "$work/squatted"
  chown -h 20002:20002 "$work/squatted"
  like "$(import --cache "$work/squatted" "$place#team/box:1"; echo "status $?")" "$work/squatted.*status [13]" \
    "a cache that another user made is not used: ${kind%% *}"
  is "$(find -P "$work/squatted" -mindepth 1)" "" "nor written to"
  rm -rf "$work/squatted"
done

kill "$registry"
wait "$registry"
registry=
like "$(import images.example.org#team/box:1; echo "status $?")" \
  'failed to import docker image: images.example.org/team/box:1: .*; look at the image.s name and at the registry.*status 4' \
  "a mirror that is gone is told of"
done_testing
