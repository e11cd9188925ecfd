// SPDX-License-Identifier: Apache-2.0
#include "modelstore/format/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "common/text.h"
#include "modelstore/format/strict_json.h"

namespace bellows {
namespace {

using catalogue::TensorType;

constexpr std::uint64_t kMostHeader = 100'000'000;

struct NamedType {
  std::string_view name;
  TensorType type;
};
constexpr NamedType kTypes[] = {
    {"BOOL", TensorType::boolean},    {"U8", TensorType::u8},
    {"I8", TensorType::i8},           {"F8_E4M3", TensorType::f8_e4m3},
    {"F8_E5M2", TensorType::f8_e5m2}, {"F8_E8M0", TensorType::f8_e8m0},
    {"U16", TensorType::u16},         {"I16", TensorType::i16},
    {"F16", TensorType::f16},         {"BF16", TensorType::bf16},
    {"U32", TensorType::u32},         {"I32", TensorType::i32},
    {"F32", TensorType::f32},         {"U64", TensorType::u64},
    {"I64", TensorType::i64},         {"F64", TensorType::f64},
    {"C64", TensorType::c64},         {"F4", TensorType::f4},
    {"F6_E2M3", TensorType::f6_e2m3}, {"F6_E3M2", TensorType::f6_e3m2},
};

Error not_valid(const std::string& why) {
  return Error{ErrorKind::corrupt, "the header is not valid: " + why};
}

/// Takes the tensors out of a header: name -> {dtype, shape, data_offsets}.
class HeaderReader final : public StrictJson {
 public:
  explicit HeaderReader(std::vector<FileTensor>& tensors) : tensors_(tensors) {}

  bool start_object(std::size_t) override {
    if (at_ == At::before) return go(At::names);
    if (at_ == At::tensor_begin) return go(At::fields);
    if (at_ == At::metadata_begin) return go(At::metadata);
    return StrictJson::start_object(0);
  }

  bool key(std::string& key) override {
    if (at_ == At::names) return begin_entry(key);
    if (at_ == At::metadata)
      return metadata_.insert(key).second || refuse("the key " + quoted(key) + " twice");
    if (at_ != At::fields) return StrictJson::key(key);
    if (key == "dtype") return begin_field(At::type, seen_type_);
    if (key == "shape") return begin_field(At::shape_begin, seen_shape_);
    if (key == "data_offsets") return begin_field(At::offsets_begin, seen_offsets_);
    return refuse("the unknown field " + quoted(key) + about());
  }

  bool string(std::string& text) override {
    if (at_ == At::metadata) return true;
    if (at_ != At::type) return StrictJson::string(text);
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](const NamedType& t) { return t.name == text; });
    if (found == std::end(kTypes)) return refuse("the unknown type " + quoted(text) + about());
    tensors_.back().type = found->type;
    return go(At::fields);
  }

  bool start_array(std::size_t) override {
    if (at_ == At::shape_begin) return go(At::shape);
    if (at_ == At::offsets_begin) return go(At::offsets);
    return StrictJson::start_array(0);
  }

  bool number_unsigned(std::uint64_t number) override {
    FileTensor* tensor = tensors_.empty() ? nullptr : &tensors_.back();
    if (at_ == At::shape) {
      tensor->shape.push_back(number);
      return tensor->shape.size() <= catalogue::kMostDims ||
             refuse(fmt::format("more than {} dimensions{}", catalogue::kMostDims, about()));
    }
    if (at_ != At::offsets) return StrictJson::number_unsigned(number);
    if (offsets_ == 2) return refuse("more than two data_offsets" + about());
    (offsets_++ == 0 ? tensor->offset : end_) = number;
    return true;
  }

  bool end_array() override {
    if (at_ == At::offsets && offsets_ != 2) return refuse("less than two data_offsets" + about());
    return go(At::fields);
  }

  bool end_object() override {
    if (at_ == At::names) return go(At::after);
    return at_ == At::metadata ? go(At::names) : end_tensor();
  }

 private:
  enum class At {
    before,
    names,
    metadata_begin,
    metadata,
    tensor_begin,
    fields,
    type,
    shape_begin,
    shape,
    offsets_begin,
    offsets,
    after
  };

