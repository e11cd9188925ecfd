// SPDX-License-Identifier: Apache-2.0
#include "pool/member/scraper.h"

#include <curl/curl.h>
#include <fmt/core.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/text.h"

namespace bellows::pool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetween{1};
constexpr long kLimitMs = 2000;
constexpr std::size_t kMostAnswer = 4 << 20;
constexpr std::size_t kMostUrl = 1024;
constexpr int kWaitMs = 1000;

struct Answer {
  std::string text;
  bool too_long = false;
};

std::size_t keep(char* data, std::size_t, std::size_t count, void* to) {
  auto& answer = *static_cast<Answer*>(to);
  answer.too_long = answer.text.size() + count > kMostAnswer;
  if (answer.too_long) return 0;
  answer.text.append(data, count);
  return count;
}

/// What the agent starts later must not hold the connection.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

std::string part(CURLU* url, CURLUPart what) {
  char* text = nullptr;
  if (curl_url_get(url, what, &text, 0) != CURLUE_OK || !text) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

std::string scrape_url_complaint(const std::string& text) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  if (text.size() > kMostUrl || !url ||
      curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK ||
      part(url.get(), CURLUPART_SCHEME) != "http")
    return "must be a URL of http, such as http://127.0.0.1:8000/metrics";
  if (!part(url.get(), CURLUPART_USER).empty() || !part(url.get(), CURLUPART_PASSWORD).empty())
    return "must have neither a user nor a password";
  const std::string host = part(url.get(), CURLUPART_HOST);
  if (host != "127.0.0.1" && host != "localhost" && host != "[::1]")
    return "must be on this node: 127.0.0.1, localhost or [::1]";
  return "";
}

/// Between the thread and the agent's.
struct Scraper::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Scrape> scrape;
  std::optional<std::string> trouble;
  bool ends = false;

  bool is_ending() {
    const std::lock_guard lock(mutex);
    return ends;
  }
};

/// The thread's side, with the connection.
struct Scraper::Request {
  Request(std::string from, MetricNames kept, Scraper::Shared& with, int rings)
      : url(std::move(from)), names(std::move(kept)), shared(with), bell(rings) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    curl_easy_cleanup(curl);
    curl_multi_cleanup(multi);
  }

  void set_up();
  CURLcode perform();
  /// Its failure, or nothing.
  std::string ask();
  void run();

  const std::string url;
  const MetricNames names;
  Scraper::Shared& shared;
  const int bell;
  CURLM* const multi = curl_multi_init();
  CURL* const curl = curl_easy_init();
  Answer answer;
};

void Scraper::Request::set_up() {
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "bellows-pool");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kLimitMs);
  curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
}

/// By the multi interface, since only that can be woken.
CURLcode Scraper::Request::perform() {
  if (curl_multi_add_handle(multi, curl) != CURLM_OK) return CURLE_FAILED_INIT;
  CURLcode result = CURLE_ABORTED_BY_CALLBACK;
  int running = 1;
  while (running && !shared.is_ending()) {
    if (curl_multi_perform(multi, &running) != CURLM_OK) break;
    if (running && curl_multi_poll(multi, nullptr, 0, kWaitMs, nullptr) != CURLM_OK) break;
  }
  int left = 0;
  if (const CURLMsg* const message = curl_multi_info_read(multi, &left);
      message && message->msg == CURLMSG_DONE)
    result = message->data.result;
  curl_multi_remove_handle(multi, curl);
  return result;
}

std::string Scraper::Request::ask() {
  answer = {};
  Scrape scrape{.text = {}, .at = Clock::now(), .wall = std::chrono::system_clock::now()};
  const CURLcode result = perform();
  if (answer.too_long) return fmt::format("the answer has more than {} bytes", kMostAnswer);
  if (result != CURLE_OK) return curl_easy_strerror(result);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) return fmt::format("HTTP status {}", status);
  scrape.text = read_prometheus_text(answer.text, names);
  if (scrape.text.too_many)
    return fmt::format("the answer has more than {} samples", PrometheusText::kMostSamples);
  const std::lock_guard lock(shared.mutex);
  shared.scrape = std::move(scrape);
  return "";
}

void Scraper::Request::run() {
  // Without it some programs answer in OpenMetrics' format.
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Accept: text/plain;version=0.0.4"), curl_slist_free_all);
  set_up();
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  while (true) {
    const auto next = Clock::now() + kBetween;
    const std::string failure = ask();
    std::unique_lock lock(shared.mutex);
    if (!failure.empty()) shared.trouble = one_line(url) + ": " + failure;
    eventfd_write(bell, 1);
    if (shared.changed.wait_until(lock, next, [this] { return shared.ends; })) return;
  }
}

Result<std::unique_ptr<Scraper>> Scraper::start(std::string url, MetricNames names) {
  std::unique_ptr<Scraper> scraper(new Scraper);
  scraper->bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!scraper->bell_) return errno_error("make", "an eventfd");
  scraper->shared_ = std::make_unique<Shared>();
  scraper->request_ = std::make_unique<Request>(std::move(url), std::move(names), *scraper->shared_,
                                                scraper->bell_.get());
  if (!scraper->request_->curl || !scraper->request_->multi)
    return Error{ErrorKind::io, "libcurl can't be used"};
  scraper->thread_ = std::thread([request = scraper->request_.get()] { request->run(); });
  return scraper;
}

Scraper::~Scraper() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
  }
  shared_->changed.notify_all();
  curl_multi_wakeup(request_->multi);
  thread_.join();
}

std::optional<Scrape> Scraper::take_scrape() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->scrape, std::nullopt);
}

std::optional<std::string> Scraper::take_trouble() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->trouble, std::nullopt);
}

}  // namespace bellows::pool
