// SPDX-License-Identifier: Apache-2.0
// Which messages are taken for one.
#include <criterion/criterion.h>

#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "modelstore/wire/control_lines.h"
#include "modelstore/wire/control_wire.h"
#include "modelstore/wire/gpu_lines.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;
using namespace bellows::modelwire;

namespace {

bool is_name(std::string_view name) { return is_model_name(name.data(), name.size()); }

template <std::size_t kBytes>
void put(char (&field)[kBytes], std::uint32_t& length, std::string_view text) {
  std::memcpy(field, text.data(), text.size());
  length = static_cast<std::uint32_t>(text.size());
}

ModelRequest open_request(std::string_view name) {
  ModelRequest request;
  request.handle = 7;
  put(request.name, request.name_length, name);
  return request;
}

ControlRequest control_request(ControlOp op) {
  ControlRequest request;
  request.op = op;
  put(request.tenant, request.tenant_length, "vision");
  put(request.name, request.name_length, "resnet");
  put(request.path, request.path_length, "/models/resnet");
  return request;
}

template <typename Message>
void expect_refused(const Message& message, const char* why, std::size_t size = sizeof(Message)) {
  const char* wrong = check(message, size);
  cr_assert(wrong, "taken, and it is wrong: %s", why);
  cr_expect(has(wrong, why), "%s", wrong);
}

}  // namespace

Test(model_wire, names_are_paths_that_lead_nowhere_else, .timeout = 10) {
  for (const char* name : {"a", "resnet-50", "meta-llama/Llama-3.1-8B", "a/b/c", "x_1.safetensors"})
    cr_expect(is_name(name), "%s", name);
  for (const char* name : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", ".a",
                           "a/.b", "a b", "a\n", "\xc3\xa9", "a:b", "*"})
    cr_expect(!is_name(name), "%s", name);
  cr_expect(is_name(std::string(255, 'a')) && !is_name(std::string(256, 'a')));
  cr_expect(!is_name({"a\0b", 3}));
}

Test(model_wire, takes_whole_requests_only, .timeout = 10) {
  const ModelRequest good = open_request("resnet");
  cr_expect_null(check(good, sizeof good));
  expect_refused(good, "wrong size", sizeof good - 1);
  expect_refused(good, "wrong size", sizeof good + 1);
  expect_refused(good, "wrong size", 0);
  ModelRequest bad = good;
  bad.version = 2;
  expect_refused(bad, "another version");
  bad = good;
  bad.op = static_cast<Op>(8);
  expect_refused(bad, "unknown");
  bad = good;
  bad.name_length = 256;
  expect_refused(bad, "not of its length");
  bad = good;
  bad.name[10] = 'x';
  expect_refused(bad, "not of its length");
  bad = good;
  bad.by = static_cast<By>(3);
  expect_refused(bad, "neither");
  bad.by = By::file;
  expect_refused(bad, "not absolute");
  expect_refused(open_request(""), "no model can have this name");
  expect_refused(open_request("../x"), "no model can have this name");
  ModelRequest digest;
  digest.by = By::digest;
  cr_expect_null(check(digest, sizeof digest));
  ModelRequest file = open_request("/models/a model/x.safetensors");
  file.by = By::file;
  cr_expect_null(check(file, sizeof file));
  ModelRequest bare;
  for (const Op op : {Op::list, Op::show}) {
    ModelRequest looks = good;
    looks.op = op;
    cr_expect_null(check(looks, sizeof looks));
    looks.by = By::digest;
    expect_refused(looks, "does not name a model");
  }
  bare.op = Op::show;
  expect_refused(bare, "no model can have this name");
  for (const Op op : {Op::close, Op::progress, Op::list}) {
    bare.op = op;
    cr_expect_null(check(bare, sizeof bare));
  }
}

