// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/arrays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

namespace bellows::client {
namespace {

constexpr std::uint64_t kPage = 4096;

/// Bytes of an array in the caller's memory.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// What this rank stores of an array; false: nothing.
bool stored_span(const bellows_t* b, const Registered& r, Span* out) {
  const wire::Array& a = r.array;
  std::uint64_t first = 0, count = 0;
  if (!wire::stored_part(a, r.name, r.name_length, b->place.rank, b->place.world, &first, &count)) {
    return false;
  }
  if (a.layout == wire::kSharded) first = 0;
  // Registered arrays are known to fit.
  return wire::part_bytes(a, first, &out->begin) && wire::part_bytes(a, count, &out->bytes);
}

bool name_is_good(const char* name, std::size_t length) {
  if (length == 0 || length > wire::kMostName || name[0] == '/' || name[length - 1] == '/') {
    return false;
  }
  for (std::size_t i = 0; i < length; ++i) {
    char c = name[i];
    if (c < '!' || c > '~') return false;
    if (c == '/' && name[i + 1] == '/') return false;
    bool begins = i == 0 || name[i - 1] == '/';
    if (begins && c == '.') return false;
  }
  return true;
}

int check_name(bellows_t* b, const char* name) {
  if (name && name_is_good(name, strnlen(name, wire::kMostName + 1))) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_INVALID,
                      "an array's name is 1 to %u printable characters without spaces, with / only "
                      "between parts and no part that begins with a dot; this is not: %.64s",
                      wire::kMostName, name ? name : "(null)");
}

// The numbers, before anything is computed with them.
int check_kind(bellows_t* b, const bellows_array& from) {
  if (from.ndims < 0 || from.ndims > BELLOWS_MAX_DIMS || (from.ndims > 0 && !from.shape)) {
    return b->error.set(BELLOWS_ERR_INVALID,
                        "array %s: it has %d dimensions, but only 0 to %d are possible", from.name,
                        from.ndims, BELLOWS_MAX_DIMS);
  }
  if (from.layout < BELLOWS_REPLICATED || from.layout > BELLOWS_VALUE) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %d is not a layout", from.name,
                        from.layout);
  }
  if (from.dtype < 0 || wire::element_bytes(static_cast<std::uint32_t>(from.dtype)) == 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: %d is not a BELLOWS_ data type", from.name,
                        from.dtype);
  }
  if (from.layout != BELLOWS_SHARDED) return BELLOWS_OK;
  if (from.ndims == 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: a sharded array needs at least one axis",
                        from.name);
  }
  if (from.axis < 0 || from.axis >= from.ndims) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: it has no axis %d", from.name, from.axis);
  }
  return BELLOWS_OK;
}

int check_size(bellows_t* b, const char* name, const wire::Array& a, const void* data) {
  std::uint64_t end = 0, bytes = 0;
  const std::uint64_t extent = wire::axis_extent(a);
  if (a.layout == wire::kSharded &&
      (__builtin_add_overflow(a.first, a.count, &end) || end > extent)) {
    return b->error.set(BELLOWS_ERR_INVALID,
                        "array %s: %llu rows from row %llu extend past the %llu of axis %u", name,
                        (unsigned long long)a.count, (unsigned long long)a.first,
                        (unsigned long long)extent, a.axis);
  }
  if (!wire::part_bytes(a, extent, &bytes) || !wire::held_bytes(a, &bytes)) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: its shape has too many bytes", name);
  }
  if (a.layout == wire::kValue && bytes > wire::kMostValue) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: a value has at most %llu bytes", name,
                        (unsigned long long)wire::kMostValue);
  }
  if (!data && bytes > 0) {
    return b->error.set(BELLOWS_ERR_INVALID, "array %s: data is NULL but %llu bytes are expected",
                        name, (unsigned long long)bytes);
  }
  return BELLOWS_OK;
}

wire::Array to_wire(const bellows_array& from) {
  wire::Array a;
  a.dtype = static_cast<std::uint32_t>(from.dtype);
  a.ndims = static_cast<std::uint32_t>(from.ndims);
  a.layout = static_cast<std::uint32_t>(from.layout);
  for (int i = 0; i < from.ndims; ++i) a.shape[i] = from.shape[i];
  const bool sharded = a.layout == wire::kSharded;
  a.axis = sharded ? static_cast<std::uint32_t>(from.axis) : 0;
  a.first = sharded ? from.first : 0;
  a.count = sharded ? from.count : wire::axis_extent(a);
  return a;
}

Registered* find_array(bellows_t* b, const char* name) {
  for (std::size_t i = 0; i < b->count; ++i) {
    if (strcmp(b->arrays[i].name, name) == 0) return &b->arrays[i];
  }
  return nullptr;
}

// In the files a name with parts is a dataset in groups, and a name is either. Values are
// attributes.
bool is_group_of(const Registered& group, const Registered& member) {
  const bool per_rank = group.array.layout == wire::kPerRank;
  return group.array.layout != wire::kValue && member.array.layout != wire::kValue &&
         per_rank == (member.array.layout == wire::kPerRank) &&
         member.name_length > group.name_length && member.name[group.name_length] == '/' &&
         memcmp(group.name, member.name, group.name_length) == 0;
}

