// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/container/image_reference.h"
#include "common/result.h"

namespace bellows::image {

/// A name and a password at a registry. A value.
struct Login {
  std::string user;
  std::string password;
};

/// The first entry of a file in netrc's form, as enroot's .credentials is, that is of the image's
/// registry, with or without its port, and, if it names one, its user. A password "$NAME" is the
/// variable's value, as enroot has it. invalid: it is a command, "$(...)", which enroot runs.
Result<std::optional<Login>> find_login(std::string_view netrc,
                                        const container::ImageReference& reference);

/// The text of a file of skopeo's with this login.
Result<std::string> auth_file_text(const std::string& registry, const Login& login);

}  // namespace bellows::image
