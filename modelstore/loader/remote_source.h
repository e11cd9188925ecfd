// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "modelstore/loader/source_file.h"
#include "modelstore/remote/site_settings.h"

namespace bellows {

/// A file that lies elsewhere. Asks for its size and version only.
Result<std::unique_ptr<SourceFile>> open_remote_source(const std::string& url,
                                                       const SiteSettings& settings);

/// The URL of another file in the same place. invalid: the URL has a query, which is for one file.
Result<std::string> sibling_url(const std::string& url, const std::string& name);

}  // namespace bellows
