# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The smallest Ceph that speaks S3: a monitor, one OSD in memory and a gateway, all on this machine and
# without passwords among them. The caller has tap.sh, network and process namespaces of its own, and
# ends what is started here with these.

has_ceph() { command -v ceph-mon && command -v ceph-osd && command -v radosgw; } > /dev/null

ceph_config() { # DIR FSID
  cat <<END
[global]
fsid = $2
mon_host = [v2:127.0.0.1:3300/0]
public_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
ms_mon_cluster_mode = crc
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
osd_objectstore = memstore
memstore_device_bytes = 536870912
mon_data = $1/mon
osd_data = $1/osd
run_dir = $1
crash_dir = $1
keyring = $1/keyring
admin_socket = $1/\$name.asok
log_file = $1/log/\$name.log
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:9000
END
}

in_ceph() { timeout --foreground "$(seconds 30)" "$@" >> "$CEPH_DIR/log/commands" 2>&1; }

osd_is_up() { timeout 10 ceph osd stat 2> /dev/null | grep -q '1 up'; }
gateway_answers() { curl --silent --fail --max-time 5 --output /dev/null http://127.0.0.1:9000/; }

# Fails where a part does not come up; what it says is in DIR/log then.
ceph_up() { # DIR ACCESS-KEY SECRET-KEY
  local fsid osd
  CEPH_DIR=$1
  fsid=$(uuidgen)
  osd=$(uuidgen)
  export CEPH_CONF=$1/ceph.conf
  mkdir -p "$1/mon" "$1/osd" "$1/log"
  : > "$1/keyring"
  ceph_config "$1" "$fsid" > "$CEPH_CONF"
  in_ceph monmaptool --create --addv a '[v2:127.0.0.1:3300]' --fsid "$fsid" "$1/monmap" &&
    in_ceph ceph-mon --mkfs -i a --monmap "$1/monmap" || return 1
  ceph-mon -f -i a >> "$1/log/commands" 2>&1 &
  in_ceph ceph osd new "$osd" && in_ceph ceph-osd -i 0 --mkfs --osd-uuid "$osd" || return 1
  ceph-osd -f -i 0 >> "$1/log/commands" 2>&1 &
  in_ceph ceph osd crush add osd.0 1 root=default host=here && poll 30 osd_is_up || return 1
  in_ceph radosgw-admin user create --uid=test --display-name=test --access-key="$2" --secret-key="$3" || return 1
  radosgw -f -n client.rgw >> "$1/log/commands" 2>&1 &
  poll 60 gateway_answers
}
