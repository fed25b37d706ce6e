#include "services/skeinctl/planning/prefill_shapes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/skeinctl/planning/fit.h"

namespace skein::services {
namespace {

using scheduler::LatencyFit;
using scheduler::LatencySample;
using scheduler::PrefillShape;
using scheduler::SampleResidual;

// The fitted times of one number of instances with tp = 1, by history and chunk.
using Baseline = std::map<std::pair<int64_t, int64_t>, SampleResidual>;

Baseline BaselineOf(const LatencyFit& fit) {
  Baseline baseline;
  for (const SampleResidual& one : fit.residuals) {
    baseline[{one.sample.history_tokens, one.sample.chunk_tokens}] = one;
  }
  return baseline;
}

// Where a shape beats tp = 1 on the same instances.
struct Gain {
  int points = 0;      // that both have
  int faster = 0;      // of these
  int neighbours = 0;  // of the faster ones, the most that follow one another by length
  double largest = 0;  // the part of the time that is saved there, at most

  bool Keeps() const { return faster > 0 && neighbours >= std::min(kShapeNeighbours, points); }
};

Gain GainOf(const LatencyFit& fit, const Baseline& baseline) {
  Gain gain;
  int neighbours = 0;
  std::vector<SampleResidual> by_length = fit.residuals;
  std::sort(by_length.begin(), by_length.end(), [](const auto& a, const auto& b) {
    return std::pair(a.sample.chunk_tokens, a.sample.history_tokens) <
           std::pair(b.sample.chunk_tokens, b.sample.history_tokens);
  });
  for (const SampleResidual& one : by_length) {
    const auto plain = baseline.find({one.sample.history_tokens, one.sample.chunk_tokens});
    if (plain == baseline.end()) continue;
    ++gain.points;
    const double saved = 1 - one.sample.seconds / plain->second.sample.seconds;
    const bool faster = saved >= kShapeWin && one.predicted_s < plain->second.predicted_s;
    neighbours = faster ? neighbours + 1 : 0;
    if (!faster) continue;
    ++gain.faster;
    gain.neighbours = std::max(gain.neighbours, neighbours);
    gain.largest = std::max(gain.largest, saved);
  }
  return gain;
}

absl::Status Named(const PrefillShape& shape, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("instances ", shape.instances, ", tp ", shape.tp,
                                                  ": ", status.message()));
}

class Fitter {
 public:
  explicit Fitter(ShapeFits* fits) : fits_(*fits) {}

  void AddSize(const ShapeSamples& measured) {
    const auto fit = scheduler::FitLatency(measured.medians);
    if (!fit.ok()) return Refuse(fit.status());
    const auto sp = static_cast<int>(measured.shape.instances);
    fits_.sizes[sp] = fit->sizes.at(sp);
    baselines_[sp] = BaselineOf(*fit);
    residuals_.insert(residuals_.end(), fit->residuals.begin(), fit->residuals.end());
  }

  void AddTensor(const ShapeSamples& measured) {
    const PrefillShape& shape = measured.shape;
    const auto ranks = static_cast<int>(shape.instances);
    const auto baseline = baselines_.find(ranks);
    if (baseline == baselines_.end()) return;
    const auto fit = scheduler::FitLatency(measured.medians);
    if (!fit.ok()) return Refuse(Named(shape, fit.status()));
    absl::StrAppend(&tables_, "\n", NameOf(shape), ":\n", ResidualTable(*fit, "instances"));
    const Gain gain = GainOf(*fit, baseline->second);
    absl::StrAppendFormat(&summary_, "%s: faster than SP %d at %d of %d points", NameOf(shape),
                          ranks, gain.faster, gain.points);
    if (gain.faster > 0)
      absl::StrAppendFormat(&summary_, ", by %.1f%% at most", 100 * gain.largest);
    absl::StrAppend(&summary_, gain.Keeps() ? "; kept\n" : "; not kept\n");
    if (!gain.Keeps()) return;
    fits_.tensor.push_back({ranks, static_cast<int>(shape.tp), fit->sizes.at(ranks)});
  }

  std::string Table() const {
    if (residuals_.empty()) return "";
    LatencyFit all;
    all.residuals = residuals_;
    return absl::StrCat(ResidualTable(all), tables_, summary_.empty() ? "" : "\n", summary_);
  }

 private:
  void Refuse(const absl::Status& status) {
    absl::Status& all = fits_.refused;
    all = all.ok() ? status
                   : absl::Status(all.code(), absl::StrCat(all.message(), "\n", status.message()));
  }

  ShapeFits& fits_;
  std::map<int, Baseline> baselines_;  // by instances
  std::vector<SampleResidual> residuals_;
  std::string tables_;
  std::string summary_;
};

}  // namespace

std::vector<PrefillShape> ShapesUpTo(int64_t instances) {
  std::vector<PrefillShape> shapes;
  for (uint32_t size = 1; size <= kShapeInstancesMost && size <= std::max<int64_t>(instances, 1);
       size *= 2) {
    for (uint32_t tp = 1; tp <= size; tp *= 2) shapes.push_back({.instances = size, .tp = tp});
  }
  return shapes;
}

std::string NameOf(const PrefillShape& shape) {
  if (shape.instances == 1) return "one instance";
  return absl::StrCat(shape.instances, " instances as SP ", shape.instances / shape.tp, " x TP ",
                      shape.tp);
}

std::vector<ChunkTime> MergeMembers(const std::vector<ChunkTime>& told) {
  std::vector<ChunkTime> merged;
  std::map<std::tuple<uint32_t, uint32_t, int64_t, int64_t>, std::pair<ChunkTime, size_t>> shared;
  for (const ChunkTime& one : told) {
    if (one.shape.instances == 1) {
      merged.push_back(one);
      continue;
    }
    const auto key =
        std::tuple(one.shape.instances, one.shape.tp, one.history_tokens, one.chunk_tokens);
    auto& [least, count] = shared.try_emplace(key, one, 0).first->second;
    least.seconds = std::min(least.seconds, one.seconds);
    ++count;
  }
  for (const auto& [key, entry] : shared) {
    const auto& [least, count] = entry;
    const size_t times = (count + least.shape.instances - 1) / least.shape.instances;
    merged.insert(merged.end(), times, least);
  }
  return merged;
}

ShapeFits FitShapes(const std::vector<ShapeSamples>& measured) {
  ShapeFits fits;
  Fitter fitter(&fits);
  for (const ShapeSamples& one : measured) {
    if (one.shape.tp == 1) fitter.AddSize(one);
  }
  for (const ShapeSamples& one : measured) {
    if (one.shape.tp > 1) fitter.AddTensor(one);
  }
  fits.table = fitter.Table();
  return fits;
}

std::string TensorCsv(const std::vector<ShapeSamples>& measured) {
  std::string text;
  for (const ShapeSamples& one : measured) {
    if (one.shape.tp == 1) continue;
    for (const LatencySample& s : one.medians) {
      absl::StrAppendFormat(&text, "# prefill,%d,%d,%d,%d,%.9g\n", one.shape.instances,
                            one.shape.tp, s.history_tokens, s.chunk_tokens, s.seconds);
    }
  }
  return text;
}

}  // namespace skein::services
