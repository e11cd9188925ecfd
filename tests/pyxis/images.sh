# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Images under the names that pyxis's tests use. They bear the names only: each is a root of Debian
# whose os-release says what a test looks for. The caller sets: here, cache (a directory), and sources
# tests/lib/common.sh and apt.sh.

oci=$cache/oci

# The roots, as images of their names.
make_roots() {
  rm -rf -- "$oci" "$cache/bundle"
  umoci init --layout "$oci" && make_root root bookworm && make_root next forky || return 1
  add_packages mpi openmpi-bin libopenmpi-dev python3 python3-dev python3-mpi4py python3-numpy python3-pip &&
    add_packages nginx nginx-light && add_packages redis redis-server && add_packages rabbitmq rabbitmq-server &&
    derive root yum bash -s <"$here/rpms.sh" && add_mpi4py
}

make_root() { # TAG SUITE
  # Lists of a suite that is no release expire after a week.
  mmdebstrap --quiet --variant=minbase --include=ca-certificates --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "$2" "$cache/root.tar" || return 1
  umoci new --image "$oci:$1" && umoci raw add-layer --image "$oci:$1" "$cache/root.tar" &&
    umoci config --image "$oci:$1" --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      --config.cmd bash
}

add_packages() { # TAG PACKAGE...
  derive root "$1" apt-get -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io install "${@:2}"
}

# mpi4py as pip3 would get it from PyPI: by itself, and no package of dpkg's.
add_mpi4py() {
  derive root mpi4py sh -ec 'cd /tmp; apt-get -q download python3-mpi4py; dpkg-deb -x python3-mpi4py_*.deb /; rm python3-mpi4py_*.deb'
}

# A tag with what a command changes in it, which runs in its tree. That shows /proc meanwhile, has lists
# of packages and starts no service.
# shellcheck disable=SC2016
derive() { # FROM TAG COMMAND...
  local bundle=$cache/bundle
  umoci unpack --image "$oci:$1" "$bundle" && unshare --mount --pid --fork --kill-child sh -ec '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/var/cache/apt"
    mount -t tmpfs tmpfs "$root/var/lib/apt/lists"
    mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
    printf "#!/bin/sh\nexit 101\n" >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    chroot "$root" apt-get -q update </dev/null
    chroot "$root" "$@"
    rm "$root/usr/sbin/policy-rc.d"' sh "$bundle/rootfs" "${@:3}" && umoci repack --image "$oci:$2" "$bundle" && rm -rf -- "$bundle"
}

