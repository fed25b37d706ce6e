#include <charconv>
#include <string>
#include <utility>

#include "services/openai/json_body.h"
#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

constexpr int64_t kTokenMax = INT32_MAX;
constexpr int64_t kCountMax = 1 << 30;

void ReadStop(Fields* fields, std::vector<std::string>* stop) {
  const Json* json = fields->Find("stop");
  if (json == nullptr) return;
  if (!json->is_string() && !json->is_array())
    return fields->WrongType("stop", "a string or an array of strings");
  const Json list = json->is_string() ? Json::array({*json}) : *json;
  if (list.size() > kStopStringsMax) {
    return fields->Fail(InvalidParam("stop", "Invalid 'stop': array too long. Expected at most " +
                                                 std::to_string(kStopStringsMax) + " strings."));
  }
  for (const Json& item : list) {
    if (!item.is_string()) return fields->WrongType("stop", "a string or an array of strings");
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
  if (!json->is_object())
    return fields->WrongType("logit_bias", "an object of numbers by token id");
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

void ReadSampling(Fields* fields, GenerationOptions* options) {
  fields->Number("temperature", 0, 2, &options->temperature);
  fields->Number("top_p", 0, 1, &options->top_p);
  fields->Number("min_p", 0, 1, &options->min_p);
  fields->Number("repetition_penalty", 1e-3, 100, &options->repetition_penalty);
  std::optional<double> presence, frequency;
  fields->Number("presence_penalty", -2, 2, &presence);
  fields->Number("frequency_penalty", -2, 2, &frequency);
  options->presence_penalty = presence.value_or(0);
  options->frequency_penalty = frequency.value_or(0);
  fields->Int("top_k", -1, kCountMax, &options->top_k);
  if (options->top_k == -1) options->top_k = 0;  // vLLM writes "off" so
  fields->Int("seed", INT64_MIN, INT64_MAX, &options->seed);
  ReadLogitBias(fields, &options->logit_bias);
}

void ReadStreamOptions(Fields* fields, GenerationOptions* options) {
  fields->Bool("stream", &options->stream);
  const Json* json = fields->Find("stream_options");
  if (json == nullptr || !fields->ok()) return;
  if (!json->is_object()) return fields->WrongType("stream_options", "an object");
  if (!options->stream) {
    return fields->Fail(
        InvalidParam("stream_options",
                     "The 'stream_options' parameter is only allowed when 'stream' is enabled."));
  }
  Fields nested(*json, "stream_options");
  nested.Bool("include_usage", &options->include_usage);
  if (!nested.ok()) fields->Fail(*nested.error());
}

void RefuseUnserved(Fields* fields) {
  for (const char* name :
       {"use_beam_search", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "structured_outputs", "grammar", "json_schema", "logits_processors", "prompt_logprobs",
        "prompt_embeds", "truncate_prompt_tokens", "bad_words", "allowed_token_ids"}) {
    fields->RefuseIfSet(name);
  }
  const Json* format = fields->Find("response_format");
  if (format == nullptr) return;
  if (!format->is_object()) return fields->WrongType("response_format", "an object");
  const auto type = format->find("type");
  if (type == format->end() || *type != "text") {
    fields->Fail(Unsupported("response_format", "only {\"type\": \"text\"} is served."));
  }
}

}  // namespace

MaybeError ParseObject(std::string_view body, Json* json) {
  if (MaybeError error = ParseJson(body, json)) return error;
  if (json->is_object()) return std::nullopt;
  return ApiError{400, "The request body must be a JSON object.", "", "invalid_type"};
}

bool ReadTokens(const Json& json, const std::string& path, Fields* fields,
                std::vector<int32_t>* out) {
  out->reserve(json.size());
  for (const Json& item : json) {
    int64_t token = -1;
    if (!AsInt(item, &token) || token < 0 || token > kTokenMax) {
      fields->Fail(InvalidParam(path, "Invalid '" + path + "': expected an array of token ids."));
      return false;
    }
    out->push_back(static_cast<int32_t>(token));
  }
  return true;
}

void ReadOptions(const ParseLimits& limits, Fields* fields, GenerationOptions* options) {
  ReadStreamOptions(fields, options);
  ReadSampling(fields, options);
  ReadStop(fields, &options->stop);
  fields->Int("n", 1, limits.choices_max, &options->n);
  fields->Int("min_tokens", 0, kCountMax, &options->min_tokens);
  fields->Bool("include_stop_str_in_output", &options->include_stop_str_in_output);
  fields->Bool("ignore_eos", &options->ignore_eos);
  fields->Bool("skip_special_tokens", &options->skip_special_tokens);
  fields->Bool("return_token_ids", &options->return_token_ids);
  std::string user;
  fields->String("user", &user);
  if (const Json* ids = fields->Find("stop_token_ids")) {
    if (!ids->is_array()) return fields->WrongType("stop_token_ids", "an array of token ids");
    ReadTokens(*ids, "stop_token_ids", fields, &options->stop_token_ids);
  }
  RefuseUnserved(fields);
}

}  // namespace skein::services::openai
