// SPDX-License-Identifier: Apache-2.0
// Servers that break off, stall and lie.
#include <criterion/criterion.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>

#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/modelstore/remote_support.h"

using namespace bellows;
using namespace bellows::model_test;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;
using Fields = std::map<std::string, std::string>;

constexpr std::uint64_t kBytes = 60;

std::string right_answer(const HttpRequest& request, const std::string& data) {
  return head_of(request, data.size()) + data.substr(request.begin, request.end - request.begin);
}

/// So many milliseconds went by, and no more than a machine under load needs beyond that.
class Stopwatch {
 public:
  void expect_below(int milliseconds) const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
    cr_expect(ms.count() < milliseconds, "it took %ld ms", static_cast<long>(ms.count()));
  }

 private:
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

Test(remote_faults, an_end_at_any_byte_is_mended, .timeout = 120) {
  const std::string data = random_bytes(kBytes);
  std::size_t cut = 0;
  bool by_reset = false;
  std::atomic<bool> is_due{false};
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    const std::string whole = right_answer(request, data);
    if (!is_due.exchange(false)) return static_cast<void>(peer.send(whole));
    peer.send(whole.substr(0, cut));
    by_reset ? peer.reset() : peer.close();
  });
  const RemoteFile file = open_file_at(server.url());
  HttpRequest all;
  all.end = kBytes;
  const std::size_t most = right_answer(all, data).size();
  for (by_reset = false;; by_reset = true) {
    for (cut = 0; cut < most; ++cut) {
      is_due = true;
      cr_expect(read_part(file, 0, kBytes) == data, "cut at %zu", cut);
      cr_expect(!is_due);
      is_due = cut + kBytes < most;
      cr_expect_eq(open_file_at(server.url()).size(), kBytes, "cut at %zu", cut);
    }
    if (by_reset) break;
  }
}

Test(remote_faults, bytes_that_came_are_not_asked_for_again, .timeout = 60) {
  const std::string data = random_bytes(100'000);
  std::vector<std::uint64_t> begins;
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    if (request.number == 1) return answer(request, peer, data);
    begins.push_back(request.begin);
    peer.send(head_of(request, data.size()));
    peer.send(std::string_view(data).substr(
        request.begin, std::min<std::uint64_t>(40'000, request.end - request.begin)));
    peer.close();
  });
  const RemoteFile file = open_file_at(server.url());
  cr_expect(read_part(file, 0, data.size()) == data);
  cr_expect(begins == std::vector<std::uint64_t>({0, 40'000, 80'000}));
}

Test(remote_faults, a_server_that_never_comes_back_is_given_up, .timeout = 60) {
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    peer.send(right_answer(request, "ab").substr(0, 30));
    peer.reset();
  });
  RemoteLimits limits = quick_limits();
  limits.tries = 4;
  const Error error = opening_error(server.url(), limits);
  expect_error(error, ErrorKind::unavailable, "(tried 4 times)");
  cr_expect(has(error.text, server.url()) && has(error.text, "try again later"));
  cr_expect_eq(server.requests(), 4);
}

Test(remote_faults, nobody_listens, .timeout = 60) {
  std::string url;
  {
    HostileServer server([](const HttpRequest&, HttpPeer&) {});
    url = server.url();
  }
  expect_error(opening_error(url), ErrorKind::unavailable, "(tried 6 times)");
}

Test(remote_faults, a_stall_at_any_place_ends, .timeout = 120) {
  const std::string data = random_bytes(kBytes);
  std::size_t sent = 0;
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    const std::string whole = right_answer(request, data);
    peer.send(
        whole.substr(0, request.number == 1 ? whole.size() : std::min(sent, whole.size() - 1)));
    if (request.number > 1) peer.stall();
  });
  RemoteLimits limits = quick_limits();
  limits.whole = milliseconds(1000);
  const RemoteFile file = open_file_at(server.url(), limits);
  for (sent = 0; sent < 200; sent += 45) {
    const Stopwatch watch;
    expect_error(reading_error(file, 0, kBytes), ErrorKind::unavailable, "timed out");
    watch.expect_below(8000);
  }
}

