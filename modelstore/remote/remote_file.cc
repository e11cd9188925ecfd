// SPDX-License-Identifier: Apache-2.0
#include "modelstore/remote/remote_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/text.h"

namespace bellows {
namespace {

using Clock = std::chrono::steady_clock;

/// Of curl's own state; each use is counted.
class CurlLibrary {
 public:
  CurlLibrary() : ready_(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {}
  CurlLibrary(const CurlLibrary&) = delete;
  CurlLibrary& operator=(const CurlLibrary&) = delete;
  ~CurlLibrary() {
    if (ready_) curl_global_cleanup();
  }
  bool is_ready() const { return ready_; }

 private:
  bool ready_;
};

/// Each becomes part of a header, where a line of its own would be another header.
Status check_credentials(const RemoteCredentials& credentials) {
  const auto is_plain = [](const std::string& text) {
    return text.size() <= 8192 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  };
  const S3Account& s3 = credentials.s3;
  if (!is_plain(credentials.bearer))
    return Error{ErrorKind::invalid,
                 "the token has blanks or other characters that no token has: "
                 "check where it was read from"};
  if (!is_plain(s3.access_key) || !is_plain(s3.secret_key) || !is_plain(s3.session_token))
    return Error{ErrorKind::invalid,
                 "the S3 keys have blanks or other characters that no key has: "
                 "check where they were read from"};
  if (s3.access_key.empty() != s3.secret_key.empty())
    return Error{ErrorKind::invalid,
                 "of the S3 keys one is missing: give the access key and the "
                 "secret key"};
  const bool is_region = !s3.region.empty() && s3.region.size() <= 64 &&
                         std::all_of(s3.region.begin(), s3.region.end(),
                                     [](char c) { return is_alphanumeric(c) || c == '-'; });
  if (!is_region)
    return Error{ErrorKind::invalid, fmt::format("\"{}\" is no region of S3: write one such as "
                                                 "us-east-1",
                                                 one_line(s3.region, 60))};
  return {};
}

Status check_host(const RemoteUrl& url, const AllowList& allowed) {
  if (allowed.allows_host(url.host)) return {};
  return Error{
      ErrorKind::denied,
      fmt::format("{}: the host {} is none that this site lets be asked for models: ask an "
                  "administrator to allow it if it is right",
                  url.shown, one_line(url.host, 100))};
}

}  // namespace

/// Where the file is read from, and the connections that are open and idle.
class RemoteFile::Source {
 public:
  Source(RemoteContext context, RemoteUrl url)
      : context_(std::move(context)), url_(std::move(url)), target_(url_) {}

  const std::string& name() const { return url_.shown; }
  bool is_ready() const { return library_.is_ready(); }
  /// With all tries. `version`: null in the beginning.
  Result<FileVersion> fetch(std::uint64_t begin, unsigned char* to, std::uint64_t bytes,
                            const FileVersion* version);

 private:
  /// Wherever it is: by redirects, from where they led before.
  RangeAnswer ask(RangeQuestion question);
  /// Where to ask after this answer.
  Result<RemoteUrl> next(const RemoteUrl& from, const std::string& location) const;
  RangeAnswer ask_one(const RangeQuestion& question);
  /// False: the deadline comes first.
  bool pause(unsigned tried, std::chrono::milliseconds asked, Clock::time_point deadline) const;
  RemoteUrl target();
  void set_target(const RemoteUrl& url);

  const CurlLibrary library_;  ///< longest of all
  const RemoteContext context_;
  const RemoteUrl url_;
  std::mutex mutex_;
  RemoteUrl target_;
  std::vector<std::unique_ptr<RemoteConnection>> idle_;
};

RangeAnswer RemoteFile::Source::ask_one(const RangeQuestion& question) {
  std::unique_ptr<RemoteConnection> connection;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!connection) connection = std::make_unique<RemoteConnection>(context_);
  RangeAnswer answer = connection->ask(question);
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(connection));
  return answer;
}

RemoteUrl RemoteFile::Source::target() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return target_;
}

void RemoteFile::Source::set_target(const RemoteUrl& url) {
  const std::lock_guard<std::mutex> lock(mutex_);
  target_ = url;
}

Result<RemoteUrl> RemoteFile::Source::next(const RemoteUrl& from,
                                           const std::string& location) const {
  // The signature is for this address, and a server that moved a bucket knows the region.
  if (from.is_s3)
    return Error{
        ErrorKind::unavailable,
        fmt::format("{}: the service sends its readers to another address: check the region "
                    "and the endpoint",
                    from.shown)};
  auto url = from.redirected(location);
  if (!url) return url;
  if (auto checked = check_host(*url, context_.allowed); !checked) return checked.error();
  return url;
}

