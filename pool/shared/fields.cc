// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/fields.h"

#include <openssl/rand.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/text.h"

namespace bellows::pool {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using Kind = FieldError::Kind;

constexpr std::size_t kId = 16;
/// An array of two, the first 16 bytes: the id. The value follows.
constexpr std::string_view kHead("\x92\xc4\x10", 3);
constexpr const char* kNil = "\xc0";

/// etcd's gateway has 64-bit numbers as texts, and leaves zeros out.
std::int64_t number_in(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string()) return 0;
  return static_cast<std::int64_t>(parse_uint(at->get_ref<const std::string&>()).value_or(0));
}

/// What one of the questions of a transaction that was not done has found.
json pairs_in(const json& answer, std::size_t index) {
  const auto replies = answer.value("responses", json::array());
  if (index >= replies.size()) return json::array();
  return replies[index].value("response_range", json::object()).value("kvs", json::array());
}

FieldError not_held(const std::string& field) {
  return {.kind = Kind::lock_lost,
          .text = "the lock is not held, so " + field + " was not changed"};
}

}  // namespace

Fields::Fields(std::string pool, std::string name, milliseconds timeout)
    : name_(std::move(name)), timeout_(timeout), servers_(std::move(pool)) {}

std::string Fields::key(const std::string& field) const {
  return encode("/bellows/fields/" + name_ + "/" + field);
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
  const auto answer = servers_.ask("/v3/kv/range", body.dump(), until);
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

FieldResult<bool> Fields::set(const std::string& field, const Packed& value,
                              const FieldLock* lock) {
  // What was seen last may be old, and then the transaction says what is there now.
  const auto seen = known_.find(field);
  return change_from(
      field,
      seen == known_.end() ? Version{.revision = 0, .count = 0, .id = "", .value = kNil}
                           : seen->second,
      [&](const Packed&) { return value; }, lock, Clock::now() + timeout_);
}

FieldResult<bool> Fields::change(const std::string& field, const Change& change,
                                 const FieldLock* lock) {
  const auto until = Clock::now() + timeout_;
  auto now = read(field, until);
  if (!now) return now.error();
  return change_from(field, std::move(*now), change, lock, until);
}

FieldResult<bool> Fields::change_from(const std::string& field, Version now, const Change& change,
                                      const FieldLock* lock, Clock::time_point until) {
  while (true) {
    const auto value = change(now.value);
    if (!value) return false;
    if (value->size() > kMostBytes)
      return FieldError{Kind::invalid, "a value of " + std::to_string(value->size()) +
                                           " bytes: a field has at most 1 MiB"};
    auto swapped = swap(field, now, *value, lock, until);
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
                                                           const FieldLock* lock,
                                                           Clock::time_point until) {
  std::string id(kId, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), kId) != 1)
    return FieldError{Kind::unavailable, "libcrypto has no random bytes"};
  const std::string name = key(field);
  json compare = json::array();
  json failure = json::array();
  compare.push_back(
      {{"key", name}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", base.revision}});
  failure.push_back({{"request_range", {{"key", name}}}});
  if (lock) {
    if (!lock->token()) return not_held(field);
    compare.push_back({{"key", lock->key()},
                       {"target", "CREATE"},
                       {"result", "EQUAL"},
                       {"create_revision", lock->token()}});
    failure.push_back({{"request_range", {{"key", lock->key()}}}});
  }
  json success = json::array();
  success.push_back(
      {{"request_put", {{"key", name}, {"value", encode(std::string(kHead) + id + value)}}}});
  const json body = {{"compare", compare}, {"success", success}, {"failure", failure}};
  const auto settled = servers_.settle("/v3/kv/txn", body.dump(), until);
  if (!settled) return settled.error();
  const auto answer = json::parse((*settled).text, nullptr, false);
  if (answer.value("succeeded", false)) {
    const auto revision = number_in(answer.value("header", json::object()), "revision");
    const Version written{.revision = revision, .count = base.count + 1, .id = id, .value = value};
    known_[field] = written;
    return std::pair(true, written);
  }
  auto now = version_in(pairs_in(answer, 0).dump());
  if (!now) return FieldError{Kind::invalid, field + " of the pool was written by something else"};
  known_[field] = *now;
  if ((*settled).lost) {
    const auto next = successor(field, base, *now, until);
    if (!next) return next.error();
    if ((*next).id == id) return std::pair(true, std::move(*now));
  }
  if (lock) {
    const auto held = pairs_in(answer, 1);
    if (held.empty() || number_in(held[0], "create_revision") != lock->token())
      return not_held(field);
  }
  return std::pair(false, std::move(*now));
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
