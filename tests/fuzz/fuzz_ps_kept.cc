// SPDX-License-Identifier: Apache-2.0
/// What the keeper gives to a bellows-ps that takes over: it goes on, or says why it cannot.

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/plain/packet.h"
#include "paramserver/server/ps_server.h"

using namespace bellows;
using namespace bellows::ps;

namespace {

unsigned adopted, refused;

void require(bool holds) {
  if (!holds) std::abort();
}

/// As kept_seats.cc has it.
struct MemoryRecord {
  RuleTerms terms;
  std::uint64_t tensor_count;
};

/// In a record. Each second one is of the number of tensors, which has few of so many bytes.
std::size_t place(std::uint16_t number) {
  constexpr std::size_t kCount = offsetof(MemoryRecord, tensor_count);
  const std::size_t half = number / 2;
  return number % 2 ? kCount + half % sizeof(std::uint64_t) : half % sizeof(MemoryRecord);
}

/// A keeper's answer to `get` as it should be: memory of two shards, and two learners.
class Kept {
 public:
  Kept() {
    Geometry geometry;
    geometry.learners = 3;
    auto memory = ServerMemory::make(geometry, {64, 64});
    require(memory.ok());
    control_.reset(dup(memory->files().control.get()));
    MemoryRecord record = {};
    record.terms.groups = 1;
    record.terms.group[0].rate = 1;
    record.terms.schedule.period = 1;
    record.terms.epsilon = 1;
    record.tensor_count = 2;
    const TensorSpec counts[] = {{64}, {64}};
    Fd tensors(memfd_create("fuzz", MFD_CLOEXEC));
    require(write(tensors.get(), counts, sizeof counts) == sizeof counts);
    add(0, record, Fd(dup(control_.get())));
    add(1, record, Fd(dup(memory->files().weights.get())));
    add(3, record, std::move(tensors));
    for (std::uint32_t l = 0; l < 2; ++l) {
      auto slot = SlotMemory::make(memory->control().geometry(), 7);
      require(slot.ok());
      const Identity who = {l, 1, 7};
      add(16 + 4 * l, who, Fd(dup(slot->file().get())));
      add(17 + 4 * l, who, Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
      add(18 + 4 * l, who, Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    }
  }

  /// Five bytes are one change.
  void spoil(const std::uint8_t* change) {
    Item& item = items_[change[1] % items_.size()];
    const std::size_t at = change[2];
    const std::uint16_t more = static_cast<std::uint16_t>(change[3] << 8 | change[4]);
    switch (change[0] % 6) {
      case 0:
        item.message.key = change[2] % 40;
        break;
      case 1:
        item.message.length = more % (KeeperMessage::kMostRecord + 2);
        break;
      case 2:
        item.message.record[place(more)] = static_cast<char>(change[2]);
        break;
      case 3:
        item.fd.reset(at % 2 ? dup(items_[change[3] % items_.size()].fd.get()) : -1);
        break;
      case 4:
        (void)!pwrite(control_.get(), change + 2, 1, more % 8192);
        break;
      default:
        item.message.word = static_cast<KeeperWord>(change[2] % 8);
    }
  }
  /// To who has asked.
  void give(int socket) const {
    const auto send = [socket](const KeeperMessage& message, int fd) {
      const iovec part = {const_cast<KeeperMessage*>(&message), sizeof message};
      return plain::send_packet(socket, &part, 1, fd, 0) == 0;
    };
    for (const Item& item : items_)
      if (!send(item.message, item.fd.get())) return;
    KeeperMessage end;
    end.word = KeeperWord::end;
    (void)send(end, -1);
  }

 private:
  struct Item {
    KeeperMessage message;
    Fd fd;
  };

  template <typename Record>
  void add(std::uint64_t key, const Record& record, Fd fd) {
    Item& item = items_.emplace_back();
    item.message.word = KeeperWord::item;
    item.message.key = key;
    item.message.length = sizeof record;
    std::memcpy(item.message.record, &record, sizeof record);
    item.fd = std::move(fd);
  }

  Fd control_;
  std::vector<Item> items_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChange = 5;
  Kept kept;
  for (std::size_t at = 0; at + kChange <= size && at < 8 * kChange; at += kChange)
    kept.spoil(data + at);
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd keeper(ends[0]);
  // The answers are there before they are asked for, since there is room for them; no others come.
  kept.give(keeper.get());
  shutdown(keeper.get(), SHUT_WR);
  auto loop = EventLoop::make();
  require(loop.ok());
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  auto server = PsServer::make(**loop, std::move(listener), SeatKeeper(Fd(ends[1])), {},
                               [](const std::string& text) { require(!text.empty()); });
  if (!server) {
    ++refused;
    require(!server.error().text.empty());
    return 0;
  }
  ++adopted;
  (void)(*server)->settle();
  return 0;
}

/// Each that goes on starts threads.
extern "C" std::uint64_t fuzz_target_runs() { return 2000; }
extern "C" bool fuzz_target_came_far() { return adopted > 100 && refused > 100; }
