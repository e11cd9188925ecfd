// SPDX-License-Identifier: Apache-2.0
// What a task does for a container with a name that outlives its job.
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/container/image_reference.h"
#include "common/lasting/lasting.h"
#include "common/lasting/upkeep.h"
#include "spank/container/capabilities.h"
#include "spank/container/container_name.h"
#include "spank/container/lock_holder.h"
#include "spank/container/mount_api.h"
#include "spank/container/task.h"

namespace bellows::container {
namespace {

/// Not by its device, whose number may be another after each boot.
Result<std::string> identity_of(const std::string& image) {
  struct stat info {};
  if (::stat(image.c_str(), &info) != 0) return errno_error("look at the image", image);
  if (S_ISDIR(info.st_mode)) return std::string("directory");
  return fmt::format("file-{}-{}-{}.{:09}", info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

/// As it would be made now. The directory around an imported image has its digest's name.
Result<lasting::MadeFrom> origin_for(const std::string& image, const std::string& imported) {
  if (imported.empty()) {
    auto identity = identity_of(image);
    if (!identity) return identity.error();
    return lasting::MadeFrom{image, *std::move(identity)};
  }
  const std::string digest =
      "sha256:" + std::filesystem::path(imported).parent_path().filename().string();
  if (is_digest(digest)) return lasting::MadeFrom{image, digest};
  return Error{ErrorKind::internal, imported + " does not say which image it is"};
}

Status check_budget(int users, const Site& site) {
  if (site.lasting.mib == 0) return {};
  const std::uint64_t mib = lasting::bytes_of_all(users) >> 20;
  if (mib < site.lasting.mib) return {};
  return Error{ErrorKind::denied,
               fmt::format("your containers on this node hold {} MiB, and with {} MiB or more "
                           "(containers_budget in plugstack.conf) no further one is made; see "
                           "bellows container list there, and remove some with bellows container "
                           "remove",
                           mib, site.lasting.mib)};
}

}  // namespace

bool outlasts_job(const Spec& spec, const Site& site, std::uint32_t job) {
  return site.lasting.wanted && !spec.name.empty() && !step_meant(spec, job);
}

Status find_lasting(const Fd& users, const Spec& spec, std::optional<NamedState>& found) {
  if (!users) return {};
  const auto origin = lasting::origin_of(users.get(), spec.name);
  if (!origin) return origin.error();
  if (*origin) {
    found.emplace();
    found->image = spec.image;
  }
  return {};
}

/// In the host's mount namespace: a clone of what is mounted there can be taken into another.
Status TaskEntry::begin_lasting(const Spec& spec, const Site& site, bool vacant,
                                lasting::Use& use) {
  if (spec.image.empty())
    return Error{ErrorKind::unavailable,
                 fmt::format("the container {} was removed meanwhile; give --container-image to "
                             "create it",
                             spec.name)};
  // A user may have killed the image's server; no two overlays may write to one layer.
  if (!vacant)
    return Error{ErrorKind::busy,
                 fmt::format("the container {} has lost the server of its image, and another step "
                             "still runs in it; end that step first",
                             spec.name)};
  {
    const auto as_root = Raised::raise(CAP_DAC_OVERRIDE);
    if (!as_root) return as_root.error();
    if (auto status = views_.unpin(container_name(spec, site, stepd_)); !status.ok()) return status;
  }
  const auto origin = origin_for(spec.image, imported_);
  if (!origin) return origin.error();
  auto used = lasting::use(lasting_.get(), spec.name, *origin, job_);
  if (!used) return used.error();
  use = *std::move(used);
  Status status;
  if (use.made) status = check_budget(lasting_.get(), site);
  if (status.ok() && use.lock) status = hold_for_job(std::move(use.lock), servers_);
  if (status.ok()) {
    auto layer = clone_mount(use.directory.get(), spec.name, false, {});
    if (layer) {
      layer_ = *std::move(layer);
      return {};
    }
    status = layer.error();
  }
  lasting::forget(lasting_.get(), spec.name, use);
  return status;
}

}  // namespace bellows::container
