// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/fields.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using Kind = FieldError::Kind;
using Reply = GatewayReply::Kind;

constexpr milliseconds kAttempt{2000};
constexpr milliseconds kPause{50};
constexpr std::size_t kMostFile = 64 * 1024;
constexpr int kResourceExhausted = 8;
constexpr std::size_t kId = 16;
/// An array of two, the first 16 bytes: the id. The value follows.
constexpr std::string_view kHead("\x92\xc4\x10", 3);
constexpr const char* kNil = "\xc0";

std::string encode(std::string_view data) {
  std::string text(4 * ((data.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(data.data()),
                                   static_cast<int>(data.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> decode(const std::string& text) {
  std::string data(text.size() / 4 * 3 + 1, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(data.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  // It counts the padding as bytes.
  const auto padding =
      std::count(text.end() - std::min<std::ptrdiff_t>(2, std::ssize(text)), text.end(), '=');
  data.resize(static_cast<std::size_t>(size - padding));
  return data;
}

/// etcd's gateway has 64-bit numbers as texts, and leaves zeros out.
std::int64_t number_in(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string()) return 0;
  return static_cast<std::int64_t>(parse_uint(at->get_ref<const std::string&>()).value_or(0));
}

FieldError refusal(const GatewayReply& reply) {
  const bool is_full = reply.code == kResourceExhausted;
  return {.kind = is_full ? Kind::full : Kind::invalid, .text = "the pool's etcd: " + reply.text};
}

/// For the moment only, though etcd gives it the code of a lack of room.
bool may_pass(const GatewayReply& reply) {
  return reply.code == kResourceExhausted &&
         reply.text.find("too many requests") != std::string::npos;
}

}  // namespace

Fields::Fields(std::string pool, std::string name, milliseconds timeout)
    : pool_(std::move(pool)), name_(std::move(name)), timeout_(timeout), gateway_(pool_) {}

std::string Fields::key(const std::string& field) const {
  return encode("/bellows/fields/" + name_ + "/" + field);
}

std::optional<std::string> Fields::endpoint() {
  if (endpoints_.empty()) {
    const auto text = read_file(pool_ + "/shared.json", kMostFile);
    if (!text) return std::nullopt;
    const auto object = json::parse(*text, nullptr, false);
    if (!object.is_object() || !object.contains("endpoints")) return std::nullopt;
    for (const auto& one : object["endpoints"])
      if (one.is_string()) endpoints_.push_back(one.get<std::string>());
    if (endpoints_.empty()) return std::nullopt;
    // So that not all clients ask the first.
    first_ = static_cast<std::size_t>(getpid()) % endpoints_.size();
  }
  return endpoints_[first_ % endpoints_.size()];
}

/// Asks another server next; after a round, reads anew who they are.
void Fields::avoid() {
  if (endpoints_.empty()) return;
  ++first_;
  if (first_ % endpoints_.size() == static_cast<std::size_t>(getpid()) % endpoints_.size())
    endpoints_.clear();
}

GatewayReply Fields::ask_once(const std::string& path, const std::string& body,
                              Clock::time_point until) {
  const auto server = endpoint();
  if (!server) return {.text = pool_ + "/shared.json names no servers that can be asked"};
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
  auto reply = gateway_.post(*server, path, body, std::clamp(left, milliseconds(1), kAttempt));
  if (reply.kind == Reply::refused && may_pass(reply)) reply.kind = Reply::lost;
  if (reply.kind == Reply::lost || reply.kind == Reply::not_sent) avoid();
  return reply;
}

FieldResult<std::string> Fields::ask(const std::string& path, const std::string& body,
                                     Clock::time_point until) {
  while (true) {
    auto reply = ask_once(path, body, until);
    if (reply.kind == Reply::done) return std::move(reply.text);
    if (reply.kind == Reply::refused) return refusal(reply);
    if (Clock::now() >= until)
      return FieldError{Kind::unavailable, "the pool's etcd does not answer: " + reply.text};
    std::this_thread::sleep_for(kPause);
  }
}

FieldResult<Fields::Settled> Fields::settle(const std::string& path, const std::string& body,
                                            Clock::time_point until) {
  bool lost = false;
  while (true) {
    auto reply = ask_once(path, body, until);
    if (reply.kind == Reply::done) return Settled{std::move(reply.text), lost};
    if (reply.kind == Reply::refused && !lost) return refusal(reply);
    lost = lost || reply.kind != Reply::not_sent;
    if (Clock::now() >= until && lost)
      return FieldError{Kind::may_have_run, "the pool's etcd gives no answer: " + reply.text};
    if (Clock::now() >= until)
      return FieldError{Kind::unavailable, "the pool's etcd can't be reached: " + reply.text};
    std::this_thread::sleep_for(kPause);
  }
}

std::optional<Fields::Version> Fields::version_in(const std::string& pairs) {
  const auto list = json::parse(pairs, nullptr, false);
  if (!list.is_array() || list.empty())
    return Version{.revision = 0, .count = 0, .id = "", .value = kNil};
  const auto& pair = list[0];
  if (!pair.is_object() || !pair.contains("value") || !pair["value"].is_string())
    return std::nullopt;
  const auto data = decode(pair["value"].get_ref<const std::string&>());
  if (!data || data->size() <= kHead.size() + kId || !data->starts_with(kHead)) return std::nullopt;
  return Version{.revision = number_in(pair, "mod_revision"),
                 .count = number_in(pair, "version"),
                 .id = data->substr(kHead.size(), kId),
                 .value = data->substr(kHead.size() + kId)};
}

FieldResult<Fields::Version> Fields::read(const std::string& field, Clock::time_point until,
                                          std::int64_t revision) {
  const json body = {{"key", key(field)}, {"revision", revision}, {"serializable", false}};
  const auto answer = ask("/v3/kv/range", body.dump(), until);
  if (!answer) return answer.error();
  const auto found = json::parse(*answer, nullptr, false);
  auto version = version_in(found.value("kvs", json::array()).dump());
  if (!version)
    return FieldError{Kind::invalid, field + " of the pool was written by something else"};
  if (!revision) known_[field] = *version;
  return std::move(*version);
}

FieldResult<Packed> Fields::get(const std::string& field) {
  auto version = read(field, Clock::now() + timeout_);
  if (!version) return version.error();
  return std::move((*version).value);
}

FieldResult<bool> Fields::set(const std::string& field, const Packed& value) {
  // What was seen last may be old, and then the transaction says what is there now.
  const auto seen = known_.find(field);
  return change_from(
      field,
      seen == known_.end() ? Version{.revision = 0, .count = 0, .id = "", .value = kNil}
                           : seen->second,
      [&](const Packed&) { return value; }, Clock::now() + timeout_);
}

FieldResult<bool> Fields::change(const std::string& field, const Change& change) {
  const auto until = Clock::now() + timeout_;
  auto now = read(field, until);
  if (!now) return now.error();
  return change_from(field, std::move(*now), change, until);
}

FieldResult<bool> Fields::change_from(const std::string& field, Version now, const Change& change,
                                      Clock::time_point until) {
  while (true) {
    const auto value = change(now.value);
    if (!value) return false;
    if (value->size() > kMostBytes)
      return FieldError{Kind::invalid, "a value of " + std::to_string(value->size()) +
                                           " bytes: a field has at most 1 MiB"};
    auto swapped = swap(field, now, *value, until);
    if (!swapped) return swapped.error();
    if ((*swapped).first) return true;
    now = std::move((*swapped).second);
    if (Clock::now() >= until)
      return FieldError{Kind::unavailable,
                        field + " of the pool is changed by others all the time"};
  }
}

/// Replaces one version by another; whether it did, and what there is now.
FieldResult<std::pair<bool, Fields::Version>> Fields::swap(const std::string& field,
                                                           const Version& base, const Packed& value,
                                                           Clock::time_point until) {
  std::string id(kId, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), kId) != 1)
    return FieldError{Kind::unavailable, "libcrypto has no random bytes"};
  const std::string name = key(field);
  const json body = {
      {"compare",
       {{{"key", name}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", base.revision}}}},
      {"success",
       {{{"request_put", {{"key", name}, {"value", encode(std::string(kHead) + id + value)}}}}}},
      {"failure", {{{"request_range", {{"key", name}}}}}}};
  const auto settled = settle("/v3/kv/txn", body.dump(), until);
  if (!settled) return settled.error();
  const auto answer = json::parse((*settled).text, nullptr, false);
  if (answer.value("succeeded", false)) {
    const auto revision = number_in(answer.value("header", json::object()), "revision");
    const Version written{.revision = revision, .count = base.count + 1, .id = id, .value = value};
    known_[field] = written;
    return std::pair(true, written);
  }
  const auto responses = answer.value("responses", json::array());
  const auto range =
      responses.empty() ? json::object() : responses[0].value("response_range", json::object());
  auto now = version_in(range.value("kvs", json::array()).dump());
  if (!now) return FieldError{Kind::invalid, field + " of the pool was written by something else"};
  known_[field] = *now;
  if (!(*settled).lost) return std::pair(false, std::move(*now));
  const auto next = successor(field, base, *now, until);
  if (!next) return next.error();
  return std::pair((*next).id == id, std::move(*now));
}

/// The version that followed `base`, or what there is if none did.
FieldResult<Fields::Version> Fields::successor(const std::string& field, const Version& base,
                                               Version now, Clock::time_point until) {
  std::int64_t before = base.revision;
  while (now.count > base.count + 1) {
    const std::int64_t middle = std::max<std::int64_t>(1, (before + now.revision) / 2);
    auto version = read(field, until, middle);
    if (!version)
      return FieldError{Kind::may_have_run,
                        "an answer was lost, and so is what was done: " + version.error().text};
    if ((*version).count > base.count)
      now = std::move(*version);
    else
      before = std::max(before + 1, middle);
  }
  return now;
}

}  // namespace bellows::pool
