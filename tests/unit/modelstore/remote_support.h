// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>

#include <chrono>
#include <string>

#include "modelstore/remote/remote_file.h"
#include "tests/unit/modelstore/hostile_server.h"
#include "tests/unit/support/text_support.h"

namespace bellows::model_test {

/// Short ones, and the loopback may be asked.
inline RemoteLimits quick_limits() {
  RemoteLimits limits;
  limits.connect = std::chrono::seconds(5);
  limits.whole = std::chrono::seconds(20);
  limits.first_pause = std::chrono::milliseconds(2);
  limits.longest_pause = std::chrono::milliseconds(20);
  limits.addresses = {"127.0.0.1"};
  return limits;
}

inline RemoteFile open_file_at(const std::string& url, const RemoteLimits& limits = quick_limits(),
                               const RemoteCredentials& credentials = {}) {
  auto file = RemoteFile::open(url, credentials, limits);
  cr_assert(file.ok(), "%s", file.error().text.c_str());
  return std::move(*file);
}

inline Error opening_error(const std::string& url, const RemoteLimits& limits = quick_limits(),
                           const RemoteCredentials& credentials = {}) {
  const auto file = RemoteFile::open(url, credentials, limits);
  cr_assert(!file.ok(), "%s was opened", url.c_str());
  return file.error();
}

inline std::string read_part(const RemoteFile& file, std::uint64_t begin, std::uint64_t bytes) {
  std::string part(bytes, '?');
  const auto read = file.read(begin, reinterpret_cast<unsigned char*>(part.data()), bytes);
  cr_assert(read.ok(), "%s", read.error().text.c_str());
  return part;
}

inline Error reading_error(const RemoteFile& file, std::uint64_t begin, std::uint64_t bytes) {
  std::string part(bytes, '?');
  const auto read = file.read(begin, reinterpret_cast<unsigned char*>(part.data()), bytes);
  cr_assert(!read.ok(), "the read passed");
  return read.error();
}

/// That a person can use it.
inline void expect_error(const Error& error, ErrorKind kind, std::string_view part) {
  cr_expect(error.kind == kind && has(error.text, part), "kind %d: %s",
            static_cast<int>(error.kind), error.text.c_str());
  cr_expect(error.text.size() < 800 && error.text.find('\n') == std::string::npos);
}

}  // namespace bellows::model_test
