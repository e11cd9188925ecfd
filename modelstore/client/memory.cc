// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "modelstore/client/model_handle.h"

namespace bellows::modelclient {
namespace {

/// What nobody can do to the memory: change it, or let this program fault.
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK;

void write_digest(const std::uint8_t* digest, char* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < modelwire::kDigestBytes; ++i) {
    *text++ = kDigits[digest[i] >> 4];
    *text++ = kDigits[digest[i] & 15];
  }
}

/// A write to a private mapping of huge pages ends the program when there is none for the copy.
bool is_huge(int fd) {
  struct statfs s;
  return fstatfs(fd, &s) == 0 && s.f_type == HUGETLBFS_MAGIC;
}

int map_sealed(bellows_model* model, const modelwire::ModelReply& reply, int fd, bool writable) {
  const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                       "bellows-modeld gave no memory, or such that could change");
  if (writable && is_huge(fd))
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                       "this node has the model in huge pages, which can only be read: "
                       "bellows-modeld --small-pages uses none");
  if (!(writable ? model->memory.map_privately(fd) : model->memory.map_for_reading(fd)))
    return model->fail(BELLOWS_MODEL_ERR_MEMORY, "cannot map the model's %llu bytes: %s",
                       static_cast<unsigned long long>(reply.memory_bytes), strerror(errno));
  if (model->memory.size() < reply.memory_bytes)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "the model's memory is too small");
  return BELLOWS_MODEL_OK;
}

/// `at`: in what is mapped. `most`: bytes of data that there may be.
int open_catalogue(bellows_model* model, std::uint64_t at, std::uint64_t bytes,
                   std::uint64_t most) {
  const char* wrong = model->view.open(model->memory.data() + at, bytes);
  if (!wrong && model->view.data_bytes() > most) wrong = "its data and its catalogue overlap";
  if (!wrong) return BELLOWS_MODEL_OK;
  return model->fail(BELLOWS_MODEL_ERR_CORRUPT, "the model's catalogue is not valid: %s", wrong);
}

}  // namespace

int take_memory(bellows_model* model, const Received& received, std::uint32_t flags) {
  const modelwire::ModelReply& reply = received.reply;
  const int fd = reply.answer == modelwire::Answer::opened ? received.memory.get() : -1;
  int rc = map_sealed(model, reply, fd, (flags & BELLOWS_MODEL_WRITABLE) != 0);
  if (rc == BELLOWS_MODEL_OK)
    rc = open_catalogue(model, reply.catalogue_at, reply.catalogue_bytes, reply.catalogue_at);
  if (rc == BELLOWS_MODEL_OK) write_digest(reply.digest, model->digest);
  return rc;
}

int take_gpu_memory(bellows_model* model, const Received& received) {
  const modelwire::ModelReply& reply = received.reply;
  const modelwire::ModelReply& about = received.catalogue_reply;
  if (reply.answer != modelwire::Answer::opened || received.memory.get() < 0)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "bellows-modeld gave no memory of the GPU");
  int rc = map_sealed(model, about, received.catalogue.get(), false);
  if (rc == BELLOWS_MODEL_OK)
    rc = open_catalogue(model, about.catalogue_at, about.catalogue_bytes, reply.catalogue_at);
  if (rc == BELLOWS_MODEL_OK) rc = model->gpu.take(model, reply, received.memory.get());
  if (rc == BELLOWS_MODEL_OK) write_digest(reply.digest, model->digest);
  return rc;
}

}  // namespace bellows::modelclient
