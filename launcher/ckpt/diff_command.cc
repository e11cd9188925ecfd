// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "launcher/base/exit_status.h"
#include "launcher/ckpt/commands.h"
#include "launcher/ckpt/diff.h"
#include "launcher/ckpt/text.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

/// As in diff(1), where 1 does not mean what it means in our other commands.
enum DiffStatus : int { kEqual = 0, kDifferent = 1, kTrouble = 2 };

int trouble(const Error& error) {
  (void)complain("diff", error);
  return kTrouble;
}

bool is_whole_number(Dtype dtype) {
  return (dtype >= Dtype::i8 && dtype <= Dtype::u64) || dtype == Dtype::boolean;
}

ordered_json size_json(Dtype dtype, long double size) {
  if (is_whole_number(dtype)) return static_cast<std::uint64_t>(size);
  return static_cast<double>(size);
}

std::string absolute_text(Dtype dtype, long double size) {
  return is_whole_number(dtype) ? fmt::format("{:.0f}", size) : fmt::format("{:.6g}", size);
}

ordered_json nullable(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json json_of(const ArrayDifference& array) {
  const ElementDifference& e = array.elements;
  ordered_json out = {{"name", array.title},
                      {"a", nullable(array.type_a)},
                      {"b", nullable(array.type_b)},
                      {"equal", array.equal()}};
  if (!array.same_type()) return out;
  out["elements"] = e.elements;
  out["differing"] = e.differing;
  if (e.equal() || !has_size(array.dtype)) return out;
  out["not_finite"] = e.not_finite;
  out["largest_absolute"] = size_json(array.dtype, e.largest_absolute);
  out["largest_relative"] = static_cast<double>(e.largest_relative);
  return out;
}

std::string sentence_of(const ArrayDifference& array) {
  if (array.type_b.empty()) return fmt::format("only in the first: {}", array.type_a);
  if (array.type_a.empty()) return fmt::format("only in the second: {}", array.type_b);
  if (!array.same_type()) return fmt::format("{} became {}", array.type_a, array.type_b);
  const ElementDifference& e = array.elements;
  std::string text =
      fmt::format("{}: {} of {} elements differ", array.type_a, e.differing, e.elements);
  if (!has_size(array.dtype)) return text;
  if (e.differing > e.not_finite) {
    text += fmt::format(", by at most {}, relative {:.3g}",
                        absolute_text(array.dtype, e.largest_absolute), e.largest_relative);
  }
  if (e.not_finite > 0) text += fmt::format(", {} of them not finite", e.not_finite);
  return text;
}

void print_differences(const std::vector<ArrayDifference>& arrays) {
  std::size_t equal = 0;
  for (const ArrayDifference& array : arrays) {
    if (array.equal()) {
      ++equal;
    } else {
      fmt::print("{}: {}\n", array.title, sentence_of(array));
    }
  }
  fmt::print("{} of {} arrays are equal\n", equal, arrays.size());
}

ordered_json json_of(const StepPlace& place) {
  return {{"step", place.step}, {"path", place.path()}};
}

}  // namespace

int ckpt_diff(const CkptOptions& options) {
  auto a = find_step(options.dir, options.steps[0]);
  if (!a) return trouble(a.error());
  auto b = find_step(options.dir, options.steps[1]);
  if (!b) return trouble(b.error());
  auto contents_a = StepContents::open(*a);
  if (!contents_a) return trouble(contents_a.error());
  auto contents_b = StepContents::open(*b);
  if (!contents_b) return trouble(contents_b.error());
  ProgressBar progress(options.progress());
  auto arrays = compare_steps(*contents_a, *contents_b, progress);
  progress.end();
  if (!arrays) return trouble(arrays.error());
  const bool equal = std::all_of(arrays->begin(), arrays->end(),
                                 [](const ArrayDifference& array) { return array.equal(); });
  if (options.json) {
    ordered_json list = ordered_json::array();
    for (const ArrayDifference& array : *arrays) list.push_back(json_of(array));
    print_json({{"a", json_of(*a)}, {"b", json_of(*b)}, {"equal", equal}, {"arrays", list}});
  } else {
    print_differences(*arrays);
  }
  return equal ? kEqual : kDifferent;
}

}  // namespace bellows
