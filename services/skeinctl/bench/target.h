// The server under load, and the form of its requests. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/skeinctl/bench/dataset.h"

namespace skein::services::bench {

struct Url {
  std::string host;
  std::string port = "80";
  std::string path;  // before /v1, without a trailing slash
  bool https = false;
};

// "http://host:port", "https://host:port", "host:port", with a path or "/v1" at the end.
// INVALID_ARGUMENT gives the reason. `https`: what is meant without a scheme.
absl::StatusOr<Url> ParseUrl(const std::string& text, bool https = false);

enum class Endpoint { kCompletions, kChat };

struct Target {
  Url url;
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;
  std::string api_key;  // empty: none
  bool streaming = true;
  bool ignore_eos = true;  // requests full-length answers; OpenAI's own servers refuse the field
};

struct HttpCall {
  std::string method = "GET";
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

HttpCall CallFor(const Target& target, const LoadRequest& request);
HttpCall ModelsCall(const Target& target);

// The only model in an answer to ModelsCall. INVALID_ARGUMENT: none, or several.
absl::StatusOr<std::string> OnlyModel(const std::string& body);

}  // namespace skein::services::bench