RangeAnswer RemoteFile::Source::ask(RangeQuestion question) {
  RemoteUrl url = target();
  bool is_old_target = url.url != url_.url;
  for (unsigned hops = 0; hops <= context_.limits.redirects;) {
    question.url = &url;
    RangeAnswer answer = ask_one(question);
    const unsigned status = answer.http_status;
    // The address behind a redirect may be good for a while only.
    if (is_old_target && (status == 401 || status == 403 || status == 404 || status == 410)) {
      url = url_;
      is_old_target = false;
      continue;
    }
    if (answer.location.empty()) {
      if (answer.status) set_target(url);
      return answer;
    }
    auto next_url = next(url, answer.location);
    if (!next_url) return RangeAnswer::failure(next_url.error());
    url = std::move(*next_url);
    ++hops;
  }
  return RangeAnswer::failure(
      Error{ErrorKind::unavailable,
            fmt::format("{}: its server sends readers from place to place, more than {}: "
                        "check the URL",
                        url_.shown, counted(context_.limits.redirects, "time"))});
}

bool RemoteFile::Source::pause(unsigned tried, std::chrono::milliseconds asked,
                               Clock::time_point deadline) const {
  const RemoteLimits& limits = context_.limits;
  const auto longest = limits.longest_pause;
  auto own = limits.first_pause;
  for (unsigned i = 1; i < tried && own < longest; ++i) own *= 2;
  // Nodes that failed together must not come again together.
  std::minstd_rand random(std::random_device{}());
  own = own / 2 + own * (random() % 1024) / 1024;
  const auto until = Clock::now() + std::min(std::max(own, asked), longest);
  if (until >= deadline) return false;
  std::this_thread::sleep_until(until);
  return true;
}

Result<FileVersion> RemoteFile::Source::fetch(std::uint64_t begin, unsigned char* to,
                                              std::uint64_t bytes, const FileVersion* version) {
  const auto deadline = Clock::now() + context_.limits.whole;
  for (unsigned tried = 1;; ++tried) {
    RangeAnswer answer = ask({nullptr, begin, bytes, to, version, deadline});
    if (answer.status) return answer.version;
    // What came before the fault is right, and is not asked for again.
    if (version) begin += answer.got, to += answer.got, bytes -= answer.got;
    if (version && bytes == 0 && answer.may_pass) return *version;
    if (answer.may_pass && tried < context_.limits.tries && pause(tried, answer.pause, deadline))
      continue;
    const Error& error = answer.status.error();
    if (tried == 1) return error;
    return Error{error.kind, fmt::format("{} (tried {})", error.text, counted(tried, "time"))};
  }
}

RemoteFile::RemoteFile(std::unique_ptr<Source> source) : source_(std::move(source)) {}
RemoteFile::RemoteFile(RemoteFile&&) noexcept = default;
RemoteFile& RemoteFile::operator=(RemoteFile&&) noexcept = default;
RemoteFile::~RemoteFile() = default;

Result<RemoteFile> RemoteFile::open(std::string_view text, const RemoteCredentials& credentials,
                                    const RemoteLimits& limits) {
  if (auto checked = check_credentials(credentials); !checked) return checked.error();
  auto allowed = AllowList::make(limits.hosts, limits.addresses);
  if (!allowed) return allowed.error();
  auto url = RemoteUrl::parse(text, credentials.s3);
  if (!url) return url.error();
  if (auto checked = check_host(*url, *allowed); !checked) return checked.error();
  if (!url->is_s3 && !url->is_encrypted && !credentials.bearer.empty())
    return Error{
        ErrorKind::invalid,
        fmt::format("{}: a token is sent over https only: write https, or give none", url->shown)};
  RemoteContext context{credentials, limits, std::move(*allowed), url->origin};
  RemoteFile file(std::make_unique<Source>(std::move(context), std::move(*url)));
  if (!file.source_->is_ready())
    return Error{ErrorKind::unavailable,
                 "the library libcurl cannot start: check its installation"};
  unsigned char first = 0;
  auto version = file.source_->fetch(0, &first, 1, nullptr);
  if (!version) return version.error();
  file.version_ = std::move(*version);
  return file;
}

const std::string& RemoteFile::name() const { return source_->name(); }

Status RemoteFile::read(std::uint64_t begin, unsigned char* to, std::uint64_t bytes) const {
  if (begin > size() || bytes > size() - begin)
    return Error{ErrorKind::invalid,
                 fmt::format("{}: bytes {} to {} are wanted of a file of {}", name(), begin,
                             begin + bytes, counted(size(), "byte"))};
  if (bytes == 0) return {};
  const auto fetched = source_->fetch(begin, to, bytes, &version_);
  return fetched ? Status() : fetched.error();
}

}  // namespace bellows
