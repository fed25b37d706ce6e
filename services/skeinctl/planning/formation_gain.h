// From the measured steps of decode instances, alone and bound, to the "formations" of a profile:
// what binding gains, and above how many tokens a step is faster in SP than in TP (Shift
// Parallelism, algorithm 3). Pure: decode_probe.h measures.
//
// Several rounds measure the same; what is compared are their medians, so that a slow moment
// changes nothing.
//
// Gain. The same streams are run by instances that work alone, and by the same instances bound:
// once one stream, once as many as there are instances, which is the most for which the
// orchestrator's policy calls a group quiet by default. Each gives a ratio of the times that a
// stream waits for a token; the smaller of them is the gain, so that "auto" does not bind what
// loses in one of the two. Where one of them is missing there is no gain.
//
// Shift. The threshold is where the sum of the logarithms of all times, those up to it in TP and
// those above it in SP, is least. One point that is wrong by chance hardly moves it. Between the
// last number of tokens in TP and the first in SP the threshold is where the straight line between
// their ratios says that both are equally fast. Above the threshold SP is at least kShiftWin
// faster, in the mean of the points: less is noise, and the threshold is higher then, or there is
// none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/orchestrator/groups/formation_config.h"

namespace skein::services {

inline constexpr double kShiftWin = 0.02;

enum class DecodeMode { kAlone, kTp, kSp };
const char* NameOf(DecodeMode mode);  // "own", "tp", "sp", as in docs/metrics.md

// The steps of one instance, or bound group, in one measurement.
struct DecodeSample {
  int32_t instances = 1;  // that ran them together
  DecodeMode mode = DecodeMode::kAlone;
  int64_t streams = 0;  // in the whole cluster
  double tokens = 0;    // of a step, on average; at least 1
  double seconds = 0;   // from one step to the next, on average; above 0
};

// One size and mode at one number of streams: the medians.
struct DecodePoint {
  int32_t instances = 1;
  DecodeMode mode = DecodeMode::kAlone;
  int64_t streams = 0;
  double tokens = 0;
  double seconds = 0;
  bool operator==(const DecodePoint&) const = default;
};
// Ordered by size, mode and streams.
std::vector<DecodePoint> DecodeMedians(const std::vector<DecodeSample>& samples);

// What was found of one size.
struct FormationFinding {
  std::optional<double> gain;           // empty: see `why_no_gain`
  std::string why_no_gain;              // for people
  std::optional<int64_t> shift_tokens;  // 0: SP is faster with every number of tokens
  std::string why_no_shift;             // for people
  bool both_modes = false;              // whether some number of streams ran in TP and in SP
  // What was asked of a size was measured.
  bool complete() const { return gain.has_value() && both_modes; }
};
// By size, of each of `sizes`. `points` as DecodeMedians gives them, of a cluster of so many
// `instances`.
std::map<int32_t, FormationFinding> FindFormations(const std::vector<DecodePoint>& points,
                                                   const std::vector<int32_t>& sizes,
                                                   int64_t instances);

// Those with a gain.
scheduler::orchestrator::FormationProfile FormationProfileOf(
    const std::map<int32_t, FormationFinding>& findings);

// For people: the points, and what was found, as tables.
std::string FormationTable(const std::vector<DecodePoint>& points,
                           const std::map<int32_t, FormationFinding>& findings);

// The points as lines of comment, which skeinctl fit skips: "# 2,tp,4,4.00,0.00312".
std::string DecodeCsv(const std::vector<DecodePoint>& points);

}  // namespace skein::services
