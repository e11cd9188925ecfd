#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the root of an image of Debian, as its root: makes Debian's packages of file and emacs-nox into
# RPM packages, with the owners and modes that their files have there, in a repository that yum uses.
set -euo pipefail

repository=/srv/rpm

# Without the libraries that programs are linked with; those that the image has are no RPM packages there.
requires() { # PACKAGE
  case $1 in
    file) echo libmagic1 ;;
    libmagic1) echo libmagic-mgc ;;
    emacs-nox) echo emacs-bin-common emacs-common ;;
    emacs-bin-common) echo emacs-common ;;
    emacs-common) echo emacsen-common ;;
  esac
}

# What packages of other distributions do: a user and a group of their own, before their files come.
before() { # PACKAGE
  [ "$1" = emacs-common ] || return 0
  printf '%s\n' '%pre' 'getent group emacs >/dev/null || groupadd --system emacs' \
    'getent passwd emacs >/dev/null || useradd --system --gid emacs --home-dir /var/lib/emacs --shell /sbin/nologin emacs'
}

after() { # PACKAGE
  [ "$1" = emacs-nox ] || return 0
  printf '%s\n' '%post' 'update-alternatives --install /usr/bin/emacs emacs /usr/bin/emacs-nox 10' \
    '%preun' 'update-alternatives --remove emacs /usr/bin/emacs-nox'
}

# A program that may write where its user may not.
own_files() { # PACKAGE
  [ "$1" = emacs-common ] || return 0
  printf '%s\n' '%dir %attr(2770, emacs, emacs) /var/lib/emacs' '%attr(660, emacs, emacs) /var/lib/emacs/sites' \
    '%attr(2755, root, emacs) /usr/libexec/emacs-sites'
}

spec() { # PACKAGE TREE
  local version need
  version=$(dpkg-deb -f "$1"_*.deb Version | sed 's/^[0-9]*://')
  printf '%s\n' "Name: $1" "Version: ${version%-*}" "Release: ${version##*-}" "Summary: Debian's $1" \
    'License: as in Debian' 'AutoReqProv: no'
  for need in $(requires "$1"); do echo "Requires: $need"; done
  [ "$1" != dash ] || echo 'Provides: /bin/sh'
  printf '%s\n' %description "Debian's $1." %install "cp -a $2/. %{buildroot}"
  before "$1"
  after "$1"
  echo %files
  own_files "$1"
  find "$2" ! -type d ! -path "$2/var/lib/emacs/*" ! -path "$2/usr/libexec/emacs-sites" \( -type l -printf '%%attr(-, %u, %g) "/%P"\n' \
    -o -printf '%%attr(%m, %u, %g) "/%P"\n' \)
}

make_rpm() { # PACKAGE
  local tree=$PWD/$1
  dpkg-deb -x "$1"_*.deb "$tree"
  if [ "$1" = emacs-common ]; then
    install -D /dev/null "$tree/var/lib/emacs/sites"
    install -D /usr/bin/true "$tree/usr/libexec/emacs-sites"
  fi
  spec "$1" "$tree" >"$1.spec"
  rpmbuild --quiet -bb --define "_topdir $PWD/top" --define "_rpmdir $repository" --define '__os_install_post %{nil}' \
    --define 'debug_package %{nil}' --define '_build_id_links none' --define '_binary_payload w3.zstdio' "$1.spec"
}

packages=(file libmagic1 libmagic-mgc emacs-nox emacs-bin-common emacs-common emacsen-common dash)
work=$(mktemp -d)
cd "$work"
mkdir -p "$repository" /etc/rpm /etc/yum.repos.d
apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io install dnf rpm createrepo-c
apt-get -q download "${packages[@]}"
for package in "${packages[@]}"; do make_rpm "$package"; done
# Debian's rpm has its database in the home directory, lest it be taken for one of the system.
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
# The shell of the scripts is there, as far as rpm knows, too.
rpm --install --justdb --noscripts "$repository"/x86_64/dash-*.rpm
createrepo_c --quiet "$repository"
printf '%s\n' '[debian]' "name=Debian's packages" "baseurl=file://$repository" 'gpgcheck=0' >/etc/yum.repos.d/debian.repo
ln -s dnf /usr/bin/yum
rm -r "$work"
