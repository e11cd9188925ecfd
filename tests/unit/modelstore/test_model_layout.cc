// SPDX-License-Identifier: Apache-2.0
// Where a model's bytes lie in memory, and the catalogue that says so.
#include <criterion/criterion.h>

#include <cstring>
#include <string>

#include "modelstore/format/model_layout.h"
#include "tests/unit/modelstore/safetensors_support.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

ModelFile file_of(const std::string& name, const std::string& header, std::uint64_t data) {
  ModelFile file{name, kLengthBytes + header.size() + data, {}};
  auto tensors = parse_header(header, file.bytes);
  cr_assert(tensors.ok(), "%s", tensors.error().text.c_str());
  file.tensors = std::move(*tensors);
  return file;
}

/// The header filled with spaces to so many bytes.
std::string padded(std::string header, std::size_t bytes) {
  header.resize(bytes, ' ');
  return header;
}

/// A catalogue of tensors of one byte each with these names, and what reads it.
struct Catalogue {
  explicit Catalogue(std::initializer_list<const char*> names) {
    std::string header = "{";
    std::uint64_t at = 0;
    for (const char* name : names) {
      header += (at > 0 ? "," : "") + entry(name, "U8", "[1]", at, at + 1);
      ++at;
    }
    bytes = lay_out_model({file_of("f", padded(header + "}", 504), at)}, {})->catalogue;
  }
  const char* open() { return view.open(bytes.data(), bytes.size()); }
  catalogue::Header& header() { return *reinterpret_cast<catalogue::Header*>(bytes.data()); }
  catalogue::Record& record(int i) {
    return reinterpret_cast<catalogue::Record*>(bytes.data() + sizeof(catalogue::Header))[i];
  }

  std::string bytes;
  catalogue::View view;
};

void expect_refused(Catalogue& c, const char* why) {
  const char* wrong = c.open();
  cr_assert(wrong, "taken, and it is wrong: %s", why);
  cr_expect(has(wrong, why), "%s", wrong);
  cr_expect_eq(c.view.count(), 0);
}

}  // namespace

Test(model_layout, keeps_the_blocks_of_files_blocks_of_memory, .timeout = 10) {
  const std::string a = padded("{" + entry("a", "F32", "[2]", 0, 8) + "}", 504);
  const std::string b = padded("{" + entry("b", "U8", "[5000]", 0, 5000) + "}", 1016);
  const auto layout = lay_out_model({file_of("1", a, 8), file_of("2", b, 5000)}, {});
  cr_assert(layout.ok());
  cr_assert_eq(layout->pieces.size(), 2);
  const ModelPiece &first = layout->pieces[0], &second = layout->pieces[1];
  cr_expect(first.file == 0 && first.from == 512 && first.to == 512 && first.bytes == 8);
  cr_expect(second.file == 1 && second.from == 1024 && second.to == 4096 + 1024);
  cr_expect(second.bytes == 5000);
  cr_expect(layout->catalogue_at == 12288 && layout->bytes == 16384);
  catalogue::View view;
  cr_assert_null(view.open(layout->catalogue.data(), layout->catalogue.size()));
  cr_assert_eq(view.count(), 2);
  cr_expect_str_eq(view.name(1), "b");
  cr_expect(view.record(0).offset == 512 && view.record(1).offset == 5120);
  cr_expect(view.data_bytes() == 5120 + 5000);
}

Test(model_layout, puts_tensors_apart_when_one_is_not_aligned, .timeout = 10) {
  const std::string header =
      padded("{" + entry("a", "U8", "[1]", 0, 1) + "," + entry("b", "F64", "[1]", 1, 9) + "}", 504);
  const auto layout = lay_out_model({file_of("f", header, 9)}, {});
  cr_assert(layout.ok());
  cr_assert_eq(layout->pieces.size(), 2);
  cr_expect(layout->pieces[0].to == 0 && layout->pieces[1].to == 64);
  cr_expect(layout->pieces[1].from == 513 && layout->pieces[1].bytes == 8);
}

