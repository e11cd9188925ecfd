// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/remote_connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "modelstore/remote/exchange.h"

namespace bellows {
namespace {

/// Of no bytes: a question has no body. S3 wants it, and other services do not mind.
constexpr const char* kEmptyDigest =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr long kBuffer = 512 * 1024;

/// Nothing from the environment, and nothing beyond what was asked for.
void set_protocol(CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(curl, CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "bellows");
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBuffer);
  // Signals and threads go ill together, and a resolver that hangs must not hold up the end.
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
}

}  // namespace

RangeAnswer RangeAnswer::failure(Error error, bool may_pass) {
  RangeAnswer answer;
  answer.status = std::move(error);
  answer.may_pass = may_pass;
  return answer;
}

RemoteConnection::RemoteConnection(const RemoteContext& context)
    : context_(&context), curl_(curl_easy_init()) {}

std::optional<RemoteConnection::Headers> RemoteConnection::headers_for(
    const RangeQuestion& question) const {
  std::vector<std::string> lines;
  const RemoteUrl& url = *question.url;
  if (const FileVersion* version = question.version)
    lines.push_back(version->etag.empty() ? "If-Unmodified-Since: " + version->last_modified
                                          : "If-Match: " + version->etag);
  const RemoteCredentials& credentials = context_->credentials;
  if (url.is_s3 && !credentials.s3.secret_key.empty()) {
    lines.emplace_back(kEmptyDigest);
    if (!credentials.s3.session_token.empty())
      lines.push_back("x-amz-security-token: " + credentials.s3.session_token);
  } else if (!url.is_s3 && !credentials.bearer.empty() && url.is_encrypted &&
             url.origin == context_->origin) {
    lines.push_back("Authorization: Bearer " + credentials.bearer);
  }
  Headers headers;
  for (const std::string& line : lines) {
    curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
    if (!longer) return std::nullopt;
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  return headers;
}

void RemoteConnection::set_limits(std::chrono::milliseconds left) {
  const RemoteLimits& limits = context_->limits;
  const auto connect = std::min(limits.connect, left);
  curl_easy_setopt(curl_.get(), CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count()));
  curl_easy_setopt(curl_.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  curl_easy_setopt(curl_.get(), CURLOPT_LOW_SPEED_LIMIT,
                   static_cast<long>(limits.slowest_bytes_per_second));
  curl_easy_setopt(curl_.get(), CURLOPT_LOW_SPEED_TIME, static_cast<long>(limits.slow_for.count()));
  if (limits.ca_file.empty()) return;
  curl_easy_setopt(curl_.get(), CURLOPT_CAINFO, limits.ca_file.c_str());
  curl_easy_setopt(curl_.get(), CURLOPT_CAPATH, nullptr);
}

void RemoteConnection::set_signature(const RemoteUrl& url) {
  const S3Account& account = context_->credentials.s3;
  if (!url.is_s3 || account.secret_key.empty()) return;
  curl_easy_setopt(curl_.get(), CURLOPT_AWS_SIGV4,
                   fmt::format("aws:amz:{}:s3", account.region).c_str());
  curl_easy_setopt(curl_.get(), CURLOPT_USERNAME, account.access_key.c_str());
  curl_easy_setopt(curl_.get(), CURLOPT_PASSWORD, account.secret_key.c_str());
}

RangeAnswer RemoteConnection::ask(const RangeQuestion& question) {
  // Nought would be without a limit. A try that begins too late ends as those before it did.
  const auto left = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(
                                 question.deadline - std::chrono::steady_clock::now()),
                             std::chrono::milliseconds(1));
  const auto headers = headers_for(question);
  if (!curl_ || !headers)
    return RangeAnswer::failure(
        Error{ErrorKind::unavailable,
              fmt::format("{}: there is no memory to ask for it", question.url->shown)});
  // The connections stay.
  curl_easy_reset(curl_.get());
  set_protocol(curl_.get());
  set_limits(left);
  set_signature(*question.url);
  const std::string range =
      fmt::format("{}-{}", question.begin, question.begin + question.bytes - 1);
  curl_easy_setopt(curl_.get(), CURLOPT_URL, question.url->url.c_str());
  curl_easy_setopt(curl_.get(), CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(curl_.get(), CURLOPT_HTTPHEADER, headers->get());
  Exchange exchange(question, *context_);
  exchange.attach(curl_.get());
  return exchange.finish(curl_.get(), curl_easy_perform(curl_.get()));
}

}  // namespace bellows
