#include "services/skeinctl/bench/target.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace skein::services::bench {
namespace {

using Json = nlohmann::ordered_json;

void AddHeaders(const Target& target, HttpCall* call) {
  call->headers.emplace_back("Host", absl::StrCat(target.url.host, ":", target.url.port));
  call->headers.emplace_back("User-Agent", "skeinctl-bench");
  if (!target.api_key.empty()) {
    call->headers.emplace_back("Authorization", absl::StrCat("Bearer ", target.api_key));
  }
}

}  // namespace

absl::StatusOr<Url> ParseUrl(const std::string& text, bool https) {
  const auto bad = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why));
  };
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "https://")) {
    https = true;
  } else if (absl::ConsumePrefix(&rest, "http://")) {
    https = false;
  }
  if (absl::StrContains(rest, "://")) return bad("is neither http nor https");
  const size_t slash = rest.find('/');
  Url url{.port = https ? "443" : "80", .https = https};
  if (slash != absl::string_view::npos) url.path = std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  while (absl::EndsWith(url.path, "/")) url.path.pop_back();
  url.path = std::string(absl::StripSuffix(url.path, "/v1"));
  // An IPv6 address is in brackets.
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.find(':', bracket == absl::string_view::npos ? 0 : bracket);
  if (colon != absl::string_view::npos) {
    url.port = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  if (absl::ConsumePrefix(&rest, "[") && !absl::ConsumeSuffix(&rest, "]")) {
    return bad("has a '[' without its ']'");
  }
  url.host = std::string(rest);
  int port = 0;
  if (url.host.empty()) return bad("has no host");
  if (!absl::SimpleAtoi(url.port, &port) || port < 1 || port > 65535) {
    return bad("has a port outside 1 to 65535");
  }
  return url;
}

HttpCall CallFor(const Target& target, const LoadRequest& request) {
  HttpCall call{.method = "POST"};
  Json body = {{"model", target.model}};
  if (target.endpoint == Endpoint::kChat) {
    call.target = absl::StrCat(target.url.path, "/v1/chat/completions");
    const auto* text = std::get_if<std::string>(&request.prompt);
    body["messages"] = {{{"role", "user"}, {"content", text == nullptr ? "" : *text}}};
  } else {
    call.target = absl::StrCat(target.url.path, "/v1/completions");
    std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, request.prompt);
  }
  if (request.output_tokens > 0) body["max_tokens"] = request.output_tokens;
  if (target.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = target.streaming;
  if (target.streaming) body["stream_options"] = {{"include_usage", true}};
  call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  AddHeaders(target, &call);
  call.headers.emplace_back("Content-Type", "application/json");
  return call;
}

HttpCall ModelsCall(const Target& target) {
  HttpCall call{.target = absl::StrCat(target.url.path, "/v1/models")};
  AddHeaders(target, &call);
  return call;
}

absl::StatusOr<std::string> OnlyModel(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const auto data = json.is_object() ? json.find("data") : json.end();
  if (!json.is_object() || data == json.end() || !data->is_array() || data->empty()) {
    return absl::InvalidArgumentError("the server lists no model (name one with --model)");
  }
  if (data->size() > 1) {
    return absl::InvalidArgumentError("the server lists several models (name one with --model)");
  }
  const Json& model = data->front();
  if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) {
    return absl::InvalidArgumentError(
        "the server's list of models has no id (name the model with --model)");
  }
  return model["id"].get<std::string>();
}

}  // namespace skein::services::bench
