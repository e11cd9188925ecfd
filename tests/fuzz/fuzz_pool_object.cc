// SPDX-License-Identifier: Apache-2.0
/// What callers send to an elastic object, and members answer: within limits it is a value that
/// packs to bytes of the same meaning, else it is refused.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "pool/object/pack.h"

using namespace bellows::pool;

namespace {

std::size_t depth_of(const Value& value) {
  std::size_t deepest = 0;
  if (const auto* const list = std::get_if<Value::List>(&value.held)) {
    for (const Value& one : *list) deepest = std::max(deepest, depth_of(one));
    return deepest + 1;
  }
  if (const auto* const map = std::get_if<Value::Map>(&value.held)) {
    for (const auto& [key, one] : *map) deepest = std::max(deepest, depth_of(one));
    return deepest + 1;
  }
  return 0;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto value = unpack(bytes)) {
    require(depth_of(*value) <= kDeepest);
    // As bytes, since NaN is not equal to itself.
    const std::string packed = pack(*value);
    const auto again = unpack(packed);
    require(again && pack(*again) == packed);
  }
  if (const auto request = unpack_request(bytes); request && !request->names_args) {
    const auto again = unpack_request(pack_request(request->method, request->args));
    require(again && again->method == request->method &&
            again->args.size() == request->args.size());
  }
  const auto answer = unpack_answer(bytes);
  if (!answer)
    require(answer.failure().outcome == CallOutcome::raised ||
            answer.failure().outcome == CallOutcome::may_have_run);
  return 0;
}
