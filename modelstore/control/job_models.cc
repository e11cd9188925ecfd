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
constexpr std::size_t kMostLines = 1000000;

Error endless() { return Error{ErrorKind::unavailable, "the answers of bellows-modeld never end"}; }

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

/// Nothing: that was the last.
Status end_of(const ModelReply& reply, std::size_t got) {
  if (const char* wrong = modelwire::check(reply, got)) return store_nonsense(wrong);
  if (reply.answer == modelwire::Answer::accepted) return {};
  if (reply.answer != modelwire::Answer::failed) return store_nonsense("it is no line of a table");
  return Error{kind_of(reply.failure), std::string(reply.text, reply.text_length)};
}

}  // namespace

Result<JobModels> JobModels::connect(const std::string& path, StoreClock::time_point deadline,
                                     std::chrono::milliseconds restart) {
  auto socket = connect_to_modeld(path, deadline, restart);
  if (!socket) return socket.error();
  return JobModels(std::move(*socket), deadline);
}

template <typename Line>
Result<std::optional<Line>> JobModels::ask(modelwire::Op op, const std::string& name,
                                           std::uint64_t gpu) {
  modelwire::ModelRequest request;
  request.op = op;
  request.gpu = gpu;
  if (name.size() > modelwire::kMostName)
    return Error{ErrorKind::invalid, "no model can have so long a name"};
  request.name_length = static_cast<std::uint32_t>(name.size());
  std::memcpy(request.name, name.data(), name.size());
  if (const char* wrong = modelwire::check(request, sizeof request))
    return Error{ErrorKind::invalid, wrong};
  // Which of the two comes, its size tells.
  static_assert(sizeof(Line) > sizeof(ModelReply));
  Line line;
  const auto got =
      ask_packet(socket_.get(), &request, sizeof request, -1, &line, sizeof line, deadline_);
  if (!got) return got.error();
  if (*got == sizeof(ModelReply)) {
    ModelReply reply;
    std::memcpy(static_cast<void*>(&reply), static_cast<const void*>(&line), sizeof reply);
    if (Status ended = end_of(reply, *got); !ended) return ended.error();
    return std::optional<Line>();
  }
  if (const char* wrong = modelwire::check(line, *got)) return store_nonsense(wrong);
  return std::optional<Line>(line);
}

Result<std::vector<SeenModel>> JobModels::list() {
  std::vector<SeenModel> models;
  std::string before;
  while (models.size() < kMostLines) {
    const auto model = ask<ModelEntry>(modelwire::Op::list, before);
    if (!model) return model.error();
    if (!*model) return models;
    models.push_back(model_of(**model));
    before = models.back().name;
  }
  return endless();
}

Result<SeenModel> JobModels::show(const std::string& name) {
  const auto model = ask<ModelEntry>(modelwire::Op::show, name);
  if (!model) return model.error();
  if (!*model) return store_nonsense("it says nothing");
  return model_of(**model);
}

Result<std::vector<GpuForModels>> JobModels::gpus() {
  std::vector<GpuForModels> gpus;
  std::string before;
  std::uint64_t gpu = modelwire::kNoGpu;
  for (std::size_t lines = 0; lines < kMostLines; ++lines) {
    const auto line = ask<modelwire::GpuEntry>(modelwire::Op::on_gpus, before, gpu);
    if (!line) return line.error();
    if (!*line) return gpus;
    if (Status taken = take_line(gpus, **line); !taken) return taken.error();
    gpu = (*line)->gpu;
    before.assign((*line)->name, (*line)->name_length);
  }
  return endless();
}

}  // namespace bellows
