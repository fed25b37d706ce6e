#include "services/skeinctl/planning/formation_gain.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::services {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

// One number of streams, in TP and in a base.
struct Pair {
  int64_t streams = 0;
  double tokens = 0;
  double tp_s = 0;
  double base_s = 0;
  double Win() const { return std::log(tp_s / base_s); }  // of the base
};

// Of what was measured of a base, the pairs from `cut` on are to run in it, those before it in TP.
struct Choice {
  int32_t base_tp = 1;
  std::vector<Pair> pairs;  // by tokens
  size_t cut = 0;

  double SecondsOf(size_t pair) const { return pair < cut ? pairs[pair].tp_s : pairs[pair].base_s; }
};

class Finder {
 public:
  Finder(const std::vector<DecodePoint>& points, int32_t size, int64_t instances)
      : size_(size), instances_(instances) {
    for (const DecodePoint& point : points) by_[{point.instances, point.mode}].push_back(point);
  }

  FormationFinding Find() const {
    FormationFinding found;
    FindShift(&found);
    FindGain(&found);
    return found;
  }

 private:
  const DecodePoint* At(int32_t instances, DecodeMode mode, int64_t streams,
                        int32_t base_tp = 1) const {
    const auto points = by_.find({instances, mode});
    if (points == by_.end()) return nullptr;
    for (const DecodePoint& point : points->second) {
      if (point.streams == streams && point.base_tp == base_tp) return &point;
    }
    return nullptr;
  }

  std::vector<Pair> Pairs(int32_t base_tp) const {
    std::vector<Pair> pairs;
    const auto tp = by_.find({size_, DecodeMode::kTp});
    if (tp == by_.end()) return pairs;
    pairs.reserve(tp->second.size());
    for (const DecodePoint& point : tp->second) {
      const DecodePoint* base = At(size_, DecodeMode::kBase, point.streams, base_tp);
      if (base == nullptr) continue;
      pairs.push_back(
          {point.streams, (point.tokens + base->tokens) / 2, point.seconds, base->seconds});
    }
    std::sort(pairs.begin(), pairs.end(),
              [](const Pair& a, const Pair& b) { return a.tokens < b.tokens; });
    return pairs;
  }

  // How many of the pairs, from the first on, are best run in TP.
  static size_t BestCut(const std::vector<Pair>& pairs) {
    double saved = 0, most = 0;  // by the base, from the end on
    size_t cut = pairs.size();
    for (size_t i = pairs.size(); i-- > 0;) {
      saved += pairs[i].Win();
      if (saved <= most) continue;
      most = saved;
      cut = i;
    }
    return cut;
  }

  // Of the pairs from `cut` on.
  static double MeanWin(const std::vector<Pair>& pairs, size_t cut) {
    double win = 0;
    for (size_t i = cut; i < pairs.size(); ++i) win += pairs[i].Win();
    return win / static_cast<double>(pairs.size() - cut);
  }

  static int64_t Between(const Pair& tp, const Pair& base) {
    const double lead = -tp.Win(), win = base.Win();
    double tokens = tp.tokens;
    if (lead > 0 && win > 0) tokens += (base.tokens - tp.tokens) * lead / (lead + win);
    // Above the last one in TP, and not the first one in the base.
    const auto least = static_cast<int64_t>(std::floor(tp.tokens));
    const auto most = static_cast<int64_t>(std::ceil(base.tokens)) - 1;
    return std::clamp(static_cast<int64_t>(std::floor(tokens)), least, std::max(least, most));
  }

  Choice ChoiceOf(int32_t base_tp) const {
    Choice choice{.base_tp = base_tp, .pairs = Pairs(base_tp)};
    const std::vector<Pair>& pairs = choice.pairs;
    choice.cut = BestCut(pairs);
    while (choice.cut < pairs.size() && MeanWin(pairs, choice.cut) < std::log1p(kShiftWin)) {
      ++choice.cut;
    }
    return choice;
  }

