// SPDX-License-Identifier: Apache-2.0
#include "common/plain/symbols.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include <cstdint>

namespace bellows::plain {
namespace {

/// What the dynamic section of a loaded library says about its symbols.
struct Symbols {
  ElfW(Addr) base = 0;
  const ElfW(Sym) * table = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* hash = nullptr;

  // Most dynamic linkers have made addresses of these offsets, not all.
  template <typename T>
  void set(const T** field, ElfW(Addr) value) const {
    *field = reinterpret_cast<const T*>(value < base ? base + value : value);
  }
  void read(const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) set(&table, entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) set(&strings, entry->d_un.d_ptr);
      if (entry->d_tag == DT_GNU_HASH) set(&gnu_hash, entry->d_un.d_ptr);
      if (entry->d_tag == DT_HASH) set(&hash, entry->d_un.d_ptr);
    }
  }
  bool is(std::uint32_t index, const char* name) const {
    return strcmp(strings + table[index].st_name, name) == 0;
  }
  void* address(std::uint32_t index) const {
    return reinterpret_cast<void*>(base + table[index].st_value);
  }

  void* find_by_gnu_hash(const char* name) const {
    std::uint32_t wanted = 5381;
    for (const char* p = name; *p; ++p) wanted = wanted * 33 + static_cast<unsigned char>(*p);
    const std::uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom = gnu_hash[2];
    const std::uint32_t* bucket = gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const std::uint32_t* chain = bucket + buckets;
    std::uint32_t index = buckets ? bucket[wanted % buckets] : 0;
    if (index < first) return nullptr;
    for (;; ++index) {
      const std::uint32_t there = chain[index - first];
      if ((there | 1) == (wanted | 1) && is(index, name)) return address(index);
      if (there & 1) return nullptr;
    }
  }
  // Without hashing: the table of the old hash says how many symbols there are.
  void* find_by_name(const char* name) const {
    for (std::uint32_t i = 1; i < hash[1]; ++i) {
      if (table[i].st_shndx != SHN_UNDEF && is(i, name)) return address(i);
    }
    return nullptr;
  }
  void* find(const char* name) const {
    if (!table || !strings) return nullptr;
    if (gnu_hash) return find_by_gnu_hash(name);
    return hash ? find_by_name(name) : nullptr;
  }
};

struct Search {
  const char* library;
  const char* const* names;
  std::size_t count;
  void** found;
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  const auto* search = static_cast<const Search*>(data);
  const char* slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
  const char* file = slash ? slash + 1 : info->dlpi_name;
  if (!file || strncmp(file, search->library, strlen(search->library)) != 0) return 0;
  Symbols symbols;
  symbols.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    symbols.read(reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
  }
  for (std::size_t i = 0; i < search->count; ++i) {
    search->found[i] = symbols.find(search->names[i]);
    if (!search->found[i]) return 0;
  }
  return 1;
}

}  // namespace

bool find_loaded(const char* library, const char* const* names, std::size_t count, void** found) {
  Search search = {library, names, count, found};
  return dl_iterate_phdr(look_at, &search) == 1;
}

}  // namespace bellows::plain
