// SPDX-License-Identifier: Apache-2.0
/// --container-mounts as a user or a forger would write it, and the whole text in which options
/// reach slurmctld and slurmstepd: whatever is taken has clean absolute paths, and reads back.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/container/image_reference.h"
#include "common/container/mount_grammar.h"
#include "common/container/rights.h"
#include "common/container/spec_text.h"
#include "common/text.h"

namespace {

using namespace bellows;
using namespace bellows::container;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_path(std::string_view path) {
  require(path.starts_with('/'));
  if (path == "/") return;
  for (const std::string_view part : split(path.substr(1), '/'))
    require(!part.empty() && part != "." && part != "..");
  for (const char c : path) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

void check(const Mount& mount) {
  check_path(mount.target);
  require(mount.target != "/");
  if (mount.kind == Mount::Kind::bind)
    check_path(mount.source);
  else
    require(mount.source.empty());
  require(mount.size_mib == 0 || mount.kind == Mount::Kind::tmpfs);
  require(mount.size_mib <= std::uint64_t{1} << 24);
  require((!mount.mode && mount.huge.empty()) || mount.kind == Mount::Kind::tmpfs);
  require(mount.mode.value_or(0) <= 01777);
  const auto back = parse_mount(mount_text(mount), "");
  require(back.ok() && *back == mount);
}

void check_option(std::string_view text) {
  std::vector<Mount> mounts;
  if (const auto status = parse_mounts(text, "/home/ann", mounts); !status.ok()) {
    require(!status.error().text.empty());
    return;
  }
  for (const Mount& mount : mounts) check(mount);
}

void check_text(std::string_view text) {
  const auto spec = parse_spec(text);
  if (!spec) {
    require(!spec.error().text.empty());
    return;
  }
  for (const Mount& mount : spec->mounts) check(mount);
  if (spec->workdir) check_path(*spec->workdir);
  if (is_in_registry(spec->image)) {
    const auto reference = parse_reference(spec->image);
    require(reference && reference->text() == spec->image);
  } else if (!spec->image.empty()) {
    check_path(spec->image);
  }
  const auto back = parse_spec(spec_text(*spec));
  // Only a text near the bound can get longer: the sizes' units are written out.
  require(back.ok() ? *back == *spec : spec_text(*spec).size() > kMostText);
  const auto given = effective_spec(nullptr, *spec);
  Spec host;
  host.image = kHostImage;
  require(given.ok() == (*spec == Spec() || *spec == host));
  require(!given.ok() || *given == Spec());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_option(text);
  check_text(text);
  return 0;
}
