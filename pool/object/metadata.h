// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <string_view>
#include <vector>

namespace bellows::pool {

inline constexpr const char* kCall = "/bellows.pool.Object/Call";
inline constexpr const char* kStream = "/bellows.pool.Object/Stream";

/// Metadata of a call: the caller's id and its number; whom it means; that it may have run before.
inline constexpr const char* kId = "bellows-call";
inline constexpr const char* kIncarnation = "bellows-incarnation";
inline constexpr const char* kAgain = "bellows-again";
/// Trailing metadata of a refusal: the call has certainly not run.
inline constexpr const char* kNotRun = "bellows-not-run";
/// The method that every object has: what the others are called, and how.
inline constexpr const char* kDescribe = "__describe__";

inline grpc::ByteBuffer to_buffer(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

inline std::string to_bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

}  // namespace bellows::pool
