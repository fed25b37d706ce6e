// A closed loop of clients of one server's /v1/completions: each sends its next request as soon as
// its answer has ended. Prompts are random token ids, no two alike. Prints one line of JSON.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/gateway/load.h"
#include "bench/gateway/sse_client.h"
#include "bench/serving/measured.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int, port, 0, "HTTP port of the server on loopback");
ABSL_FLAG(std::string, model, "", "served name of the model");
ABSL_FLAG(int, clients, 1, "answers at any time");
ABSL_FLAG(double, warm, 1, "seconds of the same load before those that are measured");
ABSL_FLAG(double, seconds, 8, "seconds that are measured");
ABSL_FLAG(int, prompt_tokens, 128, "tokens of a prompt");
ABSL_FLAG(int, output_tokens, 64, "tokens of an answer");
ABSL_FLAG(int, vocab, 2048, "ids of prompts are 3 to this - 9");
ABSL_FLAG(int, seed, 1,
          "of the prompts; a request's prompt follows from it and from how many were sent before");

namespace skein::bench {
namespace {

using nlohmann::json;

std::string BodyOf(uint32_t index) {
  const std::vector<int> prompt =
      PromptOf(static_cast<uint32_t>(absl::GetFlag(FLAGS_seed)), index,
               absl::GetFlag(FLAGS_prompt_tokens), absl::GetFlag(FLAGS_vocab));
  return json{{"model", absl::GetFlag(FLAGS_model)},
              {"prompt", prompt},
              {"max_tokens", absl::GetFlag(FLAGS_output_tokens)},
              {"temperature", 0.0},
              {"ignore_eos", true},
              {"stream", true}}
      .dump();
}

json Quantiles(const std::vector<int64_t>& values_us) {
  return {{"p50_ms", static_cast<double>(Quantile(values_us, 0.5)) * 1e-3},
          {"p99_ms", static_cast<double>(Quantile(values_us, 0.99)) * 1e-3}};
}

int Main() {
  const double warm = absl::GetFlag(FLAGS_warm), seconds = absl::GetFlag(FLAGS_seconds);
  SseClient client(absl::GetFlag(FLAGS_port), absl::GetFlag(FLAGS_clients));
  uint32_t sent = 0;
  const Samples samples =
      client.Run([&sent] { return BodyOf(sent++); }, {.seconds_max = warm + seconds});
  const Window window = {static_cast<int64_t>(warm * 1e6),
                         static_cast<int64_t>((warm + seconds) * 1e6)};
  const Measured measured = Within(window, samples, absl::GetFlag(FLAGS_output_tokens));
  const json result = {{"answers", measured.tpot_us.size()},  // that ended in the measured time
                       {"tokens_per_s", measured.tokens / seconds},
                       {"ttft", Quantiles(measured.ttft_us)},
                       {"tpot", Quantiles(measured.tpot_us)},
                       {"errors", samples.errors},  // those of the warm-up, too
                       {"first_error", samples.first_error}};
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return skein::bench::Main();
}
