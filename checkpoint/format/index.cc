// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/index.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/format/json_number.h"
#include "checkpoint/system/memory_reserve.h"

namespace bellows {

using nlohmann::json;

namespace {

constexpr const char* kFormat = "bellows-index/2";
constexpr const char* kLayouts[] = {"replicated", "sharded", "per_rank", "value"};

Error not_an_index(const std::string& why) {
  return Error{ErrorKind::corrupt, "it is not an index: " + why};
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) out += fmt::format("{:02x}", c);
  return out;
}

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string from_hex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    if (high < 0 || low < 0) throw not_an_index("a value's \"hex\" is not hexadecimal");
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

json type_to_json(const ArrayPart& part) {
  const wire::Array& a = part.array;
  return {{"name", part.name},
          {"dtype", dtype_name(a.dtype)},
          {"shape", std::vector<std::uint64_t>(a.shape, a.shape + a.ndims)}};
}

json to_json(const StoredPart& stored) {
  const wire::Array& a = stored.part.array;
  json j = type_to_json(stored.part);
  j.update({{"layout", kLayouts[a.layout]},
            {"axis", a.axis},
            {"first", a.first},
            {"count", a.count},
            {"offset", stored.offset}});
  return j;
}

ArrayPart type_from_json(const json& j) {
  ArrayPart part;
  part.name = j.at("name").get<std::string>();
  part.array.dtype = dtype_of_name(j.at("dtype").get<std::string>());
  const json& shape = j.at("shape");
  if (!shape.is_array() || shape.size() > wire::kMostDims) {
    throw not_an_index("a \"shape\" is not a list of at most 8 numbers");
  }
  for (const json& extent : shape) {
    if (!extent.is_number_unsigned()) throw not_an_index("an extent is not a number");
    part.array.shape[part.array.ndims++] = extent.get<std::uint64_t>();
  }
  return part;
}

StoredPart array_from_json(const json& j, std::uint64_t size) {
  StoredPart out;
  out.part = type_from_json(j);
  wire::Array& a = out.part.array;
  const auto layout = std::find(std::begin(kLayouts), std::begin(kLayouts) + wire::kValue,
                                j.at("layout").get<std::string>());
  a.layout = static_cast<std::uint32_t>(layout - std::begin(kLayouts));
  if (a.layout == wire::kValue) throw not_an_index("a \"layout\" does not exist");
  a.axis = static_cast<std::uint32_t>(json_number(j, "axis", wire::kMostDims - 1));
  a.first = json_number(j, "first", UINT64_MAX);
  a.count = json_number(j, "count", UINT64_MAX);
  out.offset = json_number(j, "offset", size);
  if (auto status = check_stored_part(out.part); !status) throw not_an_index(status.error().text);
  if (out.part.bytes() > size - out.offset) {
    throw not_an_index(fmt::format("array {} extends past the end of the file", out.part.name));
  }
  return out;
}

StoredValue value_from_json(const json& j) {
  StoredValue out;
  out.part = type_from_json(j);
  wire::Array& a = out.part.array;
  a.layout = wire::kValue;
  a.count = wire::axis_extent(a);
  if (auto status = check_stored_part(out.part); !status) throw not_an_index(status.error().text);
  out.bytes = from_hex(j.at("hex").get<std::string>());
  if (out.bytes.size() != out.part.bytes()) {
    throw not_an_index(fmt::format("value {} has the wrong number of bytes", out.part.name));
  }
  return out;
}

Hash128 digest_from_json(const json& text) {
  const auto digest = parse_hash(text.get<std::string>());
  if (!digest) throw not_an_index("a digest is not valid");
  return *digest;
}

void read_blocks(const json& j, ShardIndex* out) {
  out->size = json_number(j, "size", INT64_MAX);
  out->block = json_number(j, "block", ShardIndex::kMostBlock);
  if (out->block < ShardIndex::kLeastBlock || out->block % 4096 != 0) {
    throw not_an_index("\"block\" is not a multiple of 4096 from 1 to 16 MiB");
  }
  const json& digests = j.at("digests");
  const std::uint64_t blocks = out->size / out->block + (out->size % out->block != 0);
  if (!digests.is_array() || digests.size() != blocks) {
    throw not_an_index(fmt::format("it has {} digests for {} blocks", digests.size(), blocks));
  }
  for (const json& text : digests) {
    out->digests.push_back(digest_from_json(text));
  }
}

ShardIndex from_json(const json& j) {
  ShardIndex out;
  out.step = json_number(j, "step", UINT64_MAX);
  out.rank = static_cast<std::uint32_t>(json_number(j, "rank", wire::kMostWorld - 1));
  out.world = static_cast<std::uint32_t>(json_number(j, "world", wire::kMostWorld));
  if (out.rank >= out.world) throw not_an_index("its rank is not below its world");
  read_blocks(j, &out);
  std::set<std::string> names;
  for (const json& a : j.at("arrays")) {
    out.arrays.push_back(array_from_json(a, out.size));
    if (!names.insert(out.arrays.back().part.name).second)
      throw not_an_index("a name appears twice");
  }
  if (j.contains("held")) {
    const json& held = j.at("held");
    out.held =
        HeldNames{digest_from_json(held.at("replicated")), digest_from_json(held.at("values"))};
  }
  for (const json& v : j.at("values")) {
    out.values.push_back(value_from_json(v));
    if (!names.insert(out.values.back().part.name).second)
      throw not_an_index("a name appears twice");
  }
  return out;
}

}  // namespace

void HeldNames::add(const ArrayPart& part) {
  if (part.array.layout != wire::kReplicated && part.array.layout != wire::kValue) return;
  Hash128& sum = part.array.layout == wire::kValue ? values : replicated;
  const Hash128 digest = hash_of(part.name.data(), part.name.size());
  sum.high += digest.high;
  sum.low += digest.low;
}

std::string ShardIndex::to_string() const {
  need_memory(digests.size() * 128 + (arrays.size() + values.size()) * 2048);
  json j = {{"format", kFormat},
            {"step", step},
            {"rank", rank},
            {"world", world},
            {"size", size},
            {"block", block},
            {"digests", json::array()},
            {"arrays", json::array()},
            {"values", json::array()}};
  for (const Hash128& digest : digests) j["digests"].push_back(hex_of(digest));
  for (const StoredPart& stored : arrays) j["arrays"].push_back(to_json(stored));
  for (const StoredValue& value : values) {
    json v = type_to_json(value.part);
    v["hex"] = to_hex(value.bytes);
    j["values"].push_back(std::move(v));
  }
  if (held)
    j["held"] = {{"replicated", hex_of(held->replicated)}, {"values", hex_of(held->values)}};
  return j.dump() + "\n";
}

// Types are checked by at() and get(): json's exceptions end here.
Result<ShardIndex> ShardIndex::parse(std::string_view text) try {
  need_memory(text.size() * 8);
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object()) return not_an_index("it is not a JSON object");
  if (j.value("format", json()) != kFormat) {
    return not_an_index(fmt::format("its format is not {}", kFormat));
  }
  return from_json(j);
} catch (const json::exception& e) {
  return not_an_index(e.what());
} catch (const NotANumber& e) {
  return not_an_index(e.text);
} catch (const Error& error) {
  return error;
}

}  // namespace bellows
