#include "services/router/model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : std::string();
}

absl::StatusOr<Json> ParseConfig(std::string_view text, const char* file) {
  Json json = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a JSON object"));
  return json;
}

void AddEos(const Json& json, std::vector<int32_t>* ids) {
  const auto it = json.find("eos_token_id");
  if (it == json.end()) return;
  for (const Json& id : it->is_array() ? *it : Json::array({*it})) {
    if (id.is_number_integer()) ids->push_back(id.get<int32_t>());
  }
}

double Number(const Json& json, const char* name, double min, double max, double fallback) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_number()) return fallback;
  const double value = it->get<double>();
  return value >= min && value <= max ? value : fallback;
}

absl::StatusOr<std::unique_ptr<ServedModel>> LoadModel(const std::string& name,
                                                       const std::filesystem::path& dir) {
  auto model = std::make_unique<ServedModel>();
  model->name = name;
  auto tokenizer = engine::Tokenizer::Load(dir.string());
  if (!tokenizer.ok()) return tokenizer.status();
  model->tokenizer = *std::move(tokenizer);
  absl::Status status = ReadModelConfig(ReadFile(dir / "config.json"),
                                        ReadFile(dir / "generation_config.json"), model.get());
  if (!status.ok()) return status;
  if (auto eos = model->tokenizer->eos_id();
      eos.has_value() && std::count(model->eos_ids.begin(), model->eos_ids.end(), *eos) == 0) {
    model->eos_ids.push_back(*eos);
  }
  model->vocab_size = std::max<int64_t>(model->vocab_size, model->tokenizer->vocab_size());
  if (const auto& source = model->tokenizer->chat_template(); source.has_value()) {
    auto parsed = engine::ChatTemplate::Parse(*source);
    if (!parsed.ok()) return parsed.status();
    model->chat_template = *std::move(parsed);
  }
  model->created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  return model;
}

}  // namespace

absl::Status ReadModelConfig(std::string_view config_json, std::string_view generation_config_json,
                             ServedModel* model) {
  auto config = ParseConfig(config_json, "config.json");
  auto generation = ParseConfig(generation_config_json, "generation_config.json");
  for (const auto* json : {&config, &generation}) {
    if (!json->ok()) return json->status();
  }
  model->max_positions =
      static_cast<int64_t>(Number(*config, "max_position_embeddings", 1, 1e9, 0));
  if (model->max_positions == 0) {
    return absl::InvalidArgumentError("config.json: max_position_embeddings is missing");
  }
  model->vocab_size = static_cast<int64_t>(Number(*config, "vocab_size", 1, 1e9, 0));
  AddEos(*generation, &model->eos_ids);
  if (model->eos_ids.empty()) AddEos(*config, &model->eos_ids);
  SamplingDefaults& defaults = model->defaults;
  defaults.temperature = Number(*generation, "temperature", 0, 2, defaults.temperature);
  defaults.top_p = Number(*generation, "top_p", 0, 1, defaults.top_p);
  defaults.min_p = Number(*generation, "min_p", 0, 1, defaults.min_p);
  defaults.repetition_penalty =
      Number(*generation, "repetition_penalty", 1e-3, 100, defaults.repetition_penalty);
  defaults.top_k = static_cast<int64_t>(Number(*generation, "top_k", 0, 1e9, 0));
  return absl::OkStatus();
}

absl::StatusOr<Models> Models::Load(const std::vector<std::string>& specs) {
  Models models;
  std::string problems;
  if (specs.empty()) problems = "--model: at least one is needed";
  for (const std::string& spec : specs) {
    const size_t equals = spec.find('=');
    std::filesystem::path dir = equals == std::string::npos ? spec : spec.substr(equals + 1);
    if (!dir.has_filename()) dir = dir.parent_path();  // a slash at the end
    const std::string name =
        equals == std::string::npos ? dir.filename().string() : spec.substr(0, equals);
    auto model = LoadModel(name, dir);
    if (model.ok() && !name.empty() && models.Find(name) == nullptr) {
      models.Add(*std::move(model));
      continue;
    }
    const std::string why = !model.ok()    ? model.status().ToString()
                            : name.empty() ? "the name is empty"
                                           : "the name is given twice";
    absl::StrAppend(&problems, problems.empty() ? "" : "\n", "--model ", spec, ": ", why);
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems);
  return models;
}

void Models::Add(std::unique_ptr<ServedModel> model) {
  std::string name = model->name;
  models_[std::move(name)] = std::move(model);
}

const ServedModel* Models::Find(const std::string& name) const {
  const auto it = models_.find(name);
  return it == models_.end() ? nullptr : it->second.get();
}

const ServedModel* Models::Only() const {
  return models_.size() == 1 ? models_.begin()->second.get() : nullptr;
}

}  // namespace skein::services
