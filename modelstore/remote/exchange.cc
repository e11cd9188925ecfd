// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/exchange.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "common/text.h"
#include "modelstore/remote/server_text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostText = 4096;
/// Of an answer that is no part of the file: if it is short, the connection can be used again.
constexpr std::uint64_t kMostIgnored = 65'536;

std::string numeric(const curl_sockaddr& address) {
  char host[NI_MAXHOST] = "?";
  getnameinfo(&address.addr, address.addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

/// A file that was changed in the second in which it is asked for may change once more in it,
/// unnoticed by its time.
bool was_changed_just_now(const AnswerHead& head) {
  if (head.last_modified.empty() || head.date.empty()) return false;
  const auto changed = curl_getdate(head.last_modified.c_str(), nullptr);
  const auto now = curl_getdate(head.date.c_str(), nullptr);
  return changed >= 0 && now >= changed && now - changed < 2;
}

/// What a server may do differently a moment later.
bool status_may_pass(unsigned status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

bool code_may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
      return true;
    default:
      return false;
  }
}

}  // namespace

Exchange::Exchange(const RangeQuestion& question, const RemoteContext& context)
    : question_(question), context_(context) {}

void Exchange::attach(CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, &Exchange::on_socket);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error_);
}

std::size_t Exchange::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<Exchange*>(self)->take_header({data, size * count}) ? size * count : 0;
}

std::size_t Exchange::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<Exchange*>(self)->take_body({data, size * count}) ? size * count : 0;
}

