// Lengths of prompts and outputs: those of the Azure LLM inference trace (conversations, 2023) in
// its order, or, without the file, drawn with the same quantiles.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace skein::bench {

struct Lengths {
  int64_t prompt = 0;
  int64_t output = 0;
};

class PromptLengths {
 public:
  // `path`: AzureLLMInferenceTrace_conv.csv (TIMESTAMP,ContextTokens,GeneratedTokens); empty or not
  // readable: quantiles.
  explicit PromptLengths(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // the header
    while (std::getline(file, line)) {
      const size_t comma = line.find(',');
      long long prompt = 0;
      long long output = 0;
      if (comma == std::string::npos ||
          std::sscanf(line.c_str() + comma, ",%lld,%lld", &prompt, &output) != 2) {
        continue;
      }
      trace_.push_back({prompt, output});
    }
  }
  bool from_trace() const { return !trace_.empty(); }
  Lengths Next() {
    if (from_trace()) return trace_[next_++ % trace_.size()];
    // Prompt: mean 1,155, output: mean 211.
    static constexpr double kPrompt[] = {2, 207, 396, 1020, 1189, 2734, 4142, 14050};
    static constexpr double kOutput[] = {7, 54, 85, 129, 395, 424, 601, 1000};
    return {FromQuantiles(kPrompt), FromQuantiles(kOutput)};
  }

 private:
  // Linear between the trace's quantiles.
  int64_t FromQuantiles(const double (&values)[8]) {
    static constexpr double kAt[] = {0, .1, .25, .5, .75, .9, .99, 1};
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    size_t k = 1;
    while (k + 1 < std::size(kAt) && unit > kAt[k]) ++k;
    const double share = (unit - kAt[k - 1]) / (kAt[k] - kAt[k - 1]);
    return static_cast<int64_t>(values[k - 1] + share * (values[k] - values[k - 1]));
  }

  std::vector<Lengths> trace_;
  size_t next_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace skein::bench
