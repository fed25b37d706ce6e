#include "services/skeinctl/bench/ask_for_model.h"

#include <chrono>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services::bench {
namespace {

constexpr size_t kTextMax = 300;

// What OpenAI's error object says: ": ...". Empty: the body is none. In ASCII and with JSON's
// escapes, because a terminal may take other characters for commands.
std::string ErrorText(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  const auto error = json.is_object() ? json.find("error") : json.end();
  if (error == json.end() || !error->is_object()) return "";
  const auto message = error->find("message");
  if (message == error->end() || !message->is_string()) return "";
  const std::string text = nlohmann::json(message->get<std::string>().substr(0, kTextMax))
                               .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return ": " + text.substr(1, text.size() - 2);  // without its quotes
}

const char* AdviceFor(int status, const std::string& body) {
  if (status == 403 && absl::StrContains(body, R"("certificate_required")")) {
    return " (give --tls-dir with tls.crt and tls.key of a client)";
  }
  if (status == 401 || status == 403) return " (set the key with --api-key or OPENAI_API_KEY)";
  if (status == 404) return " (name a model with --model)";
  return "";
}

}  // namespace

absl::StatusOr<std::string> AskForModel(boost::asio::io_context* io, HttpClient* client,
                                        const Target& target) {
  std::string body;
  int status = 0;
  absl::Status failure;
  client->Send(ModelsCall(target), std::chrono::seconds(10),
               {.on_status = [&](int code) { status = code; },
                .on_body = [&](std::string_view bytes) { body.append(bytes); },
                .on_end =
                    [&](CallEnd end, const std::string& why) {
                      if (end != CallEnd::kDone) failure = absl::UnavailableError(why);
                    }});
  io->restart();
  io->run();
  if (failure.ok() && status != 200) {
    failure = absl::UnavailableError(absl::StrCat("GET /v1/models was answered ", status,
                                                  ErrorText(body), AdviceFor(status, body)));
  }
  if (!failure.ok()) return failure;
  return OnlyModel(body);
}

}  // namespace skein::services::bench
