#include "bench/formations/paper_points.h"

#include <algorithm>
#include <cmath>

namespace skein::bench {
namespace {

using scheduler::SpLayout;
using scheduler::StepLayout;
using scheduler::StepProfile;
using scheduler::StepTime;
using scheduler::StepWork;
using scheduler::TpLayout;

constexpr int64_t kDevices = 8;
constexpr int64_t kStepTokens = 8192;  // vLLM's max_num_batched_tokens; not in the papers
constexpr int64_t kPrompt = 4096, kOutput = 250;  // Shift Parallelism, section 4.3
constexpr int64_t kLengths[] = {2048, 4096, 8192, 16384, 32768, 65536, 131072};

int64_t Instances(const StepProfile& p) { return kDevices / p.base_devices; }

double PromptSeconds(const StepProfile& p, const StepLayout& layout, int64_t tokens) {
  double seconds = 0;
  for (int64_t done = 0; done < tokens; done += kStepTokens) {
    StepWork work;
    work.AddPrompt(done, std::min(kStepTokens, tokens - done));
    seconds += StepTime(p, layout, work).Total();
  }
  return seconds;
}

double DecodeSeconds(const StepProfile& p, const StepLayout& layout, int64_t sequences,
                     int64_t context) {
  StepWork work;
  for (int64_t i = 0; i < sequences; ++i) work.AddDecode(context);
  return StepTime(p, layout, work).Total();
}

// Prompt and output tokens per second when as many requests run as the KV of `instances` instances
// and a step's limit allow, prompts and decode mixed as the requests are.
double FullTokensPerSecond(const StepProfile& p, const StepLayout& layout, int64_t instances) {
  const int64_t held = p.KvTokens(instances, instances) / (kPrompt + kOutput);
  const int64_t decode = std::min(held, kStepTokens * kOutput / (kPrompt + kOutput));
  const int64_t prompt = decode * kPrompt / kOutput;
  StepWork work;
  for (int64_t i = 0; i < decode; ++i) work.AddDecode(kPrompt + kOutput / 2);
  for (int64_t i = 0; i < 2; ++i) work.AddPrompt(kPrompt / 2 - prompt / 4, prompt / 2);
  return static_cast<double>(work.tokens) / StepTime(p, layout, work).Total();
}

double LongestRatio(double (*seconds)(const StepProfile&, const StepLayout&, int64_t),
                    const StepProfile& p, const StepLayout& over, const StepLayout& under) {
  double most = 0;
  for (const int64_t length : kLengths) {
    most = std::max(most, seconds(p, over, length) / seconds(p, under, length));
  }
  return most;
}

StepLayout Tp(const StepProfile& p) { return TpLayout(p, Instances(p)); }
StepLayout Sp(const StepProfile& p) { return SpLayout(p, Instances(p)); }
StepLayout One(const StepProfile& p) { return TpLayout(p, 1); }

double DpTokensPerSecond(const StepProfile& p) {
  return static_cast<double>(Instances(p)) * FullTokensPerSecond(p, One(p), 1);
}

double OneToken(const StepProfile& p, const StepLayout& layout, int64_t context) {
  return DecodeSeconds(p, layout, 1, context);
}

}  // namespace

const std::vector<PaperPoint>& ShiftPoints() {
  static const auto* const kPoints = new std::vector<PaperPoint>{
      {"TPOT of TP and Shift, 4k, one request, ms", "section 4.3", 9.34, 3,
       [](const StepProfile& p) { return 1e3 * OneToken(p, Tp(p), kPrompt + kOutput / 2); }},
      {"TPOT, DP over Shift, 4k", "section 1: 2x", 2, 1,
       [](const StepProfile& p) {
         return OneToken(p, One(p), kPrompt + kOutput / 2) /
                OneToken(p, Tp(p), kPrompt + kOutput / 2);
       }},
      {"TPOT, DP over Shift, the most of 2k to 128k", "section 4.3: up to 2.45x", 2.45, 1,
       [](const StepProfile& p) { return LongestRatio(OneToken, p, One(p), Tp(p)); }},
      {"TTFT, TP over Shift, 4k", "section 4.3", 1.56, 1,
       [](const StepProfile& p) {
         return PromptSeconds(p, Tp(p), kPrompt) / PromptSeconds(p, Sp(p), kPrompt);
       }},
      {"TTFT, DP over Shift, 4k", "section 4.3", 6, 1,
       [](const StepProfile& p) {
         return PromptSeconds(p, One(p), kPrompt) / PromptSeconds(p, Sp(p), kPrompt);
       }},
      {"TTFT, DP over Shift, the most of 2k to 128k", "section 4.3: up to 6.97x", 6.97, 1,
       [](const StepProfile& p) { return LongestRatio(PromptSeconds, p, One(p), Sp(p)); }},
      {"throughput 4k/250, TP over DP", "section 4.3: loses 46 %", 0.54, 1,
       [](const StepProfile& p) {
         return FullTokensPerSecond(p, Tp(p), Instances(p)) / DpTokensPerSecond(p);
       }},
      {"throughput 4k/250, Shift over DP", "sections 1, 4.3: loses 17, 18 %", 0.825, 2,
       [](const StepProfile& p) {
         return FullTokensPerSecond(p, Sp(p), Instances(p)) / DpTokensPerSecond(p);
       }},
      {"throughput 4k/250, Shift over TP", "section 4.3", 1.51, 2,
       [](const StepProfile& p) {
         return FullTokensPerSecond(p, Sp(p), Instances(p)) /
                FullTokensPerSecond(p, Tp(p), Instances(p));
       }},
      {"throughput of DP, tokens/s", "table 5 (another mix of lengths)", 75535, 0.3,
       DpTokensPerSecond},
  };
  return *kPoints;
}

const std::vector<PaperPoint>& FlyingPoints() {
  // Table 1 gives means under a load of 3 to 5 requests/s, of unknown lengths: 24 sequences of 2k
  // in the batch of all devices, and 8 in that of one of four instances, stand for them.
  static const auto* const kPoints = new std::vector<PaperPoint>{
      {"TPOT of TP, ms", "table 1", 22, 1,
       [](const StepProfile& p) { return 1e3 * DecodeSeconds(p, Tp(p), 24, 2048); }},
      {"TPOT of DP, ms", "table 1", 32, 1,
       [](const StepProfile& p) { return 1e3 * DecodeSeconds(p, One(p), 8, 2048); }},
      {"context of 2 devices, K tokens", "table 2", 264, 0,
       [](const StepProfile& p) {
         StepProfile q = p;
         q.base_devices = 2;
         return 1e-3 * static_cast<double>(q.KvTokens(1, 1));
       }},
      {"context of 4 devices, K tokens", "table 2", 959, 0,
       [](const StepProfile& p) {
         StepProfile q = p;
         q.base_devices = 4;
         return 1e-3 * static_cast<double>(q.KvTokens(1, 1));
       }},
      {"context of 8 devices, K tokens", "table 2", 2300, 0,
       [](const StepProfile& p) {
         StepProfile q = p;
         q.base_devices = 8;
         return 1e-3 * static_cast<double>(q.KvTokens(1, 1));
       }},
      {"Flying's context, 2 instances of 4 devices, K tokens", "table 2", 1900, 0,
       [](const StepProfile& p) {
         StepProfile q = p;
         q.base_devices = 4;
         return 1e-3 * static_cast<double>(q.KvTokens(2, 2));
       }},
      {"the same with 4 instances of 2 devices, K tokens", "table 2", 1900, 0,
       [](const StepProfile& p) {
         StepProfile q = p;
         q.base_devices = 2;
         return 1e-3 * static_cast<double>(q.KvTokens(4, 4));
       }},
  };
  return *kPoints;
}

double Loss(const std::vector<PaperPoint>& points, const StepProfile& profile) {
  double loss = 0;
  for (const PaperPoint& point : points) {
    if (point.weight == 0) continue;
    const double off = std::log(point.ours(profile) / point.paper);
    loss += point.weight * off * off;
  }
  return loss;
}

const std::vector<FreeNumber>& AllNumbers() {
  using F = StepProfile::Fitted;
  static const auto* const kNumbers = new std::vector<FreeNumber>{
      {"compute_share", &F::compute_share, 0.2, 0.8},
      {"attention_share", &F::attention_share, 0.2, 0.75},
      {"hbm_share", &F::hbm_share, 0.5, 0.92},
      {"link_share", &F::link_share, 0.3, 1.75},
      {"collective_s", &F::collective_s, 2e-6, 60e-6},
      {"step_s", &F::step_s, 0.1e-3, 30e-3},
      {"sequence_s", &F::sequence_s, 0.1e-6, 200e-6},
  };
  return *kNumbers;
}

const std::vector<FreeNumber>& SoftwareNumbers() {
  using F = StepProfile::Fitted;
  static const auto* const kNumbers = new std::vector<FreeNumber>{
      {"step_s", &F::step_s, 0.1e-3, 30e-3},
  };
  return *kNumbers;
}

StepProfile Fit(const std::vector<PaperPoint>& points, const std::vector<FreeNumber>& free,
                StepProfile profile) {
  double best = Loss(points, profile);
  const auto improve = [&](double factor) {
    bool better = false;
    for (const FreeNumber& number : free) {
      for (const double by : {factor, 1 / factor}) {
        StepProfile tried = profile;
        double& value = tried.fitted.*number.field;
        value = std::clamp(value * by, number.min, number.max);
        const double loss = Loss(points, tried);
        if (loss >= best) continue;
        best = loss;
        profile = tried;
        better = true;
      }
    }
    return better;
  };
  for (double factor = 2; factor > 1.00001; factor = std::sqrt(factor)) {
    for (int round = 0; round < 300 && improve(factor); ++round) {
    }
  }
  return profile;
}

}  // namespace skein::bench