Test(model_layout, holds_files_against_their_index, .timeout = 10) {
  const std::string x =
      "{" + entry("x", "U8", "[1]", 0, 1) + "," + entry("y", "U8", "[1]", 1, 2) + "}";
  const std::string y = "{" + entry("y", "U8", "[1]", 0, 1) + "}";
  const std::vector<ModelFile> files = {file_of("1", x, 2), file_of("2", y, 1)};
  const auto twice = lay_out_model(files, {});
  cr_expect(!twice.ok() && has(twice.error().text, "two files have a tensor \"y\""));

  TensorIndex index{{"1", "2"}, {{"x", 0}, {"y", 1}}};
  const auto layout = lay_out_model(files, index);
  cr_assert(layout.ok(), "%s", layout.error().text.c_str());
  catalogue::View view;
  cr_assert_null(view.open(layout->catalogue.data(), layout->catalogue.size()));
  cr_expect(view.count() == 2 && view.record(1).offset == layout->pieces[1].to);

  index.file_of["x"] = 1;
  const auto elsewhere = lay_out_model(files, index);
  cr_expect(!elsewhere.ok() && has(elsewhere.error().text, "tensor \"x\" is in 2, and it is not"));
}

Test(model_layout, a_model_without_data_is_one, .timeout = 10) {
  const auto layout = lay_out_model({file_of("f", "{}", 0)}, {});
  cr_assert(layout.ok());
  cr_expect(layout->pieces.empty() && layout->catalogue_at == 0 && layout->bytes == kModelPage);
}

Test(catalogue, finds_tensors_by_name, .timeout = 10) {
  Catalogue c({"b", "a", "ab", "\\u00e9", "z"});
  cr_assert_null(c.open());
  const char* sorted[] = {"a", "ab", "b", "z", "\xc3\xa9"};
  for (std::uint32_t i = 0; i < 5; ++i) {
    cr_expect_str_eq(c.view.name(i), sorted[i]);
    cr_expect_eq(c.view.find(sorted[i], std::strlen(sorted[i])), i);
  }
  for (const char* absent : {"", "A", "aa", "abc", "zz", "\xff"})
    cr_expect_eq(c.view.find(absent, std::strlen(absent)), 5);
}

Test(catalogue, takes_nothing_for_granted, .timeout = 10) {
  const auto broken = [](const char* why, auto change) {
    Catalogue c({"a", "b"});
    cr_assert_null(c.open());
    change(c);
    expect_refused(c, why);
  };
  broken("begin as a catalogue", [](Catalogue& c) { c.header().magic ^= 1; });
  broken("begin as a catalogue", [](Catalogue& c) { c.bytes.resize(23); });
  broken("its size is not", [](Catalogue& c) { c.bytes.pop_back(); });
  broken("its size is not", [](Catalogue& c) { c.header().tensors = 3; });
  broken("too many tensors", [](Catalogue& c) { c.header().tensors = UINT32_MAX; });
  broken("data are too large", [](Catalogue& c) { c.header().data_bytes = UINT64_MAX; });
  broken("a name is outside", [](Catalogue& c) { c.record(1).name = 3; });
  broken("a name is outside", [](Catalogue& c) { c.record(1).name = UINT32_MAX; });
  broken("empty or too long", [](Catalogue& c) { c.record(0).name_length = 0; });
  broken("empty or too long", [](Catalogue& c) { c.record(0).name_length = UINT32_MAX; });
  broken("its zero", [](Catalogue& c) { c.bytes.back() = 'x'; });
  broken("its zero", [](Catalogue& c) { c.record(0).name_length = 2; });
  broken("not in order", [](Catalogue& c) { c.record(1).name = c.record(0).name; });
  broken("not in order", [](Catalogue& c) { std::swap(c.record(0), c.record(1)); });
  broken("too many dimensions", [](Catalogue& c) { c.record(0).dims = 9; });
  broken("longer than its dimensions", [](Catalogue& c) { c.record(0).shape[1] = 1; });
  broken("type and shape", [](Catalogue& c) { c.record(0).type = 15; });
  broken("type and shape", [](Catalogue& c) { c.record(0).shape[0] = UINT64_MAX; });
  broken("type and shape", [](Catalogue& c) { c.record(0).bytes = 2; });
  broken("outside of the data", [](Catalogue& c) { c.record(0).offset = c.header().data_bytes; });
  broken("outside of the data", [](Catalogue& c) { c.record(0).offset = UINT64_MAX; });
}
