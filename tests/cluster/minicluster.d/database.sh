#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# database.sh DIR: starts MariaDB and slurmdbd inside the controller and enters the test users.
# Both are private to the cluster: the database listens only on a socket in the controller's own
# /run, where clients look for it by default.
set -euo pipefail

dir=$1
data=$dir/spool/database
log=$dir/log/database.log

poll() { # COMMAND...
  local deadline=$((SECONDS + 200))
  until "$@" >>"$log" 2>&1; do
    ((SECONDS < deadline)) || { echo "gave up waiting for: $*"; exit 1; }
    sleep 0.05
  done
}

start_mariadb() {
  mkdir -p /run/mysqld
  if [[ ! -d $data ]]; then
    mariadb-install-db --no-defaults --user=root --datadir="$data" --skip-test-db \
      --skip-name-resolve --auth-root-authentication-method=normal >>"$log" 2>&1 ||
      { echo "mariadb-install-db failed"; exit 1; }
  fi
  # Durability would only cost time: this database lives as long as the cluster.
  setsid mariadbd --no-defaults --user=root --datadir="$data" --skip-networking \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --skip-name-resolve \
    --innodb-flush-log-at-trx-commit=0 --sync-binlog=0 --innodb-buffer-pool-size=64M --innodb-log-file-size=16M \
    --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF </dev/null >>"$log" 2>&1 &
  poll mariadb --no-defaults --user=root --execute="SELECT 1"
}

dbd_has_ended() { grep -qs 'fatal: ' "$dir/log/slurmdbd.log"; }
dbd_answers_or_ended() { dbd_has_ended || sacctmgr --noheader list cluster; }

start_slurmdbd() {
  (
    umask 077
    cat >"$dir/etc/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.socket
DbdHost=ctl
SlurmUser=root
LogFile=$dir/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
CONF
  )
  # A root directory of another suite may have it, see tests/lib/suite.sh.
  LD_LIBRARY_PATH=/usr/local/lib/older-mariadb slurmdbd
  poll dbd_answers_or_ended
  ! dbd_has_ended || { echo "slurmdbd has ended: $(grep -m 1 -o 'fatal: .*' "$dir/log/slurmdbd.log")"; exit 1; }
}

enter_users() {
  local user _ account
  {
    sacctmgr --immediate add cluster bellows
    sacctmgr --immediate add account vision,speech Cluster=bellows
    while IFS=: read -r user _ _ _ account _; do
      [[ $account == *" of "* ]] || continue
      sacctmgr --immediate add user "$user" Account="${account##* of }" \
        DefaultAccount="${account##* of }"
    done <"$dir/etc/passwd"
  } >>"$log" 2>&1 || { echo "sacctmgr failed"; exit 1; }
}

start_mariadb
start_slurmdbd
enter_users
