// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/model_wire.h"

#include "modelstore/wire/fixed_text.h"

namespace bellows::modelwire {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

const char* check_opened(const ModelReply& reply) {
  const bool fits = reply.memory_bytes <= (std::uint64_t{1} << 57) && reply.catalogue_at % 8 == 0 &&
                    reply.catalogue_bytes <= reply.memory_bytes &&
                    reply.catalogue_at <= reply.memory_bytes - reply.catalogue_bytes;
  return fits ? nullptr : "the catalogue is not in the memory";
}

}  // namespace

bool is_model_name(const char* name, std::size_t length) {
  if (length == 0 || length > kMostName) return false;
  bool begins = true;  // a word
  for (std::size_t i = 0; i < length; ++i) {
    if (begins ? name[i] == '/' || name[i] == '.' : false) return false;
    if (name[i] != '/' && !is_word_character(name[i])) return false;
    begins = name[i] == '/';
  }
  return !begins;
}

const char* check(const ModelRequest& request, std::size_t size) {
  if (size != sizeof request) return "it has the wrong size";
  if (request.version != kVersion) return "it is of another version";
  if (!is_fixed_text(request.name, request.name_length)) return "its name is not of its length";
  if (request.gpu != kNoGpu && request.gpu > kLastGpu) return "no GPU can have this address";
  switch (request.op) {
    case Op::close:
    case Op::progress:
      return nullptr;
    case Op::list:
      if (request.name_length == 0) return nullptr;
      break;
    case Op::on_gpus:
      if (request.by != By::name || (request.name_length > 0 && request.gpu == kNoGpu))
        return "it does not name a model on a GPU";
      if (request.name_length == 0) return nullptr;
      break;
    case Op::open:
    case Op::prefetch:
    case Op::show:
      break;
    default:
      return "it asks for what is unknown";
  }
  const bool by_name_only = request.op == Op::list || request.op == Op::show;
  if (by_name_only && request.by != By::name) return "it does not name a model";
  switch (request.by) {
    case By::digest:
      return nullptr;
    case By::file:
      return request.name[0] == '/' ? nullptr : "the path is not absolute";
    case By::name:
      break;
    default:
      return "it names neither a name nor a digest nor a file";
  }
  return is_model_name(request.name, request.name_length) ? nullptr : "no model can have this name";
}

const char* check(const ModelReply& reply, std::size_t size) {
  if (size != sizeof reply) return "it has the wrong size";
  if (reply.version != kVersion) return "it is of another version";
  if (!is_fixed_text(reply.text, reply.text_length)) return "its text is not of its length";
  switch (reply.answer) {
    case Answer::accepted:
      return nullptr;
    case Answer::opened:
    case Answer::catalogue:
      return check_opened(reply);
    case Answer::progress:
      return reply.catalogue_at <= reply.memory_bytes ? nullptr : "it has read more than there is";
    case Answer::failed:
      break;
    default:
      return "it answers what is unknown";
  }
  const auto failure = static_cast<std::int32_t>(reply.failure);
  const bool known = failure < 0 && failure >= static_cast<std::int32_t>(Failure::unavailable);
  return known && reply.text_length > 0 ? nullptr : "it does not say why";
}

const char* check(const ModelEntry& entry, std::size_t size) {
  if (size != sizeof entry) return "it has the wrong size";
  if (entry.version != kVersion) return "it is of another version";
  if (!is_fixed_text(entry.name, entry.name_length) ||
      !is_fixed_text(entry.text, entry.text_length))
    return "a text is not of its length";
  if (!is_model_name(entry.name, entry.name_length)) return "no model can have this name";
  if (entry.answer != Answer::entry || entry.place > Place::memory ||
      (entry.flags & ~ModelEntry::kAllFlags) != 0)
    return "it says what is unknown";
  if (entry.read_bytes > entry.bytes) return "it has read more than there is";
  const bool failed = entry.failure != Failure::none;
  if (entry.failure > Failure::none || entry.failure < Failure::unavailable ||
      failed != (entry.text_length > 0))
    return "it does not say why";
  if ((entry.flags & ModelEntry::kHasDigest) != 0) return nullptr;
  for (const std::uint8_t byte : entry.digest)
    if (byte != 0) return "it has a digest that is none";
  return nullptr;
}

}  // namespace bellows::modelwire
