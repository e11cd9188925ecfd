// SPDX-License-Identifier: Apache-2.0
// Headers and indexes of safetensors files, good and hostile.
#include <criterion/criterion.h>

#include <string>

#include "modelstore/format/safetensors.h"
#include "tests/unit/modelstore/safetensors_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

using catalogue::TensorType;

/// With `data` bytes behind the header.
Result<std::vector<FileTensor>> parse(const std::string& header, std::uint64_t data) {
  return parse_header(header, kLengthBytes + header.size() + data);
}

void expect_refused(const std::string& header, std::uint64_t data, const char* why) {
  const auto tensors = parse(header, data);
  cr_assert(!tensors.ok(), "taken: %s", header.c_str());
  cr_expect(tensors.error().kind == ErrorKind::corrupt);
  cr_expect(has(tensors.error().text, why), "%s: %s", header.c_str(), tensors.error().text.c_str());
}

}  // namespace

Test(safetensors, gives_the_tensors_in_the_order_of_their_bytes, .timeout = 10) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F32", "[2,3]", 4, 28) + "," +
      entry("a", "BF16", "[2]", 0, 4) + "," + entry("none", "F64", "[0,7]", 28, 28) + "," +
      entry("scalar", "I64", "[]", 28, 36) + "}   ";
  const auto tensors = parse(header, 36);
  cr_assert(tensors.ok(), "%s", tensors.error().text.c_str());
  cr_assert_eq(tensors->size(), 4);
  const std::uint64_t data = kLengthBytes + header.size();
  const FileTensor &a = (*tensors)[0], &b = (*tensors)[1], &none = (*tensors)[2];
  cr_expect(a.name == "a" && a.type == TensorType::bf16 && a.offset == data && a.bytes == 4);
  cr_expect(b.name == "b" && b.type == TensorType::f32 && b.offset == data + 4 && b.bytes == 24);
  cr_expect(b.shape == std::vector<std::uint64_t>({2, 3}));
  cr_expect(none.name == "none" && none.bytes == 0 && none.offset == data + 28);
  cr_expect((*tensors)[3].name == "scalar" && (*tensors)[3].shape.empty());
}

Test(safetensors, takes_types_of_less_than_a_byte_when_they_fill_bytes, .timeout = 10) {
  cr_expect(parse("{" + entry("x", "F4", "[3,2]", 0, 3) + "}", 3).ok());
  cr_expect(parse("{" + entry("x", "F6_E2M3", "[4]", 0, 3) + "}", 3).ok());
  cr_expect(parse("{" + entry("x", "F8_E4M3", "[4]", 0, 4) + "}", 4).ok());
  expect_refused("{" + entry("x", "F4", "[3]", 0, 2) + "}", 2, "whole number of bytes");
}

Test(safetensors, a_file_may_have_no_tensors, .timeout = 10) {
  const auto tensors = parse("{}", 0);
  cr_expect(tensors.ok() && tensors->empty());
  expect_refused("{}", 1, "in no tensor");
}

Test(safetensors, sees_what_appears_twice, .timeout = 10) {
  const std::string x = entry("x", "U8", "[1]", 0, 1);
  expect_refused("{" + x + "," + x + "}", 1, "the name \"x\" twice");
  // Escapes are the same key for every reader but one that compares bytes.
  expect_refused("{" + x + "," + entry("\\u0078", "U8", "[1]", 0, 1) + "}", 1, "twice");
  expect_refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "twice");
  expect_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
  expect_refused("{\"x\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 1, "a field twice");
}

Test(safetensors, refuses_overlaps_and_holes, .timeout = 10) {
  const std::string a = entry("a", "U8", "[4]", 0, 4);
  expect_refused("{" + a + "," + entry("b", "U8", "[4]", 3, 7) + "}", 7, "overlaps");
  expect_refused("{" + a + "," + entry("b", "U8", "[4]", 0, 4) + "}", 4, "overlaps");
  expect_refused("{" + a + "," + entry("b", "U8", "[4]", 5, 9) + "}", 9, "hole");
  expect_refused("{" + entry("b", "U8", "[4]", 1, 5) + "}", 5, "hole");
  expect_refused("{" + a + "}", 3, "ends behind");
  expect_refused("{" + a + "}", 5, "1 bytes at the end");
}

