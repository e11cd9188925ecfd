// SPDX-License-Identifier: Apache-2.0
#include "pool/shared/gateway.h"

#include <curl/curl.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>

#include "common/text.h"

namespace bellows::pool {
namespace {

using nlohmann::json;
using Kind = GatewayReply::Kind;

constexpr std::size_t kMostAnswer = 4 << 20;
constexpr std::size_t kMostShown = 300;
/// What etcd answers where something certainly was not done: INVALID_ARGUMENT, NOT_FOUND,
/// RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED.
constexpr int kRefusals[] = {3, 5, 8, 9, 11, 12};

struct Answer {
  std::string text;
  bool too_long = false;
};

std::size_t take(char* data, std::size_t, std::size_t count, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  answer.too_long = answer.text.size() + count > kMostAnswer;
  if (answer.too_long) return 0;
  answer.text.append(data, count);
  return count;
}

/// Given piece by piece, and once only: libcurl would send it again by itself when a connection
/// that it has used before ends without an answer, and a change might be done twice.
struct Body {
  const std::string& text;
  std::size_t given = 0;
};

std::size_t give(char* to, std::size_t size, std::size_t count, void* from) {
  auto& body = *static_cast<Body*>(from);
  const std::size_t now = body.text.copy(to, size * count, body.given);
  body.given += now;
  return now;
}

int refuse_to_rewind(void*, curl_off_t, int) { return CURL_SEEKFUNC_FAIL; }

GatewayReply judge(long status, const std::string& text) {
  const auto answer = json::parse(text, nullptr, false);
  if (!answer.is_object()) return {.kind = Kind::lost, .text = "the answer is not JSON"};
  if (status == 200) return {.kind = Kind::done, .text = text};
  const auto code = answer.find("code");
  const auto error = answer.find("error");
  GatewayReply reply{.kind = Kind::lost, .text = "HTTP status " + std::to_string(status)};
  if (error != answer.end() && error->is_string())
    reply.text = one_line(error->get<std::string>(), kMostShown);
  if (code == answer.end() || !code->is_number_integer()) return reply;
  reply.code = code->get<int>();
  if (std::find(std::begin(kRefusals), std::end(kRefusals), reply.code) != std::end(kRefusals))
    reply.kind = Kind::refused;
  return reply;
}

/// A connection that the other side has closed must not end the program, whose signals are its own.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace

struct Gateway::Handle {
  CURL* curl = curl_easy_init();
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { curl_easy_cleanup(curl); }
};

Gateway::Gateway(std::string pool) : pool_(std::move(pool)), handle_(new Handle) {}
Gateway::Gateway(Gateway&&) noexcept = default;
Gateway& Gateway::operator=(Gateway&&) noexcept = default;
Gateway::~Gateway() = default;

GatewayReply Gateway::post(const std::string& endpoint, const std::string& path,
                           const std::string& body, std::chrono::milliseconds limit) {
  CURL* const curl = handle_->curl;
  if (!curl) return {.kind = Kind::not_sent, .text = "libcurl can't be used"};
  const auto colon = endpoint.rfind(':');
  if (colon == std::string::npos) return {.kind = Kind::not_sent, .text = endpoint + ": no port"};
  // The certificate is for one name, wherever a server runs.
  const std::string port = endpoint.substr(colon + 1);
  const std::string url = "https://bellows-pool:" + port + path;
  using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;
  const std::string to = "bellows-pool:" + port + ":" + endpoint;
  const List there(curl_slist_append(nullptr, to.c_str()), curl_slist_free_all);
  // Without a wait for leave to send the body.
  List headers(curl_slist_append(nullptr, "Expect:"), curl_slist_free_all);
  const std::string key = pool_ + "/key.pem";
  const std::string certificate = pool_ + "/cert.pem";
  Body given{body};
  Answer answer;
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECT_TO, there.get());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_CAINFO, certificate.c_str());
  curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  curl_easy_setopt(curl, CURLOPT_SSLCERT, certificate.c_str());
  curl_easy_setopt(curl, CURLOPT_SSLKEY, key.c_str());
  curl_easy_setopt(curl, CURLOPT_POST, 1L);
  curl_easy_setopt(curl, CURLOPT_READFUNCTION, &give);
  curl_easy_setopt(curl, CURLOPT_READDATA, &given);
  curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, &refuse_to_rewind);
  curl_easy_setopt(curl, CURLOPT_SEEKDATA, &given);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<long>(1, limit.count())));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
  const NoSigpipe no_sigpipe;
  const CURLcode result = curl_easy_perform(curl);
  long status = 0;
  long sent = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &sent);
  if (result == CURLE_OK) return judge(status, answer.text);
  const std::string why =
      endpoint + ": " + (answer.too_long ? "the answer is too long" : curl_easy_strerror(result));
  return {.kind = sent ? Kind::lost : Kind::not_sent, .text = why};
}

}  // namespace bellows::pool
