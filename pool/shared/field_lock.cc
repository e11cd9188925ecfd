// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/field_lock.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/text.h"

namespace bellows::pool {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = FieldError::Kind;

constexpr milliseconds kTriesEach{100};

std::int64_t number_of(const json& object, const char* name) {
  const std::string text = object.value(name, "");
  return static_cast<std::int64_t>(parse_uint(text).value_or(0));
}

}  // namespace

FieldLock::FieldLock(std::string pool, const std::string& name, const std::string& lock,
                     seconds life)
    : key_(encode("/bellows/locks/" + name + "/" + lock)),
      life_(std::max(life, seconds(2))),
      servers_(pool),
      keepers_servers_(std::move(pool)) {}

FieldResult<bool> FieldLock::acquire(milliseconds wait) {
  if (!lease_.empty()) return FieldError{Kind::invalid, "this lock is held already"};
  const auto end = Clock::now() + wait;
  auto done = grant();
  while (done) {
    done = try_once();
    if (!done || *done) break;
    if (Clock::now() >= end) break;
    std::this_thread::sleep_for(kTriesEach);
  }
  if (!done || !*done) release();
  return done;
}

FieldResult<bool> FieldLock::grant() {
  const auto begin = Clock::now();
  const json body = {{"TTL", life_.count()}};
  const auto answer = servers_.ask("/v3/lease/grant", body.dump(), soon());
  if (!answer) return answer.error();
  lease_ = json::parse(*answer, nullptr, false).value("ID", "");
  if (lease_.empty()) return FieldError{Kind::unavailable, "the pool's etcd gives no lease"};
  expiry_ = (begin + life_).time_since_epoch().count();
  stops_ = false;
  thread_ = std::thread([this] { keep(); });
  return true;
}

/// To repeat it does no harm: the key is this lease's or it is not.
FieldResult<bool> FieldLock::try_once() {
  const json body = {
      {"compare",
       {{{"key", key_}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", 0}}}},
      {"success", {{{"request_put", {{"key", key_}, {"lease", lease_}}}}}},
      {"failure", {{{"request_range", {{"key", key_}}}}}}};
  const auto text = servers_.ask("/v3/kv/txn", body.dump(), soon());
  if (!text) return FieldError{Kind::unavailable, "the lock can't be had: " + text.error().text};
  const auto answer = json::parse(*text, nullptr, false);
  if (answer.value("succeeded", false)) {
    token_ = number_of(answer.value("header", json::object()), "revision");
  } else {
    const auto replies = answer.value("responses", json::array());
    const auto range =
        replies.empty() ? json::object() : replies[0].value("response_range", json::object());
    const auto pairs = range.value("kvs", json::array());
    if (pairs.empty() || pairs[0].value("lease", "") != lease_) return false;
    token_ = number_of(pairs[0], "create_revision");
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  until_ = expiry_.load();
  if (!is_held()) return FieldError{Kind::unavailable, "the lease ended before the lock was had"};
  return true;
}

void FieldLock::keep() {
  const json body = {{"ID", lease_}};
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (changed_.wait_for(lock, life_ / 3, [this] { return stops_; })) return;
    }
    const auto begin = Clock::now();
    const auto reply = keepers_servers_.ask_once("/v3/lease/keepalive", body.dump(), soon());
    if (reply.kind != GatewayReply::Kind::done) {
      if (begin.time_since_epoch().count() > expiry_) return;
      continue;
    }
    const auto answer = json::parse(reply.text, nullptr, false);
    const bool lives = number_of(answer.value("result", json::object()), "TTL") > 0;
    const std::lock_guard<std::mutex> guard(mutex_);
    expiry_ = lives ? (begin + life_).time_since_epoch().count() : 0;
    if (until_ != 0) until_ = expiry_.load();
    if (!lives) return;
  }
}

void FieldLock::release() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stops_ = true;
    until_ = 0;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (lease_.empty()) return;
  const json body = {{"ID", lease_}};
  (void)servers_.ask("/v3/lease/revoke", body.dump(), Clock::now() + seconds(4));
  lease_.clear();
  until_ = 0;
}

}  // namespace bellows::pool
