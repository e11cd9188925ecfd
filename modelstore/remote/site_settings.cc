// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/site_settings.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "common/fd.h"
#include "common/text.h"
#include "modelstore/remote/allow_list.h"

namespace bellows {
namespace {

constexpr std::size_t kMostText = 65'536;
constexpr std::uint64_t kMostNumber = 1'000'000'000;

void wipe(std::string& secret) { explicit_bzero(secret.data(), secret.size()); }

using Take = std::function<bool(SiteSettings&, const std::string&)>;

bool put(std::string& to, const std::string& value) {
  to = value;
  return true;
}

template <typename Number>
bool put_number(Number& to, const std::string& value, std::uint64_t scale = 1) {
  const auto number = parse_uint(value);
  if (!number || *number == 0 || *number > kMostNumber) return false;
  to = Number(static_cast<std::int64_t>(*number * scale));
  return true;
}

bool put_tries(unsigned& to, const std::string& value) {
  const auto number = parse_uint(value);
  if (!number || *number == 0 || *number > 100) return false;
  to = static_cast<unsigned>(*number);
  return true;
}

/// "https://HOST TOKEN"
bool put_token(SiteSettings& settings, const std::string& value) {
  const auto blank = value.find(' ');
  if (blank == std::string::npos) return false;
  const auto url = RemoteUrl::parse(value.substr(0, blank), {});
  if (!url || !url->is_encrypted || url->is_s3) return false;
  settings.tokens[url->origin] = trim(std::string_view(value).substr(blank));
  return true;
}

bool put_host(SiteSettings& settings, const std::string& value) {
  settings.limits.hosts.push_back(value);
  return AllowList::make({value}, {}).ok();
}

bool put_address(SiteSettings& settings, const std::string& value) {
  settings.limits.addresses.push_back(value);
  return AllowList::make({}, {value}).ok();
}

const std::map<std::string, Take, std::less<>>& keys() {
  using S = SiteSettings;
  using V = const std::string&;
  static const std::map<std::string, Take, std::less<>> kKeys = {
      {"host", put_host},
      {"address", put_address},
      {"ca_file", [](S& s, V v) { return put(s.limits.ca_file, v) && v.starts_with('/'); }},
      {"token", put_token},
      {"s3_endpoint", [](S& s, V v) { return put(s.s3.endpoint, v); }},
      {"s3_region", [](S& s, V v) { return put(s.s3.region, v); }},
      {"s3_access_key", [](S& s, V v) { return put(s.s3.access_key, v); }},
      {"s3_secret_key", [](S& s, V v) { return put(s.s3.secret_key, v); }},
      {"s3_session_token", [](S& s, V v) { return put(s.s3.session_token, v); }},
      {"connect_seconds", [](S& s, V v) { return put_number(s.limits.connect, v, 1000); }},
      {"slow_seconds", [](S& s, V v) { return put_number(s.limits.slow_for, v); }},
      {"slow_bytes", [](S& s, V v) { return put_number(s.limits.slowest_bytes_per_second, v); }},
      {"whole_seconds", [](S& s, V v) { return put_number(s.limits.whole, v, 1000); }},
      {"tries", [](S& s, V v) { return put_tries(s.limits.tries, v); }},
  };
  return kKeys;
}

Status take_line(SiteSettings& settings, std::string_view line) {
  const auto sign = line.find('=');
  const std::string_view key = trim(line.substr(0, sign));
  const auto found = keys().find(key);
  if (sign == std::string_view::npos || found == keys().end()) {
    std::vector<std::string> known;
    for (const auto& [name, take] : keys()) known.push_back(name);
    // A line that is none may be a secret, but one that names a key is not.
    const std::string near = sign == std::string_view::npos ? "" : nearest(key, known);
    return Error{ErrorKind::invalid, near.empty() ? "this is no KEY = VALUE with a key that exists"
                                                  : "is " + near + " meant?"};
  }
  std::string value(trim(line.substr(sign + 1)));
  const bool taken = !value.empty() && found->second(settings, value);
  wipe(value);
  if (taken) return {};
  return Error{ErrorKind::invalid, fmt::format("this is no value that {} can have", found->first)};
}

}  // namespace

SiteSettings::~SiteSettings() {
  for (auto& [origin, token] : tokens) wipe(token);
  for (std::string* secret : {&s3.access_key, &s3.secret_key, &s3.session_token}) wipe(*secret);
}

Result<SiteSettings> SiteSettings::parse(std::string_view text) {
  SiteSettings settings;
  settings.limits.addresses.clear();
  unsigned number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    if (auto taken = take_line(settings, line); !taken)
      return Error{ErrorKind::invalid, fmt::format("line {}: {}", number, taken.error().text)};
  }
  if (settings.limits.addresses.empty()) settings.limits.addresses = {"public"};
  return settings;
}

Result<SiteSettings> SiteSettings::read(const std::string& path) {
  const auto fd = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) return fd.error();
  struct stat s;
  if (fstat(fd->get(), &s) < 0) return errno_error("look at", path);
  if (!S_ISREG(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 0077) != 0)
    return Error{ErrorKind::denied,
                 fmt::format("{} must be a file of the user of bellows-modeld that nobody else may "
                             "read (mode 0600): it has keys",
                             path)};
  if (static_cast<std::uint64_t>(s.st_size) > kMostText)
    return Error{ErrorKind::invalid, fmt::format("{} has more than {} bytes", path, kMostText)};
  std::string text(static_cast<std::size_t>(s.st_size), '\0');
  auto read =
      read_at(fd->get(), reinterpret_cast<unsigned char*>(text.data()), text.size(), 0, path);
  auto settings = read ? parse(text) : Result<SiteSettings>(read.error());
  wipe(text);
  if (settings) return settings;
  return Error{settings.error().kind, fmt::format("{}: {}", path, settings.error().text)};
}

RemoteCredentials SiteSettings::credentials_for(const RemoteUrl& url) const {
  RemoteCredentials credentials;
  if (url.is_s3) {
    credentials.s3 = s3;
  } else if (const auto token = tokens.find(url.origin); token != tokens.end()) {
    credentials.bearer = token->second;
  }
  return credentials;
}

}  // namespace bellows
