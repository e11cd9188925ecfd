// SPDX-License-Identifier: Apache-2.0
// Every way to write to a model that is lent, each of which must fail, as root and as its daemon's
// user, and as another.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "tests/unit/modelstore/model_store.h"
#include "tests/unit/support/other_user.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

constexpr std::size_t kPage = 4096;

/// A model that is lent, with its descriptor and a mapping of it.
struct Lent {
  explicit Lent(ModelStore& store) : client(store.socket("a")) {
    cr_assert(client.send(RawClient::request(modelwire::Op::open, 1, "m")));
    const auto reply = client.receive(&memory);
    cr_assert(reply && reply->answer == modelwire::Answer::opened);
    // All that is mapped, which with huge pages is more than the model.
    size = static_cast<std::size_t>(lseek(memory.get(), 0, SEEK_END));
    cr_assert_geq(size, reply->memory_bytes);
    map = mmap(nullptr, size, PROT_READ, MAP_SHARED, memory.get(), 0);
    cr_assert(map != MAP_FAILED);
    before.assign(static_cast<const char*>(map), size);
  }
  ~Lent() { munmap(map, size); }
  bool unchanged() const {
    return before.compare(0, size, static_cast<const char*>(map), size) == 0;
  }
  int fd() const { return memory.get(); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd()); }

  RawClient client;
  plain::Handle memory;
  std::uint64_t size = 0;
  void* map = nullptr;
  std::string before;
};

bool cannot_map_for_writing(int fd, std::size_t size) {
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return map == MAP_FAILED;
}

bool cannot_make_writable(const Lent& lent) {
  if (mprotect(lent.map, lent.size, PROT_READ | PROT_WRITE) == 0) return false;
  void* moved = mremap(lent.map, 0, kPage, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return true;
  return mprotect(moved, kPage, PROT_READ | PROT_WRITE) != 0;
}

/// By system calls on one descriptor.
bool cannot_write(int fd) {
  char byte = 'x';
  iovec part = {&byte, 1};
  bool failed = write(fd, &byte, 1) < 0;
  failed &= pwrite(fd, &byte, 1, 0) < 0;
  failed &= pwritev(fd, &part, 1, 0) < 0;
  failed &= ftruncate(fd, 0) < 0;
  failed &= ftruncate(fd, 1 << 30) < 0;
  failed &= fallocate(fd, 0, 0, 1 << 30) < 0;
  failed &= fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage) < 0;
  failed &= fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, kPage) < 0;
  const plain::Handle zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  failed &= sendfile(fd, zero.get(), nullptr, kPage) < 0;
  int ends[2];
  if (pipe(ends) == 0 && write(ends[1], &byte, 1) == 1)
    failed &= splice(ends[0], nullptr, fd, nullptr, 1, SPLICE_F_NONBLOCK) < 0;
  return failed;
}

bool cannot_take_away_seals(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return (seals & F_SEAL_SEAL) && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 &&
         fcntl(fd, F_GET_SEALS) == seals;
}

/// Opens it anew: some may, and gain nothing.
bool cannot_reopen(const Lent& lent, bool may_open) {
  for (const int flags : {O_RDWR, O_WRONLY, O_RDWR | O_TRUNC, O_RDWR | O_APPEND}) {
    const plain::Handle fd(open(lent.path().c_str(), flags | O_CLOEXEC));
    if (fd.get() < 0) continue;
    if (!may_open || (flags & O_TRUNC) || !cannot_write(fd.get()) ||
        !cannot_map_for_writing(fd.get(), lent.size) || !cannot_take_away_seals(fd.get()))
      return false;
  }
  return true;
}

/// /proc/PID/mem writes past the protection of private mappings only.
bool cannot_write_through_proc(const Lent& lent) {
  const plain::Handle mem(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  char byte = 'x';
  (void)!pwrite(mem.get(), &byte, 1, reinterpret_cast<off_t>(lent.map));
  iovec from = {&byte, 1}, to = {lent.map, 1};
  (void)process_vm_writev(getpid(), &from, 1, &to, 1, 0);
  return lent.unchanged();
}

bool all_routes_fail(const Lent& lent, bool may_open) {
  return cannot_map_for_writing(lent.fd(), lent.size) && cannot_make_writable(lent) &&
         cannot_write(lent.fd()) && cannot_take_away_seals(lent.fd()) &&
         cannot_reopen(lent, may_open) && cannot_write_through_proc(lent) && lent.unchanged();
}

}  // namespace

Test(model_writes, every_route_fails_for_the_daemons_own_user, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(3000000));
  store.start();
  const Lent lent(store);
  cr_expect(cannot_map_for_writing(lent.fd(), lent.size));
  cr_expect(cannot_make_writable(lent));
  cr_expect(cannot_write(lent.fd()));
  cr_expect(cannot_take_away_seals(lent.fd()));
  cr_expect(cannot_reopen(lent, true));
  cr_expect(cannot_write_through_proc(lent));
  cr_expect(lent.unchanged());
  // Nor can it be run.
  cr_expect(mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_SHARED, lent.fd(), 0) == MAP_FAILED ||
            access(lent.path().c_str(), X_OK) < 0);
}

Test(model_writes, every_route_fails_for_another_user, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.add("m", random_bytes(3000000));
  store.start();
  const Lent lent(store);
  cr_expect(holds_as(kAlice, [&] { return all_routes_fail(lent, false); }));
}

Test(model_writes, every_route_fails_for_the_root_of_a_container, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.add("m", random_bytes(3000000));
  store.start();
  const Lent lent(store);
  if (!holds_as(kAlice, [] { return unshare(CLONE_NEWUSER) == 0; }))
    cr_skip_test("users may not make user namespaces here");
  // Which has all capabilities there.
  cr_expect(holds_as(kAlice, [&] {
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && all_routes_fail(lent, false);
  }));
}

Test(model_writes, a_private_mapping_is_ones_own, .timeout = 60) {
  ModelStore store;
  store.add("m", random_bytes(3000000));
  store.start();
  const Lent lent(store);
  void* map = mmap(nullptr, lent.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, lent.fd(), 0);
  cr_assert(map != MAP_FAILED);
  std::memset(map, 'x', lent.size);
  cr_expect(lent.unchanged());
  munmap(map, lent.size);
}

Test(model_writes, another_user_cannot_trace_the_daemon, .timeout = 60) {
  if (geteuid() != 0) cr_skip_test("only root can be another user");
  ModelStore store;
  store.start();
  cr_expect(holds_as(kAlice, [&] {
    return ptrace(PTRACE_SEIZE, store.pid(), 0, 0) < 0 && kill(store.pid(), 0) < 0 &&
           open(("/proc/" + std::to_string(store.pid()) + "/mem").c_str(), O_RDWR) < 0;
  }));
}
