// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/control_wire.h"

#include <string.h>

#include "modelstore/wire/fixed_text.h"

namespace bellows::modelwire {
namespace {

bool is_visible_list(const char* text, std::size_t length) {
  if (length == 0 || (length == 1 && *text == '*')) return true;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= length; ++i) {
    if (i < length && text[i] != ',') continue;
    if (i - begin > kMostTenant || !is_plain_word(text + begin, i - begin)) return false;
    begin = i + 1;
  }
  return true;
}

}  // namespace

bool is_plain_word(const char* text, std::size_t length) {
  return is_model_name(text, length) && !memchr(text, '/', length);
}

bool is_model_place(const char* text, std::size_t length) {
  constexpr const char* kBegins[] = {"/", "http://", "https://", "s3://"};
  for (const char* begin : kBegins)
    if (length >= strlen(begin) && memcmp(text, begin, strlen(begin)) == 0) return true;
  return false;
}

const char* check(const ControlRequest& request, std::size_t size) {
  if (size != sizeof request) return "it has the wrong size";
  if (request.version != kVersion) return "it is of another version";
  if (!is_fixed_text(request.tenant, request.tenant_length) ||
      !is_fixed_text(request.name, request.name_length) ||
      !is_fixed_text(request.path, request.path_length) ||
      !is_fixed_text(request.visible, request.visible_length))
    return "a text is not of its length";
  if (request.op < ControlOp::serve || request.op > ControlOp::prefetch)
    return "it asks for what is unknown";
  const bool of_job = request.op == ControlOp::serve || request.op == ControlOp::end;
  if (of_job ? !is_plain_word(request.name, request.name_length)
             : !is_model_name(request.name, request.name_length))
    return of_job ? "no job can have this name" : "no model can have this name";
  if (request.op != ControlOp::end && !is_plain_word(request.tenant, request.tenant_length))
    return "no tenant can have this name";
  if (request.op == ControlOp::add && !is_model_place(request.path, request.path_length))
    return "the path is not absolute, and no URL that begins with http://, https:// or s3://";
  if (!is_visible_list(request.visible, request.visible_length))
    return "it does not name tenants with commas between, or * for all";
  return nullptr;
}

const char* check(const ControlReply& reply, std::size_t size) {
  if (size != sizeof reply) return "it has the wrong size";
  if (reply.version != kVersion) return "it is of another version";
  if (!is_fixed_text(reply.text, reply.text_length)) return "its text is not of its length";
  return nullptr;
}

}  // namespace bellows::modelwire
