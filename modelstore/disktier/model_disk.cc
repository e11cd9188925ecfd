// SPDX-License-Identifier: Apache-2.0
// bellows-model-disk: keeps the images of models on a disk for bellows-modeld, which starts it.
// README.md has what they say to each other, on this process's standard input.
//
// usage: bellows-model-disk DIRECTORY BYTES POLICY TTL-SECONDS [TENANT=BYTES]...
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/text.h"
#include "modelstore/disktier/disk_desk.h"
#include "modelstore/helper/helper_main.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kOther{4};
constexpr std::chrono::milliseconds kTryAgain{20};

std::optional<DiskOptions> options_of(int argc, char** argv) {
  if (argc < 5) return std::nullopt;
  const auto bytes = parse_uint(argv[2]), policy = parse_uint(argv[3]), ttl = parse_uint(argv[4]);
  if (!bytes || !policy || *policy > static_cast<unsigned>(EvictionPolicy::cost) || !ttl)
    return std::nullopt;
  DiskOptions options;
  options.directory = argv[1];
  options.limits = {*bytes, static_cast<EvictionPolicy>(*policy), std::chrono::seconds(*ttl)};
  for (int i = 5; i < argc; ++i) {
    const std::string text = argv[i];
    const auto sign = text.find('=');
    const auto budget = sign == std::string::npos
                            ? std::nullopt
                            : parse_uint(std::string_view(text).substr(sign + 1));
    if (!budget) return std::nullopt;
    options.tenants.emplace_back(text.substr(0, sign), *budget);
  }
  return options;
}

void send(const DiskMessage& message, int passed) {
  // The daemon has room for what it asks for; where it has none, it has gone or hangs.
  (void)send_message(kDaemon, message, passed);
}

/// False: the daemon has gone.
bool take_all(DiskDesk& desk) {
  for (;;) {
    DiskMessage message;
    plain::Handle passed;
    const auto received = receive_message(kDaemon, &message, &passed);
    if (!received) return false;
    if (!*received) return true;
    desk.take(message, Fd(passed.release()));
  }
}

/// One that served a daemon before may be at its end still.
Result<std::unique_ptr<DiskDesk>> open_desk(const DiskOptions& options) {
  const auto end = std::chrono::steady_clock::now() + kOther;
  for (;;) {
    auto desk = DiskDesk::open(options, send);
    const bool waits = !desk && desk.error().kind == ErrorKind::busy;
    if (!waits || std::chrono::steady_clock::now() >= end) return desk;
    std::this_thread::sleep_for(kTryAgain);
  }
}

Status serve(int argc, char** argv) {
  const auto options = options_of(argc, argv);
  if (!options)
    return Error{ErrorKind::invalid, "bellows-model-disk got options that make no sense"};
  auto desk = open_desk(*options);
  if (!desk) return desk.error();
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    const auto next = (*desk)->tick(now);
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::min(next - now, DiskDesk::Time::duration(std::chrono::hours(1))));
    pollfd fds[] = {{kDaemon, POLLIN, 0}, {(*desk)->event(), POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(std::max<std::int64_t>(wait.count() + 1, 0)));
    if (fds[1].revents) (*desk)->on_event();
    if (fds[0].revents && !take_all(**desk)) break;
  }
  (*desk)->end();
  // An image that is half written stays so: the next one removes it.
  _exit(0);
}

void report(const Error& error) {
  DiskMessage message;
  message.word = DiskWord::notice;
  message.set_text(error.text);
  send(message, -1);
}

}  // namespace
}  // namespace bellows

int main(int argc, char** argv) {
  return bellows::helper_main(
      "bellows-model-disk", [&] { return bellows::serve(argc, argv); }, bellows::report);
}
