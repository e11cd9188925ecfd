// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/etcd_servers.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/fd.h"

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

std::optional<std::string> EtcdServers::endpoint() {
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
void EtcdServers::avoid() {
  if (endpoints_.empty()) return;
  ++first_;
  if (first_ % endpoints_.size() == static_cast<std::size_t>(getpid()) % endpoints_.size())
    endpoints_.clear();
}

GatewayReply EtcdServers::ask_once(const std::string& path, const std::string& body,
                                   Clock::time_point until) {
  const auto server = endpoint();
  if (!server) return {.text = pool_ + "/shared.json names no servers that can be asked"};
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
  auto reply = gateway_.post(*server, path, body, std::clamp(left, milliseconds(1), kAttempt));
  if (reply.kind == Reply::refused && may_pass(reply)) reply.kind = Reply::lost;
  if (reply.kind == Reply::lost || reply.kind == Reply::not_sent) avoid();
  return reply;
}

FieldResult<std::string> EtcdServers::ask(const std::string& path, const std::string& body,
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

FieldResult<EtcdServers::Settled> EtcdServers::settle(const std::string& path,
                                                      const std::string& body,
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

}  // namespace bellows::pool
