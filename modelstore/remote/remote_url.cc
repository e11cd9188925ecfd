// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/remote_url.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostUrl = 8192;
constexpr std::size_t kMostKey = 1024;
constexpr std::size_t kMostShown = 300;

struct CleanupUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, CleanupUrl>;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string part(CURLU* url, CURLUPart what, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, what, &text, flags) != CURLUE_OK || !text) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

/// A query may be a signature.
std::string shown_url(std::string_view text) {
  const auto query = text.find_first_of("?#");
  const std::string_view end = query == std::string_view::npos ? "" : "?...";
  return one_line(std::string(text.substr(0, query)) + std::string(end), kMostShown);
}

/// Of what is no right URL, nobody knows where a user's name and password end.
Error refused(std::string_view text, std::string_view why) {
  std::string shown = shown_url(text);
  if (const auto at = shown.rfind('@'); at != std::string::npos) shown.replace(0, at, "***");
  return Error{ErrorKind::invalid, fmt::format("{}: {}", shown, why)};
}

Result<RemoteUrl> take_apart(CURLU* url, std::string_view text) {
  RemoteUrl taken;
  const std::string scheme = to_lower(part(url, CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https")
    return refused(text, "only http, https and s3 are read from afar: write another URL");
  if (!part(url, CURLUPART_USER).empty() || !part(url, CURLUPART_PASSWORD).empty())
    return refused(text,
                   "a URL gets into logs, and this one has a user or a password in it: leave "
                   "them out");
  curl_url_set(url, CURLUPART_FRAGMENT, nullptr, 0);
  taken.url = part(url, CURLUPART_URL);
  taken.host = to_lower(part(url, CURLUPART_HOST));
  if (taken.host.empty() || taken.url.empty() || !is_printable(taken.url))
    return refused(text, "this is no complete URL: write one such as https://host/path");
  taken.origin =
      fmt::format("{}://{}:{}", scheme, taken.host, part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
  taken.shown = shown_url(taken.url);
  taken.is_encrypted = scheme == "https";
  return taken;
}

Result<RemoteUrl> parse_http(std::string_view text) {
  if (text.size() > kMostUrl || !is_printable(text))
    return refused(text,
                   fmt::format("this URL has spaces or characters that must be escaped with %, "
                               "or more than {} bytes",
                               kMostUrl));
  const UrlHandle url(curl_url());
  if (!url) return Error{ErrorKind::unavailable, "there is no memory to read a URL"};
  if (const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), 0);
      code != CURLUE_OK)
    return refused(text, fmt::format("this is no URL: {}", curl_url_strerror(code)));
  return take_apart(url.get(), text);
}

bool is_bucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; });
}

/// A server or a proxy on the way may take "." and ".." for directories and so get to another
/// bucket.
bool is_key(std::string_view key) {
  if (key.empty() || key.size() > kMostKey || key.find('\0') != std::string_view::npos)
    return false;
  const auto segments = split(key, '/');
  return std::none_of(segments.begin(), segments.end(),
                      [](std::string_view s) { return s == "." || s == ".."; });
}

Result<RemoteUrl> parse_s3(std::string_view text, std::string_view rest, const S3Account& account) {
  const auto slash = rest.find('/');
  const std::string_view bucket = rest.substr(0, slash);
  const std::string_view key = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  if (!is_bucket(bucket) || !is_key(key))
    return Error{
        ErrorKind::invalid,
        fmt::format("{}: this is not s3://BUCKET/KEY, with 3 to 63 letters, digits, dots or "
                    "dashes as the bucket and 1 to {} bytes as the key, no part of which is "
                    "\".\" or \"..\"",
                    one_line(text, kMostShown), kMostKey)};
  std::string endpoint = account.endpoint.empty()
                             ? fmt::format("https://s3.{}.amazonaws.com", account.region)
                             : account.endpoint;
  while (!endpoint.empty() && endpoint.back() == '/') endpoint.pop_back();
  auto base = parse_http(endpoint);
  if (!base) return base.error();
  if (base->url.find('?') != std::string::npos)
    return refused(endpoint, "the address of an S3 service has no query: leave it out");
  auto url = parse_http(fmt::format("{}/{}/{}", endpoint, bucket, percent_escaped(key, "-._~/")));
  if (!url) return url.error();
  url->is_s3 = true;
  url->shown = fmt::format("{} at {}", one_line(text, kMostShown), base->origin);
  return url;
}

}  // namespace

Result<RemoteUrl> RemoteUrl::parse(std::string_view text, const S3Account& account) {
  constexpr std::string_view kS3 = "s3://";
  if (to_lower(text.substr(0, kS3.size())) == kS3)
    return parse_s3(text, text.substr(kS3.size()), account);
  return parse_http(text);
}

Result<RemoteUrl> RemoteUrl::redirected(const std::string& location) const {
  const UrlHandle to(curl_url());
  if (!to || curl_url_set(to.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    return Error{ErrorKind::unavailable, "there is no memory to follow a redirect"};
  const bool is_url = location.size() <= kMostUrl && is_printable(location) &&
                      curl_url_set(to.get(), CURLUPART_URL, location.c_str(), 0) == CURLUE_OK;
  auto target = is_url ? take_apart(to.get(), location) : refused(location, "this is no URL");
  if (!target)
    return Error{ErrorKind::denied,
                 fmt::format("{}: the server sends its readers on to a place that is "
                             "not taken: {}",
                             shown, target.error().text)};
  if (is_encrypted && !target->is_encrypted)
    return Error{
        ErrorKind::denied,
        fmt::format("{}: the server sends its readers on to {}, which is not encrypted: use "
                    "that URL itself if that is what you want",
                    shown, target->shown)};
  return target;
}

std::string percent_escaped(std::string_view text, std::string_view kept) {
  std::string escaped;
  for (const char c : text) {
    if (is_alphanumeric(c) || kept.find(c) != std::string_view::npos)
      escaped += c;
    else
      escaped += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

}  // namespace bellows