int check_groups(bellows_t* b, const Registered& added) {
  for (std::size_t i = 0; i < b->count; ++i) {
    const Registered& other = b->arrays[i];
    if (!is_group_of(other, added) && !is_group_of(added, other)) continue;
    return b->error.set(BELLOWS_ERR_INVALID,
                        "array %s: there is an array %s, and a name cannot be both an array's and "
                        "the beginning of another's",
                        added.name, other.name);
  }
  return BELLOWS_OK;
}

// A slot at the end that doesn't count yet; nullptr without memory.
Registered* spare_slot(bellows_t* b) {
  if (b->count >= wire::kMostArrays) return nullptr;
  if (b->count == b->capacity) {
    std::size_t capacity = b->capacity ? b->capacity * 2 : 16;
    void* grown = realloc(b->arrays, capacity * sizeof(Registered));
    if (!grown) return nullptr;
    b->arrays = static_cast<Registered*>(grown);
    b->capacity = capacity;
  }
  return &b->arrays[b->count];
}

int check_memory(bellows_t* b, const char* name) {
  const std::uint64_t needed = buffer_bytes(b);
  if (needed <= b->memory) return BELLOWS_OK;
  return b->error.set(BELLOWS_ERR_MEMORY,
                      "array %s: with it the copies of rank %d's arrays need %llu bytes, and there "
                      "are %llu for them; give the job more memory, or spread the arrays over more "
                      "ranks",
                      name, b->place.rank, (unsigned long long)needed,
                      (unsigned long long)b->memory);
}

}  // namespace

int register_array(bellows_t* b, const bellows_array& array) {
  int rc = check_name(b, array.name);
  if (rc == BELLOWS_OK) rc = check_kind(b, array);
  if (rc != BELLOWS_OK) return rc;
  const wire::Array a = to_wire(array);
  rc = check_size(b, array.name, a, array.data);
  if (rc != BELLOWS_OK) return rc;
  Registered* spare = spare_slot(b);
  if (!spare) {
    return b->error.set(BELLOWS_ERR_MEMORY, "array %s: no memory for one more array", array.name);
  }
  spare->array = a;
  spare->data = array.data;
  spare->name_length = static_cast<std::uint32_t>(strlen(array.name));
  memcpy(spare->name, array.name, spare->name_length + 1);
  rc = check_groups(b, *spare);
  if (rc != BELLOWS_OK) return rc;
  Registered* same = find_array(b, array.name);
  Registered before;
  if (same) {
    before = *same;
    *same = *spare;
  } else {
    ++b->count;
  }
  rc = check_memory(b, array.name);
  if (rc == BELLOWS_OK) {
    b->layout_sent = false;
  } else if (same) {
    *same = before;
  } else {
    --b->count;
  }
  return rc;
}

int unregister_array(bellows_t* b, const char* name) {
  Registered* found = name ? find_array(b, name) : nullptr;
  if (!found) {
    return b->error.set(BELLOWS_ERR_INVALID, "no array %.64s is registered",
                        name ? name : "(null)");
  }
  memmove(found, found + 1,
          static_cast<std::size_t>(b->arrays + --b->count - found) * sizeof *found);
  b->layout_sent = false;
  return BELLOWS_OK;
}

std::uint64_t buffer_bytes(const bellows_t* b) {
  wire::Placer placer;
  for (std::size_t i = 0; i < b->count; ++i) {
    Span span;
    std::uint64_t offset = 0;
    if (!stored_span(b, b->arrays[i], &span)) continue;
    if (!placer.place(span.bytes, &offset)) return UINT64_MAX;
  }
  return wire::kBuffers * ((placer.total() + kPage - 1) & ~(kPage - 1));
}

int save_arrays(bellows_t* b, Buffer* buffer) {
  const Mapping& memory = buffer->memory;
  wire::Placer placer;
  b->cuda.look();
  for (std::size_t i = 0; i < b->count; ++i) {
    const Registered& r = b->arrays[i];
    Span span;
    if (!stored_span(b, r, &span)) continue;
    std::uint64_t offset = 0;
    if (!placer.place(span.bytes, &offset) || offset + span.bytes > memory.size()) {
      return lost(b, EPROTO);
    }
    if (span.bytes == 0) continue;
    const auto* from = static_cast<const unsigned char*>(r.data) + span.begin;
    int device = 0;
    if (!b->cuda.is_device(from, &device)) {
      memcpy(memory.data() + offset, from, span.bytes);
      continue;
    }
    if (!buffer->tried) {
      buffer->tried = true;
      buffer->pinned = b->cuda.register_host(memory.data(), memory.size());
    }
    int rc = b->cuda.copy(memory.data() + offset, from, span.bytes, device, &b->error);
    if (rc != BELLOWS_OK) return rc;
  }
  return b->cuda.finish(&b->error);
}

}  // namespace bellows::client
