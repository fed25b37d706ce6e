#include "services/skeinctl/bench/ask_for_model.h"

#include <chrono>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::services::bench {

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
    const char* advice = status == 401 || status == 403
                             ? " (set the key with --api-key or OPENAI_API_KEY)"
                             : " (name a model with --model)";
    failure = absl::UnavailableError(absl::StrCat("GET /v1/models was answered ", status, advice));
  }
  if (!failure.ok()) return failure;
  return OnlyModel(body);
}

}  // namespace skein::services::bench
