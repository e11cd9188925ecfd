// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "modelstore/remote/remote_settings.h"

namespace bellows {

/// Where a file lies.
struct RemoteUrl {
  std::string url;     ///< as curl is asked: http or https
  std::string origin;  ///< scheme, host and port: secrets are for one origin only
  std::string host;
  std::string shown;  ///< for people: a query may be a secret
  bool is_encrypted = false;
  bool is_s3 = false;  ///< asked with signatures, if there are keys

  /// `text`: http://, https:// or s3://BUCKET/KEY, with the key as it is, nothing of it escaped.
  static Result<RemoteUrl> parse(std::string_view text, const S3Account& account);
  /// Where an answer sends the reader: only to http and https, and from https only to https.
  Result<RemoteUrl> redirected(const std::string& location) const;
};

/// Everything but letters, digits and `kept` as a URL has it escaped. With "-._~/" that is how S3
/// signs paths.
std::string percent_escaped(std::string_view text, std::string_view kept);

}  // namespace bellows