# Makes NAME (as the registry has it) from a root or another tag: the text is that of os-release, and of
# redhat-release for those that have one. The rest are options of "umoci config".
image() { # NAME FROM TEXT [OPTION]...
  local name=$1 from=$2 text=$3 tag
  shift 3
  tag=${name//[^A-Za-z0-9.]/-}
  umoci config --image "$oci:$from" --tag "$tag" "$@" &&
    with_file "$tag" "$tag" usr/lib/os-release 644 < <(printf '# Debian under another name\nPRETTY_NAME="%s"\n' "$text") || return 1
  if [[ $name == *centos:* ]]; then with_file "$tag" "$tag" etc/redhat-release 644 <<<"$text" || return 1; fi
  # Docker's own kind of manifest: to a client that names none it takes, this registry has no OCI manifest.
  skopeo copy --quiet --format v2s2 --dest-tls-verify=false "oci:$oci:$tag" "docker://$push_to/$name"
}

# A tag with a layer more, of one file: with_file FROM TAG PATH MODE < TEXT
# Not by "umoci insert", whose layers have no end.
with_file() {
  rm -rf -- "$cache/layer" && mkdir -p "$(dirname "$cache/layer/$3")" && cat >"$cache/layer/$3" &&
    tar -c -f "$cache/layer.tar" -C "$cache/layer" --owner=0 --group=0 --mode="$4" "$3" &&
    umoci raw add-layer --image "$oci:$1" --tag "$2" "$cache/layer.tar"
}

# Entrypoints that do what the tests see of the originals.
make_entrypoints() {
  with_file root cuda-runtime opt/nvidia/entrypoint.sh 755 <<'SCRIPT' || return 1
#!/bin/sh
echo "== CUDA =="
exec "$@"
SCRIPT
  with_file root dind usr/local/bin/entrypoint.sh 755 <<'SCRIPT' || return 1
#!/bin/sh
port=2375
[ -z "$DOCKER_TLS_VERIFY" ] || port=2376
export DOCKER_HOST="${DOCKER_HOST:-tcp://docker:$port}"
exec "$@"
SCRIPT
  # The originals have the directory in which they start.
  with_file root pytorch workspace/README.md 644 <<<"Debian under another name" &&
    with_file mpi pytorch-mpi workspace/README.md 644 <<<"Debian under another name" || return 1
  # Theirs is no distribution's Python, which lets pip3 install nothing: the name takes the file away.
  with_file pytorch-mpi pytorch-mpi usr/lib/python3.11/.wh.EXTERNALLY-MANAGED 644 </dev/null || return 1
  with_file nginx nginx-site etc/nginx/conf.d/default.conf 644 <<'SCRIPT' || return 1
server {
    listen       80;
    root /var/www/html;
}
SCRIPT
  with_file nginx-site nginx-entrypoint docker-entrypoint.sh 755 <<'SCRIPT'
#!/bin/sh
sed -i 's,^\( *\)listen       80;,&\n\1listen  [::]:80;,' /etc/nginx/conf.d/default.conf || exit
exec "$@"
SCRIPT
}

cuda_settings() { # VERSION
  printf '%s\n' --config.env "CUDA_VERSION=$1" --config.env LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64
}

make_images() {
  local cuda version
  make_entrypoints || return 1
  image library/ubuntu:12.04 root 'Ubuntu precise' &&
    image library/ubuntu:14.04 root 'Ubuntu 14.04' &&
    image library/ubuntu:16.04 root 'Ubuntu 16.04' &&
    image library/ubuntu:18.04 root 'Ubuntu 18.04' &&
    image library/ubuntu:20.04 mpi 'Ubuntu 20.04' &&
    image library/ubuntu:22.04 mpi 'Ubuntu 22.04' &&
    image library/ubuntu:24.04 mpi4py 'Ubuntu 24.04' &&
    image library/ubuntu:26.04 next 'Ubuntu 26.04 (Resolute Raccoon)' &&
    image library/ubuntu:latest root 'Ubuntu 26.04 (Resolute Raccoon)' &&
    image library/centos:5 root 'CentOS release 5.11 (Final)' &&
    image library/centos:6 root 'CentOS release 6.10 (Final)' &&
    image library/centos:7 root 'CentOS Linux release 7.9' &&
    image library/centos:8 root 'CentOS Linux release 8.4' &&
    image library/almalinux:9 yum 'AlmaLinux 9' &&
    image library/nginx:1.19.1 nginx-entrypoint 'Debian with nginx' --config.entrypoint /docker-entrypoint.sh &&
    image library/docker:26.1.0-dind-rootless dind 'Debian' --config.entrypoint entrypoint.sh &&
    image library/redis:5.0.8 redis 'Debian with redis' &&
    image library/rabbitmq:3.8.3 rabbitmq 'Debian with RabbitMQ' || return 1
  for cuda in 11.8.0-base-ubuntu20.04 11.8.0-base-ubuntu22.04 12.9.1-base-ubuntu24.04 10.2-base; do
    mapfile -t version < <(cuda_settings "${cuda%%-*}")
    image "nvidia/cuda:$cuda" root "Ubuntu ${cuda##*ubuntu}" "${version[@]}" || return 1
  done
  for cuda in 12.5.1-runtime-ubuntu24.04 12.9.1-runtime-ubuntu24.04; do
    mapfile -t version < <(cuda_settings "${cuda%%-*}")
    image "nvidia/cuda:$cuda" cuda-runtime 'Ubuntu 24.04' "${version[@]}" \
      --config.entrypoint /opt/nvidia/entrypoint.sh || return 1
  done
  image nvidia/pytorch:20.02-py3 pytorch Debian --config.workingdir /workspace --config.env PYTORCH_VERSION=1.5.0a0+3bbb36e &&
    image nvidia/pytorch:22.04-py3 pytorch Debian --config.workingdir /workspace --config.env PYTORCH_VERSION=1.12.0a0+bd13bc6 &&
    image nvidia/pytorch:26.02-py3 pytorch-mpi Debian --config.workingdir /workspace --config.env PYTORCH_VERSION=2.11.0 &&
    image nvidia/pytorch:26.03-py3 pytorch-mpi Debian --config.workingdir /workspace --config.env PYTORCH_VERSION=2.11.0 &&
    image pytorch/pytorch:1.8.1-cuda11.1-cudnn8-runtime pytorch Debian --config.workingdir /workspace --config.env PYTORCH_VERSION=1.8.1
}
