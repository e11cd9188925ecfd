// SPDX-License-Identifier: Apache-2.0
#include "pool/object/pack.h"

// Else its headers include those of Boost.
#define MSGPACK_NO_BOOST
#include <msgpack/null_visitor.hpp>
#include <msgpack/pack.hpp>
#include <msgpack/unpack.hpp>

namespace bellows::pool {
namespace {

struct Buffer {
  std::string bytes;
  void write(const char* data, std::size_t size) { bytes.append(data, size); }
};
using Packer = msgpack::packer<Buffer>;

std::uint32_t size_of(const auto& many) { return static_cast<std::uint32_t>(many.size()); }

void pack_text(Packer& packer, std::string_view text) {
  packer.pack_str(size_of(text));
  packer.pack_str_body(text.data(), size_of(text));
}

struct PackHeld {
  Packer& packer;

  void operator()(std::monostate) const { packer.pack_nil(); }
  void operator()(bool value) const { value ? packer.pack_true() : packer.pack_false(); }
  void operator()(std::int64_t value) const { packer.pack_int64(value); }
  void operator()(std::uint64_t value) const { packer.pack_uint64(value); }
  void operator()(double value) const { packer.pack_double(value); }
  void operator()(const std::string& text) const { pack_text(packer, text); }
  void operator()(const Bytes& bytes) const {
    packer.pack_bin(size_of(bytes.data));
    packer.pack_bin_body(bytes.data.data(), size_of(bytes.data));
  }
  void operator()(const Value::List& list) const {
    packer.pack_array(size_of(list));
    for (const Value& value : list) std::visit(*this, value.held);
  }
  void operator()(const Value::Map& map) const {
    packer.pack_map(size_of(map));
    for (const auto& [key, value] : map) {
      std::visit(*this, key.held);
      std::visit(*this, value.held);
    }
  }
  void operator()(const Extension& extension) const {
    packer.pack_ext(extension.data.size(), extension.type);
    packer.pack_ext_body(extension.data.data(), size_of(extension.data));
  }
};

/// Builds a Value from what msgpack finds, and stops it at a limit.
class Builder : public msgpack::null_visitor {
 public:
  Value& built() { return root_; }

  bool visit_nil() { return put({}); }
  bool visit_boolean(bool value) { return put({value}); }
  bool visit_positive_integer(std::uint64_t value) { return put(to_value(value)); }
  bool visit_negative_integer(std::int64_t value) { return put({value}); }
  bool visit_float32(float value) { return put({double{value}}); }
  bool visit_float64(double value) { return put({value}); }
  bool visit_str(const char* data, std::uint32_t size) { return put({std::string(data, size)}); }
  bool visit_bin(const char* data, std::uint32_t size) {
    return put({Bytes{std::string(data, size)}});
  }
  bool visit_ext(const char* data, std::uint32_t size) {
    if (size == 0) return false;
    return put({Extension{static_cast<std::int8_t>(*data), std::string(data + 1, size - 1)}});
  }
  bool start_array(std::uint32_t) { return open({Value::List()}); }
  bool end_array() { return close(); }
  bool start_map(std::uint32_t) { return open({Value::Map()}); }
  bool start_map_key() {
    is_key_ = true;
    return true;
  }
  bool start_map_value() {
    is_key_ = false;
    return true;
  }
  bool end_map() { return close(); }

 private:
  Value* place(Value value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (auto* const list = std::get_if<Value::List>(&open_.back()->held))
      return &list->emplace_back(std::move(value));
    auto& map = std::get<Value::Map>(open_.back()->held);
    if (is_key_) map.push_back({std::move(value), Value()});
    if (is_key_) return &map.back().first;
    return &(map.back().second = std::move(value));
  }
  bool put(Value value) {
    if (++values_ > kMostValues) return false;
    place(std::move(value));
    return true;
  }
  /// What is open is the last of its parent, which does not grow before it is closed.
  bool open(Value value) {
    if (++values_ > kMostValues || open_.size() == kDeepest) return false;
    // No key of ours: Python could not hold it either.
    if (!open_.empty() && std::holds_alternative<Value::Map>(open_.back()->held) && is_key_)
      return false;
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Value root_;
  std::vector<Value*> open_;
  std::size_t values_ = 0;
  bool is_key_ = false;
};

const std::string* text_at(const Value::List& list, std::size_t at) {
  return std::get_if<std::string>(&list[at].held);
}

}  // namespace

std::string pack(const Value& value) {
  Buffer buffer;
  Packer packer(buffer);
  std::visit(PackHeld{packer}, value.held);
  return std::move(buffer.bytes);
}

std::optional<Value> unpack(std::string_view bytes) try {
  if (bytes.size() > kLargest) return std::nullopt;
  Builder builder;
  std::size_t end = 0;
  if (!msgpack::parse(bytes.data(), bytes.size(), end, builder) || end != bytes.size())
    return std::nullopt;
  return std::move(builder.built());
} catch (const std::exception&) {
  return std::nullopt;
}

std::string pack_request(std::string_view method, const Value::List& args) {
  Buffer buffer;
  Packer packer(buffer);
  packer.pack_array(3);
  pack_text(packer, method);
  PackHeld{packer}(args);
  packer.pack_map(0);
  return std::move(buffer.bytes);
}

std::optional<CallBody> unpack_request(std::string_view bytes) {
  auto value = unpack(bytes);
  auto* const list = value ? std::get_if<Value::List>(&value->held) : nullptr;
  if (!list || list->size() != 3) return std::nullopt;
  auto* const method = std::get_if<std::string>(&(*list)[0].held);
  auto* const args = std::get_if<Value::List>(&(*list)[1].held);
  auto* const named = std::get_if<Value::Map>(&(*list)[2].held);
  if (!method || !args || !named) return std::nullopt;
  return CallBody{
      .method = std::move(*method), .args = std::move(*args), .names_args = !named->empty()};
}

std::string pack_answer(Answer<Value> answer) {
  Value::List parts;
  if (answer) {
    parts = {Value{std::int64_t{0}}, std::move(*answer)};
  } else {
    const Failure& failure = answer.failure();
    parts = {Value{std::int64_t{1}}, Value{failure.type}, Value{failure.text},
             Value{failure.traceback}};
  }
  return pack({std::move(parts)});
}

Answer<Value> unpack_answer(std::string_view bytes) {
  auto value = unpack(bytes);
  auto* const list = value ? std::get_if<Value::List>(&value->held) : nullptr;
  if (list && list->size() == 2 && (*list)[0] == Value{std::int64_t{0}})
    return std::move((*list)[1]);
  if (list && list->size() == 4 && (*list)[0] == Value{std::int64_t{1}} && text_at(*list, 1) &&
      text_at(*list, 2) && text_at(*list, 3))
    return Failure{CallOutcome::raised, *text_at(*list, 2), *text_at(*list, 1), *text_at(*list, 3)};
  return Failure{CallOutcome::may_have_run, "the member's answer can't be read", {}, {}};
}

}  // namespace bellows::pool
