// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/plain/file_identity.h"
#include "common/result.h"

namespace bellows {

/// One file of a model, open for reading, wherever it lies.
class SourceFile {
 public:
  virtual ~SourceFile() = default;

  /// Fit for people.
  virtual const std::string& name() const = 0;
  virtual std::uint64_t size() const = 0;
  /// Another text when the file has changed, and for each other file. It may hold secrets: only its
  /// digest leaves the process.
  virtual std::string version() const = 0;
  /// Of a file of this machine.
  virtual std::optional<plain::FileIdentity> identity() const { return std::nullopt; }
  /// May be called by several threads at once.
  virtual Status read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) const = 0;
  /// corrupt: it is not what it was when it was opened.
  virtual Status check_unchanged() const = 0;
};

}  // namespace bellows