  // By how much `choice` is faster than `other`, where not both run in TP and both were measured.
  static double MeanWin(const Choice& choice, const Choice& other) {
    double win = 0;
    int points = 0;
    for (size_t i = 0; i < choice.pairs.size(); ++i) {
      for (size_t j = 0; j < other.pairs.size(); ++j) {
        if (choice.pairs[i].streams != other.pairs[j].streams) continue;
        if (i < choice.cut && j < other.cut) continue;
        win += std::log(other.SecondsOf(j) / choice.SecondsOf(i));
        ++points;
      }
    }
    return points == 0 ? 0 : win / points;
  }

  void FindShift(FormationFinding* found) const {
    std::optional<Choice> best;
    std::optional<double> most_tokens;
    found->all_modes = true;
    for (const int32_t base_tp : BaseTpsOf(size_)) {
      Choice choice = ChoiceOf(base_tp);
      found->all_modes = found->all_modes && !choice.pairs.empty();
      if (choice.pairs.empty()) continue;
      most_tokens = std::max(most_tokens.value_or(0), choice.pairs.back().tokens);
      if (choice.cut == choice.pairs.size()) continue;
      if (best.has_value() && MeanWin(choice, *best) < std::log1p(kShiftWin)) continue;
      best = std::move(choice);
    }
    if (best.has_value()) {
      const std::vector<Pair>& pairs = best->pairs;
      const size_t cut = best->cut;
      found->shift = scheduler::ShiftRule{
          .tokens = cut == 0 ? 0 : Between(pairs[cut - 1], pairs[cut]), .tp = best->base_tp};
    } else if (most_tokens.has_value()) {
      found->why_no_shift =
          absl::StrFormat("up to %.0f tokens a step %s not faster than TP", *most_tokens,
                          size_ > 2 ? "SP and SP x TP are" : "SP is");
    } else {
      found->why_no_shift = "not measured in both TP and SP";
    }
  }

  // Seconds from one token of a stream to the next in the mode that such steps run in.
  std::optional<double> BoundSeconds(int64_t streams, const FormationFinding& found) const {
    const DecodePoint* tp = At(size_, DecodeMode::kTp, streams);
    if (tp == nullptr) return std::nullopt;
    const bool shifts =
        found.shift.has_value() && tp->tokens > static_cast<double>(found.shift->tokens);
    const DecodePoint* base =
        shifts ? At(size_, DecodeMode::kBase, streams, found.shift->tp) : nullptr;
    return base == nullptr ? tp->seconds : base->seconds;
  }

  void FindGain(FormationFinding* found) const {
    std::optional<double> least;
    for (const int64_t streams : std::set<int64_t>{1, instances_}) {
      const DecodePoint* alone = At(1, DecodeMode::kAlone, streams);
      const std::optional<double> bound = BoundSeconds(streams, *found);
      if (alone == nullptr || !bound.has_value()) {
        found->why_no_gain = absl::StrFormat("%s was not measured with %d stream%s",
                                             alone == nullptr ? "an instance alone" : "TP", streams,
                                             streams == 1 ? "" : "s");
        return;
      }
      const double ratio = alone->seconds / *bound;
      least = least.has_value() ? std::min(*least, ratio) : ratio;
    }
    found->gain = least;
  }

  const int32_t size_;
  const int64_t instances_;
  std::map<std::pair<int32_t, DecodeMode>, std::vector<DecodePoint>> by_;
};

// Three digits are more than such a measurement is good for.
double Rounded(double gain) { return std::round(gain * 1000) / 1000; }

// As in docs/metrics.md.
const char* ModeOf(const DecodePoint& point) {
  if (point.mode == DecodeMode::kAlone) return "own";
  if (point.mode == DecodeMode::kTp) return "tp";
  return point.base_tp == 1 ? "sp" : "sp_tp";
}

int32_t TpOf(const DecodePoint& point) {
  return point.mode == DecodeMode::kTp ? point.instances : point.base_tp;
}

