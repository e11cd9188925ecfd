// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/daemon_line.h"

#include <poll.h>

#include "modelstore/helper/helper_main.h"

namespace bellows {

Status await_message(LoaderMessage* message, plain::Handle* passed) {
  for (;;) {
    pollfd daemon = {kDaemon, POLLIN, 0};
    (void)poll(&daemon, 1, -1);
    const auto received = receive_message(kDaemon, message, passed);
    if (!received) return received.error();
    if (*received && message->word != LoaderWord::progress) return {};
  }
}

Status tell(const LoaderMessage& message, int passed) {
  pollfd daemon = {kDaemon, POLLOUT, 0};
  (void)poll(&daemon, 1, -1);
  return send_message(kDaemon, message, passed);
}

void say_progress(std::uint64_t bytes) {
  LoaderMessage message;
  message.word = LoaderWord::progress;
  message.bytes = bytes;
  (void)send_message(kDaemon, message);
}

void say_failed(const Error& error) {
  LoaderMessage message;
  message.word = LoaderWord::failed;
  message.error = static_cast<std::uint32_t>(error.kind);
  message.set_text(error.text);
  (void)tell(message);
}

}  // namespace bellows
