# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# A registry under the names of the public ones, a proxy for packages, and enroot. The caller sets: here,
# cache, and sources tests/lib/common.sh and apt.sh; what is started here ends with it.

registries=(docker.io registry-1.docker.io nvcr.io gcr.io registry.gitlab.com)
servers=()

stop_servers() {
  ((${#servers[@]} == 0)) || kill "${servers[@]}" 2>/dev/null
  wait
  servers=()
}

# start_registry ADDRESS:PORT [CERTIFICATE KEY]
start_registry() {
  cat >"$work/registry.yml" <<CONF
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $cache/registry}}
http:
  addr: $1
$([ -z "${2-}" ] || printf '  tls: {certificate: %s, key: %s}\n' "$2" "$3")
CONF
  docker-registry serve "$work/registry.yml" >>"$work/registry.log" 2>&1 </dev/null &
  servers+=($!)
  wait_for_port "${1%:*}" "${1##*:}" || fail "the registry does not answer; see $work/registry.log"
}

wait_for_port() { # ADDRESS PORT
  local i
  for ((i = 0; i < 100; i++)); do
    ! (: >"/dev/tcp/$1/$2") 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}

# Images are made once; they change with the files that make them.
get_images() {
  local wanted
  wanted=$(cat "$here/images.sh" "$here/rpms.sh" | sha256sum)
  [ "$(cat "$cache/images.made" 2>/dev/null)" != "$wanted" ] || return 0
  rm -rf -- "$cache/registry" "$cache/images.made"
  push_to=127.0.0.1:$((20000 + $$ % 20000))
  start_registry "$push_to"
  step "Making roots of Debian" pyxis-roots make_roots
  step "Naming them as the suite does" pyxis-images make_images
  stop_servers
  echo "$wanted" >"$cache/images.made"
}

# A certificate for all the names, by an authority of this run.
make_certificate() {
  local names
  names=$(printf ',DNS:%s' "${registries[@]}")
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=pyxis tests' -addext "subjectAltName=${names#,}" \
    -keyout "$work/key.pem" -out "$work/certificate.pem" 2>"$work/openssl.log" || fail "no certificate: $(cat "$work/openssl.log")"
  cat /etc/ssl/certs/ca-certificates.crt "$work/certificate.pem" >"$cluster/shared/certificates.crt"
}

# The cluster reaches the registries under their own names and trusts them; nothing on this machine changes.
serve_cluster() {
  local gate
  gate=198.18.$(cat "$cluster/state/id").254
  make_certificate
  start_registry "$gate:443" "$work/certificate.pem" "$work/key.pem"
  printf '%s %s\n' "$gate" "${registries[*]}" >>"$cluster/etc/hosts"
  "$minicluster" exec --dir "$cluster" --user root --node 1 -- \
    mount --bind "$cluster/shared/certificates.crt" /etc/ssl/certs/ca-certificates.crt || fail "the node does not take the certificate"
  "$here/packages-proxy.py" "$gate" 3128 "$cache/packages" >"$work/proxy.log" 2>&1 </dev/null &
  servers+=($!)
  wait_for_port "$gate" 3128 || fail "the proxy does not answer; see $work/proxy.log"
  # shellcheck disable=SC2034  # run passes it to the jobs
  proxy=http://$gate:3128
}

# enroot from its source, as far as importing, exporting and listing need it.
# shellcheck disable=SC2016
build_enroot() { # SOURCE
  local to=$cache/enroot
  rm -rf -- "$to" "$cache/enroot-source"
  cp -r -- "$1" "$cache/enroot-source" && mkdir -p "$to"/{bin,lib,etc} && cd "$cache/enroot-source" || return 1
  # Without the tools for musl and bundles, which are other repositories.
  make -C deps CC=cc FORCE_GLIBC=1 libbsd/.stamp &&
    make -o deps CC=cc FORCE_GLIBC=1 BINDIR="$to/bin" LIBDIR="$to/lib" SYSCONFDIR="$to/etc" \
      enroot bin/enroot-aufs2ovlfs bin/enroot-mksquashovlfs bin/enroot-nsenter || return 1
  install enroot bin/enroot-aufs2ovlfs bin/enroot-mksquashovlfs bin/enroot-nsenter "$to/bin" &&
    install -m 644 src/*.sh "$to/lib" && setcap cap_sys_admin+pe "$to/bin/enroot-mksquashovlfs" &&
    setcap cap_sys_admin,cap_mknod+pe "$to/bin/enroot-aufs2ovlfs" || return 1
  # A node's /run is root's. What enroot packs here is read once.
  printf '%s\n' 'ENROOT_RUNTIME_PATH /tmp/enroot-$(id -u)' 'ENROOT_SQUASH_OPTIONS -noI -noD -noF -noX -exit-on-error' >"$to/etc/enroot.conf"
}
