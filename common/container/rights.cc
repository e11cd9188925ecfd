// SPDX-License-Identifier: Apache-2.0
#include "common/container/rights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "common/container/image_reference.h"
#include "common/container/mount_grammar.h"
#include "common/container/options.h"
#include "common/container/spec_text.h"

namespace bellows::container {
namespace {

Error corrupt(std::string_view key, std::string_view why) {
  return Error{ErrorKind::corrupt,
               fmt::format("the key {} of the job's contract cannot be used: {}; tell the "
                           "administrator",
                           key, why)};
}

/// What the contract says by itself, without the framework's mounts and variables.
Result<Spec> promised_spec(const Contract& contract) {
  auto spec = parse_spec(contract.extra_value(Contract::kContainerKey));
  if (!spec) return corrupt(Contract::kContainerKey, spec.error().text);
  spec->image.clear();
  if (contract.image.empty()) return spec;
  if (auto status = apply_option(*spec, Option::image, contract.image, Place{}); !status.ok())
    return corrupt("image", status.error().text);
  return spec;
}

Status add_framework(const Contract& contract, Spec& spec) {
  std::vector<Mount> mounts;
  for (const std::string& text : Contract::split_list(contract.extra_value(Contract::kMountsKey))) {
    auto mount = parse_mount(text, "");
    if (!mount) return corrupt(Contract::kMountsKey, mount.error().text);
    add_mount(mounts, *std::move(mount));
  }
  for (Mount& mount : spec.mounts) add_mount(mounts, std::move(mount));
  spec.mounts = std::move(mounts);
  std::vector<std::string> names = Contract::split_list(contract.extra_value(Contract::kEnvKey));
  for (std::string& name : spec.env)
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  spec.env = std::move(names);
  return {};
}

Status check_image(const Contract& contract, const Spec& spec) {
  const std::vector<std::string> patterns =
      Contract::split_list(contract.extra_value(Contract::kImagesKey));
  if (spec.image.empty() || spec.image == contract.image || permits_image(patterns, spec.image))
    return {};
  std::vector<std::string> allowed = patterns;
  if (!contract.image.empty()) allowed.insert(allowed.begin(), contract.image);
  return Error{ErrorKind::denied,
               allowed.empty()
                   ? fmt::format("this job may not use image {}; its contract allows none, so "
                                 "submit the job with --framework or with --container-image",
                                 spec.image)
                   : fmt::format("this job may not use image {}; its contract allows {}",
                                 spec.image, fmt::join(allowed, ", "))};
}

}  // namespace

bool permits_image(const std::vector<std::string>& patterns, std::string_view image) {
  if (is_in_registry(image)) {
    const auto reference = parse_reference(image);
    if (!reference) return false;
    const std::string place = reference->place();
    return std::any_of(patterns.begin(), patterns.end(), [&place](const std::string& pattern) {
      return is_in_registry(pattern) && fnmatch(pattern.c_str(), place.c_str(), 0) == 0;
    });
  }
  const std::string path(image);
  if (normal_path(path, "") != path) return false;
  return std::any_of(patterns.begin(), patterns.end(), [&path](const std::string& pattern) {
    return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
  });
}

Result<Spec> effective_spec(const Contract* contract, const Spec& step) {
  if (contract == nullptr) {
    // Such a step runs on the host in any case.
    Spec host;
    host.image = kHostImage;
    if (step == Spec() || step == host) return Spec();
    return Error{
        ErrorKind::denied,
        "a step of this job cannot have --container options, since the job was submitted "
        "without any and slurmctld granted it none, as for a tenant that may bring no images, or "
        "where PrologFlags in slurm.conf has no Contain; submit it with --container-image or "
        "--framework, and srun inside it may then have its own"};
  }
  auto promised = promised_spec(*contract);
  if (!promised) return promised.error();
  if (step.name.empty()) {
    // The name is that of the container with the job's image, and only one step can create it.
    if (!step.image.empty() && step.image != promised->image) promised->name.clear();
    if (promised->name_mode == NameMode::create || promised->name.empty())
      promised->name_mode = NameMode::automatic;
  }
  Spec spec = overlay(*promised, step);
  if (spec.image == kHostImage) {
    spec.image.clear();
    spec.name.clear();
  }
  if (auto status = check_image(*contract, spec); !status.ok()) return status.error();
  if (auto status = add_framework(*contract, spec); !status.ok()) return status.error();
  return spec;
}

}  // namespace bellows::container
