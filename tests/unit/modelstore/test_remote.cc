// SPDX-License-Identifier: Apache-2.0
// Files read from a server that means well, and from one whose file changes.
#include <criterion/criterion.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/modelstore/model_files.h"
#include "tests/unit/modelstore/remote_support.h"

using namespace bellows;
using namespace bellows::model_test;

Test(remote, reads_a_file_by_several_threads_over_connections_that_stay, .timeout = 60) {
  const std::string data = random_bytes(10'000'001);
  HostileServer server(
      [&](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, data); });
  const RemoteFile file = open_file_at(server.url("/a/model.safetensors?token=1"));
  cr_expect_eq(file.size(), data.size());
  cr_expect_str_eq(file.version().etag.c_str(), "\"v1\"");
  cr_expect(has(file.name(), "/a/model.safetensors") && !has(file.name(), "token"));
  constexpr std::uint64_t kPiece = 300'000;
  constexpr unsigned kThreads = 4;
  std::string got(data.size(), '\0');
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t at; (at = next.fetch_add(kPiece)) < data.size();)
        if (!file.read(at, reinterpret_cast<unsigned char*>(got.data()) + at,
                       std::min(kPiece, data.size() - at)))
          failed = true;
    });
  for (std::thread& thread : threads) thread.join();
  cr_expect(!failed && got == data);
  cr_expect(server.connections() <= kThreads, "%u connections", server.connections());
}

Test(remote, reads_nothing_and_refuses_what_is_not_there, .timeout = 60) {
  HostileServer server(
      [](const HttpRequest& request, HttpPeer& peer) { answer(request, peer, "0123456789"); });
  const RemoteFile file = open_file_at(server.url());
  cr_expect(read_part(file, 10, 0).empty());
  cr_expect(read_part(file, 9, 1) == "9" && read_part(file, 0, 10) == "0123456789");
  expect_error(reading_error(file, 9, 2), ErrorKind::invalid, "9 to 11");
  expect_error(reading_error(file, UINT64_MAX, 2), ErrorKind::invalid, "10 bytes");
  cr_expect_eq(server.requests(), 3, "no request for what can't be");
}

Test(remote, asks_for_the_version_that_it_opened, .timeout = 60) {
  HostileServer server([](const HttpRequest& request, HttpPeer& peer) {
    const bool has_tag = request.path == "/tag";
    if (request.number > 1 && has_tag) {
      cr_expect(request.field("if-match") == "\"v1\"");
      cr_expect(request.field("if-unmodified-since").empty());
    } else if (!has_tag && !request.field("if-unmodified-since").empty()) {
      cr_expect(request.field("if-unmodified-since") == "Fri, 27 Nov 2026 10:00:00 GMT");
    }
    peer.send(head_of(request, 4,
                      {{"ETag", has_tag ? "\"v1\"" : "W/\"weak\""},
                       {"Last-Modified", "Fri, 27 Nov 2026 10:00:00 GMT"}}));
    peer.send(std::string_view("abcd").substr(request.begin, request.end - request.begin));
  });
  cr_expect(read_part(open_file_at(server.url("/tag")), 1, 2) == "bc");
  const RemoteFile dated = open_file_at(server.url("/date"));
  cr_expect(read_part(dated, 1, 3) == "bcd");
  cr_expect(dated.version().etag.empty() && !dated.version().last_modified.empty());
}

namespace {

/// What is said of a file that is another one when it is read.
Error error_of_change(const std::map<std::string, std::string>& before,
                      const std::map<std::string, std::string>& after,
                      std::string_view status = "206 Partial Content") {
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    const bool first = request.number == 1;
    peer.send(
        head_of(request, 1000, first ? before : after, first ? "206 Partial Content" : status));
    peer.send(std::string(request.end - request.begin, first ? 'a' : 'b'));
  });
  const RemoteFile file = open_file_at(server.url());
  const Error error = reading_error(file, 100, 50);
  cr_expect_eq(server.requests(), 2, "what was changed stays so");
  return error;
}

}  // namespace

Test(remote, refuses_a_file_that_changes, .timeout = 60) {
  const std::string words = "changed while it was read: open it again";
  const auto expect = [&](const Error& error) {
    cr_expect(error.kind == ErrorKind::corrupt && has(error.text, "changed while it was read") &&
                  has(error.text, "open it again"),
              "%s", error.text.c_str());
  };
  expect(error_of_change({}, {{"ETag", "\"v2\""}}));
  expect(error_of_change({}, {{"ETag", ""}}));
  expect(error_of_change({}, {{"ETag", "W/\"v1\""}}));
  expect(error_of_change({}, {{"Content-Range", "bytes 100-149/1001"}}));
  expect(error_of_change({}, {}, "412 Precondition Failed"));
  expect(error_of_change({}, {{"Content-Range", "bytes */70"}}, "416 Range Not Satisfiable"));
  const std::string then = "Fri, 27 Nov 2026 10:00:00 GMT";
  expect(error_of_change({{"ETag", ""}, {"Last-Modified", then}},
                         {{"ETag", ""}, {"Last-Modified", "Fri, 27 Nov 2026 10:00:01 GMT"}}));
  expect(error_of_change({{"ETag", ""}, {"Last-Modified", then}},
                         {{"ETag", "\"new\""}, {"Last-Modified", then}}));
}

Test(remote, refuses_a_file_whose_change_would_not_show, .timeout = 60) {
  const auto error = [](const std::map<std::string, std::string>& fields) {
    HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
      peer.send(head_of(request, 1000, fields) + "x");
    });
    return opening_error(server.url());
  };
  expect_error(error({{"ETag", ""}}), ErrorKind::corrupt, "neither a strong ETag nor");
  expect_error(error({{"ETag", "W/\"1\""}}), ErrorKind::corrupt, "neither a strong ETag nor");
  expect_error(error({{"ETag", "unquoted"}}), ErrorKind::corrupt, "neither a strong ETag nor");
  const std::string date = "Fri, 27 Nov 2026 10:00:01 GMT";
  expect_error(error({{"Last-Modified", date}, {"Date", date}}), ErrorKind::unavailable,
               "changed just now");
}

Test(remote, waits_for_a_file_that_was_changed_just_now, .timeout = 60) {
  HostileServer server([&](const HttpRequest& request, HttpPeer& peer) {
    const std::string seconds = request.number < 3 ? "01" : "02";
    peer.send(head_of(request, 1,
                      {{"Last-Modified", "Fri, 27 Nov 2026 10:00:00 GMT"},
                       {"Date", "Fri, 27 Nov 2026 10:00:" + seconds + " GMT"}}) +
              "x");
  });
  cr_expect_eq(open_file_at(server.url()).size(), 1);
  cr_expect_eq(server.requests(), 3);
}
