// SPDX-License-Identifier: Apache-2.0
#include "spank/container/entrypoint.h"

#include <fmt/core.h>
#include <unistd.h>

#include "common/fd.h"

namespace bellows::container {

namespace {

bool wants_entrypoint(const Spec& spec, const Site& site) {
  return spec.entrypoint.value_or(site.entrypoint);
}

struct Needed {
  const char* path;
  int right;
  const char* advice;
};

constexpr const char* kOther =
    "leave out --container-entrypoint, or use an image that enroot has imported";

constexpr Needed kNeeded[] = {
    {"/etc/rc", R_OK, kOther},
    {"/bin/sh", X_OK, kOther},
    {kEntrypointScript, X_OK, "give --container-entrypoint to the step that makes it, too"},
};

}  // namespace

void add_entrypoint(const Spec& spec, const Site& site, std::vector<DriverFile>& files) {
  if (!wants_entrypoint(spec, site)) return;
  files.push_back({DriverFile::Kind::script,
                   "#!/bin/sh\n"
                   "program=$BELLOWS_PROGRAM\n"
                   "unset BELLOWS_PROGRAM\n"
                   "exec /bin/sh /etc/rc \"$program\" \"$@\"\n",
                   "entrypoint"});
}

Result<bool> runs_entrypoint(const Spec& spec, const Site& site) {
  if (!wants_entrypoint(spec, site)) return false;
  for (const auto& [path, right, advice] : kNeeded) {
    if (::access(path, right) == 0) continue;
    if (!spec.entrypoint) return false;
    Error error = errno_error("run the image's entrypoint by", path);
    error.text += fmt::format("; {}", advice);
    return error;
  }
  return true;
}

}  // namespace bellows::container
