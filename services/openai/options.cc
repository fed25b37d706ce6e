#include <charconv>
#include <string>
#include <utility>

#include "services/openai/json_body.h"
#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

void ReadStop(Fields* fields, std::vector<std::string>* stop) {
  const Json* json = fields->Find("stop");
  if (json == nullptr) return;
  const Json list = json->is_string() ? Json::array({*json}) : *json;
  if (list.size() > kStopStringsMax) {
    return fields->Fail(InvalidParam("stop", "Invalid 'stop': array too long. Expected at most " +
                                                 std::to_string(kStopStringsMax) + " strings."));
  }
  for (const Json& item : list) {
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > kStopStringBytesMax) {
      return fields->Fail(InvalidParam("stop", "Invalid 'stop': each string needs 1 to " +
                                                   std::to_string(kStopStringBytesMax) +
                                                   " bytes."));
    }
    stop->push_back(text);
  }
}

void ReadLogitBias(Fields* fields, std::vector<std::pair<int32_t, float>>* out) {
  const Json* json = fields->Find("logit_bias");
  if (json == nullptr) return;
  if (json->size() > kLogitBiasMax) {
    return fields->Fail(InvalidParam(
        "logit_bias", "Invalid 'logit_bias': it has " + std::to_string(json->size()) +
                          " tokens; at most " + std::to_string(kLogitBiasMax) + " are allowed."));
  }
  for (const auto& [key, value] : json->get_ref<const Json::object_t&>()) {
    int32_t token = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), token);
    const bool is_token = end.ec == std::errc() && end.ptr == key.data() + key.size() && token >= 0;
    const double bias = value.is_number() ? value.get<double>() : 1e9;
    if (!is_token || !(bias >= -100 && bias <= 100)) {
      return fields->Fail(InvalidParam(
          "logit_bias",
          "Invalid 'logit_bias': keys are token ids and values numbers between -100 and 100."));
    }
    out->emplace_back(token, static_cast<float>(bias));
  }
}

void ReadStopTokens(Fields* fields, std::vector<int32_t>* out) {
  const Json* json = fields->Find("stop_token_ids");
  if (json == nullptr) return;
  if (json->size() > kStopTokenIdsMax) {
    return fields->Fail(
        InvalidParam("stop_token_ids", "Invalid 'stop_token_ids': it has " +
                                           std::to_string(json->size()) + " ids; at most " +
                                           std::to_string(kStopTokenIdsMax) + " are allowed."));
  }
  *out = TokensOf(*json);
}

void ReadSampling(Fields* fields, GenerationOptions* options) {
  fields->Number("temperature", &options->temperature);
  fields->Number("top_p", &options->top_p);
  fields->Number("min_p", &options->min_p);
  fields->Number("repetition_penalty", &options->repetition_penalty);
  fields->Number("presence_penalty", &options->presence_penalty);
  fields->Number("frequency_penalty", &options->frequency_penalty);
  fields->Int("top_k", &options->top_k);
  if (options->top_k == -1) options->top_k = 0;  // vLLM's value for "off"
  fields->Int("seed", &options->seed);
  ReadLogitBias(fields, &options->logit_bias);
}

void ReadStreamOptions(Fields* fields, GenerationOptions* options) {
  fields->Bool("stream", &options->stream);
  const Json* json = fields->Find("stream_options");
  if (json == nullptr || !fields->ok()) return;
  if (!options->stream) {
    return fields->Fail(
        InvalidParam("stream_options",
                     "The 'stream_options' parameter is only allowed when 'stream' is enabled."));
  }
  Fields nested(*json, "stream_options");
  nested.Bool("include_usage", &options->include_usage);
  nested.Bool("continuous_usage_stats", &options->continuous_usage);
  options->continuous_usage = options->continuous_usage && options->include_usage;
}

}  // namespace

MaybeError ParseObject(std::string_view body, Json* json) {
  if (MaybeError error = ParseJson(body, json)) return error;
  if (json->is_object()) return std::nullopt;
  return ApiError{400, "The request body must be a JSON object.", "", "invalid_type"};
}

MaybeError ParseBody(std::string_view body, std::string_view path, bool strict, Json* json,
                     BodyNotes* notes) {
  if (MaybeError error = ParseObject(body, json)) return error;
  return CheckBody(FindEndpoint("POST", path)->parameters, *json, strict, notes);
}

std::vector<int32_t> TokensOf(const Json& json) {
  std::vector<int32_t> tokens;
  tokens.reserve(json.size());
  for (const Json& item : json) {
    int64_t token = 0;
    AsInt(item, &token);
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

void ReadOptions(Fields* fields, GenerationOptions* options) {
  ReadStreamOptions(fields, options);
  ReadSampling(fields, options);
  ReadStop(fields, &options->stop);
  fields->Int("n", &options->n);
  options->best_of = options->n;
  fields->Int("priority", &options->priority);
  fields->Int("min_tokens", &options->min_tokens);
  fields->Bool("include_stop_str_in_output", &options->include_stop_str_in_output);
  fields->Bool("ignore_eos", &options->ignore_eos);
  fields->Bool("skip_special_tokens", &options->skip_special_tokens);
  fields->Bool("return_token_ids", &options->return_token_ids);
  fields->Bool("return_metrics", &options->return_metrics);
  fields->Bool("return_tokens_as_token_ids", &options->tokens_as_ids);
  ReadStopTokens(fields, &options->stop_token_ids);
}

}  // namespace skein::services::openai
