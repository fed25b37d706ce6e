#include "services/jobs/job_output.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// As it came, if it is JSON on one line.
std::string OnOneLine(const std::string& body) {
  const bool valid = Json::accept(body);
  if (valid && body.find_first_of("\r\n") == std::string::npos) return body;
  return Dump(valid ? Json::parse(body, nullptr, false) : Json(body));
}

// OpenAI's: code and message only.
std::string ErrorOf(const std::string& body) {
  Json parsed = Json::parse(body, nullptr, false);
  if (parsed.is_object() && parsed.contains("error")) parsed = Json(parsed["error"]);
  const auto member = [&parsed](const char* name, const char* otherwise) {
    const bool there = parsed.is_object() && parsed.contains(name) && parsed[name].is_string();
    return there ? parsed[name].get<std::string>() : std::string(otherwise);
  };
  return Dump({{"code", member("code", "server_error")},
               {"message", member("message", "The request was not answered.")}});
}

}  // namespace

std::string OutputText(const OutputLine& line) {
  const std::string id =
      absl::StrCat("batch_req_", absl::StripPrefix(line.job, "batch_"), "_", line.line);
  std::string response = "null";
  std::string error = "null";
  if (line.status_code != 0) {
    response = absl::StrCat("{\"status_code\": ", line.status_code,
                            ", \"request_id\": ", Dump(line.request_id),
                            ", \"body\": ", OnOneLine(line.body), "}");
  } else {
    error = ErrorOf(line.body);
  }
  return absl::StrCat("{\"id\": ", Dump(id), ", \"custom_id\": ", Dump(line.custom_id),
                      ", \"response\": ", response, ", \"error\": ", error, "}\n");
}

std::string ExpiredBody() {
  return R"({"code": "batch_expired", "message": "This request could not be executed before the )"
         R"(completion window expired."})";
}

}  // namespace skein::services
