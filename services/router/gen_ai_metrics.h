// The server metrics of OpenTelemetry's conventions for generative AI
// (open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-metrics.md), as Prometheus names
// them: gen_ai.server.request.duration, gen_ai.server.time_to_first_token and
// gen_ai.server.time_per_output_token, with their buckets. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "services/metrics/metrics.h"

namespace skein::services {

class GenAiMetrics {
 public:
  explicit GenAiMetrics(Metrics* metrics) : metrics_(metrics) {}

  // Shows every series of a model that is served, at 0.
  void AddModel(const std::string& model);
  // A request was answered. `error`: its code, of a few; empty: it was answered as asked.
  void CountRequest(std::string_view operation, const std::string& model, std::string_view error,
                    double seconds);
  void CountFirstToken(std::string_view operation, const std::string& model, double seconds);
  // The mean between the tokens of a choice, after its first one.
  void CountTokens(std::string_view operation, const std::string& model, double seconds_per_token);

 private:
  Metrics* const metrics_;
};

}  // namespace skein::services
