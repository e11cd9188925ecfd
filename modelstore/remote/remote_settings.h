// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace bellows {

/// A service that speaks S3. Without keys, it is asked without signatures.
struct S3Account {
  std::string endpoint;  ///< https://HOST[:PORT]; empty: Amazon's for the region
  std::string region = "us-east-1";
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< of keys that are for a while
};

/// With what to ask for a file. Never written to a log or an error, not even where a server
/// repeats it.
struct RemoteCredentials {
  std::string
      bearer;    ///< for http: a token, which goes to the host in the URL, and over https only
  S3Account s3;  ///< for s3
};

/// How long to wait, and whom to ask at all.
struct RemoteLimits {
  std::chrono::milliseconds connect{10'000};
  /// Slower than that for so long is as good as dead. Whole seconds.
  std::uint64_t slowest_bytes_per_second = 16'384;
  std::chrono::seconds slow_for{20};
  /// For one open or read, with all its tries and pauses.
  std::chrono::milliseconds whole{300'000};
  unsigned tries = 6;
  /// Doubled each time, up to the longest, which is also the most that a server may ask for.
  std::chrono::milliseconds first_pause{200};
  std::chrono::milliseconds longest_pause{20'000};
  unsigned redirects = 5;
  /// See AllowList.
  std::vector<std::string> hosts;
  std::vector<std::string> addresses{"public"};
  /// Who vouches for servers, in PEM; empty: whom the system trusts.
  std::string ca_file;
};

}  // namespace bellows
