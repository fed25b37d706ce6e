#include "scheduler/simulator/offline/decode_iteration.h"

#include <algorithm>
#include <cmath>

#include "scheduler/simulator/offline/weight_fetch.h"
#include "scheduler/simulator/offline/weight_memory.h"

namespace skein::scheduler {
namespace {

constexpr double kActivationBytes = 2;  // rows travel as bf16
constexpr double kGrid = 0.02;          // of WaS's times, as a share

double Double(int64_t value) { return static_cast<double>(value); }

int64_t GridPoint(double ratio) {
  return static_cast<int64_t>(std::lround(std::log(std::max(ratio, 1e-6)) / kGrid));
}
double AtGridPoint(int64_t point) { return std::exp(Double(point) * kGrid); }

}  // namespace

StepWork DecodeWork(int64_t sequences, int64_t context) {
  StepWork work;
  work.tokens = sequences;
  work.sequences = sequences;
  work.decode_context = sequences * context;
  return work;
}

SplitStep SplitOf(const OfflineProfile& profile, const StepWork& work) {
  const StepProfile& step = profile.step;
  const StepParts parts = StepTime(step, TpLayout(step, 1), work);
  const StepProfile::Model& m = step.shape;
  const double head = Double(m.hidden) * Double(m.vocabulary) / step.WeightCount();
  SplitStep split;
  split.feed_forward_s = parts.products_s * FeedForwardShare(step);
  split.outside_s = parts.products_s * head + parts.software_s;
  split.attention_s = parts.Total() - split.feed_forward_s - split.outside_s;
  return split;
}

double SharedSteps::LayerFetchSeconds() const {
  const StepProfile& step = profile_.step;
  return FeedForwardLayerBytes(step) / Double(step.base_devices) /
         (step.peaks.link_bytes_per_s * step.fitted.link_share);
}

double SharedSteps::WasSeconds(const StepWork& work) {
  const SplitStep split = SplitOf(profile_, work);
  if (ranks() == 1) return split.Total();
  const double fetch_s = LayerFetchSeconds();
  const double layers = Double(profile_.step.shape.layers);
  if (options_.unhindered) return std::max(split.Total(), AllFetchSeconds());
  const auto key = std::make_tuple(GridPoint(split.attention_s / layers / fetch_s),
                                   GridPoint(split.feed_forward_s / layers / fetch_s),
                                   GridPoint(split.outside_s / fetch_s));
  const auto [it, is_new] = ratios_.try_emplace(key, 1);
  if (is_new) {
    const FetchedStep step = {.ranks = ranks(),
                              .layers = profile_.step.shape.layers,
                              .attention_s = AtGridPoint(std::get<0>(key)),
                              .feed_forward_s = AtGridPoint(std::get<1>(key)),
                              .outside_s = AtGridPoint(std::get<2>(key)),
                              .fetch_s = 1,
                              .peak_shifting = options_.peak_shifting};
    it->second = FetchedStepSeconds(step) / step.FullSeconds();
  }
  return split.Total() * it->second;
}

double SharedSteps::HopSeconds(int64_t rows) const {
  const StepProfile& step = profile_.step;
  const double bytes = Double(rows) * Double(step.shape.hidden) * kActivationBytes;
  return profile_.peers.hop_s + bytes / (step.peaks.link_bytes_per_s * step.fitted.link_share);
}

double SharedSteps::CasSeconds(const std::vector<StepWork>& work, Cas cas) const {
  const bool skips = cas == Cas::kSkipDummies;
  double slowest_s = 0;       // of what each rank does for itself
  double feed_forward_s = 0;  // of all, if not fused
  int64_t active = 0;
  StepWork fused;
  int64_t dummies = 0;
  for (const StepWork& one : work) {
    dummies += one.tokens == 0 ? 1 : 0;
    if (one.tokens == 0 && skips) continue;
    const StepWork computed = one.tokens == 0 ? DecodeWork(1, 1) : one;
    const SplitStep split = SplitOf(profile_, computed);
    slowest_s = std::max(slowest_s, split.attention_s + split.outside_s);
    feed_forward_s += split.feed_forward_s;
    fused.tokens += computed.tokens;
    fused.sequences += computed.sequences;
    ++active;
  }
  if (cas != Cas::kUnfused) feed_forward_s = SplitOf(profile_, fused).feed_forward_s;
  // The owner's own rows do not travel: in 1 / ranks of the layers, if only one rank has work.
  const double layers = Double(profile_.step.shape.layers);
  const double travels = active > 1 ? 1 : 1 - 1 / Double(ranks());
  const auto largest = active > 1 ? fused.tokens - fused.tokens / active : fused.tokens;
  const double hops_s = ranks() == 1 ? 0 : 2 * HopSeconds(largest) * layers * travels;
  const double waits_s = skips || dummies == 0 ? 0 : layers * profile_.peers.dummy_wait_s;
  return slowest_s + feed_forward_s + hops_s + waits_s;
}

double SharedSteps::AllFetchSeconds() const {
  return (1 - 1 / Double(ranks())) * LayerFetchSeconds() * Double(profile_.step.shape.layers);
}

double SharedSteps::GatheredSeconds(const StepWork& work) const {
  return FullSeconds(work) + AllFetchSeconds();
}

bool SharedSteps::IsWasSlower(int64_t batch, int64_t context) {
  const StepWork work = DecodeWork(batch, context);
  const std::vector<StepWork> all(static_cast<size_t>(ranks()), work);
  return WasSeconds(work) > CasSeconds(all);
}

int64_t SharedSteps::Threshold(int64_t context) {
  int64_t slower = 0;
  int64_t high = 1;
  while (IsWasSlower(high, context)) {
    slower = high;
    if (high == kNoThreshold) return kNoThreshold;
    high *= 2;
  }
  while (high - slower > 1) {
    const int64_t middle = (slower + high) / 2;
    (IsWasSlower(middle, context) ? slower : high) = middle;
  }
  return high;
}

}  // namespace skein::scheduler
