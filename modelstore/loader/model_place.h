// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace bellows {

/// Whether a model lies elsewhere: its place is a URL that begins with http://, https:// or s3://.
bool is_remote_place(std::string_view place);

/// Fit for people: a query may be a signature. Several places may be shown as one, so it names
/// none.
std::string shown_place(std::string_view place);

}  // namespace bellows
