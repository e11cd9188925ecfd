// SPDX-License-Identifier: Apache-2.0
// What models are on GPUs, as text and as JSON.
#include "launcher/model/gpu_list.h"

#include <fmt/core.h>
#include <unistd.h>

#include <utility>

#include "common/text.h"
#include "launcher/base/size_text.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"

namespace bellows {
namespace {

using Json = nlohmann::ordered_json;
using modelwire::OnGpu;

const char* word_of(OnGpu state) {
  return state == OnGpu::lent      ? "lent"
         : state == OnGpu::idle    ? "idle"
         : state == OnGpu::loading ? "loading"
                                   : "absent";
}

std::string state_of(const ModelOnGpu& model) {
  std::string text = word_of(model.state);
  if (model.state == OnGpu::loading && model.bytes > 0)
    text += fmt::format(", {} %", static_cast<int>(100.0 * static_cast<double>(model.copied_bytes) /
                                                   static_cast<double>(model.bytes)));
  if (model.trouble) text += "; its last copy failed";
  return text;
}

std::string size_of(const ModelOnGpu& model) {
  return model.bytes > 0 ? size_text(model.bytes) : "-";
}

/// "0000:3b:00.0 of job 17"
std::string place_of(const GpuForModels& gpu) {
  if (gpu.job.empty()) return gpu.address;
  const char* what = gpu.job.starts_with('/') ? "programs at" : "job";
  return fmt::format("{} of {} {}", gpu.address, what, one_line(gpu.job));
}

std::string room_of(const GpuForModels& gpu) {
  // A job that has ended.
  if (gpu.budget == 0)
    return fmt::format("the job has ended, and {} are not yet freed", size_text(gpu.used));
  std::string text = fmt::format("{} of {} are used", size_text(gpu.used), size_text(gpu.budget));
  if (gpu.evicting > 0)
    text += fmt::format(", {} of them until they are freed", size_text(gpu.evicting));
  return fmt::format("{}; {} are left", text, size_text(gpu.left()));
}

Json json_of(const ModelOnGpu& model, bool in_job) {
  Json json = Json::object();
  if (!in_job) json["tenant"] = model.tenant;
  json.update({{"name", model.name},
               {"state", word_of(model.state)},
               {"bytes", model.bytes},
               {"copied_bytes", model.copied_bytes},
               {"references", model.references},
               {"waiting", model.waiting},
               {"trouble", nullptr}});
  if (model.trouble) json["trouble"] = model.trouble->text;
  return json;
}

/// A model of this name, and of this tenant unless that is "".
bool is_it(const ModelOnGpu& model, const std::string& tenant, const std::string& name) {
  return model.name == name && (tenant.empty() || model.tenant == tenant);
}

}  // namespace

std::vector<GpuForModels> gpus_of(const std::vector<GpuForModels>& gpus,
                                  const std::string& tenant) {
  std::vector<GpuForModels> of;
  for (const GpuForModels& gpu : gpus)
    if (tenant.empty() || gpu.tenant == tenant) of.push_back(gpu);
  return of;
}

std::string gpu_text(const std::vector<GpuForModels>& gpus, bool in_job) {
  std::string rooms;
  std::vector<Table::Column> columns = {
      {"GPU"}, {"NAME"}, {"STATE"}, {"SIZE", true}, {"USERS", true}};
  if (!in_job) columns.insert(columns.end(), {{"TENANT"}, {"JOB"}});
  Table table(columns);
  bool has_models = false;
  for (const GpuForModels& gpu : gpus) {
    const std::string whose = gpu.tenant.empty() ? "" : " of tenant " + gpu.tenant;
    rooms += fmt::format("GPU {}{}: {}\n", place_of(gpu), whose, room_of(gpu));
    for (const ModelOnGpu& model : gpu.models) {
      std::vector<std::string> cells = {gpu.address, model.name, state_of(model), size_of(model),
                                        std::to_string(model.references + model.waiting)};
      if (!in_job) cells.insert(cells.end(), {model.tenant, one_line(gpu.job)});
      table.add(std::move(cells));
      has_models = true;
    }
  }
  if (rooms.empty()) return "";
  return "\n" + (has_models ? table.text(terminal_width(STDOUT_FILENO)) + "\n" : "") + rooms;
}

Json gpu_json(const std::vector<GpuForModels>& gpus, bool in_job) {
  Json list = Json::array();
  for (const GpuForModels& gpu : gpus) {
    Json json = Json::object();
    if (!in_job) json.update({{"job", gpu.job}, {"tenant", nullptr}});
    if (!gpu.tenant.empty()) json["tenant"] = gpu.tenant;
    json.update({{"gpu", gpu.address},
                 {"budget", gpu.budget},
                 {"used", gpu.used},
                 {"evicting", gpu.evicting},
                 {"left", gpu.left()},
                 {"models", Json::array()}});
    for (const ModelOnGpu& model : gpu.models) json["models"].push_back(json_of(model, in_job));
    list.push_back(std::move(json));
  }
  return list;
}

std::vector<std::string> copy_texts(const std::vector<GpuForModels>& gpus,
                                    const std::string& tenant, const std::string& name) {
  std::vector<std::string> texts;
  for (const GpuForModels& gpu : gpus)
    for (const ModelOnGpu& model : gpu.models) {
      if (!is_it(model, tenant, name)) continue;
      std::string text = fmt::format("{}: {}", place_of(gpu), state_of(model));
      if (model.trouble) text += ": " + model.trouble->text;
      if (model.bytes > 0)
        text += fmt::format(", {}, {}", size_of(model),
                            counted(model.references + model.waiting, "user"));
      texts.push_back(std::move(text));
    }
  return texts;
}

Json copies_json(const std::vector<GpuForModels>& gpus, const std::string& tenant,
                 const std::string& name) {
  const bool in_job = tenant.empty();
  Json list = Json::array();
  for (const GpuForModels& gpu : gpus)
    for (const ModelOnGpu& model : gpu.models) {
      if (!is_it(model, tenant, name)) continue;
      Json json = Json::object();
      if (!in_job) json["job"] = gpu.job;
      json["gpu"] = gpu.address;
      Json copy = json_of(model, in_job);
      copy.erase("tenant");
      copy.erase("name");
      json.update(copy);
      list.push_back(std::move(json));
    }
  return list;
}

}  // namespace bellows