Test(model_wire, an_entry_says_one_thing, .timeout = 10) {
  ModelEntry good;
  put(good.name, good.name_length, "resnet");
  good.bytes = 10;
  good.read_bytes = 10;
  cr_expect_null(check(good, sizeof good));
  expect_refused(good, "wrong size", sizeof good - 1);
  ModelEntry bad = good;
  bad.version = 2;
  expect_refused(bad, "another version");
  bad = good;
  bad.read_bytes = 11;
  expect_refused(bad, "read more");
  bad = good;
  bad.digest[3] = 1;
  expect_refused(bad, "digest that is none");
  bad.flags = ModelEntry::kHasDigest;
  cr_expect_null(check(bad, sizeof bad));
  bad.flags = 4;
  expect_refused(bad, "unknown");
  bad = good;
  bad.answer = Answer::failed;
  expect_refused(bad, "unknown");
  bad = good;
  bad.place = static_cast<Place>(3);
  expect_refused(bad, "unknown");
  bad = good;
  bad.failure = Failure::corrupt;
  expect_refused(bad, "does not say why");
  put(bad.text, bad.text_length, "it is damaged");
  cr_expect_null(check(bad, sizeof bad));
  bad.failure = static_cast<Failure>(-6);
  expect_refused(bad, "does not say why");
  bad = good;
  bad.name[6] = '/';
  bad.name_length = 7;
  expect_refused(bad, "no model can have this name");
}

Test(model_wire, a_reply_has_its_catalogue_in_its_memory, .timeout = 10) {
  ModelReply good;
  good.answer = Answer::opened;
  good.memory_bytes = 8192;
  good.catalogue_at = 4096;
  good.catalogue_bytes = 4096;
  cr_expect_null(check(good, sizeof good));
  ModelReply bad = good;
  bad.catalogue_at = 4104;
  expect_refused(bad, "not in the memory");
  bad = good;
  bad.catalogue_at = UINT64_MAX - 7;
  expect_refused(bad, "not in the memory");
  bad = good;
  bad.catalogue_bytes = UINT64_MAX;
  expect_refused(bad, "not in the memory");
  bad = good;
  bad.catalogue_at = 1;
  expect_refused(bad, "not in the memory");
}

Test(model_wire, no_more_is_read_than_there_is, .timeout = 10) {
  ModelReply reply;
  reply.answer = Answer::progress;
  cr_expect_null(check(reply, sizeof reply));
  reply.memory_bytes = reply.catalogue_at = 5;
  cr_expect_null(check(reply, sizeof reply));
  reply.catalogue_at = 6;
  expect_refused(reply, "more than there is");
}

Test(model_wire, a_failure_says_why, .timeout = 10) {
  ModelReply reply;
  reply.failure = Failure::not_found;
  put(reply.text, reply.text_length, "there is no such model");
  cr_expect_null(check(reply, sizeof reply));
  reply.failure = Failure::none;
  expect_refused(reply, "does not say why");
  reply.failure = static_cast<Failure>(-6);
  expect_refused(reply, "does not say why");
  ModelReply silent;
  silent.failure = Failure::corrupt;
  expect_refused(silent, "does not say why");
}

Test(control_wire, takes_whole_requests_only, .timeout = 10) {
  for (auto op :
       {ControlOp::serve, ControlOp::end, ControlOp::add, ControlOp::remove, ControlOp::pin,
        ControlOp::unpin, ControlOp::evict, ControlOp::prefetch, ControlOp::list, ControlOp::status,
        ControlOp::holders, ControlOp::show, ControlOp::verify})
    cr_expect_null(check(control_request(op), sizeof(ControlRequest)));
  expect_refused(control_request(static_cast<ControlOp>(17)), "unknown");
  expect_refused(control_request(ControlOp::add), "wrong size", 100);
  ControlRequest bad = control_request(ControlOp::add);
  bad.path[0] = 'm';
  expect_refused(bad, "not absolute");
  bad = control_request(ControlOp::serve);
  bad.name[2] = '/';
  expect_refused(bad, "no job");
  bad = control_request(ControlOp::add);
  bad.tenant[1] = ' ';
  expect_refused(bad, "no tenant");
}