  bool go(At at) {
    at_ = at;
    return true;
  }
  std::string about() const { return " in tensor " + quoted(tensors_.back().name); }

  bool begin_entry(const std::string& name) {
    if (!names_.insert(name).second) return refuse("the name " + quoted(name) + " twice");
    if (name == "__metadata__") return go(At::metadata_begin);
    if (name.empty() || name.size() > catalogue::kMostName || name.find('\0') != std::string::npos)
      return refuse(
          fmt::format("a tensor whose name is empty, is longer than {} bytes or has a "
                      "zero in it: {}",
                      catalogue::kMostName, quoted(name)));
    if (tensors_.size() == catalogue::kMostTensors)
      return refuse(fmt::format("more than {} tensors", catalogue::kMostTensors));
    tensors_.emplace_back().name = name;
    seen_type_ = seen_shape_ = seen_offsets_ = false;
    offsets_ = 0;
    return go(At::tensor_begin);
  }

  bool begin_field(At at, bool& seen) {
    if (seen) return refuse("a field twice" + about());
    seen = true;
    return go(at);
  }

  bool end_tensor() {
    if (!seen_type_ || !seen_shape_ || !seen_offsets_)
      return refuse("no dtype, shape or data_offsets" + about());
    FileTensor& t = tensors_.back();
    std::uint64_t bytes = 0;
    if (!catalogue::tensor_bytes(static_cast<std::uint32_t>(t.type), t.shape.data(),
                                 static_cast<std::uint32_t>(t.shape.size()), &bytes))
      return refuse("a size that is no whole number of bytes or is too large" + about());
    if (end_ < t.offset || end_ - t.offset != bytes)
      return refuse(fmt::format("data_offsets of other than the {} bytes of type and shape{}",
                                bytes, about()));
    t.bytes = bytes;
    return go(At::names);
  }

  std::vector<FileTensor>& tensors_;
  std::set<std::string> names_;
  std::set<std::string> metadata_;
  At at_ = At::before;
  bool seen_type_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  int offsets_ = 0;
  std::uint64_t end_ = 0;
};

/// Takes an index apart: {"metadata": {..}, "weight_map": {tensor: file}}.
class IndexReader final : public StrictJson {
 public:
  explicit IndexReader(TensorIndex& index) : index_(index) {}

  bool start_object(std::size_t) override {
    if (at_ == At::before) return go(At::keys);
    if (at_ == At::map_begin) return go(At::map);
    if (at_ == At::skipped) return ++depth_ < kDeepest || refuse("objects in objects without end");
    return StrictJson::start_object(0);
  }
  bool end_object() override {
    if (at_ == At::skipped) return leave();
    return go(at_ == At::map ? At::keys : At::after);
  }
  bool start_array(std::size_t) override {
    if (at_ != At::skipped) return StrictJson::start_array(0);
    return ++depth_ < kDeepest || refuse("lists in lists without end");
  }
  bool end_array() override { return leave(); }

  bool key(std::string& key) override {
    if (at_ == At::skipped) return true;
    if (at_ == At::map) return begin_tensor(key);
    if (!keys_.insert(key).second) return refuse("the key " + quoted(key) + " twice");
    return go(key == "weight_map" ? At::map_begin : At::skipped);
  }
  bool string(std::string& text) override {
    if (at_ == At::skipped) return value();
    return at_ == At::map ? take_file(text) : StrictJson::string(text);
  }
  bool null() override { return at_ == At::skipped ? value() : StrictJson::null(); }
  bool boolean(bool b) override { return at_ == At::skipped ? value() : StrictJson::boolean(b); }
  bool number_integer(std::int64_t n) override {
    return at_ == At::skipped ? value() : StrictJson::number_integer(n);
  }
  bool number_unsigned(std::uint64_t n) override {
    return at_ == At::skipped ? value() : StrictJson::number_unsigned(n);
  }
  bool number_float(double n, const std::string& text) override {
    return at_ == At::skipped ? value() : StrictJson::number_float(n, text);
  }

  bool has_map() const { return keys_.count("weight_map") != 0; }

 private:
  enum class At { before, keys, map_begin, map, skipped, after };
  static constexpr int kDeepest = 16;

