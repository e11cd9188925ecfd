// SPDX-License-Identifier: Apache-2.0
#include "spank/lasting.h"

#include <fmt/core.h>

#include <optional>

#include "common/container/image_reference.h"
#include "common/container/options.h"
#include "common/container/rights.h"
#include "common/lasting/lasting.h"

namespace bellows::spank {
namespace {

/// A registry's by its digest: what its tag leads to may be another by now.
Result<std::string> image_text(const lasting::MadeFrom& origin) {
  if (!container::is_in_registry(origin.image)) return origin.image;
  auto reference = container::parse_reference(origin.image);
  if (!reference) return reference.error();
  if (!container::is_digest(origin.identity))
    return Error{ErrorKind::corrupt, "it has no digest of its image"};
  reference->tag.clear();
  reference->digest = origin.identity;
  return reference->text();
}

/// As strictly as at the prompt.
Status take_image(container::Spec& asked, const lasting::MadeFrom& origin) {
  const auto text = image_text(origin);
  if (!text) return text.error();
  asked.image.clear();
  return container::apply_option(asked, container::Option::image, *text, container::Place{});
}

}  // namespace

Result<container::Spec> with_lasting(const Contract& contract, const container::Spec& asked,
                                     const container::Spec& spec, const std::string& directory,
                                     uid_t uid, std::string& remark) {
  const auto users = lasting::find_users(directory, uid);
  if (!users) return users.error().kind == ErrorKind::not_found ? Result(spec) : users.error();
  const auto origin = lasting::origin_of(users->get(), spec.name);
  if (!origin) return origin.error();
  if (!*origin) return spec;
  container::Spec changed = asked;
  changed.name = spec.name;
  changed.name_mode = spec.name_mode;
  if (auto status = take_image(changed, **origin); !status.ok())
    return Error{
        status.error().kind,
        fmt::format("the container {} cannot be used: {}; remove it with bellows container "
                    "remove {}, or use another name",
                    spec.name, status.error().text, spec.name)};
  if (!asked.image.empty() && asked.image != (*origin)->image && asked.image != changed.image)
    remark = fmt::format("the container {} has the image {}; ignoring --container-image", spec.name,
                         (*origin)->image);
  return container::effective_spec(&contract, changed);
}

}  // namespace bellows::spank