Test(control_wire, visible_names_tenants_or_all, .timeout = 10) {
  const auto with = [](std::string_view visible) {
    ControlRequest request = control_request(ControlOp::add);
    put(request.visible, request.visible_length, visible);
    return request;
  };
  for (const char* good : {"", "*", "speech", "speech,robots"})
    cr_expect_null(check(with(good), sizeof(ControlRequest)), "%s", good);
  for (const char* bad : {",", "a,", ",a", "a,,b", "a,*", "**", "a b", "a/b"})
    expect_refused(with(bad), "tenants with commas");
}

Test(control_wire, a_list_begins_at_no_name, .timeout = 10) {
  ControlRequest bare;
  for (const auto op : {ControlOp::list, ControlOp::status}) {
    bare.op = op;
    cr_expect_null(check(bare, sizeof bare));
    ControlRequest of_tenant = bare;
    put(of_tenant.tenant, of_tenant.tenant_length, "vision");
    cr_expect_null(check(of_tenant, sizeof of_tenant));
    put(of_tenant.tenant, of_tenant.tenant_length, "vi/ion");
    expect_refused(of_tenant, "no tenant");
  }
  ControlRequest nobodys;
  nobodys.op = ControlOp::list;
  put(nobodys.name, nobodys.name_length, "resnet");
  expect_refused(nobodys, "no tenant");
  for (const auto op : {ControlOp::show, ControlOp::verify, ControlOp::holders, ControlOp::pin}) {
    bare.op = op;
    expect_refused(bare, "no model");
  }
  ControlRequest holders = control_request(ControlOp::holders);
  cr_expect_null(check(holders, sizeof holders), "the path of a socket");
  put(holders.path, holders.path_length, "../models/resn");
  expect_refused(holders, "no job");
}

namespace {

ModelLine model_line() {
  ModelLine line;
  put(line.tenant, line.tenant_length, "vision");
  put(line.name, line.name_length, "resnet/50");
  put(line.source, line.source_length, "/models/resnet");
  put(line.visible, line.visible_length, "speech,robots");
  line.bytes = 8;
  return line;
}

}  // namespace

Test(control_wire, a_line_of_a_model_is_whole, .timeout = 10) {
  const ModelLine good = model_line();
  cr_expect_null(check(good, sizeof good));
  expect_refused(good, "wrong size", sizeof good - 1);
  const auto with = [&](const std::function<void(ModelLine&)>& change) {
    ModelLine line = good;
    change(line);
    return line;
  };
  expect_refused(with([](auto& line) { line.version = 2; }), "another version");
  expect_refused(with([](auto& line) { line.text[5] = 'x'; }), "not of its length");
  expect_refused(with([](auto& line) { line.source_length = 1024; }), "not of its length");
  expect_refused(with([](auto& line) { line.name[0] = '/'; }), "no model");
  expect_refused(with([](auto& line) { line.tenant[0] = ' '; }), "no model");
  expect_refused(with([](auto& line) { line.visible[0] = ','; }), "tenants with commas");
  expect_refused(with([](auto& line) { line.place = static_cast<Place>(3); }), "unknown");
  expect_refused(with([](auto& line) { line.flags = 16; }), "unknown");
  expect_refused(with([](auto& line) { line.read_bytes = 9; }), "more than there is");
  expect_refused(with([](auto& line) { line.failure = Failure::corrupt; }), "does not say why");
  expect_refused(with([](auto& line) { put(line.text, line.text_length, "it is damaged"); }),
                 "does not say why");
  expect_refused(with([](auto& line) { line.digest[31] = 1; }), "a digest that is none");
  cr_expect_null(check(with([](auto& line) {
                         line.digest[31] = 1;
                         line.flags = ModelLine::kHasDigest;
                       }),
                       sizeof good));
}