Test(remote_faults, a_server_that_trickles_is_given_up, .timeout = 60) {
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    if (request.number == 1) return answer(request, peer, std::string(100'000, 'x'));
    peer.send(head_of(request, 100'000));
    while (peer.send("x")) peer.pause(10);
  });
  RemoteLimits limits = quick_limits();
  limits.slow_for = std::chrono::seconds(1);
  limits.tries = 1;
  const RemoteFile file = open_file_at(server.url(), limits);
  const Stopwatch watch;
  expect_error(reading_error(file, 0, 100'000), ErrorKind::unavailable, "too slow");
  watch.expect_below(8000);
}

Test(remote_faults, what_has_no_end_is_cut_off, .timeout = 120) {
  const auto error = [](const std::function<std::string(const HttpRequest&)>& begin,
                        const std::string& endless) {
    HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
      peer.send(begin(request));
      while (peer.send(endless)) {
      }
    });
    const Stopwatch watch;
    const Error said = opening_error(server.url());
    watch.expect_below(15'000);
    cr_expect_eq(server.requests(), 1);
    return said;
  };
  const auto status = [](const HttpRequest&) { return std::string("HTTP/1.1 206 Part\r\n"); };
  expect_error(error(status, "X-Header: again\r\n"), ErrorKind::corrupt, "headers without end");
  expect_error(
      error([](const HttpRequest&) { return std::string(); }, "HTTP/1.1 100 Continue\r\n\r\n"),
      ErrorKind::corrupt, "headers without end");
  expect_error(error([](const HttpRequest&) { return std::string("HTTP/1.1 404 No\r\n\r\n"); },
                     std::string(10'000, 'x')),
               ErrorKind::not_found, "404 (xxx");
  const std::string chunk = "1000\r\n" + std::string(4096, 'x') + "\r\n";
  expect_error(
      error(
          [](const HttpRequest& request) {
            return head_of(request, 9, {{"Content-Length", ""}, {"Transfer-Encoding", "chunked"}});
          },
          chunk),
      ErrorKind::corrupt, "more than it was asked for");
}

Test(remote_faults, a_header_line_without_end_is_cut_off, .timeout = 60) {
  HostileServer server([](const HttpRequest&, HttpPeer& peer) {
    peer.send("HTTP/1.1 206 Part\r\nX: ");
    while (peer.send(std::string(10'000, 'x'))) {
    }
  });
  const Stopwatch watch;
  cr_expect(!opening_error(server.url()).text.empty());
  watch.expect_below(15'000);
}

namespace {

struct Lie {
  const char* status;
  Fields fields;
  const char* said;  ///< of it
};

}  // namespace

Test(remote_faults, lies_are_refused_at_once, .timeout = 60) {
  const char* part = "206 Partial Content";
  const Lie lies[] = {
      {"200 OK", {}, "sends the whole file"},
      {"200 OK", {{"Content-Range", ""}, {"Content-Length", "1000"}}, "sends the whole file"},
      {part, {{"Content-Range", ""}}, "does not say which part"},
      {part, {{"Content-Range", "bytes */1000"}}, "does not say which part"},
      {part, {{"Content-Range", "bytes 101-150/1000"}}, "asked for 100 to 150"},
      {part, {{"Content-Range", "bytes 100-148/1000"}}, "asked for 100 to 150"},
      {part, {{"Content-Range", "bytes 100-149/*"}}, "a Content-Range that is none"},
      {part, {{"Content-Range", "bytes 149-100/1000"}}, "a Content-Range that is none"},
      {part, {{"Content-Range", "lines 100-149/1000"}}, "a Content-Range that is none"},
      {part, {{"Content-Length", "51"}}, "promises 51 bytes for a part of 50"},
      {part, {{"Content-Length", "49"}}, "promises 49 bytes for a part of 50"},
      {part, {{"Content-Encoding", "gzip"}}, "encoded, which nobody asked for"},
      {part, {{"content-range", "bytes 0-49/1000"}}, "one header twice, differently"},
      {part, {{"etag", "\"v2\""}}, "one header twice, differently"},
      {part, {{"Content-Type", "text\r\n folded"}}, "over two lines"},
      {"101 Switching Protocols", {}, "changes to another protocol"},
  };
  for (const Lie& lie : lies) {
    HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
      if (request.number == 1) return answer(request, peer, std::string(1000, 'x'));
      peer.send(head_of(request, 1000, lie.fields, lie.status));
      peer.send(std::string(60, 'x'));
      peer.close();
    });
    const RemoteFile file = open_file_at(server.url());
    const Error error = reading_error(file, 100, 50);
    expect_error(error, ErrorKind::corrupt, lie.said);
    cr_expect(has(error.text, "tell who runs it") || has(error.text, "put it onto"), "%s",
              error.text.c_str());
    cr_expect_eq(server.requests(), 2, "a lie was asked for again: %s", lie.said);
  }
}

Test(remote_faults, an_empty_file_is_none, .timeout = 60) {
  for (const bool knows_ranges : {true, false}) {
    HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
      peer.send(
          knows_ranges
              ? head_of(request, 0, {{"Content-Range", "bytes */0"}, {"Content-Length", "0"}},
                        "416 Range Not Satisfiable")
              : head_of(request, 0, {{"Content-Range", ""}, {"Content-Length", "0"}}, "200 OK"));
    });
    expect_error(opening_error(server.url()), ErrorKind::corrupt, "the file is empty");
  }
}

Test(remote_faults, only_what_may_pass_is_asked_for_again, .timeout = 60) {
  const auto requests_until = [](const std::string& status, ErrorKind kind,
                                 const std::string& text) {
    HostileServer server([&](const HttpRequest&, HttpPeer& peer) {
      peer.send("HTTP/1.1 " + status + "\r\nContent-Length: 4\r\n\r\nwhy?");
    });
    expect_error(opening_error(server.url()), kind, text);
    return server.requests();
  };
  for (const char* status : {"500 X", "502 X", "503 X", "504 X", "429 X", "408 X"})
    cr_expect_eq(
        requests_until(status, ErrorKind::unavailable, "(why?): try again later (tried 6 times)"),
        6, "%s", status);
  cr_expect_eq(requests_until("403 X", ErrorKind::denied, "403 (why?): check the keys"), 1);
  cr_expect_eq(requests_until("401 X", ErrorKind::denied, "401 (why?)"), 1);
  cr_expect_eq(requests_until("404 X", ErrorKind::not_found, "404 (why?)"), 1);
  cr_expect_eq(requests_until("410 X", ErrorKind::not_found, "410 (why?)"), 1);
  cr_expect_eq(requests_until("412 X", ErrorKind::corrupt, "412 (why?)"), 1);
  cr_expect_eq(requests_until("416 X", ErrorKind::corrupt, "416 (why?)"), 1);
  cr_expect_eq(requests_until("418 X", ErrorKind::unavailable, "418 (why?)"), 1);
  cr_expect_eq(requests_until("301 X", ErrorKind::unavailable, "check the region"), 1);
}

Test(remote_faults, a_server_may_ask_for_a_pause_but_not_for_any, .timeout = 60) {
  HostileServer server([](const HttpRequest& request, HttpPeer& peer) {
    const std::string after = request.number == 1 ? "1" : "100000";
    if (request.number > 2) return answer(request, peer, "x");
    peer.send("HTTP/1.1 503 X\r\nContent-Length: 0\r\nRetry-After: " + after + "\r\n\r\n");
  });
  RemoteLimits limits = quick_limits();
  limits.longest_pause = milliseconds(1100);
  const auto begin = Clock::now();
  open_file_at(server.url(), limits);
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  cr_expect(took >= milliseconds(2000) && took < milliseconds(8000), "%ld ms",
            static_cast<long>(took.count()));
  // A pause beyond the limit of the whole is not begun.
  limits.whole = milliseconds(5000);
  limits.longest_pause = milliseconds(30'000);
  HostileServer other([](const HttpRequest&, HttpPeer& peer) {
    peer.send("HTTP/1.1 503 X\r\nContent-Length: 0\r\nRetry-After: 20\r\n\r\n");
  });
  const Stopwatch watch;
  expect_error(opening_error(other.url(), limits), ErrorKind::unavailable, "503");
  watch.expect_below(4500);
}

Test(remote_faults, what_a_server_says_is_fit_for_a_terminal, .timeout = 60) {
  HostileServer server([](const HttpRequest&, HttpPeer& peer) {
    const std::string text = "<h1>\x1b[2J\r\n\tgone</h1>\xe2\x80\xae" + std::string(500, 'y');
    peer.send("HTTP/1.1 404 \x1b[0m\r\nContent-Length: " + std::to_string(text.size()) +
              "\r\n\r\n" + text);
  });
  const Error error = opening_error(server.url());
  expect_error(error, ErrorKind::not_found, "404 (<h1>?[2J gone</h1>???yyy");
  cr_expect(has(error.text, "...)"));
  cr_expect(std::all_of(error.text.begin(), error.text.end(),
                        [](char c) { return c >= ' ' && c < 0x7f; }));
}
