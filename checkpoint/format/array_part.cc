// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/array_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace bellows {
namespace {

constexpr const char* kTypeNames[] = {"",    "f16",  "bf16", "f32",  "f64",  "i8",
                                      "i16", "i32",  "i64",  "u8",   "u16",  "u32",
                                      "u64", "bool", "c64",  "c128", "bytes"};

bool name_is_good(const std::string& name) {
  if (name.empty() || name.size() > wire::kMostName || name.back() == '/') return false;
  char before = '/';
  for (char c : name) {
    if (c < '!' || c > '~' || (before == '/' && (c == '/' || c == '.'))) return false;
    before = c;
  }
  return true;
}

bool axis_is_good(const wire::Array& a) {
  return a.layout == wire::kSharded ? a.axis < a.ndims : a.axis == 0;
}

// What is wrong, or nullptr. `pieces`: a replicated array may be a part of its first axis.
const char* wrong_with(const wire::Array& a, bool pieces) {
  std::uint64_t end = 0, bytes = 0;
  if (wire::element_bytes(a.dtype) == 0) return "its data type does not exist";
  if (a.ndims > wire::kMostDims || a.layout > wire::kValue || !axis_is_good(a)) {
    return "its layout, axis or number of dimensions is not possible";
  }
  if (!wire::part_bytes(a, wire::axis_extent(a), &bytes)) return "its shape has too many bytes";
  if (a.layout == wire::kValue && bytes > wire::kMostValue) {
    return "a value has at most 4096 bytes";
  }
  if (__builtin_add_overflow(a.first, a.count, &end) || end > wire::axis_extent(a)) {
    return a.layout == wire::kSharded ? "its part extends past the end of the axis"
                                      : "it is not whole";
  }
  const bool whole = a.first == 0 && a.count == wire::axis_extent(a);
  const bool may_be_part = a.layout == wire::kSharded || (pieces && a.layout == wire::kReplicated);
  return whole || may_be_part ? nullptr : "it is not sharded but not whole";
}

Status check(const ArrayPart& part, bool pieces) {
  if (!name_is_good(part.name)) {
    return Error{ErrorKind::invalid,
                 fmt::format("an array's name is not possible: \"{:.64}\"", part.name)};
  }
  const char* wrong = wrong_with(part.array, pieces);
  if (!wrong) return {};
  return Error{ErrorKind::invalid, fmt::format("array {}: {}", part.name, wrong)};
}

}  // namespace

std::uint64_t ArrayPart::bytes() const {
  std::uint64_t bytes = 0;
  return wire::held_bytes(array, &bytes) ? bytes : 0;
}

std::string ArrayPart::type_text() const {
  return fmt::format("{}[{}]", dtype_name(array.dtype),
                     fmt::join(array.shape, array.shape + array.ndims, ","));
}

const char* dtype_name(std::uint32_t dtype) {
  return dtype < std::size(kTypeNames) ? kTypeNames[dtype] : "";
}

std::uint32_t dtype_of_name(std::string_view name) {
  for (std::uint32_t dtype = 1; dtype < std::size(kTypeNames); ++dtype) {
    if (name == kTypeNames[dtype]) return dtype;
  }
  return 0;
}

Status check_part(const ArrayPart& part) { return check(part, false); }

Status check_stored_part(const ArrayPart& part) { return check(part, true); }

}  // namespace bellows
