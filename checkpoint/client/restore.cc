// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/restore.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/client/arrays.h"
#include "checkpoint/client/threads.h"

namespace bellows::client {
namespace {

// Memory is as fast as a few processors are, and a disk wants a few requests at once.
constexpr int kMostHelpers = 3;
constexpr std::uint64_t kSector = 4096;

/// What came with one answer of the agent.
struct Given {
  Handle fds[wire::kMostSources];
  std::uint64_t kinds[wire::kMostSources] = {};
  std::size_t sources = 0;
  Mapping memory;  ///< the arrays with holes, their flags and the blocks
  const unsigned char* flags = nullptr;
  const wire::Block* blocks = nullptr;
  std::size_t count = 0;
};

bool has_device_arrays(bellows_t* b) {
  b->cuda.look();
  int device = 0;
  for (std::size_t i = 0; i < b->count; ++i) {
    if (b->cuda.is_device(b->arrays[i].data, &device)) return true;
  }
  return false;
}

// Sources, and the message after them.
int receive_sources(bellows_t* b, Given* given) {
  for (;;) {
    int failure = receive_message(b->socket.get(), &b->answer);
    if (failure) return lost(b, failure);
    if (b->answer.head.op != wire::Op::source) return BELLOWS_OK;
    if (given->sources == wire::kMostSources) return lost(b, EPROTO);
    given->kinds[given->sources] = b->answer.head.value;
    given->fds[given->sources++].reset(b->answer.fd.release());
  }
}

// Finds flags and blocks in what was given.
int look_into(bellows_t* b, Given* given) {
  wire::Placer placer;
  std::uint64_t offset = 0, bytes = 0;
  for (std::size_t i = 0; i < b->count; ++i) {
    if (!wire::held_bytes(b->arrays[i].array, &bytes) || !placer.place(bytes, &offset)) {
      return lost(b, EPROTO);
    }
  }
  const std::size_t size = given->memory.size();
  const std::uint64_t flags = wire::flags_offset(placer.total());
  const std::uint64_t blocks = wire::blocks_offset(placer.total(), b->count);
  if (flags + b->count > size) return lost(b, EPROTO);
  given->flags = given->memory.data() + flags;
  const std::int32_t count = b->answer.head.code;
  if (count <= 0) return BELLOWS_OK;
  if (blocks > size || (size - blocks) / sizeof(wire::Block) < static_cast<std::uint32_t>(count)) {
    return lost(b, EPROTO);
  }
  given->blocks = reinterpret_cast<const wire::Block*>(given->memory.data() + blocks);
  given->count = static_cast<std::size_t>(count);
  return BELLOWS_OK;
}

/// Copies what the agent has read into one array, past the blocks that it has not.
class ArrayCopy {
 public:
  ArrayCopy(bellows_t* b, const Given& given, const Registered& r, std::uint64_t offset)
      : b_(b), given_(given), to_(static_cast<unsigned char*>(r.data)), offset_(offset) {
    device_ = b->cuda.is_device(r.data, &number_);
  }
  int copy(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return BELLOWS_OK;
    const unsigned char* from = given_.memory.data() + begin;
    unsigned char* to = to_ + (begin - offset_);
    if (device_) return b_->cuda.copy(to, from, end - begin, number_, &b_->error);
    memcpy(to, from, end - begin);
    return BELLOWS_OK;
  }

 private:
  bellows_t* b_;
  const Given& given_;
  unsigned char* const to_;
  const std::uint64_t offset_;
  bool device_ = false;
  int number_ = 0;
};

// What the agent has read itself.
int copy_read(bellows_t* b, const Given& given) {
  wire::Placer placer;
  std::uint64_t offset = 0, bytes = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < b->count; ++i) {
    wire::held_bytes(b->arrays[i].array, &bytes);
    placer.place(bytes, &offset);
    if (bytes == 0 || given.flags[i] != 1) continue;
    ArrayCopy array(b, given, b->arrays[i], offset);
    std::uint64_t at = offset;
    int rc = BELLOWS_OK;
    while (next < given.count && given.blocks[next].to < offset) ++next;
    for (; rc == BELLOWS_OK && next < given.count; ++next) {
      const wire::Block& block = given.blocks[next];
      if (block.to >= offset + bytes) break;
      rc = array.copy(at, block.to);
      at = block.to + block.bytes;
    }
    if (rc == BELLOWS_OK) rc = array.copy(at, offset + bytes);
    if (rc != BELLOWS_OK) return rc;
  }
  return b->cuda.finish(&b->error);
}

/// Owns memory that O_DIRECT takes; one thread's.
class PageBuffer {
 public:
  PageBuffer() = default;
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  ~PageBuffer() {
    if (data_) munmap(data_, wire::kMostBlock);
  }
  /// nullptr: there is no memory, or not for so much.
  unsigned char* get(std::uint64_t bytes) {
    if (bytes > wire::kMostBlock) return nullptr;
    if (!data_) {
      void* made = mmap(nullptr, wire::kMostBlock, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made != MAP_FAILED) data_ = made;
    }
    return static_cast<unsigned char*>(data_);
  }