Test(control_wire, lines_of_tenants_and_holders_are_whole, .timeout = 10) {
  StoreLine store;
  cr_expect_null(check(store, sizeof store), "no tenant is behind the last");
  store.evicting = 1;
  expect_refused(store, "more than there is");
  store.used = 1;
  cr_expect_null(check(store, sizeof store));
  store.tenant_evicting = 1;
  expect_refused(store, "more than there is");
  store.tenant_evicting = 0;
  put(store.tenant, store.tenant_length, "a b");
  expect_refused(store, "no tenant");
  expect_refused(store, "wrong size", 3);
  store = {};
  store.disk_images = 1;
  expect_refused(store, "a disk that there is not");
  store.disk = Disk::silent;
  cr_expect_null(check(store, sizeof store));
  store.disk = static_cast<Disk>(3);
  expect_refused(store, "unknown");

  HolderLine holder;
  expect_refused(holder, "no tenant");
  put(holder.tenant, holder.tenant_length, "vision");
  expect_refused(holder, "no job");
  for (const char* job : {"17", "17_3", "/run/a b.sock"}) {
    holder = HolderLine{};
    put(holder.tenant, holder.tenant_length, "vision");
    put(holder.job, holder.job_length, job);
    cr_expect_null(check(holder, sizeof holder), "%s", job);
  }
  holder.job[0] = '.';
  expect_refused(holder, "no job");
}

namespace {

/// What lines of both sockets must not say. `line`: of a model.
template <typename Line>
void expect_whole_lines_only(const Line& line) {
  cr_expect_null(check(line, sizeof line));
  expect_refused(line, "wrong size", sizeof line - 1);
  const auto with = [&](const std::function<void(Line&)>& change) {
    Line changed = line;
    change(changed);
    return changed;
  };
  expect_refused(with([](auto& l) { l.version = 2; }), "another version");
  expect_refused(with([](auto& l) { l.text[5] = 'x'; }), "not of its length");
  expect_refused(with([](auto& l) { l.name[0] = '/'; }), "no model");
  expect_refused(with([](auto& l) { l.gpu = kLastGpu + 1; }), "no GPU");
  expect_refused(with([](auto& l) { l.state = static_cast<OnGpu>(5); }), "unknown");
  expect_refused(with([](auto& l) { l.evicting = l.used + 1; }), "more than there is");
  expect_refused(with([](auto& l) { l.copied_bytes = l.bytes + 1; }), "more than there is");
  expect_refused(with([](auto& l) { l.failure = Failure::corrupt; }), "does not say why");
  expect_refused(with([](auto& l) { put(l.text, l.text_length, "it broke"); }), "does not say why");
  expect_refused(with([](auto& l) { l.references = 0; }), "lent to nobody");
  expect_refused(with([](auto& l) { l.state = OnGpu::idle; }), "somebody has");
  expect_refused(with([](auto& l) { l.state = OnGpu::none; }), "");
  cr_expect_null(check(with([](auto& l) {
                         l.state = OnGpu::absent;
                         l.references = 0;
                         l.failure = Failure::no_room;
                         put(l.text, l.text_length, "it is full");
                       }),
                       sizeof line));
}

template <typename Line>
Line lent_line() {
  Line line;
  line.state = OnGpu::lent;
  line.bytes = line.used = 8;
  line.references = 1;
  put(line.name, line.name_length, "resnet/50");
  return line;
}

}  // namespace

Test(gpu_lines, are_whole, .timeout = 10) {
  expect_whole_lines_only(lent_line<GpuEntry>());
  GpuEntry entry;
  cr_expect_null(check(entry, sizeof entry), "of a GPU without models");
  entry.bytes = 1;
  expect_refused(entry, "a model that there is not");
  entry = {};
  entry.answer = Answer::entry;
  expect_refused(entry, "unknown");

  GpuLine line = lent_line<GpuLine>();
  expect_refused(line, "no job");
  put(line.job, line.job_length, "17");
  expect_refused(line, "no tenant");
  put(line.tenant, line.tenant_length, "vision");
  expect_whole_lines_only(line);
  put(line.job_tenant, line.job_tenant_length, "spe/ch");
  expect_refused(line, "no tenant");
  GpuLine bare;
  put(bare.job, bare.job_length, "/run/a.sock");
  cr_expect_null(check(bare, sizeof bare), "of a job that has ended");
  put(bare.tenant, bare.tenant_length, "vision");
  expect_refused(bare, "no tenant");
}

