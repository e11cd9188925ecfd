# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# One bridge per cluster and one veth pair per member. The bridge's number is the cluster's id:
# making a bridge fails when its name is taken, so two clusters never get the same one. The
# addresses are from 198.18.0.0/15, which no real network uses.

bridge_name() { echo "bmc$id"; }
link_name() { echo "bmc$id-$1"; }
host_address() { echo "198.18.$id.254"; }
member_address() {
  if [[ $1 == ctl ]]; then echo "198.18.$id.1"; else echo "198.18.$id.$((10 + ${1#n}))"; fi
}

subnet_in_use() { [[ -n $(ip -o -4 route show root "198.18.$id.0/24") ]]; }

claim_id() {
  for ((id = 0; id < 256; id++)); do
    [[ ! -e /sys/class/net/$(bridge_name) ]] || continue
    subnet_in_use && continue
    cgroup_is_free || continue
    echo "$id" >"$dir/state/id"
    ip link add "$(bridge_name)" type bridge 2>"$dir/log/network.log" && break
    rm -f -- "$dir/state/id"
    [[ -e /sys/class/net/$(bridge_name) ]] ||
      die "cannot make a network bridge: $(<"$dir/log/network.log")"
  done
  ((id < 256)) || die "all 256 cluster numbers of this machine are taken"
  ip -batch - <<BATCH
link set dev $(bridge_name) alias minicluster:$dir
address add $(host_address)/24 dev $(bridge_name)
link set dev $(bridge_name) up
BATCH
}

# The namespace of the member's init gets the other end as eth0.
add_link() { # MEMBER
  local link
  link=$(link_name "$1")
  ip -batch - <<BATCH
link add $link type veth peer name eth0 netns $(member_pid "$1")
link set dev $link master $(bridge_name)
link set dev $link up
BATCH
}

# The kernel removes a pair some time after its namespace; this does it now.
remove_link() { # MEMBER
  ip link delete "$(link_name "$1")" 2>/dev/null || true
}

# A bridge labelled with another directory belongs to a cluster started after a reboot.
network_is_ours() {
  local label=""
  { read -r label <"/sys/class/net/$(bridge_name)/ifalias"; } 2>/dev/null || true
  [[ -z $label || $label == "minicluster:$dir" ]]
}

remove_network() {
  local path
  network_is_ours || return 0
  for path in /sys/class/net/"$(bridge_name)"-*; do
    [[ ! -e $path ]] || ip link delete "${path##*/}" 2>/dev/null || true
  done
  ip link delete "$(bridge_name)" 2>/dev/null || true
}

link_is_cut() { # MEMBER
  local flags=0x0
  { read -r flags <"/sys/class/net/$(link_name "$1")/flags"; } 2>/dev/null || true
  ((!(flags & 1)))
}
