// A closed loop of clients of one server's /v1/completions: each sends its next request as soon as
// its answer has ended. Prompts are random token ids, no two alike. Prints one line of JSON.
#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/gateway/load.h"
#include "bench/gateway/sse_client.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(int, port, 0, "HTTP port of the server on loopback");
ABSL_FLAG(std::string, model, "", "served name of the model");
ABSL_FLAG(int, clients, 1, "answers at any time");
ABSL_FLAG(double, seconds, 8, "time that is measured, after one second that is not");
ABSL_FLAG(int, prompt_tokens, 128, "tokens of a prompt");
ABSL_FLAG(int, output_tokens, 64, "tokens of an answer");
ABSL_FLAG(int, vocab, 2048, "ids of prompts are 3 to this - 9");
ABSL_FLAG(int, seed, 1, "of the prompts");

namespace skein::bench {
namespace {

using nlohmann::json;

// The last few ids are control tokens of some models, the first few of others.
std::vector<int> RandomPrompt(std::mt19937* random) {
  std::uniform_int_distribution<int> id(3, absl::GetFlag(FLAGS_vocab) - 9);
  std::vector<int> prompt(static_cast<size_t>(absl::GetFlag(FLAGS_prompt_tokens)));
  for (int& token : prompt) token = id(*random);
  return prompt;
}

std::string NextBody(std::mt19937* random) {
  return json{{"model", absl::GetFlag(FLAGS_model)},
              {"prompt", RandomPrompt(random)},
              {"max_tokens", absl::GetFlag(FLAGS_output_tokens)},
              {"temperature", 0.0},
              {"ignore_eos", true},
              {"stream", true}}
      .dump();
}

// Output tokens that came before `seconds`. An answer's first token is known in time, the others
// are taken as evenly spread until its end.
double TokensInTime(const Samples& samples, double seconds) {
  const double rest = absl::GetFlag(FLAGS_output_tokens) - 1;
  double tokens = 0;
  for (const StreamTimes& stream : samples.streams) {
    const double first = static_cast<double>(stream.start_us + stream.ttft_us) * 1e-6;
    const double length = static_cast<double>(stream.total_us - stream.ttft_us) * 1e-6;
    if (first >= seconds) continue;
    tokens += 1 + rest * std::min(1.0, (seconds - first) / std::max(length, 1e-6));
  }
  return tokens;
}

json Quantiles(const std::vector<int64_t>& values_us) {
  return {{"p50_ms", static_cast<double>(Quantile(values_us, 0.5)) * 1e-3},
          {"p99_ms", static_cast<double>(Quantile(values_us, 0.99)) * 1e-3}};
}

json ToJson(const Samples& samples, double seconds) {
  std::vector<int64_t> ttft_us, tpot_us;
  const int64_t gaps = std::max(1, absl::GetFlag(FLAGS_output_tokens) - 1);
  for (const StreamTimes& stream : samples.streams) {
    ttft_us.push_back(stream.ttft_us);
    tpot_us.push_back((stream.total_us - stream.ttft_us) / gaps);
  }
  return {{"answers", samples.streams.size()},
          {"tokens_per_s", TokensInTime(samples, seconds) / seconds},
          {"ttft", Quantiles(ttft_us)},
          {"tpot", Quantiles(tpot_us)},
          {"errors", samples.errors},
          {"first_error", samples.first_error}};
}

int Main() {
  std::mt19937 random(static_cast<uint32_t>(absl::GetFlag(FLAGS_seed)));
  const auto next_body = [&random] { return NextBody(&random); };
  const double seconds = absl::GetFlag(FLAGS_seconds);
  SseClient client(absl::GetFlag(FLAGS_port), absl::GetFlag(FLAGS_clients));
  const Samples warm = client.Run(next_body, {.seconds_max = 1});
  json result = ToJson(client.Run(next_body, {.seconds_max = seconds}), seconds);
  result["warm_up_errors"] = warm.errors;
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return skein::bench::Main();
}
