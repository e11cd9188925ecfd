// SPDX-License-Identifier: Apache-2.0
// What a job sees of the models of its node.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/size_text.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/model/commands.h"
#include "launcher/model/gpu_list.h"
#include "launcher/model/node_store.h"
#include "modelstore/control/job_models.h"

namespace bellows {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kLimit{10};

Result<JobModels> connect(const ModelOptions& options, const std::string& socket) {
  if (!options.tenant.empty())
    return Error{ErrorKind::invalid,
                 "a job sees the models of its own tenant only: leave --tenant out, or name the "
                 "folder of bellows-modeld with --run"};
  return JobModels::connect(socket, StoreClock::now() + kLimit);
}

Json json_of(const SeenModel& model) {
  Json json = {{"name", model.name},   {"state", place_word(model.place)},
               {"own", model.own},     {"digest", nullptr},
               {"bytes", model.bytes}, {"read_bytes", model.read_bytes},
               {"trouble", nullptr}};
  if (!model.digest.empty()) json["digest"] = model.digest;
  if (model.trouble) json["trouble"] = model.trouble->text;
  return json;
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::string state_of(const SeenModel& model) {
  return place_text(model.place, model.read_bytes, model.bytes) +
         (model.trouble ? "; its last load failed" : "");
}

std::string size_of(const SeenModel& model) {
  return model.bytes > 0 ? size_text(model.bytes) : "-";
}

}  // namespace

int job_model_list(const ModelOptions& options, const std::string& socket) {
  auto store = connect(options, socket);
  if (!store) return model_failed("list", store.error());
  const auto models = store->list();
  if (!models) return model_failed("list", models.error());
  const auto gpus = store->gpus();
  if (!gpus) return model_failed("list", gpus.error());
  if (options.json) {
    Json json = {{"models", Json::array()}};
    for (const SeenModel& model : *models) json["models"].push_back(json_of(model));
    json["gpus"] = gpu_json(*gpus, true);
    print_json(json);
    return kOk;
  }
  Table table({{"NAME"}, {"OF"}, {"STATE"}, {"SIZE", true}});
  for (const SeenModel& model : *models)
    table.add({model.name, model.own ? "own tenant" : "another", state_of(model), size_of(model)});
  fmt::print("{}{}", table.text(terminal_width(STDOUT_FILENO)), gpu_text(*gpus, true));
  return kOk;
}

int job_model_show(const ModelOptions& options, const std::string& socket) {
  auto store = connect(options, socket);
  if (!store) return model_failed("show", store.error());
  const auto model = store->show(options.name);
  if (!model)
    return model_failed("show", Error{model.error().kind, fmt::format("model {}: {}", options.name,
                                                                      model.error().text)});
  const auto gpus = store->gpus();
  if (!gpus) return model_failed("show", gpus.error());
  if (options.json) {
    Json json = json_of(*model);
    json["gpus"] = copies_json(*gpus, "", model->name);
    print_json(json);
    return kOk;
  }
  fmt::print("{:<11}{}\n{:<11}{}\n{:<11}{}\n", "model", model->name, "of",
             model->own ? "the job's own tenant" : "another tenant", "state", state_of(*model));
  if (model->trouble) fmt::print("{:<11}{}\n", "trouble", one_line(model->trouble->text));
  if (model->bytes > 0) fmt::print("{:<11}{}\n", "size", size_text(model->bytes));
  if (!model->digest.empty()) fmt::print("{:<11}{}\n", "digest", model->digest);
  for (const std::string& copy : copy_texts(*gpus, "", model->name))
    fmt::print("{:<11}{}\n", "on GPU", one_line(copy));
  return kOk;
}

}  // namespace bellows