std::string ShapeText(const DecodePoint& point) {
  if (point.mode == DecodeMode::kBase) return BaseText(point.instances, point.base_tp);
  return point.mode == DecodeMode::kTp ? "TP" : "own";
}

}  // namespace

std::vector<int32_t> BaseTpsOf(int32_t size) {
  std::vector<int32_t> tps;
  for (int32_t tp = 1; scheduler::ShiftRule{.tp = tp}.Fits(size); tp *= 2) tps.push_back(tp);
  return tps;
}

std::string BaseText(int32_t size, int32_t base_tp) {
  return base_tp == 1 ? "SP" : absl::StrFormat("SP %d x TP %d", size / base_tp, base_tp);
}

std::vector<DecodePoint> DecodeMedians(const std::vector<DecodeSample>& samples) {
  struct Values {
    std::vector<double> tokens, seconds;
  };
  std::map<std::tuple<int32_t, DecodeMode, int32_t, int64_t>, Values> by;
  for (const DecodeSample& sample : samples) {
    Values& values = by[{sample.instances, sample.mode, sample.base_tp, sample.streams}];
    values.tokens.push_back(sample.tokens);
    values.seconds.push_back(sample.seconds);
  }
  std::vector<DecodePoint> points;
  for (const auto& [key, values] : by) {
    const auto& [instances, mode, base_tp, streams] = key;
    points.push_back(
        {instances, mode, streams, Median(values.tokens), Median(values.seconds), base_tp});
  }
  return points;
}

std::map<int32_t, FormationFinding> FindFormations(const std::vector<DecodePoint>& points,
                                                   const std::vector<int32_t>& sizes,
                                                   int64_t instances) {
  std::map<int32_t, FormationFinding> findings;
  for (const int32_t size : sizes) findings[size] = Finder(points, size, instances).Find();
  return findings;
}

scheduler::orchestrator::FormationProfile FormationProfileOf(
    const std::map<int32_t, FormationFinding>& findings) {
  scheduler::orchestrator::FormationProfile profile;
  for (const auto& [size, found] : findings) {
    if (!found.gain.has_value() || Rounded(*found.gain) <= 0) continue;
    profile.gains[size] = Rounded(*found.gain);
    if (found.shift.has_value()) profile.shifts[size] = *found.shift;
  }
  return profile;
}

std::string FormationTable(const std::vector<DecodePoint>& points,
                           const std::map<int32_t, FormationFinding>& findings) {
  std::string text = "instances  mode         streams  tokens a step  ms a step\n";
  for (const DecodePoint& point : points) {
    absl::StrAppendFormat(&text, "%9d  %-11s  %7d  %13.2f  %9.3f\n", point.instances,
                          ShapeText(point), point.streams, point.tokens, point.seconds * 1e3);
  }
  for (const auto& [size, found] : findings) {
    absl::StrAppendFormat(&text, "bound(%d): ", size);
    if (found.gain.has_value()) {
      absl::StrAppendFormat(&text, "gain %.3f; ", *found.gain);
    } else {
      absl::StrAppend(&text, "no gain: ", found.why_no_gain, "; ");
    }
    if (found.shift.has_value()) {
      absl::StrAppendFormat(&text, "%s above %d tokens a step\n", BaseText(size, found.shift->tp),
                            found.shift->tokens);
    } else {
      absl::StrAppend(&text, "no shift: ", found.why_no_shift, "\n");
    }
  }
  return text;
}

std::string DecodeCsv(const std::vector<DecodePoint>& points) {
  if (points.empty()) return "";
  std::string text = "# decode steps: instances,mode,tp,streams,tokens,seconds\n";
  for (const DecodePoint& point : points) {
    absl::StrAppendFormat(&text, "# %d,%s,%d,%d,%.2f,%.9g\n", point.instances, ModeOf(point),
                          TpOf(point), point.streams, point.tokens, point.seconds);
  }
  return text;
}

}  // namespace skein::services
