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

}  // namespace

int take_memory(bellows_model* model, const modelwire::ModelReply& reply, int fd,
                std::uint32_t flags) {
  const int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
  if (reply.answer != modelwire::Answer::opened || seals < 0 || (seals & kSeals) != kSeals)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                       "bellows-modeld gave no memory, or such that could change");
  const bool writable = (flags & BELLOWS_MODEL_WRITABLE) != 0;
  if (writable && is_huge(fd))
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE,
                       "this node has the model in huge pages, which can only be read: "
                       "bellows-modeld --small-pages uses none");
  if (!(writable ? model->memory.map_privately(fd) : model->memory.map_for_reading(fd)))
    return model->fail(BELLOWS_MODEL_ERR_MEMORY, "cannot map the model's %llu bytes: %s",
                       static_cast<unsigned long long>(reply.memory_bytes), strerror(errno));
  if (model->memory.size() < reply.memory_bytes)
    return model->fail(BELLOWS_MODEL_ERR_UNAVAILABLE, "the model's memory is too small");
  const char* wrong =
      model->view.open(model->memory.data() + reply.catalogue_at, reply.catalogue_bytes);
  if (!wrong && model->view.data_bytes() > reply.catalogue_at)
    wrong = "its data and its catalogue overlap";
  if (wrong)
    return model->fail(BELLOWS_MODEL_ERR_CORRUPT, "the model's catalogue is not valid: %s", wrong);
  write_digest(reply.digest, model->digest);
  return BELLOWS_MODEL_OK;
}

}  // namespace bellows::modelclient
