// SPDX-License-Identifier: Apache-2.0
#include "modelstore/wire/control_wire.h"

#include <string.h>

#include "modelstore/wire/fixed_text.h"
#include "modelstore/wire/gpu_address.h"

namespace bellows::modelwire {
namespace {

const char* check_names(const ControlRequest& request) {
  const bool of_job = request.op == ControlOp::serve || request.op == ControlOp::end ||
                      request.op == ControlOp::gpus;
  const bool lists = request.op == ControlOp::list || request.op == ControlOp::status;
  // A list begins at no name.
  const bool needs_name = request.op != ControlOp::status && !(lists && request.name_length == 0);
  const bool needs_tenant = request.op != ControlOp::end && request.op != ControlOp::gpus &&
                            request.op != ControlOp::prefetch_on_gpus &&
                            !(lists && request.name_length + request.tenant_length == 0);
  if (of_job && !is_plain_word(request.name, request.name_length))
    return "no job can have this name";
  if (!of_job && needs_name && !is_model_name(request.name, request.name_length))
    return "no model can have this name";
  if (needs_tenant && !is_plain_word(request.tenant, request.tenant_length))
    return "no tenant can have this name";
  return nullptr;
}

/// The line of a GPU: nothing, the GPU of a job, or that with a model.
const char* check_gpu_line(const ControlRequest& request) {
  std::uint64_t gpu;
  const bool has_gpu = request.path_length > 0 && request.visible_length > 0;
  if (!has_gpu &&
      request.path_length + request.visible_length + request.name_length + request.tenant_length ==
          0)
    return nullptr;
  if (!has_gpu || !is_served_name(request.path, request.path_length) ||
      !read_gpu(request.visible, request.visible_length, &gpu))
    return "it does not name the GPU of a job";
  if (request.name_length + request.tenant_length == 0) return nullptr;
  return is_model_name(request.name, request.name_length) &&
                 is_plain_word(request.tenant, request.tenant_length)
             ? nullptr
             : "no model can have this name";
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

bool is_served_name(const char* text, std::size_t length) {
  return length > 0 && (*text == '/' || is_plain_word(text, length));
}

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

const char* check(const ControlRequest& request, std::size_t size) {
  if (size != sizeof request) return "it has the wrong size";
  if (request.version != kVersion) return "it is of another version";
  if (!is_fixed_text(request.tenant, request.tenant_length) ||
      !is_fixed_text(request.name, request.name_length) ||
      !is_fixed_text(request.path, request.path_length) ||
      !is_fixed_text(request.visible, request.visible_length))
    return "a text is not of its length";
  if (request.op < ControlOp::serve || request.op > ControlOp::on_gpus)
    return "it asks for what is unknown";
  if (request.op == ControlOp::on_gpus) return check_gpu_line(request);
  if (const char* wrong = check_names(request)) return wrong;
  if (request.op == ControlOp::add && !is_model_place(request.path, request.path_length))
    return "the path is not absolute, and no URL that begins with http://, https:// or s3://";
  if (request.op == ControlOp::gpus &&
      (request.path_length == 0 || !is_gpu_list(request.path, request.path_length)))
    return "it does not name GPUs by their PCI addresses with commas between";
  if (request.op == ControlOp::prefetch_on_gpus &&
      !is_served_name(request.path, request.path_length))
    return "no job can have this name";
  if (request.op == ControlOp::holders && request.path_length > 0 &&
      !is_served_name(request.path, request.path_length))
    return "no job can have this name";
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
