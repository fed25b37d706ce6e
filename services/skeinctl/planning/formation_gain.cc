#include "services/skeinctl/planning/formation_gain.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <tuple>

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

// One number of streams, in both modes.
struct Pair {
  double tokens = 0;
  double tp_s = 0;
  double sp_s = 0;
  double Win() const { return std::log(tp_s / sp_s); }  // of SP
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
  const DecodePoint* At(int32_t instances, DecodeMode mode, int64_t streams) const {
    const auto points = by_.find({instances, mode});
    if (points == by_.end()) return nullptr;
    for (const DecodePoint& point : points->second) {
      if (point.streams == streams) return &point;
    }
    return nullptr;
  }

  std::vector<Pair> Pairs() const {
    std::vector<Pair> pairs;
    const auto tp = by_.find({size_, DecodeMode::kTp});
    if (tp == by_.end()) return pairs;
    for (const DecodePoint& point : tp->second) {
      const DecodePoint* sp = At(size_, DecodeMode::kSp, point.streams);
      if (sp == nullptr) continue;
      pairs.push_back({(point.tokens + sp->tokens) / 2, point.seconds, sp->seconds});
    }
    std::sort(pairs.begin(), pairs.end(),
              [](const Pair& a, const Pair& b) { return a.tokens < b.tokens; });
    return pairs;
  }

  // How many of the pairs, from the first on, are best run in TP.
  static size_t BestCut(const std::vector<Pair>& pairs) {
    double saved = 0, most = 0;  // by SP, from the end on
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

  static int64_t Between(const Pair& tp, const Pair& sp) {
    const double lead = -tp.Win(), win = sp.Win();
    double tokens = tp.tokens;
    if (lead > 0 && win > 0) tokens += (sp.tokens - tp.tokens) * lead / (lead + win);
    // Above the last one in TP, and not the first one in SP.
    const auto least = static_cast<int64_t>(std::floor(tp.tokens));
    const auto most = static_cast<int64_t>(std::ceil(sp.tokens)) - 1;
    return std::clamp(static_cast<int64_t>(std::floor(tokens)), least, std::max(least, most));
  }

  void FindShift(FormationFinding* found) const {
    const std::vector<Pair> pairs = Pairs();
    if (pairs.empty()) {
      found->why_no_shift = "not measured in both TP and SP";
      return;
    }
    found->both_modes = true;
    size_t cut = BestCut(pairs);
    while (cut < pairs.size() && MeanWin(pairs, cut) < std::log1p(kShiftWin)) ++cut;
    if (cut == pairs.size()) {
      found->why_no_shift =
          absl::StrFormat("up to %.0f tokens a step SP is not faster than TP", pairs.back().tokens);
      return;
    }
    found->shift_tokens = cut == 0 ? 0 : Between(pairs[cut - 1], pairs[cut]);
  }

  // Seconds from one token of a stream to the next in the mode that such steps run in.
  std::optional<double> BoundSeconds(int64_t streams, const FormationFinding& found) const {
    const DecodePoint* tp = At(size_, DecodeMode::kTp, streams);
    const DecodePoint* sp = At(size_, DecodeMode::kSp, streams);
    if (tp == nullptr) return std::nullopt;
    const bool shifts =
        found.shift_tokens.has_value() && tp->tokens > static_cast<double>(*found.shift_tokens);
    return shifts && sp != nullptr ? sp->seconds : tp->seconds;
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

}  // namespace

const char* NameOf(DecodeMode mode) {
  switch (mode) {
    case DecodeMode::kTp:
      return "tp";
    case DecodeMode::kSp:
      return "sp";
    case DecodeMode::kAlone:
      break;
  }
  return "own";
}

std::vector<DecodePoint> DecodeMedians(const std::vector<DecodeSample>& samples) {
  struct Values {
    std::vector<double> tokens, seconds;
  };
  std::map<std::tuple<int32_t, DecodeMode, int64_t>, Values> by;
  for (const DecodeSample& sample : samples) {
    Values& values = by[{sample.instances, sample.mode, sample.streams}];
    values.tokens.push_back(sample.tokens);
    values.seconds.push_back(sample.seconds);
  }
  std::vector<DecodePoint> points;
  for (const auto& [key, values] : by) {
    const auto& [instances, mode, streams] = key;
    points.push_back({instances, mode, streams, Median(values.tokens), Median(values.seconds)});
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
    if (found.shift_tokens.has_value()) profile.shifts[size].tokens = *found.shift_tokens;
  }
  return profile;
}

std::string FormationTable(const std::vector<DecodePoint>& points,
                           const std::map<int32_t, FormationFinding>& findings) {
  std::string text = "instances  mode  streams  tokens a step  ms a step\n";
  for (const DecodePoint& point : points) {
    absl::StrAppendFormat(&text, "%9d  %-4s  %7d  %13.2f  %9.3f\n", point.instances,
                          NameOf(point.mode), point.streams, point.tokens, point.seconds * 1e3);
  }
  for (const auto& [size, found] : findings) {
    absl::StrAppendFormat(&text, "bound(%d): ", size);
    if (found.gain.has_value()) {
      absl::StrAppendFormat(&text, "gain %.3f; ", *found.gain);
    } else {
      absl::StrAppend(&text, "no gain: ", found.why_no_gain, "; ");
    }
    if (found.shift_tokens.has_value()) {
      absl::StrAppendFormat(&text, "SP above %d tokens a step\n", *found.shift_tokens);
    } else {
      absl::StrAppend(&text, "no shift: ", found.why_no_shift, "\n");
    }
  }
  return text;
}

std::string DecodeCsv(const std::vector<DecodePoint>& points) {
  if (points.empty()) return "";
  std::string text = "# decode steps: instances,mode,streams,tokens,seconds\n";
  for (const DecodePoint& point : points) {
    absl::StrAppendFormat(&text, "# %d,%s,%d,%.2f,%.9g\n", point.instances, NameOf(point.mode),
                          point.streams, point.tokens, point.seconds);
  }
  return text;
}

}  // namespace skein::services
