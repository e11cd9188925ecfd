// SPDX-License-Identifier: Apache-2.0
#include "modelstore/control/job_models.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace bellows {
namespace {

using modelwire::ModelEntry;
using modelwire::ModelReply;

/// A daemon that never comes to an end is none.
constexpr std::size_t kMostModels = 1000000;

SeenModel model_of(const ModelEntry& entry) {
  SeenModel model;
  model.name.assign(entry.name, entry.name_length);
  if ((entry.flags & ModelEntry::kHasDigest) != 0) model.digest = digest_text(entry.digest);
  model.place = entry.place;
  model.bytes = entry.bytes;
  model.read_bytes = entry.read_bytes;
  model.own = (entry.flags & ModelEntry::kOwn) != 0;
  if (entry.failure != modelwire::Failure::none)
    model.trouble = Error{kind_of(entry.failure), std::string(entry.text, entry.text_length)};
  return model;
}

Result<std::optional<SeenModel>> end_of(const ModelReply& reply, std::size_t got) {
  if (const char* wrong = modelwire::check(reply, got)) return store_nonsense(wrong);
  if (reply.answer == modelwire::Answer::accepted) return std::optional<SeenModel>();
  if (reply.answer != modelwire::Answer::failed) return store_nonsense("it is no model");
  return Error{kind_of(reply.failure), std::string(reply.text, reply.text_length)};
}

}  // namespace

Result<JobModels> JobModels::connect(const std::string& path, StoreClock::time_point deadline,
                                     std::chrono::milliseconds restart) {
  auto socket = connect_to_modeld(path, deadline, restart);
  if (!socket) return socket.error();
  return JobModels(std::move(*socket), deadline);
}

Result<std::optional<SeenModel>> JobModels::ask(modelwire::Op op, const std::string& name) {
  modelwire::ModelRequest request;
  request.op = op;
  if (name.size() > modelwire::kMostName)
    return Error{ErrorKind::invalid, "no model can have so long a name"};
  request.name_length = static_cast<std::uint32_t>(name.size());
  std::memcpy(request.name, name.data(), name.size());
  if (const char* wrong = modelwire::check(request, sizeof request))
    return Error{ErrorKind::invalid, wrong};
  // Which of the two comes, its size tells.
  static_assert(sizeof(ModelEntry) > sizeof(ModelReply));
  ModelEntry entry;
  const auto got =
      ask_packet(socket_.get(), &request, sizeof request, -1, &entry, sizeof entry, deadline_);
  if (!got) return got.error();
  if (*got == sizeof(ModelReply)) {
    ModelReply reply;
    std::memcpy(static_cast<void*>(&reply), static_cast<const void*>(&entry), sizeof reply);
    return end_of(reply, *got);
  }
  if (const char* wrong = modelwire::check(entry, *got)) return store_nonsense(wrong);
  return std::optional<SeenModel>(model_of(entry));
}

Result<std::vector<SeenModel>> JobModels::list() {
  std::vector<SeenModel> models;
  std::string before;
  while (models.size() < kMostModels) {
    auto model = ask(modelwire::Op::list, before);
    if (!model) return model.error();
    if (!*model) return models;
    before = (*model)->name;
    models.push_back(std::move(**model));
  }
  return Error{ErrorKind::unavailable, "the answers of bellows-modeld never end"};
}

Result<SeenModel> JobModels::show(const std::string& name) {
  auto model = ask(modelwire::Op::show, name);
  if (!model) return model.error();
  if (!*model) return store_nonsense("it says nothing");
  return std::move(**model);
}

}  // namespace bellows
