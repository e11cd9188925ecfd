// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "modelstore/remote/allow_list.h"
#include "modelstore/remote/remote_settings.h"
#include "modelstore/remote/remote_url.h"

namespace bellows {

/// By what a change of a file is known: its size, and a strong ETag or else the time of its last
/// change.
struct FileVersion {
  std::uint64_t size = 0;
  std::string etag;
  std::string last_modified;

  bool operator==(const FileVersion&) const = default;
};

/// What all requests for one file have in common.
struct RemoteContext {
  RemoteCredentials credentials;
  RemoteLimits limits;
  AllowList allowed;
  std::string origin;  ///< of the URL that the user gave: the token is for it
};

/// So many bytes of a file are wanted.
struct RangeQuestion {
  const RemoteUrl* url = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;  ///< not 0
  unsigned char* to = nullptr;
  const FileVersion* version = nullptr;  ///< null: whichever there is
  std::chrono::steady_clock::time_point deadline;
};

struct RangeAnswer {
  static RangeAnswer failure(Error error, bool may_pass = false);

  Status status;
  bool may_pass = false;               ///< trying again may help
  std::chrono::milliseconds pause{0};  ///< for which the server asks before that
  std::uint64_t got = 0;               ///< right bytes, from the first on, also after an error
  unsigned http_status = 0;            ///< 0: there was no answer
  std::string location;                ///< to be asked instead; the rest means nothing then
  FileVersion version;                 ///< if status is ok
};

/// One connection at a time, kept open from question to question. For one thread at a time.
class RemoteConnection {
 public:
  explicit RemoteConnection(const RemoteContext& context);

  RangeAnswer ask(const RangeQuestion& question);

 private:
  struct Cleanup {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  using Headers = std::unique_ptr<curl_slist, FreeList>;

  /// Nothing: no memory. None is without a value, by which curl would take away one of its own: it
  /// would be signed, but not sent.
  std::optional<Headers> headers_for(const RangeQuestion& question) const;
  void set_limits(std::chrono::milliseconds left);
  void set_signature(const RemoteUrl& url);

  const RemoteContext* context_;
  std::unique_ptr<CURL, Cleanup> curl_;
};

}  // namespace bellows
