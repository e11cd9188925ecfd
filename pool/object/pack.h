// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pool/include/bellows_object.h"

namespace bellows::pool {

/// The largest call and the largest answer, in bytes.
inline constexpr std::size_t kLargest = 64U << 20U;
/// Lists and maps within each other, and values in all: what comes may claim anything.
inline constexpr std::size_t kDeepest = 100;
inline constexpr std::size_t kMostValues = 4U << 20U;

/// MessagePack. Nothing that a Value holds can't be packed.
std::string pack(const Value& value);
/// nullopt: it isn't one value and nothing more, or beyond a limit.
std::optional<Value> unpack(std::string_view bytes);

/// [method, args, {}]
std::string pack_request(std::string_view method, const Value::List& args);
struct CallBody {
  std::string method;
  Value::List args;
  bool names_args = false;  ///< it has named ones besides, which no method in C++ takes
};
/// nullopt: it is no call.
std::optional<CallBody> unpack_request(std::string_view bytes);

/// [0, value], or [1, type, text, traceback] for a Failure.
std::string pack_answer(Answer<Value> answer);
/// raised: the method threw. may_have_run: these bytes are no answer.
Answer<Value> unpack_answer(std::string_view bytes);

}  // namespace bellows::pool
