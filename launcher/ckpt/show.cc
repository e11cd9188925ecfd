// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/contents.h"
#include "launcher/ckpt/text.h"
#include "launcher/ckpt/values.h"
#include "launcher/ckpt/verify.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMostShownElements = 8;
constexpr std::uint64_t kMostShownBytes = 64;
constexpr std::size_t kMostShownPieces = 4;

bool is_small(const StoredArray& array) {
  const bool opaque = static_cast<Dtype>(array.type.dtype) == Dtype::bytes;
  return array.elements() <= (opaque ? kMostShownBytes : kMostShownElements);
}

/// A list of the elements, a single one for a scalar, hexadecimal digits for opaque bytes.
Result<ordered_json> values_of(const StepContents& contents, const StoredArray& array) {
  const auto dtype = static_cast<Dtype>(array.type.dtype);
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  std::vector<unsigned char> data(array.bytes());
  auto status = contents.read({{&array, 0, array.elements(), 0}}, data.data());
  if (!status) return status.error();
  if (dtype == Dtype::bytes) return ordered_json(fmt::format("{:02x}", fmt::join(data, "")));
  ordered_json values = ordered_json::array();
  for (std::size_t at = 0; at < data.size(); at += size) {
    values.push_back(json_of_element(dtype, data.data() + at));
  }
  return array.type.ndims == 0 ? values.front() : values;
}

Result<ordered_json> json_of(const StepContents& contents, const StoredArray& array) {
  constexpr const char* kLayouts[] = {"replicated", "sharded", "per rank", "value"};
  const wire::Array& a = array.type;
  ordered_json pieces = ordered_json::array();
  for (const StoredPiece& piece : array.pieces) {
    pieces.push_back({{"rank", piece.rank}, {"first", piece.first}, {"count", piece.count}});
  }
  ordered_json out = {{"name", array.name},
                      {"dtype", dtype_name(a.dtype)},
                      {"shape", std::vector(a.shape, a.shape + a.ndims)},
                      {"layout", kLayouts[a.layout]},
                      {"axis", a.axis},
                      {"bytes", array.bytes()},
                      {"pieces", pieces}};
  if (!is_small(array)) return out;
  auto values = values_of(contents, array);
  if (!values) return values.error();
  out["values"] = *values;
  return out;
}

Result<ordered_json> json_of(const StepPlace& place, const StepContents& contents) {
  const Manifest& m = contents.manifest();
  ordered_json arrays = ordered_json::array();
  for (const StoredArray& array : contents.arrays()) {
    auto json = json_of(contents, array);
    if (!json) return json;
    arrays.push_back(std::move(*json));
  }
  return ordered_json{{"step", m.step},   {"path", place.path()}, {"time", m.time},
                      {"world", m.world}, {"attempt", m.attempt}, {"bytes", size_of(m)},
                      {"arrays", arrays}};
}

std::string stored_by(const StoredArray& array) {
  std::string text;
  std::size_t shown = 0;
  for (const StoredPiece& piece : array.pieces) {
    if (piece.count == 0 && array.pieces.size() > 1) continue;
    if (++shown > kMostShownPieces) continue;
    text += fmt::format("{}rank {}", text.empty() ? "" : ", ", piece.rank);
    const bool whole = piece.count == wire::axis_extent(array.type);
    if (!whole) text += fmt::format(" {}-{}", piece.first, piece.first + piece.count - 1);
  }
  if (shown > kMostShownPieces) text += fmt::format(" and {} more", shown - kMostShownPieces);
  return text;
}

Status print_arrays(const StepContents& contents) {
  std::size_t width = 4, type_width = 4;
  for (const StoredArray& array : contents.arrays()) {
    width = std::max(width, array.name.size());
    type_width = std::max(type_width, array.type_text().size());
  }
  fmt::print("{:<{}}  {:<{}}  {:>11}  {:<22} {}\n", "NAME", width, "TYPE", type_width, "SIZE",
             "LAYOUT", "STORED BY");
  for (const StoredArray& array : contents.arrays()) {
    fmt::print("{:<{}}  {:<{}}  {:>11}  {:<22} {}\n", array.name, width, array.type_text(),
               type_width, size_text(array.bytes()), array.layout_text(), stored_by(array));
    if (!is_small(array) || array.elements() == 0) continue;
    auto values = values_of(contents, array);
    if (!values) return values.error();
    fmt::print("{:<{}}  = {}\n", "", width, values->dump());
  }
  return {};
}

}  // namespace

int ckpt_show(const CkptOptions& options) {
  auto place = find_step(options.dir, options.step);
  if (!place) return complain("show", place.error());
  auto contents = StepContents::open(*place);
  if (!contents) return complain("show", contents.error());
  if (options.json) {
    auto json = json_of(*place, *contents);
    if (!json) return complain("show", json.error());
    print_json(*json);
    return kOk;
  }
  const Manifest& m = contents->manifest();
  fmt::print("step {} in {}\nsaved {} by {}, {} rank{}, {}\n\n", m.step, one_line(place->dir),
             time_text(m.time), one_line(m.attempt), m.world, m.world == 1 ? "" : "s",
             size_text(size_of(m)));
  auto status = print_arrays(*contents);
  return status ? kOk : complain("show", status.error());
}

}  // namespace bellows