 private:
  void* data_ = nullptr;
};

bool read_all(int fd, unsigned char* to, std::uint64_t bytes, std::uint64_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

/// Reads blocks from their sources, by several threads.
class Taking {
 public:
  Taking(bellows_t* b, const Given& given) : b_(b), given_(given) {}

  bool run() {
    int helpers = processors() - 1;
    for (std::size_t i = 0; i < given_.sources; ++i) {
      if (given_.kinds[i] != wire::Source::memory) {
        helpers = kMostHelpers;
      } else if (!mapped_[i].map_for_reading(given_.fds[i].get())) {
        return false;
      }
    }
    if (given_.count < 2) helpers = 0;
    run_side_by_side([](void* taking) { static_cast<Taking*>(taking)->work(); }, this,
                     helpers < kMostHelpers ? helpers : kMostHelpers);
    return !failed_.load();
  }

 private:
  void work() {
    PageBuffer buffer;
    while (!failed_.load(std::memory_order_relaxed)) {
      const std::size_t number = next_.fetch_add(1);
      if (number >= given_.count) return;
      if (!take(given_.blocks[number], &buffer)) failed_.store(true);
    }
  }

  // Nothing is believed of where a block goes: it must lie in one array.
  unsigned char* destination(const wire::Block& block) const {
    wire::Placer placer;
    std::uint64_t offset = 0, bytes = 0;
    for (std::size_t i = 0; i < b_->count; ++i) {
      wire::held_bytes(b_->arrays[i].array, &bytes);
      placer.place(bytes, &offset);
      if (block.to < offset || block.to - offset >= bytes) continue;
      if (block.bytes > bytes - (block.to - offset)) return nullptr;
      return static_cast<unsigned char*>(b_->arrays[i].data) + (block.to - offset);
    }
    return nullptr;
  }

  bool take(const wire::Block& block, PageBuffer* buffer) const {
    unsigned char* to = destination(block);
    if (!to || block.source >= given_.sources || block.bytes < kLeastHashed) return false;
    if (given_.kinds[block.source] == wire::Source::memory) return copy(block, to);
    return read(block, to, buffer);
  }

  bool copy(const wire::Block& block, unsigned char* to) const {
    const Mapping& source = mapped_[block.source];
    if (block.from > source.size() || block.bytes > source.size() - block.from) return false;
    unsigned char* from = source.data() + block.from;
    // One call is several times faster than a fault for each page; kernels before 5.14 refuse it.
    const std::uint64_t skip = block.from % kSector;
    madvise(from - skip, block.bytes + skip, MADV_POPULATE_READ);
    const bool right = hash_block(from, block.bytes, to) == block.digest;
    // Each thread its pages, or one would unmap all at the end.
    madvise(from - skip, block.bytes + skip, MADV_DONTNEED);
    return right;
  }

  // At once to its place, where the disk takes that.
  bool read(const wire::Block& block, unsigned char* to, PageBuffer* buffer) const {
    const bool direct = given_.kinds[block.source] == wire::Source::direct_file;
    const bool in_place = !direct || reinterpret_cast<std::uintptr_t>(to) % kSector == 0;
    unsigned char* at = in_place ? to : buffer->get(block.bytes);
    if (!at || !read_all(given_.fds[block.source].get(), at, block.bytes, block.from)) return false;
    return hash_block(at, block.bytes, in_place ? nullptr : to) == block.digest;
  }

  bellows_t* const b_;
  const Given& given_;
  Mapping mapped_[wire::kMostSources];
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
};

// One answer of the agent. *again: it must give everything itself.
int take_answer(bellows_t* b, std::uint64_t* step, bool* again) {
  Given given;
  int rc = receive_sources(b, &given);
  if (rc != BELLOWS_OK) return rc;
  const wire::Head& head = b->answer.head;
  if (head.op == wire::Op::failed) {
    return b->error.set(head.code < 0 ? head.code : BELLOWS_ERR_AGENT, "%s", b->answer.why());
  }
  if (head.op != wire::Op::restored) return lost(b, EPROTO);
  if (head.value == 0) return BELLOWS_NO_CHECKPOINT;
  const int fd = b->answer.fd.get();
  const bool mapped = head.code > 0 ? given.memory.map_for_reading(fd)
                                    : given.memory.map(fd, lseek(fd, 0, SEEK_END), PROT_READ);
  if (head.code > 0 && !mapped) {
    // As where the sources have taken all the descriptors that this process may have.
    *again = true;
    return send(b, wire::Op::taken, 0, wire::Taken::wrong_block);
  }
  if (b->count > 0 && !mapped) {
    return b->error.set(BELLOWS_ERR_MEMORY, "cannot map the restored arrays: %s", strerror(errno));
  }
  rc = look_into(b, &given);
  if (rc == BELLOWS_OK && given.count > 0) {
    *again = !Taking(b, given).run();
    rc = send(b, wire::Op::taken, 0, *again ? wire::Taken::wrong_block : wire::Taken::all_blocks);
  }
  if (rc == BELLOWS_OK && !*again) rc = copy_read(b, given);
  if (rc != BELLOWS_OK || *again) return rc;
  *step = b->saves.newest_known = head.step;
  // Steps that were saved after it are to come again.
  Saves& saves = b->saves;
  if (saves.newest_saved != wire::kNoStep && saves.newest_saved > head.step)
    saves.newest_saved = head.step;
  // It holds as much memory as the arrays.
  b->answer.fd.reset(-1);
  return BELLOWS_OK;
}

}  // namespace

int restore(bellows_t* b, std::uint64_t* step) {
  const std::uint64_t how =
      has_device_arrays(b) ? wire::Restore::whole : wire::Restore::from_sources;
  int rc = send(b, wire::Op::restore, 0, how);
  bool again = true;
  while (rc == BELLOWS_OK && again) {
    again = false;
    rc = take_answer(b, step, &again);
  }
  return rc;
}

}  // namespace bellows::client
