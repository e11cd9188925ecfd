// SPDX-License-Identifier: Apache-2.0
// Models whose memory a program may write to, which changes them for nobody else.
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/unit/modelstore/model_store.h"

using namespace bellows;
using namespace bellows::model_test;

namespace {

class PrivateModel {
 public:
  explicit PrivateModel(const std::string& socket, std::uint32_t flags = BELLOWS_MODEL_WRITABLE) {
    bellows_model_config config = BELLOWS_MODEL_CONFIG_INIT;
    config.socket = socket.c_str();
    config.wait_ms = 20000;
    config.flags = flags;
    code = bellows_model_open("m", &config, &model);
  }
  PrivateModel(const PrivateModel&) = delete;
  PrivateModel& operator=(const PrivateModel&) = delete;
  ~PrivateModel() { bellows_model_close(model); }
  char* data() const {
    bellows_tensor tensor = BELLOWS_TENSOR_INIT;
    cr_assert_eq(bellows_model_find(model, "w", &tensor), BELLOWS_MODEL_OK);
    return const_cast<char*>(static_cast<const char*>(tensor.data));
  }

  bellows_model_t* model = nullptr;
  int code;
};

/// A socket that lends one memory, whatever is asked for; the library's sentence.
std::string refusal_of(const plain::Handle& memory, std::uint64_t bytes) {
  const ScratchDir folder;
  const std::string path = folder.path() + "/socket", said = folder.path() + "/said";
  plain::Handle listener;
  listen_at(path, &listener);
  const pid_t child = fork_child();
  if (child == 0) {
    const PrivateModel model(path);
    write_file(said, bellows_model_error(model.model));
    _exit(0);
  }
  const plain::Handle peer(accept(listener.get(), nullptr, nullptr));
  modelwire::ModelReply reply;
  reply.answer = modelwire::Answer::opened;
  reply.handle = 1;
  reply.memory_bytes = bytes;
  const iovec part = {&reply, sizeof reply};
  cr_assert_eq(plain::send_packet(peer.get(), &part, 1, memory.get(), 0), 0);
  cr_assert_eq(waitpid(child, nullptr, 0), child);
  std::ifstream file(said);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Test(model_private, writes_are_the_programs_own, .timeout = 60) {
  ModelStore store;
  const std::string data = random_bytes(3 << 20);
  store.add("m", data);
  store.start();
  const OpenModel shared = store.open("m");
  const PrivateModel one(store.socket("a")), other(store.socket("a"));
  cr_assert(shared.ok() && one.code == BELLOWS_MODEL_OK && other.code == BELLOWS_MODEL_OK);
  std::memset(one.data(), 'x', data.size());
  cr_expect(shared.data("w") == data);
  cr_expect(std::memcmp(other.data(), data.data(), data.size()) == 0);
  cr_expect(one.data()[0] == 'x' && one.data()[data.size() - 1] == 'x');
  cr_expect_eq(store.said("loaded "), 1);
}

Test(model_private, huge_pages_are_refused, .timeout = 60) {
  constexpr std::size_t kHuge = 2 << 20;
  const plain::Handle memory(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (memory.get() < 0 || ftruncate(memory.get(), kHuge) < 0)
    cr_skip_test("this kernel has no huge pages");
  cr_assert_eq(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK), 0);
  cr_expect(has(refusal_of(memory, kHuge), "--small-pages"));
}

Test(model_private, unknown_flags_are_refused, .timeout = 60) {
  const PrivateModel model("/nowhere", 4);
  cr_expect_eq(model.code, BELLOWS_MODEL_ERR_INVALID);
  cr_expect(has(bellows_model_error(model.model), "config.flags is 4"));
}
