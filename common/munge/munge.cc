// SPDX-License-Identifier: Apache-2.0
#include "common/munge/munge.h"

#include <fmt/core.h>
#include <munge.h>

#include <climits>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "common/text.h"

namespace bellows {
namespace {

struct FreeContext {
  void operator()(munge_ctx_t context) const { munge_ctx_destroy(context); }
};
using Context = std::unique_ptr<std::remove_pointer_t<munge_ctx_t>, FreeContext>;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

bool comes_from_munged(munge_err_t error) {
  return error == EMUNGE_SOCKET || error == EMUNGE_TIMEOUT || error == EMUNGE_SNAFU ||
         error == EMUNGE_NO_MEMORY;
}

Error error_of(const char* what, munge_ctx_t context, munge_err_t code, ErrorKind refused) {
  const char* more = context ? munge_ctx_strerror(context) : nullptr;
  return {comes_from_munged(code) ? ErrorKind::unavailable : refused,
          fmt::format("cannot {}: {}", what, more ? more : munge_strerror(code))};
}

Context make_context(const std::string& socket) {
  Context context(munge_ctx_create());
  if (context && !socket.empty()) munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, socket.c_str());
  return context;
}

}  // namespace

Result<std::string> Munge::seal(std::string_view text, uid_t reader,
                                std::chrono::seconds life) const {
  if (text.size() > INT_MAX) return Error{ErrorKind::invalid, "cannot seal a message: too long"};
  const Context context = make_context(socket_);
  if (!context) return error_of("seal a message", nullptr, EMUNGE_NO_MEMORY, ErrorKind::invalid);
  munge_ctx_set(context.get(), MUNGE_OPT_UID_RESTRICTION, reader);
  munge_ctx_set(context.get(), MUNGE_OPT_TTL, static_cast<int>(life.count()));
  char* raw = nullptr;
  const munge_err_t code =
      munge_encode(&raw, context.get(), text.data(), static_cast<int>(text.size()));
  const std::unique_ptr<char, FreeMemory> credential(raw);
  if (code != EMUNGE_SUCCESS)
    return error_of("seal a message", context.get(), code, ErrorKind::invalid);
  return std::string(credential.get());
}

Result<Unsealed> Munge::open(const std::string& credential) const {
  const Context context = make_context(socket_);
  if (!context) return error_of("open a message", nullptr, EMUNGE_NO_MEMORY, ErrorKind::denied);
  void* raw = nullptr;
  int size = 0;
  uid_t uid = 0;
  const munge_err_t code =
      munge_decode(credential.c_str(), context.get(), &raw, &size, &uid, nullptr);
  // munged also hands out what was replayed or is too old.
  const std::unique_ptr<void, FreeMemory> text(raw);
  if (code != EMUNGE_SUCCESS)
    return error_of("open a message", context.get(), code, ErrorKind::denied);
  return Unsealed{
      text ? std::string(static_cast<const char*>(raw), static_cast<std::size_t>(size)) : "", uid};
}

std::string munge_socket_of(std::string_view auth_info) {
  return std::string(value_in(auth_info, "socket").value_or(""));
}

}  // namespace bellows
