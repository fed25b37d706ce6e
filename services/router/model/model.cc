#include "services/router/model/model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/generation_config.h"
#include "engine/checkpoint/rope_config.h"
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

// Only what the router needs: whether the model can be run is the workers' business.
absl::Status ReadConfig(const std::string& text, ServedModel* model) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("config.json is missing, or is not a JSON object");
  }
  const auto count = [&json](const char* name) {
    const auto it = json.find(name);
    return it != json.end() && it->is_number_unsigned() ? it->get<int64_t>() : 0;
  };
  model->max_positions = count("max_position_embeddings");
  model->vocab_size = count("vocab_size");
  for (const char* name : {"max_position_embeddings", "vocab_size"}) {
    if (count(name) > 0 && count(name) < INT32_MAX) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", name, " is not a number above 0"));
  }
  // Scaling that workers refuse extends nothing here.
  if (const auto rope = engine::ParseRopeConfig(json, model->max_positions); rope.ok()) {
    model->max_positions = engine::ExtendedPositions(*rope, model->max_positions);
  }
  const auto eos = json.find("eos_token_id");
  if (eos == json.end()) return absl::OkStatus();
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (id.is_number_integer()) model->eos_ids.push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

void Apply(const engine::GenerationConfig& generation, ServedModel* model) {
  if (!generation.eos_ids.empty()) model->eos_ids = generation.eos_ids;
  model->max_new_tokens = generation.max_new_tokens;
  SamplingDefaults& defaults = model->defaults;
  defaults.temperature = generation.temperature.value_or(defaults.temperature);
  defaults.top_p = generation.top_p.value_or(defaults.top_p);
  defaults.min_p = generation.min_p.value_or(defaults.min_p);
  defaults.top_k = generation.top_k.value_or(defaults.top_k);
  defaults.repetition_penalty = generation.repetition_penalty.value_or(defaults.repetition_penalty);
}

absl::StatusOr<std::unique_ptr<ServedModel>> LoadModel(const std::string& name,
                                                       const std::filesystem::path& dir) {
  auto model = std::make_unique<ServedModel>();
  model->name = name;
  auto tokenizer = engine::Tokenizer::Load(dir.string());
  if (!tokenizer.ok()) return tokenizer.status();
  model->tokenizer = *std::move(tokenizer);
  if (absl::Status status = ReadConfig(ReadFile(dir / "config.json"), model.get()); !status.ok()) {
    return status;
  }
  auto generation = engine::LoadGenerationConfig(dir.string(), static_cast<int>(model->vocab_size));
  if (!generation.ok()) return generation.status();
  Apply(*generation, model.get());
  if (auto eos = model->tokenizer->eos_id();
      eos.has_value() && std::count(model->eos_ids.begin(), model->eos_ids.end(), *eos) == 0) {
    model->eos_ids.push_back(*eos);
  }
  // An id without a row of the embedding cannot be sampled, and engines refuse it as a stop token.
  std::erase_if(model->eos_ids, [&](int32_t id) { return id < 0 || id >= model->vocab_size; });
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

absl::StatusOr<Models> Models::Load(const std::vector<std::string>& specs) {
  Models models;
  std::string problems;
  if (specs.empty()) problems = "--model is required";
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
    const std::string why = !model.ok()    ? std::string(model.status().message())
                            : name.empty() ? "the name is empty"
                                           : "the name is given twice";
    absl::StrAppend(&problems, problems.empty() ? "" : "\n", "--model: '", spec, "': ", why);
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