Test(gpu_lines, are_asked_for_by_the_line_before, .timeout = 10) {
  ModelRequest request;
  request.op = Op::on_gpus;
  cr_expect_null(check(request, sizeof request), "the first");
  put(request.name, request.name_length, "resnet/50");
  expect_refused(request, "a model on a GPU");
  request.gpu = 3;
  cr_expect_null(check(request, sizeof request));
  request.by = By::digest;
  expect_refused(request, "a model on a GPU");
  request.by = By::name;
  request.name[0] = '/';
  expect_refused(request, "no model");

  ControlRequest control;
  control.op = ControlOp::on_gpus;
  cr_expect_null(check(control, sizeof control), "the first");
  put(control.path, control.path_length, "17");
  expect_refused(control, "the GPU of a job");
  put(control.visible, control.visible_length, "0000:3b:00.0");
  cr_expect_null(check(control, sizeof control), "behind a GPU");
  put(control.tenant, control.tenant_length, "vision");
  expect_refused(control, "no model");
  put(control.name, control.name_length, "resnet/50");
  cr_expect_null(check(control, sizeof control), "behind a model");
  control.visible[0] = 'x';
  expect_refused(control, "the GPU of a job");
  control.visible[0] = '0';
  control.path[0] = '.';
  expect_refused(control, "the GPU of a job");
}

Test(gpu_address, is_read_as_tools_write_it, .timeout = 10) {
  const auto read = [](const std::string& text) {
    std::uint64_t gpu = kNoGpu;
    if (!read_gpu(text.data(), text.size(), &gpu)) return std::string("none");
    char again[kGpuText];
    write_gpu(gpu, again);
    return std::string(again);
  };
  cr_expect(read("0000:3b:00.0") == "0000:3b:00.0");
  cr_expect(read("00000000:3B:00.0") == "0000:3b:00.0");
  cr_expect(read("3B:1f.7") == "0000:3b:1f.7");
  cr_expect(read("abcd1234:FF:1F.7") == "abcd1234:ff:1f.7");
  for (const char* wrong :
       {"", ":", "0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:00.0 ", "0000-3b:00.0",
        "123456789:3b:00.0", "0000:3bb:00.0", "x:3b:00.0", "0000:3b:00.", "GPU-3b"})
    cr_expect(read(wrong) == "none", "%s", wrong);
  cr_expect(is_gpu_list("", 0) && is_gpu_list("0000:3b:00.0,86:00.0", 20));
  cr_expect(!is_gpu_list(",", 1) && !is_gpu_list("3b:00.0,", 8));
}

Test(gpu_address, a_message_has_one_that_can_be, .timeout = 10) {
  ModelRequest open;
  open.name[0] = 'm';
  open.name_length = 1;
  open.gpu = 0x3b00;
  cr_expect_null(check(open, sizeof open));
  open.gpu = kLastGpu + 1;
  expect_refused(open, "no GPU");
  ControlRequest request;
  request.op = ControlOp::gpus;
  put(request.name, request.name_length, "17");
  expect_refused(request, "PCI addresses");
  put(request.path, request.path_length, "3b:00.0,86:00.0");
  cr_expect_null(check(request, sizeof request));
  put(request.name, request.name_length, "a/b");
  expect_refused(request, "no job");
  request.op = ControlOp::prefetch_on_gpus;
  expect_refused(request, "no job");
  put(request.path, request.path_length, std::string(15, '1').c_str());
  cr_expect_null(check(request, sizeof request));
}
