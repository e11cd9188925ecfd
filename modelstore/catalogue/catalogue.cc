// SPDX-License-Identifier: Apache-2.0
#include "modelstore/catalogue/catalogue.h"

#include <string.h>

namespace bellows::catalogue {

bool tensor_bytes(std::uint32_t type, const std::uint64_t* shape, std::uint32_t dims,
                  std::uint64_t* bytes) {
  std::uint64_t bits = element_bits(type);
  if (bits == 0) return false;
  // Zero extents last: 2^40 x 2^40 x 0 has no sensible strides, so it is refused too.
  bool empty = false;
  for (std::uint32_t i = 0; i < dims; ++i) {
    if (shape[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bits, shape[i], &bits) || bits / 8 > kMostBytes) {
      return false;
    }
  }
  *bytes = empty ? 0 : bits / 8;
  return empty || bits % 8 == 0;
}

const char* View::open(const void* data, std::size_t size) {
  header_ = nullptr;
  const auto* header = static_cast<const Header*>(data);
  if (size < sizeof *header || header->magic != kMagic) return "it does not begin as a catalogue";
  if (header->tensors > kMostTensors) return "it has too many tensors";
  if (header->data_bytes > kMostBytes) return "its data are too large";
  // Neither product nor sum can overflow: both counts are of 32 bits.
  const std::uint64_t names = sizeof *header + std::uint64_t{header->tensors} * sizeof(Record);
  if (names + header->name_bytes != size) return "its size is not that of its records and names";
  header_ = header;
  records_ = reinterpret_cast<const Record*>(header + 1);
  names_ = static_cast<const char*>(data) + names;
  for (std::uint32_t i = 0; i < header->tensors; ++i) {
    if (const char* wrong = check_record(i)) {
      header_ = nullptr;
      return wrong;
    }
  }
  return nullptr;
}

const char* View::check_record(std::uint32_t index) const {
  const Record& r = records_[index];
  if (r.name_length == 0 || r.name_length > kMostName) return "a name is empty or too long";
  if (std::uint64_t{r.name} + r.name_length >= header_->name_bytes) return "a name is outside";
  if (strnlen(names_ + r.name, r.name_length + 1) != r.name_length)
    return "a name does not end with its zero";
  if (index > 0 && compare(index - 1, names_ + r.name, r.name_length) >= 0)
    return "the names are not in order, or one appears twice";
  if (r.dims > kMostDims) return "a tensor has too many dimensions";
  for (std::uint32_t i = r.dims; i < kMostDims; ++i)
    if (r.shape[i] != 0) return "a shape is longer than its dimensions";
  std::uint64_t bytes = 0;
  if (!tensor_bytes(r.type, r.shape, r.dims, &bytes) || bytes != r.bytes)
    return "a tensor's bytes are not those of its type and shape";
  if (r.bytes > header_->data_bytes || r.offset > header_->data_bytes - r.bytes)
    return "a tensor is outside of the data";
  return nullptr;
}

int View::compare(std::uint32_t index, const char* name, std::size_t length) const {
  const Record& r = records_[index];
  const std::size_t common = r.name_length < length ? r.name_length : length;
  const int order = memcmp(names_ + r.name, name, common);
  if (order != 0 || r.name_length == length) return order;
  return r.name_length < length ? -1 : 1;
}

std::uint32_t View::find(const char* name, std::size_t length) const {
  std::uint32_t begin = 0, end = count();
  while (begin < end) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    const int order = compare(middle, name, length);
    if (order == 0) return middle;
    if (order < 0) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return count();
}

}  // namespace bellows::catalogue
