// SPDX-License-Identifier: Apache-2.0
/// What an agent answers to libbellows. The input is a row of answers, each of seven bytes: what it
/// is, step, value, code, whether memory comes along, and how its length lies. After a restore's
/// answer come the blocks that its code counts, of seven bytes too: its source, the offset there,
/// the destination, its bytes, and whether the digest is right. Whatever they are, every call comes
/// back, one that fails says why, and nothing outside the array is written.

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "checkpoint/client/handle.h"
#include "checkpoint/include/bellows.h"
#include "checkpoint/wire/wire.h"
#include "common/fd.h"

namespace {

using bellows::Fd;
namespace wire = bellows::wire;

constexpr std::size_t kAnswerBytes = 7;
constexpr std::size_t kArrayBytes = 512;
constexpr unsigned char kAround = 0x5a;

Fd memory(std::size_t bytes) {
  Fd fd(memfd_create("fuzz", MFD_CLOEXEC));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) std::abort();
  return fd;
}

void send_answer(int socket, wire::Head head, std::size_t body, int fd) {
  char text[8192] = "why";
  iovec pieces[2] = {{&head, sizeof head}, {text, body}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  // The library may have hung up already.
  (void)!sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::uint64_t wide(std::uint8_t byte) {
  return byte == 0xff ? UINT64_MAX : std::uint64_t{byte} * 64;
}

wire::Block block_of(const std::uint8_t* bytes) {
  static const unsigned char zeros[256 * 64] = {};
  wire::Block block;
  block.source = bytes[0];
  block.from = wide(bytes[1]);
  block.to = wide(bytes[2]);
  block.bytes = wide(bytes[3]);
  if (bytes[4] % 2 == 0 && block.bytes <= sizeof zeros) {
    const XXH128_hash_t digest = XXH3_128bits(zeros, block.bytes);
    block.digest = {digest.high64, digest.low64};
  }
  return block;
}

/// Says that the array is there, and writes what blocks the input has. Returns how many.
std::size_t fill(const Fd& fd, int blocks, const std::uint8_t* data, std::size_t size) {
  const std::uint8_t all = 1;
  (void)!pwrite(fd.get(), &all, 1, static_cast<off_t>(wire::flags_offset(kArrayBytes)));
  auto at = static_cast<off_t>(wire::blocks_offset(kArrayBytes, 1));
  const std::size_t count =
      std::min(static_cast<std::size_t>(std::max(blocks, 0)), size / kAnswerBytes);
  for (std::size_t i = 0; i < count; ++i, at += static_cast<off_t>(sizeof(wire::Block))) {
    const wire::Block block = block_of(data + i * kAnswerBytes);
    (void)!pwrite(fd.get(), &block, sizeof block, at);
  }
  return count;
}

/// Returns how many bytes of the input were used.
std::size_t answer(int socket, const std::uint8_t* bytes, std::size_t size) {
  std::size_t used = kAnswerBytes;
  wire::Head head;
  if (bytes[6] == 0xff) head.version = bytes[5];
  head.op = static_cast<wire::Op>(bytes[0] % 17);
  head.step = bytes[1] == 0xff ? wire::kNoStep : bytes[1];
  head.value = wide(bytes[2]);
  if (head.op == wire::Op::failed || head.op == wire::Op::source) head.value = bytes[2] % 4;
  head.code = static_cast<std::int8_t>(bytes[3]);
  const Fd fd = bytes[4] % 2 == 1 ? memory(std::size_t{bytes[4]} * 64) : Fd();
  if (head.op == wire::Op::restored && fd) {
    used += kAnswerBytes * fill(fd, head.code, bytes + used, size - used);
  }
  const std::size_t body = head.op == wire::Op::failed ? bytes[5] : bytes[5] / 64;
  head.length = static_cast<std::uint32_t>(bytes[6] == 0xfe ? bytes[5] * 100 : body);
  send_answer(socket, head, body, fd.get());
  return used;
}

/// An agent that lets one rank in and then says what the input says.
class Agent {
 public:
  Agent() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_ = "/tmp/bellows-fuzz-" + std::to_string(getpid());
    unlink(path_.c_str());
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_.get(), 4) != 0) {
      std::abort();
    }
    setenv("BELLOWS_SOCKET", path_.c_str(), 1);
    setenv("BELLOWS_ATTEMPT", "1.0.1", 1);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() { unlink(path_.c_str()); }

  void serve(const std::uint8_t* data, std::size_t size) {
    const Fd rank(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Fd page = memory(wire::kControlBytes);
    wire::Head welcome;
    welcome.op = wire::Op::welcome;
    welcome.value = 1 << 20;
    send_answer(rank.get(), welcome, 0, page.get());
    while (size >= kAnswerBytes) {
      const std::size_t used = answer(rank.get(), data, size);
      data += used;
      size -= used;
    }
    shutdown(rank.get(), SHUT_WR);
    char ignored[wire::kMostMessage];
    while (recv(rank.get(), ignored, sizeof ignored, 0) > 0) {
    }
  }

 private:
  Fd listener_;
  std::string path_;
};

// Whether the call may continue.
bool holds(bellows_t* b, int code) {
  if (code < 0 && bellows_error(b)[0] == 0) std::abort();
  return code >= 0;
}

void run_rank() {
  bellows_t* b = nullptr;
  if (!holds(b, bellows_init(nullptr, &b))) std::abort();
  unsigned char around[3 * kArrayBytes];
  std::memset(around, kAround, sizeof around);
  unsigned char* data = around + kArrayBytes;
  const std::uint64_t shape[] = {kArrayBytes};
  if (bellows_register(b, "x", BELLOWS_U8, 1, shape, BELLOWS_REPLICATED, 0, 0, data) != 0) {
    std::abort();
  }
  std::uint64_t step = 0;
  holds(b, bellows_restore(b, &step));
  for (std::uint64_t i = 1; i <= 6; ++i) {
    holds(b, bellows_save_async(b, i));
    if (b->saves.count > bellows::client::Saves::kMost) std::abort();
  }
  holds(b, bellows_saved_step(b, &step));
  holds(b, bellows_save(b, 7));
  holds(b, bellows_wait(b));
  bellows_finalize(b, 1);
  std::memset(data, kAround, kArrayBytes);
  for (unsigned char byte : around) {
    if (byte != kAround) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Agent agent;
  std::thread serving([&] { agent.serve(data, size < 4096 ? size : 4096); });
  run_rank();
  serving.join();
  return 0;
}