curl_socket_t Exchange::on_socket(void* self, curlsocktype, curl_sockaddr* address) {
  auto* exchange = static_cast<Exchange*>(self);
  if (!exchange->context_.allowed.allows_address(address->addr)) {
    exchange->forbidden_ = numeric(*address);
    return CURL_SOCKET_BAD;
  }
  exchange->tried_address_ = true;
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool Exchange::take_header(std::string_view line) {
  const bool was_complete = reader_.is_complete();
  if (const char* wrong = reader_.take(line)) return lie(wrong);
  return was_complete || !reader_.is_complete() || judge_head();
}

bool Exchange::judge_head() {
  const AnswerHead& head = reader_.head();
  version_ = {head.range ? head.range->size : 0, head.etag,
              head.etag.empty() ? head.last_modified : ""};
  if (head.status == 206) return judge_part();
  if (head.status == 200) return judge_whole();
  return true;
}

bool Exchange::judge_part() {
  const AnswerHead& head = reader_.head();
  if (!head.encoding.empty() && to_lower(head.encoding) != "identity")
    return lie("sends the file encoded, which nobody asked for");
  if (!head.range || head.range->end == 0)
    return lie("does not say which part of the file it sends");
  if (question_.version && head.range->size != question_.version->size) return changed();
  const std::uint64_t end = question_.begin + question_.bytes;
  if (head.range->begin != question_.begin || head.range->end != end)
    return lie(fmt::format("sends bytes {} to {}, and was asked for {} to {}", head.range->begin,
                           head.range->end, question_.begin, end));
  if (head.length && *head.length != question_.bytes)
    return lie(fmt::format("promises {} for a part of {}", counted(*head.length, "byte"),
                           question_.bytes));
  is_part_ = judge_version(version_);
  return is_part_;
}

bool Exchange::judge_version(const FileVersion& version) {
  if (question_.version) return version == *question_.version || changed();
  if (version.etag.empty() && version.last_modified.empty())
    return lie(
        "says neither a strong ETag nor when the file was last changed, so that a change would go "
        "unnoticed",
        "put it onto a server that does");
  if (!was_changed_just_now(reader_.head())) return true;
  verdict_ = failure(
      ErrorKind::unavailable,
      "the file was changed just now, and may change again: try again when it is complete", true);
  return false;
}

bool Exchange::judge_whole() {
  if (!question_.version && reader_.head().length == 0) {
    verdict_ = empty();
    return false;
  }
  return lie("sends the whole file where a part was asked for",
             "put it onto a server that knows ranges");
}

bool Exchange::lie(std::string_view what, std::string_view advice) {
  verdict_ = failure(ErrorKind::corrupt, fmt::format("the server {}: {}", what, advice));
  return false;
}

bool Exchange::changed() {
  verdict_ = failure(ErrorKind::corrupt,
                     "the file was changed while it was read: open it again when it is complete");
  return false;
}

bool Exchange::take_body(std::string_view bytes) {
  if (!is_part_) {
    text_.append(bytes.substr(0, kMostText - std::min(kMostText, text_.size())));
    ignored_ += bytes.size();
    return ignored_ <= kMostIgnored;
  }
  if (bytes.size() > question_.bytes - got_) return lie("sends more than it was asked for");
  std::memcpy(question_.to + got_, bytes.data(), bytes.size());
  got_ += bytes.size();
  return true;
}

RangeAnswer Exchange::judge(CURLcode code) const {
  if (verdict_) return *verdict_;
  // What it says is known, whatever became of the text behind it.
  if (reader_.is_complete() && !is_part_) return refused_by_server();
  if (code != CURLE_OK) return failed(code);
  // A head that breaks off is an answer to curl, and a body in chunks may be of any length.
  if (!is_part_ || got_ != question_.bytes)
    return failure(ErrorKind::unavailable,
                   "the server sends less than it was asked for: try again later", true);
  return {};
}

RangeAnswer Exchange::finish(CURL* curl, CURLcode code) {
  RangeAnswer answer = judge(code);
  const AnswerHead& head = reader_.head();
  answer.got = got_;
  answer.version = version_;
  if (reader_.is_complete()) answer.http_status = head.status;
  if (!verdict_ && head.status >= 300 && head.status < 400) answer.location = head.location;
  curl_off_t seconds = 0;
  if (answer.may_pass && curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK)
    answer.pause = std::chrono::seconds(std::clamp<curl_off_t>(seconds, 0, 86'400));
  return answer;
}

RangeAnswer Exchange::refused_by_server() const {
  const AnswerHead& head = reader_.head();
  const std::string said = fmt::format("{}{}", head.status, server_text(text_, secrets()));
  switch (head.status) {
    case 401:
    case 403:
      return failure(ErrorKind::denied,
                     fmt::format("the server refuses to give it, with {}: check the keys or the "
                                 "token, and that they may read it",
                                 said));
    case 404:
    case 410:
      return failure(ErrorKind::not_found,
                     fmt::format("the server has no such file, and says {}: check the URL", said));
    case 412:
    case 416:
      // A file without a byte has no part to send.
      if (!question_.version && head.range && head.range->size == 0) return empty();
      return failure(ErrorKind::corrupt,
                     fmt::format("the file was changed while it was read, and the server says {}: "
                                 "open it again when it is complete",
                                 said));
    default:
      return failure(
          ErrorKind::unavailable,
          fmt::format("the server answers with {}: {}", said,
                      head.status < 400 ? "check the region and the address" : "try again later"),
          status_may_pass(head.status));
  }
}

RangeAnswer Exchange::failed(CURLcode code) const {
  if (code == CURLE_COULDNT_CONNECT && !forbidden_.empty() && !tried_address_)
    return failure(ErrorKind::denied,
                   fmt::format("its address {} is none that this site lets be asked for models: "
                               "ask an administrator to allow it if it is right",
                               forbidden_));
  const bool is_untrusted = code == CURLE_PEER_FAILED_VERIFICATION;
  const std::string said =
      server_text(curl_error_[0] != '\0' ? curl_error_ : curl_easy_strerror(code), secrets());
  if (is_untrusted)
    return failure(ErrorKind::denied,
                   fmt::format("the server's certificate is not good for this host{}: check the "
                               "URL, or name the authority that vouches for it",
                               said));
  return failure(ErrorKind::unavailable,
                 fmt::format("the server cannot be read from{}: try again later", said),
                 code_may_pass(code));
}

RangeAnswer Exchange::empty() const {
  return failure(ErrorKind::corrupt, "the file is empty: put a model there");
}

RangeAnswer Exchange::failure(ErrorKind kind, std::string_view what, bool may_pass) const {
  return RangeAnswer::failure({kind, fmt::format("{}: {}", question_.url->shown, what)}, may_pass);
}

std::vector<std::string> Exchange::secrets() const {
  const RemoteCredentials& c = context_.credentials;
  return {c.bearer, c.s3.secret_key, c.s3.session_token, c.s3.access_key};
}

}  // namespace bellows
