// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/result.h"
#include "modelstore/remote/remote_settings.h"
#include "modelstore/remote/remote_url.h"

namespace bellows {

/// What an administrator says of remote places: whom to ask, how long, and with which keys. A line
/// for each setting, "KEY = VALUE"; one that begins with "#" is a comment.
struct SiteSettings {
  RemoteLimits limits;
  S3Account s3;
  std::map<std::string, std::string> tokens;  ///< by origin

  /// invalid: a key that there is not, or a wrong value. Names the line, and never the value.
  static Result<SiteSettings> parse(std::string_view text);
  /// Of a file that only this process's user may read. denied: others may, too.
  static Result<SiteSettings> read(const std::string& path);

  SiteSettings() = default;
  SiteSettings(const SiteSettings&) = default;
  SiteSettings(SiteSettings&&) = default;
  SiteSettings& operator=(const SiteSettings&) = default;
  SiteSettings& operator=(SiteSettings&&) = default;
  /// Overwrites what is secret.
  ~SiteSettings();

  /// The keys for one URL, and no others.
  RemoteCredentials credentials_for(const RemoteUrl& url) const;
};

}  // namespace bellows
