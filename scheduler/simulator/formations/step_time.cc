#include "scheduler/simulator/formations/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr double kActivationBytes = 2;  // collectives carry bf16

double Double(int64_t value) { return static_cast<double>(value); }

double HeadValues(const StepProfile::Model& m) { return Double(m.heads * m.head_dim); }
double KvValues(const StepProfile::Model& m) { return Double(2 * m.kv_heads * m.head_dim); }
double HeadWeights(const StepProfile::Model& m) { return Double(m.hidden) * Double(m.vocabulary); }

double LayerWeights(const StepProfile::Model& m) {
  const double attention = 2 * HeadValues(m) + KvValues(m);
  return Double(m.hidden) * (attention + 3 * Double(m.intermediate));
}

double ProductSeconds(const StepProfile& p, const StepLayout& layout, double rows,
                      double sampled_rows) {
  const double flops = 2 * (LayerWeights(p.shape) * Double(p.shape.layers) * rows +
                            HeadWeights(p.shape) * sampled_rows);
  const double bytes = p.WeightCount() * p.shape.bytes_per_weight;
  const double compute_s = flops / (p.peaks.flops_per_s * p.fitted.compute_share);
  const double read_s = bytes / (p.peaks.hbm_bytes_per_s * p.fitted.hbm_share);
  return std::max(compute_s, read_s) / Double(layout.tp);
}

double AttentionSeconds(const StepProfile& p, const StepLayout& layout, const StepWork& work) {
  const StepProfile::Model& m = p.shape;
  const double devices = Double(layout.sp * layout.tp);
  const double flops = 4 * HeadValues(m) * Double(m.layers) * work.prompt_pairs;
  const double compute_s =
      flops / devices / (p.peaks.attention_flops_per_s * p.fitted.attention_share);
  // Devices beyond the number of KV heads hold copies of them.
  const double holders = std::min(devices, Double(m.kv_heads));
  const double bytes = p.KvBytesPerToken() * Double(work.decode_context) / holders;
  return compute_s + bytes / (p.peaks.hbm_bytes_per_s * p.fitted.hbm_share);
}

double CollectiveSeconds(const StepProfile& p, const StepLayout& layout, double rows) {
  const StepProfile::Model& m = p.shape;
  const double link = p.peaks.link_bytes_per_s * p.fitted.link_share;
  const double layers = Double(m.layers);
  double seconds = 0;
  if (layout.tp > 1) {
    const double tp = Double(layout.tp);
    const double bytes = 2 * (tp - 1) / tp * rows * Double(m.hidden) * kActivationBytes;
    seconds += 2 * layers * (p.fitted.collective_s + bytes / link);
  }
  if (layout.sp > 1) {
    const double sp = Double(layout.sp);
    const double values = (2 * HeadValues(m) + KvValues(m)) / Double(layout.tp);
    const double bytes = (sp - 1) / sp * rows * values * kActivationBytes;
    seconds += layers * (2 * p.fitted.collective_s + bytes / link);
  }
  return seconds;
}

absl::Status Positive(const char* field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is not above 0"));
}

absl::Status NotNegative(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is below 0"));
}

StepWork Prompt(int64_t tokens) {
  StepWork work;
  work.AddPrompt(0, tokens);
  return work;
}

}  // namespace

double StepProfile::WeightCount() const {
  return LayerWeights(shape) * Double(shape.layers) + HeadWeights(shape);
}

double StepProfile::WeightBytes() const {
  return (WeightCount() + HeadWeights(shape)) * shape.bytes_per_weight;
}

double StepProfile::KvBytesPerToken() const {
  return KvValues(shape) * Double(shape.layers) * shape.bytes_per_kv_value;
}

int64_t StepProfile::KvTokens(int64_t instances, int64_t copies) const {
  const double all = peaks.usable_bytes * Double(base_devices * instances);
  const double rest = all - Double(copies) * WeightBytes();
  return static_cast<int64_t>(std::max(0.0, rest / KvBytesPerToken()));
}

absl::Status CheckStepProfile(const StepProfile& p) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const std::pair<const char*, int64_t> counts[] = {
      {"base_devices", p.base_devices},
      {"layers", p.shape.layers},
      {"hidden", p.shape.hidden},
      {"heads", p.shape.heads},
      {"kv_heads", p.shape.kv_heads},
      {"head_dim", p.shape.head_dim},
      {"intermediate", p.shape.intermediate},
      {"vocabulary", p.shape.vocabulary},
  };
  for (const auto& [field, value] : counts) {
    if (value > 0 && value <= kMost) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is not in 1 to 2^24"));
  }
  absl::Status status;
  status.Update(Positive("bytes_per_weight", p.shape.bytes_per_weight));
  status.Update(Positive("bytes_per_kv_value", p.shape.bytes_per_kv_value));
  status.Update(Positive("flops_per_s", p.peaks.flops_per_s));
  status.Update(Positive("attention_flops_per_s", p.peaks.attention_flops_per_s));
  status.Update(Positive("hbm_bytes_per_s", p.peaks.hbm_bytes_per_s));
  status.Update(Positive("link_bytes_per_s", p.peaks.link_bytes_per_s));
  status.Update(Positive("usable_bytes", p.peaks.usable_bytes));
  status.Update(Positive("compute_share", p.fitted.compute_share));
  status.Update(Positive("attention_share", p.fitted.attention_share));
  status.Update(Positive("hbm_share", p.fitted.hbm_share));
  status.Update(Positive("link_share", p.fitted.link_share));
  status.Update(NotNegative("collective_s", p.fitted.collective_s));
  status.Update(NotNegative("step_s", p.fitted.step_s));
  status.Update(NotNegative("sequence_s", p.fitted.sequence_s));
  if (!status.ok() || p.KvTokens(1, 1) > 0) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("base_devices: the weights, ", p.WeightBytes(), " bytes, do not fit ",
                   p.base_devices, " devices of ", p.peaks.usable_bytes, " usable bytes"));
}

StepParts StepTime(const StepProfile& profile, const StepLayout& layout, const StepWork& work) {
  const int64_t padded = (work.tokens + layout.sp - 1) / layout.sp;
  const double rows = Double(padded);
  const double sampled = Double(work.sequences) / Double(layout.sp);
  return {.products_s = ProductSeconds(profile, layout, rows, std::min(rows, sampled)),
          .attention_s = AttentionSeconds(profile, layout, work),
          .collectives_s = CollectiveSeconds(profile, layout, rows),
          .software_s = profile.fitted.step_s + profile.fitted.sequence_s * Double(work.sequences)};
}

int64_t ShiftTokens(const StepProfile& profile, int64_t instances) {
  const StepLayout tp = TpLayout(profile, instances);
  const StepLayout sp = SpLayout(profile, instances);
  const auto is_tp_faster = [&](int64_t tokens) {
    const StepWork work = Prompt(tokens);
    return StepTime(profile, tp, work).Total() <= StepTime(profile, sp, work).Total();
  };
  if (is_tp_faster(kNoShift)) return kNoShift;
  int64_t low = 0;
  int64_t high = kNoShift;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (is_tp_faster(middle) ? low : high) = middle;
  }
  return low;
}

double BindGain(const StepProfile& profile, int64_t instances) {
  StepWork work;
  work.AddDecode(2048);
  return StepTime(profile, TpLayout(profile, 1), work).Total() /
         StepTime(profile, TpLayout(profile, instances), work).Total();
}

}  // namespace skein::scheduler