  bool go(At at) {
    at_ = at;
    return true;
  }
  /// What is skipped ends with its value, or with the bracket that it began with.
  bool value() { return go(depth_ == 0 ? At::keys : At::skipped); }
  bool leave() {
    --depth_;
    return value();
  }

  bool begin_tensor(const std::string& name) {
    if (index_.file_of.size() == catalogue::kMostTensors)
      return refuse(fmt::format("more than {} tensors", catalogue::kMostTensors));
    const auto [place, is_new] = index_.file_of.emplace(name, 0);
    current_ = &place->second;
    return is_new || refuse("the tensor " + quoted(name) + " twice");
  }

  bool take_file(const std::string& file) {
    const bool plain = !file.empty() && file.size() <= 255 && file != "." && file != ".." &&
                       file.find('/') == std::string::npos && file.find('\0') == std::string::npos;
    if (!plain) return refuse("a file that is not one of its folder: " + quoted(file));
    const auto [place, is_new] =
        files_.emplace(file, static_cast<std::uint32_t>(index_.files.size()));
    if (is_new) index_.files.push_back(file);
    *current_ = place->second;
    return index_.files.size() <= kMostFiles ||
           refuse(fmt::format("more than {} files", kMostFiles));
  }

  TensorIndex& index_;
  std::set<std::string> keys_;
  std::map<std::string, std::uint32_t> files_;
  std::uint32_t* current_ = nullptr;
  At at_ = At::before;
  int depth_ = 0;
};

/// Sorts the tensors and moves their offsets from the data's begin to the file's.
Status place_in_file(std::vector<FileTensor>& tensors, std::uint64_t begin,
                     std::uint64_t file_bytes) {
  // An empty tensor comes before the one that begins where it lies.
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  const std::uint64_t data = file_bytes - begin;
  std::uint64_t end = 0;
  for (FileTensor& t : tensors) {
    if (t.offset != end)
      return not_valid(fmt::format("tensor \"{}\" {} the one before it", one_line(t.name, 80),
                                   t.offset < end ? "overlaps" : "leaves a hole after"));
    if (t.bytes > data - end)
      return not_valid(
          fmt::format("tensor \"{}\" ends behind the end of the file", one_line(t.name, 80)));
    end += t.bytes;
    t.offset += begin;
  }
  if (end == data) return {};
  return not_valid(fmt::format("{} bytes at the end of the file are in no tensor", data - end));
}

}  // namespace

Result<std::uint64_t> header_length(std::string_view begin, std::uint64_t file_bytes) {
  std::uint64_t length = 0;
  if (begin.size() < kLengthBytes || file_bytes < kLengthBytes)
    return not_valid("the file is shorter than a header's length");
  std::memcpy(&length, begin.data(), sizeof length);
  if (length > kMostHeader)
    return not_valid(
        fmt::format("it would have {} bytes, and {} is the most", length, kMostHeader));
  if (length > file_bytes - kLengthBytes)
    return not_valid(
        fmt::format("it would have {} bytes, and the file has {}", length, file_bytes));
  return length;
}

Result<std::vector<FileTensor>> parse_header(std::string_view header, std::uint64_t file_bytes) {
  if (header.size() > kMostHeader || file_bytes < kLengthBytes + header.size())
    return not_valid("it is longer than the format or the file allows");
  std::vector<FileTensor> tensors;
  HeaderReader reader(tensors);
  if (auto read = reader.read(header, "the header"); !read) return read.error();
  if (auto placed = place_in_file(tensors, kLengthBytes + header.size(), file_bytes); !placed)
    return placed.error();
  return tensors;
}

Result<TensorIndex> parse_index(std::string_view text) {
  TensorIndex index;
  IndexReader reader(index);
  if (text.size() > kMostIndex)
    return Error{ErrorKind::corrupt, fmt::format("the index is longer than {} bytes", kMostIndex)};
  if (auto read = reader.read(text, "the index"); !read) return read.error();
  if (reader.has_map() && !index.files.empty()) return index;
  return Error{ErrorKind::corrupt, "the index is not valid: its weight_map has no tensors"};
}

}  // namespace bellows
