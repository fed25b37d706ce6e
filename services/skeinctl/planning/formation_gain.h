// From the measured steps of decode instances, alone and bound, to the "formations" of a profile:
// what binding gains, and above how many tokens a step is faster in a base, SP or SP x TP, than in
// TP (Shift Parallelism, algorithm 3), and in which one. Pure: decode_probe.h measures.
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
// Shift. Of each base the threshold is where the sum of the logarithms of all times, those up to it
// in TP and those above it in the base, is least. One point that is wrong by chance hardly moves
// it. Between the last number of tokens in TP and the first in the base the threshold is where the
// straight line between their ratios says that both are equally fast. Above the threshold the base
// is at least kShiftWin faster than TP, in the mean of the points: less is noise, and the threshold
// is higher then, or there is none.
//
// Base. Pure SP is compared first, then each base with twice the TP of the one before. One takes
// the place of what was chosen before it if steps are at least kShiftWin faster with it, in the
// mean of the points at which not both run in TP. So noise does not choose between bases that are
// alike.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/orchestrator/groups/formation_config.h"

namespace skein::services {

inline constexpr double kShiftWin = 0.02;

// The tp of each base of a bound group of so many, ascending: 1, which is pure SP, 2, … below size.
std::vector<int32_t> BaseTpsOf(int32_t size);
// "SP", or "SP 2 x TP 2" of a group of four, for people. REQUIRES: one of BaseTpsOf.
std::string BaseText(int32_t size, int32_t base_tp);

enum class DecodeMode { kAlone, kTp, kBase };

// The steps of one instance, or bound group, in one measurement.
struct DecodeSample {
  int32_t instances = 1;  // that ran them together
  DecodeMode mode = DecodeMode::kAlone;
  int64_t streams = 0;  // in the whole cluster
  double tokens = 0;    // of a step, on average; at least 1
  double seconds = 0;   // from one step to the next, on average; above 0
  int32_t base_tp = 1;  // kBase: its tp
};

// One size, mode and base at one number of streams: the medians.
struct DecodePoint {
  int32_t instances = 1;
  DecodeMode mode = DecodeMode::kAlone;
  int64_t streams = 0;
  double tokens = 0;
  double seconds = 0;
  int32_t base_tp = 1;
  bool operator==(const DecodePoint&) const = default;
};
// Ordered by size, mode, base and streams.
std::vector<DecodePoint> DecodeMedians(const std::vector<DecodeSample>& samples);

// What was found of one size.
struct FormationFinding {
  std::optional<double> gain;                 // empty: see `why_no_gain`
  std::string why_no_gain;                    // for people
  std::optional<scheduler::ShiftRule> shift;  // of 0 tokens: TP is never faster
  std::string why_no_shift;                   // for people
  // Whether, for each base, some number of streams ran in TP and in it.
  bool all_modes = false;
  // What was asked of a size was measured.
  bool complete() const { return gain.has_value() && all_modes; }
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

// The points as lines of comment, which skeinctl fit skips: "# 4,sp_tp,2,8,8.00,0.00312". The mode
// is as in docs/metrics.md, the third number its tp.
std::string DecodeCsv(const std::vector<DecodePoint>& points);

}  // namespace skein::services
