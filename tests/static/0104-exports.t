#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each plugin exports only what its host looks up, and libbellows needs only the C library.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BELLOWS_BUILDDIR:-$top/build}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"

# exports_only FILE REGEX: complains about each exported symbol that the regex does not cover.
exports_only() {
  nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | grep -vxE "$2" | sed 's/^/unexpected export: /'
}

# exports_all FILE NAME...: complains about each name that is not exported.
exports_all() {
  local file=$1 name
  shift
  for name; do
    nm -D --defined-only "$file" | awk '{print $NF}' | sed 's/@.*//' | grep -qxF "$name" || echo "missing export: $name"
  done
}

job_submit=$build/jobsubmit/.libs/job_submit_bellows.so
spank=$build/spank/.libs/spank_bellows.so
library=$build/checkpoint/.libs/libbellows.so

{
  exports_only "$job_submit" 'plugin_(name|type|version)|job_submit|job_modify|init|fini'
  exports_all "$job_submit" plugin_name plugin_type plugin_version job_submit job_modify
} 2>&1 | point "job_submit_bellows.so exports what slurmctld needs and no more"
{
  exports_only "$spank" 'plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+'
  exports_all "$spank" plugin_name plugin_type plugin_version spank_plugin_version slurm_spank_init
} 2>&1 | point "spank_bellows.so exports what SPANK needs and no more"
for plugin in "$job_submit" "$spank"; do
  { readelf -d "$plugin" || echo "readelf failed"; } 2>&1 | grep -E 'NEEDED.*libslurm|BIND_NOW|readelf' |
    point "$(basename "$plugin") leaves Slurm's symbols to its host"
done
# needs_only FILE REGEX: complains about each library that the regex does not cover.
needs_only() {
  { readelf -d "$1" || echo "NEEDED [readelf failed]"; } 2>&1 | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p' |
    grep -vxE "$2" | sed 's/^/unexpected library: /'
}
runtime='lib(fmt|asan|ubsan|tsan|stdc\+\+|gcc_s|c|m)\.so\.[0-9]+|ld-linux-x86-64\.so\.2'
needs_only "$spank" "$runtime" | point "spank_bellows.so needs nothing but libfmt and the C++ runtime"
needs_only "$job_submit" "$runtime|libyaml-0\.so\.2|libxxhash\.so\.0|liblua5\.4-c\+\+\.so\.0" |
  point "job_submit_bellows.so needs libyaml, libxxhash and Lua besides"
{
  exports_only "$library" 'bellows_[a-z_]+|BELLOWS_[0-9.]+'
  exports_all "$library" bellows_init bellows_register bellows_restore bellows_save bellows_should_stop bellows_finalize
} 2>&1 | point "libbellows.so exports its interface and no more"
model=$build/modelstore/.libs/libbellows_model.so
{
  exports_only "$model" 'bellows_model_[a-z_]+|BELLOWS_MODEL_[0-9.]+'
  exports_all "$model" bellows_model_open bellows_model_tensor bellows_model_find bellows_model_close
} 2>&1 | point "libbellows_model.so exports its interface and no more"
needs_only "$model" 'libc\.so\.6|ld-linux-x86-64\.so\.2' | point "libbellows_model.so needs only the C library"
learner=$build/paramserver/.libs/libbellows_ps.so
{
  exports_only "$learner" 'bellows_ps_[a-z_]+|BELLOWS_PS_[0-9.]+'
  exports_all "$learner" bellows_ps_join bellows_ps_begin bellows_ps_push bellows_ps_pull bellows_ps_leave
} 2>&1 | point "libbellows_ps.so exports its interface and no more"
needs_only "$learner" 'libc\.so\.6|ld-linux-x86-64\.so\.2' | point "libbellows_ps.so needs only the C library"
pool=$build/pool/.libs/libbellows_pool.so
{
  exports_only "$pool" 'bellows_pool_[a-z_]+|BELLOWS_POOL_[0-9.]+'
  exports_all "$pool" bellows_pool_metric bellows_pool_vote bellows_pool_ready bellows_pool_watch
} 2>&1 | point "libbellows_pool.so exports its interface and no more"
needs_only "$pool" 'libc\.so\.6|ld-linux-x86-64\.so\.2' | point "libbellows_pool.so needs only the C library"
needs_only "$library" 'libc\.so\.6|ld-linux-x86-64\.so\.2' | point "libbellows.so needs only the C library"
finish
