# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of containers: images made on the spot, in $CLUSTER/images, which is root's. After tap.sh.

# A job's own /tmp holds PMIx's files besides its own. minicluster keeps the folder of this checkout
# in it when that lies below /tmp, which is then the host's in every job: tmp_kept is its path.
tmp_kept=
tmp_strangers=pmix
for path in "$TAP_HOME" "${BELLOWS_BUILDDIR-}"; do
  [[ $path == /tmp/* ]] || continue
  tmp_kept=${path#/tmp/}
  tmp_kept=/tmp/${tmp_kept%%/*}
  tmp_strangers="$tmp_strangers|^${tmp_kept##*/}\$"
done

# A root with busybox and nothing else: make_tree DIR
make_tree() {
  local applet
  mkdir -p "$1"/{bin,etc}
  cp /bin/busybox "$1/bin/busybox"
  for applet in sh ls cat id mount umount env grep echo touch pwd sleep stat readlink mkdir mknod \
    test true head wc tr kill ps dd ln rm cp find sed chmod unshare nsenter hostname ip; do
    ln -s busybox "$1/bin/$applet"
  done
  echo 'IMAGE_SAYS=hello' >"$1/etc/environment"
}

# A squashfs image of a tree: make_squashfs DIR FILE
make_squashfs() { mksquashfs "$1" "$2" -quiet -no-progress -noappend -all-root >/dev/null; }

# $CLUSTER/images with busybox.sqsh and its directory form busybox/.
make_images() {
  images=$CLUSTER/images
  mkdir -p "$images"
  make_tree "$images/busybox"
  make_squashfs "$images/busybox" "$images/busybox.sqsh"
}

# A cluster whose alice and bob (tenant vision) may bring the images in $CLUSTER/images, and carol
# (tenant speech) none, and whose framework boxed has one: container_cluster_up SPANK-ARGS OPTION-OF-UP...
container_cluster_up() {
  local arguments=$1
  shift
  cluster_up "$@"
  allow_images "$arguments"
}

# The same for a cluster that is up: allow_images SPANK-ARGS
allow_images() {
  local arguments=$1
  make_images
  spank_args "image_dirs=$images $arguments"
  sed -i -e "s#^    accounts: \[vision\]#&\n    images: [\"$images/*\"]#" \
    -e "s#^frameworks:#&\n  boxed: {image: $images/busybox.sqsh}#" "$CLUSTER/etc/bellows.yaml"
  poll 10 xc sbatch --test-only --container-image="$images/busybox" --wrap true >/dev/null 2>&1 ||
    bail "slurmctld does not take the policy"
}

# The arguments that the nodes' plugin has from now on (slurmstepd reads them at each start). Most scripts of tests need
# the host's srun.
spank_args() { # WORDS
  [[ $1 == *batch_in_container=* ]] || set -- "$1 batch_in_container=no"
  sed -i "s#spank_bellows.so\\( tmp_keep=[^ ]*\\)\\?.*#spank_bellows.so\\1 $1#" "$CLUSTER/etc/plugstack.conf"
}

# What a node has mounted for jobs, without the one tmpfs that is always there.
left_mounted() { # NODE
  mc exec --user root --node "$1" -- grep -E ' /run/bellows/(views/.+|[0-9]+/user) ' /proc/self/mountinfo
}
nothing_mounted() { ! left_mounted "$1"; }
views_of() { mc exec --user root --node "$1" -- find /run/bellows/views -mindepth 1 -maxdepth 1; } # NODE
no_views() { [[ -z $(views_of "$1") ]]; }

# A Debian root with these packages, of Debian 12 or another release: make_debian DIR PACKAGE,... [RELEASE]
make_debian() {
  mmdebstrap --quiet --variant=minbase --include="$2" "${3:-bookworm}" "$1"
}
