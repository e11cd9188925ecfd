// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "common/result.h"
#include "pool/member/scrape_notes.h"

namespace bellows::pool {

/// What is wrong with the URL of a program's metrics, or nothing: it is of http, on this node, and
/// has neither a user nor a password.
std::string scrape_url_complaint(const std::string& url);

/// Asks a program for its metrics each second, in a thread of its own: a program that hangs keeps
/// nobody else waiting. An answer that takes more than two seconds, has more than 4 MiB or is no
/// success counts as none.
class Scraper {
 public:
  /// `names`: those to keep.
  static Result<std::unique_ptr<Scraper>> start(std::string url, MetricNames names);
  Scraper(const Scraper&) = delete;
  Scraper& operator=(const Scraper&) = delete;
  /// Ends at once, also while the program has not answered.
  ~Scraper();

  /// Readable when there is a scrape, or a failure.
  const Fd& bell() const { return bell_; }
  /// The newest answer, once.
  std::optional<Scrape> take_scrape();
  /// Why there is none, once.
  std::optional<std::string> take_trouble();

 private:
  struct Shared;
  struct Request;

  Scraper() = default;

  Fd bell_;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Request> request_;
  std::thread thread_;
};

}  // namespace bellows::pool
