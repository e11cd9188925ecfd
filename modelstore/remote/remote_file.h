// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "modelstore/remote/remote_connection.h"
#include "modelstore/remote/remote_settings.h"

namespace bellows {

/// A file that lies elsewhere, of one version: what changes while it is read is refused.
class RemoteFile {
 public:
  /// `url`: see RemoteUrl. Asks for the size and the version. Errors: invalid, not_found, denied
  /// (also what the limits don't allow), unavailable (trying again later may help) and corrupt (the
  /// server says what cannot be right). No text has secrets in it.
  static Result<RemoteFile> open(std::string_view url, const RemoteCredentials& credentials,
                                 const RemoteLimits& limits);
  RemoteFile(RemoteFile&&) noexcept;
  RemoteFile& operator=(RemoteFile&&) noexcept;
  ~RemoteFile();

  /// The URL, fit for people.
  const std::string& name() const;
  const FileVersion& version() const { return version_; }
  std::uint64_t size() const { return version_.size; }
  /// May be called by several threads at once, each of which has a connection for itself. After an
  /// error, the memory may hold anything. corrupt: also that the file was changed.
  Status read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const;

 private:
  class Source;

  explicit RemoteFile(std::unique_ptr<Source> source);

  std::unique_ptr<Source> source_;
  FileVersion version_;
};

}  // namespace bellows
