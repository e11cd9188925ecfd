// SPDX-License-Identifier: Apache-2.0
/// What several learners send to bellows-ps, in any order, with any descriptors, and write to their
/// slots: the server answers with sound messages, and refuses with a sentence.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/plain/packet.h"
#include "paramserver/server/ps_server.h"

using namespace bellows;
using namespace bellows::ps;

namespace {

constexpr TensorSpec kCounts[] = {{64}, {100, 10}};
constexpr std::size_t kClients = 4;
unsigned grants, refusals;

void require(bool holds) {
  if (!holds) std::abort();
}

/// Numbers out of the input; zeroes after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool ends() const { return size_ == 0; }
  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::vector<char> bytes(std::size_t count) {
    std::vector<char> all(count);
    for (char& each : all) each = static_cast<char>(byte());
    return all;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

Fd memory(const void* data, std::size_t bytes, std::size_t size) {
  Fd fd(memfd_create("fuzz", MFD_CLOEXEC));
  require(pwrite(fd.get(), data, bytes, 0) == static_cast<ssize_t>(bytes) &&
          ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  return fd;
}

Fd descriptor(Input& input) {
  switch (input.byte() % 6) {
    case 0:
      return memory(kCounts, sizeof kCounts, sizeof kCounts);
    case 1:
      return memory(kCounts, 0, 192 * sizeof(float));
    case 2:
      return *open_file("/dev/zero", O_RDONLY);
    case 3: {
      const auto counts = input.bytes(sizeof(TensorSpec));
      return memory(counts.data(), counts.size(), input.byte());
    }
    case 4: {
      int ends[2];
      require(pipe2(ends, O_CLOEXEC) == 0);
      const Fd other(ends[1]);
      return Fd(ends[0]);
    }
    default:
      return Fd();
  }
}

class World {
 public:
  World() : loop_(*EventLoop::make()) {
    Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    // The kernel chooses a name that is no file's.
    require(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0);
    require(listen(listener.get(), 16) == 0);
    size_ = sizeof address_;
    require(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address_), &size_) == 0);
    ServerOptions options;
    options.learners = 3;
    options.threads = 2;
    auto server = PsServer::make(*loop_, std::move(listener), SeatKeeper(Fd()), options,
                                 [](const std::string& text) { require(!text.empty()); });
    require(server.ok());
    server_ = std::move(*server);
  }

  void step(Input& input) {
    const std::uint8_t what = input.byte();
    Client& client = clients_[input.byte() % kClients];
    if (what % 6 == 0)
      connect(client);
    else if (what % 6 == 1)
      send_message(client, input);
    else if (what % 6 == 2)
      send_bytes(client, input);
    else if (what % 6 == 3)
      client = Client();
    else if (what % 6 == 4)
      scribble(client, input);
    turn();
    for (Client& each : clients_) read(each);
  }
  void turn() {
    for (int i = 0; i < 4; ++i) {
      (void)server_->settle();
      loop_->run_once(EventLoop::Clock::now());
    }
  }

 private:
  struct Client {
    Fd socket;
    std::vector<Fd> passed;
    Geometry geometry;
  };

  void connect(Client& client) {
    client = Client();
    client.socket.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!::connect(client.socket.get(), reinterpret_cast<sockaddr*>(&address_), size_);
  }
  void send(const Client& client, const void* data, std::size_t bytes, const Fd& passed) {
    const iovec part = {const_cast<void*>(data), bytes};
    if (client.socket) (void)plain::send_packet(client.socket.get(), &part, 1, passed.get(), 0);
  }
  void send_message(const Client& client, Input& input) {
    PsMessage message;
    message.word = static_cast<PsWord>(input.byte() % 9);
    message.tensors = input.byte() % 4;
    message.terms.rule = input.byte() % 6;
    message.terms.gradient_type = input.byte() % 4;
    message.terms.group[0].rate = 1;
    message.terms.epsilon = 1;
    send(client, &message, sizeof message, descriptor(input));
  }
  void send_bytes(const Client& client, Input& input) {
    PsMessage message;
    const auto bytes = input.bytes(input.byte() % 64);
    std::memcpy(reinterpret_cast<char*>(&message) + input.byte() % 128, bytes.data(), bytes.size());
    send(client, &message, input.byte() % 4 != 0 ? sizeof message : input.byte() * 8u,
         descriptor(input));
  }
  /// Into the header of its slot and the pins, or what its gradients say of rows.
  void scribble(const Client& client, Input& input) {
    const auto bytes = input.bytes(1 + input.byte() % 16);
    const std::uint8_t where = input.byte();
    // Both lists are the last pages.
    const off_t lists = static_cast<off_t>(SlotView::bytes(client.geometry) - 2 * kPage);
    const off_t at = where < 160 ? where : lists + (where % 2) * off_t{kPage} + where % 64 / 2;
    // Of what it was given, only the slot can be written to.
    for (const Fd& fd : client.passed) (void)!pwrite(fd.get(), bytes.data(), bytes.size(), at);
  }
  void read(Client& client) {
    for (;;) {
      PsMessage message;
      plain::Handle passed;
      const iovec part = {&message, sizeof message};
      std::size_t got = 0;
      if (!client.socket ||
          plain::receive_packet(client.socket.get(), &part, 1, &got, &passed, MSG_DONTWAIT) != 0)
        return;
      require(message.is_sound(got));
      require(message.word != PsWord::refused || message.length > 0);
      if (message.word == PsWord::granted) {
        ++grants;
        client.geometry = message.geometry;
      }
      if (message.word == PsWord::refused) ++refusals;
      // The last is a bell, and no write to that is wanted.
      if (passed.get() >= 0 && client.passed.size() < 3)
        client.passed.emplace_back(passed.release());
    }
  }

  std::unique_ptr<EventLoop> loop_;
  sockaddr_un address_ = {};
  socklen_t size_ = 0;
  std::unique_ptr<PsServer> server_;
  Client clients_[kClients];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  World world;
  for (int steps = 0; steps < 40 && !input.ends(); ++steps) world.step(input);
  world.turn();
  return 0;
}

/// Each starts threads, and learners that come and go wait for them.
extern "C" std::uint64_t fuzz_target_runs() { return 600; }
extern "C" bool fuzz_target_came_far() { return grants > 100 && refusals > 100; }