Test(safetensors, holds_sizes_against_types_and_shapes, .timeout = 10) {
  expect_refused("{" + entry("x", "F32", "[2]", 0, 4) + "}", 4, "other than the 8 bytes");
  expect_refused("{" + entry("x", "F32", "[1]", 4, 0) + "}", 4, "other than the 4 bytes");
  expect_refused("{" + entry("x", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0, "too large");
  expect_refused("{" + entry("x", "U8", "[18446744073709551615,2]", 0, 1) + "}", 1, "too large");
  // A product that overflows is no less wrong when it is multiplied with zero.
  expect_refused("{" + entry("x", "F32", "[4294967296,4294967296,0]", 0, 0) + "}", 0, "too large");
  expect_refused("{" + entry("x", "F32", "[1]", UINT64_MAX - 3, UINT64_MAX) + "}", 4, "in tensor");
}

Test(safetensors, refuses_what_the_format_does_not_have, .timeout = 10) {
  expect_refused("", 0, "does not begin with {");
  expect_refused(" {}", 0, "does not begin with {");
  expect_refused("[]", 0, "does not begin with {");
  expect_refused("{}{}", 0, "not JSON at byte");
  expect_refused("{\"x\":1}", 0, "a number");
  expect_refused("{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no dtype, shape or data_offsets");
  expect_refused("{\"x\":{\"more\":1}}", 1, "unknown field \"more\"");
  expect_refused("{" + entry("x", "F33", "[1]", 0, 1) + "}", 1, "unknown type \"F33\"");
  expect_refused("{" + entry("x", "U8", "[-1]", 0, 1) + "}", 1, "negative");
  expect_refused("{" + entry("x", "U8", "[1.0]", 0, 1) + "}", 1, "not a whole one");
  expect_refused("{" + entry("x", "U8", "[[1]]", 0, 1) + "}", 1, "a list");
  expect_refused("{" + entry("x", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) + "}", 1, "8 dimensions");
  expect_refused("{" + entry("", "U8", "[1]", 0, 1) + "}", 1, "name is empty");
  expect_refused("{" + entry("a\\u0000b", "U8", "[1]", 0, 1) + "}", 1, "a zero in it");
  expect_refused("{" + entry(std::string(4096, 'n'), "U8", "[1]", 0, 1) + "}", 1, "longer than");
  expect_refused("{\"__metadata__\":{\"k\":{}}}", 0, "an object");
  expect_refused("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
                 "less than two");
  expect_refused("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
                 "more than two");
}

Test(safetensors, depth_costs_nothing, .timeout = 10) {
  expect_refused("{\"x\":" + std::string(10'000'000, '['), 0, "a list");
  const std::string deep = "{\"metadata\":" + std::string(1'000'000, '[');
  const auto index = parse_index(deep);
  cr_expect(!index.ok() && has(index.error().text, "without end"));
}

Test(safetensors, messages_stay_one_short_line, .timeout = 10) {
  const auto bad =
      parse("{" + entry("x\\n\\u001b[2J" + std::string(4000, 'y'), "F9", "[]", 0, 1) + "}", 1);
  cr_assert(!bad.ok());
  cr_expect(bad.error().text.size() < 400 && !has(bad.error().text, "\n") &&
            !has(bad.error().text, "\x1b"));
}

Test(safetensors, a_header_is_not_longer_than_the_format_and_the_file_allow, .timeout = 10) {
  const std::string file = tensor_file("{}", "");
  const auto good = header_length(file, file.size());
  cr_expect(good.ok() && *good == 2);
  cr_expect(!header_length(file, file.size() - 1).ok());
  cr_expect(!header_length("1234567", 7).ok());
  const std::uint64_t lengths[] = {100'000'001, UINT64_MAX, UINT64_MAX - 7};
  for (std::uint64_t length : lengths) {
    std::string begin(sizeof length, '\0');
    std::memcpy(begin.data(), &length, sizeof length);
    const auto bad = header_length(begin, UINT64_MAX);
    cr_expect(!bad.ok() && has(bad.error().text, "is the most"));
  }
}

Test(tensor_index, names_the_file_of_each_tensor, .timeout = 10) {
  const auto index = parse_index(
      R"({"metadata":{"total_size":123.5,"more":[{"a":null}]},"weight_map":
          {"x":"b.safetensors","y":"a.safetensors","z":"b.safetensors"},"other":true})");
  cr_assert(index.ok(), "%s", index.error().text.c_str());
  cr_assert_eq(index->files.size(), 2);
  cr_expect(index->files[0] == "b.safetensors" && index->files[1] == "a.safetensors");
  cr_expect(index->file_of.at("x") == 0 && index->file_of.at("y") == 1 &&
            index->file_of.at("z") == 0);
}

Test(tensor_index, refuses_files_elsewhere_and_what_appears_twice, .timeout = 10) {
  const auto refused = [](const std::string& text, const char* why) {
    const auto index = parse_index(text);
    cr_assert(!index.ok(), "taken: %s", text.c_str());
    cr_expect(has(index.error().text, why), "%s", index.error().text.c_str());
  };
  refused(R"({"weight_map":{"x":"../b"}})", "not one of its folder");
  refused(R"({"weight_map":{"x":"/etc/passwd"}})", "not one of its folder");
  refused(R"({"weight_map":{"x":".."}})", "not one of its folder");
  refused(R"({"weight_map":{"x":""}})", "not one of its folder");
  refused(R"({"weight_map":{"x":"a","x":"b"}})", "twice");
  refused(R"({"weight_map":{"x":"a"},"weight_map":{"x":"a"}})", "twice");
  refused(R"({"weight_map":{"x":1}})", "a number");
  refused(R"({"weight_map":{}})", "no tensors");
  refused(R"({"metadata":{}})", "no tensors");
  refused("{", "not JSON");
}
