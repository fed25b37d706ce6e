#include "services/skeinctl/planning/formation_gain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/simulator/random.h"
#include "services/codec/profile_json.h"
#include "services/skeinctl/planning/profile_samples.h"

namespace skein::services {
namespace {

using Points = std::vector<DecodePoint>;

constexpr scheduler::ShiftRule kPureSp = {.tokens = 0};  // of all steps

// Of size 2: seconds of TP and SP steps by number of tokens, and of an instance alone.
Points PointsOf(const std::vector<std::array<double, 3>>& rows) {
  Points points = {{1, DecodeMode::kAlone, 1, 1, 0.010}};
  for (const auto& [tokens, tp_s, sp_s] : rows) {
    const auto streams = static_cast<int64_t>(tokens);
    points.push_back({2, DecodeMode::kTp, streams, tokens, tp_s});
    points.push_back({2, DecodeMode::kBase, streams, tokens, sp_s});
  }
  return points;
}

// As if one stream were one an instance, too.
std::map<int32_t, FormationFinding> FindOfTwo(const Points& points) {
  return FindFormations(points, {2}, 1);
}
FormationFinding FindSizeTwo(const Points& points) { return FindOfTwo(points).at(2); }

FormationFinding FindingOf(const std::vector<std::array<double, 3>>& rows) {
  return FindSizeTwo(PointsOf(rows));
}

TEST(DecodeMedians, AreOfEachSizeModeBaseAndNumberOfStreamsApart) {
  const Points points = DecodeMedians({{2, DecodeMode::kTp, 4, 4, 0.03},
                                       {2, DecodeMode::kTp, 4, 4, 0.01},
                                       {2, DecodeMode::kTp, 4, 4, 9.0},
                                       {2, DecodeMode::kBase, 4, 4, 0.05},
                                       {8, DecodeMode::kBase, 4, 4, 0.07, 4},
                                       {8, DecodeMode::kBase, 4, 4, 0.06, 2},
                                       {8, DecodeMode::kBase, 4, 4, 0.09, 4},
                                       {1, DecodeMode::kAlone, 4, 1, 0.02},
                                       {1, DecodeMode::kAlone, 4, 3, 0.04}});
  EXPECT_EQ(points, (Points{{1, DecodeMode::kAlone, 4, 2, 0.03},
                            {2, DecodeMode::kTp, 4, 4, 0.03},
                            {2, DecodeMode::kBase, 4, 4, 0.05},
                            {8, DecodeMode::kBase, 4, 4, 0.06, 2},
                            {8, DecodeMode::kBase, 4, 4, 0.08, 4}}));
}

TEST(FindFormations, TheGainIsTheSmallerOfOneStreamAndOneAnInstance) {
  Points points = {{1, DecodeMode::kAlone, 1, 1, 0.010},
                   {1, DecodeMode::kAlone, 4, 1, 0.012},
                   {4, DecodeMode::kTp, 1, 1, 0.004},
                   {4, DecodeMode::kTp, 4, 4, 0.008}};
  EXPECT_DOUBLE_EQ(*FindFormations(points, {4}, 4).at(4).gain, 1.5);
  points[3].seconds = 0.004;
  EXPECT_DOUBLE_EQ(*FindFormations(points, {4}, 4).at(4).gain, 2.5);
}

TEST(FindFormations, TheGainIsInTheModeThatSuchStepsRunIn) {
  const std::vector<std::array<double, 3>> rows = {
      {1, 0.020, 0.005}, {2, 0.021, 0.006}, {4, 0.022, 0.007}};
  const FormationFinding found = FindingOf(rows);
  EXPECT_EQ(found.shift, kPureSp) << "SP is faster with one token already";
  EXPECT_DOUBLE_EQ(*found.gain, 2);
}

TEST(FindFormations, TheShiftIsWhereBothAreEquallyFast) {
  // exp(0.1): SP gains as much at 8 as it loses at 4.
  const double more = std::exp(0.1);
  const FormationFinding found =
      FindingOf({{1, 1, 2}, {2, 1, 1.5}, {4, 1, more}, {8, more, 1}, {16, 2, 1}});
  EXPECT_EQ(found.shift, scheduler::ShiftRule{.tokens = 6});
  EXPECT_DOUBLE_EQ(*found.gain, 0.010);
}

TEST(FindFormations, OnePointThatIsWrongByChanceDoesNotMoveTheShift) {
  for (const double by_chance : {0.9, 1.1}) {
    const FormationFinding found = FindingOf(
        {{1, 1, 2}, {2, 1, by_chance}, {4, 1, 1.4}, {8, 1.4, 1}, {16, 1, by_chance}, {32, 2, 1}});
    EXPECT_EQ(found.shift, scheduler::ShiftRule{.tokens = 6}) << by_chance;
  }
}

TEST(FindFormations, WithoutAWinThereIsNoShiftAndItSaysSo) {
  const FormationFinding found = FindingOf({{1, 1, 2}, {8, 1, 1.2}});
  EXPECT_FALSE(found.shift.has_value());
  EXPECT_EQ(found.why_no_shift, "up to 8 tokens a step SP is not faster than TP");
  EXPECT_FALSE(FindingOf({{1, 1, 2}, {8, 1.01, 1}}).shift.has_value()) << "noise";
  const FormationFinding tp =
      FindSizeTwo({{1, DecodeMode::kAlone, 1, 1, 0.01}, {2, DecodeMode::kTp, 1, 1, 0.005}});
  EXPECT_EQ(tp.why_no_shift, "not measured in both TP and SP");
  EXPECT_DOUBLE_EQ(*tp.gain, 2);
  EXPECT_FALSE(tp.complete());
}

// The complete measurement of sizes 2 and 4 on four instances, and what is lost without each point.
TEST(FindFormations, AGainTakesOneStreamAndOneAnInstanceOfBoth) {
  Points whole = {{1, DecodeMode::kAlone, 1, 1, 0.010}, {1, DecodeMode::kAlone, 4, 1, 0.010}};
  for (const int32_t size : {2, 4}) {
    for (const int64_t streams : {1, 2, 4}) {
      const auto tokens = static_cast<double>(streams);
      whole.push_back({size, DecodeMode::kTp, streams, tokens, 0.005});
      for (const int32_t base_tp : BaseTpsOf(size)) {
        whole.push_back({size, DecodeMode::kBase, streams, tokens, 0.005, base_tp});
      }
    }
  }
  for (size_t lost = 0; lost < whole.size(); ++lost) {
    Points points = whole;
    points.erase(points.begin() + static_cast<std::ptrdiff_t>(lost));
    const auto findings = FindFormations(points, {2, 4}, 4);
    ASSERT_EQ(findings.size(), 2u);
    for (const auto& [size, found] : findings) {
      const DecodePoint& point = whole[lost];
      const bool of_it = point.instances == size && point.mode == DecodeMode::kTp;
      const bool needed = point.instances == 1 || (of_it && point.streams != 2);
      EXPECT_EQ(found.gain.has_value(), !needed) << lost << ", size " << size;
      EXPECT_EQ(found.why_no_gain.empty(), !needed) << lost << ", size " << size;
      EXPECT_EQ(found.complete(), !needed) << lost << ", size " << size;
    }
  }
}

// Of size 4 at 1, 4 and 16 tokens: TP takes 1, 1 and 4 seconds; SP and SP 2 x TP 2 take these.
Points FourIn(const std::array<double, 3>& sp_s, const std::array<double, 3>& sp_tp_s) {
  const std::array<double, 3> tp_s = {1, 1, 4};
  Points points = {{1, DecodeMode::kAlone, 1, 1, 2}};
  for (size_t i = 0; i < tp_s.size(); ++i) {
    const int64_t streams = int64_t{1} << (2 * i);
    const auto tokens = static_cast<double>(streams);
    points.push_back({4, DecodeMode::kTp, streams, tokens, tp_s[i]});
    points.push_back({4, DecodeMode::kBase, streams, tokens, sp_s[i], 1});
    points.push_back({4, DecodeMode::kBase, streams, tokens, sp_tp_s[i], 2});
  }
  return points;
}
FormationFinding FindFour(const Points& points) { return FindFormations(points, {4}, 1).at(4); }

TEST(FindFormations, TheBaseIsTheFastestOneAndNoiseDoesNotChooseIt) {
  EXPECT_EQ(BaseTpsOf(2), (std::vector<int32_t>{1}));
  EXPECT_EQ(BaseTpsOf(8), (std::vector<int32_t>{1, 2, 4}));
  // The last point alone gains.
  EXPECT_EQ(FindFour(FourIn({2, 2, 2}, {3, 3, 3})).shift->tp, 1);
  EXPECT_EQ(FindFour(FourIn({2, 2, 2}, {3, 3, 1.9})).shift->tp, 2);
  EXPECT_EQ(FindFour(FourIn({2, 2, 2}, {3, 3, 1.97})).shift->tp, 1) << "less than 2 %";
  EXPECT_EQ(FindFour(FourIn({2, 2, 4.1}, {3, 3, 3.7})).shift->tp, 2) << "SP never gains";
  EXPECT_FALSE(FindFour(FourIn({2, 2, 4.1}, {3, 3, 3.95})).shift.has_value());
  // With its own threshold: what it gains from 4 tokens on is more than what SP gains at 16.
  const FormationFinding sooner = FindFour(FourIn({2, 2, 2}, {3, 0.5, 2.2}));
  EXPECT_EQ(sooner.shift->tp, 2);
  EXPECT_LT(sooner.shift->tokens, 4);
  EXPECT_EQ(FindFour(FourIn({2, 2, 2}, {3, 0.95, 2.2})).shift->tp, 1) << "it loses more at 16";
}

TEST(FindFormations, TheGainIsInTheBaseThatWasChosen) {
  const FormationFinding found = FindFour(FourIn({0.9, 0.9, 2}, {0.5, 0.5, 1}));
  EXPECT_EQ(found.shift, (scheduler::ShiftRule{.tokens = 0, .tp = 2}));
  EXPECT_DOUBLE_EQ(*found.gain, 4);
}

TEST(FindFormations, ABaseThatWasNotMeasuredIsNotChosenAndMissed) {
  Points points = FourIn({2, 2, 2}, {3, 3, 1.5});
  EXPECT_TRUE(FindFour(points).complete());
  std::erase_if(points, [](const DecodePoint& one) { return one.base_tp == 2; });
  const FormationFinding found = FindFour(points);
  EXPECT_EQ(found.shift->tp, 1);
  EXPECT_TRUE(found.gain.has_value());
  EXPECT_FALSE(found.complete());
}

TEST(FindFormations, ASizeThatWasNotMeasuredIsFoundWithoutAGain) {
  Points points = PointsOf({{1, 1, 2}});
  const auto findings = FindFormations(points, {2, 4}, 1);
  EXPECT_TRUE(findings.at(2).complete());
  EXPECT_FALSE(findings.at(4).complete());
  EXPECT_EQ(findings.at(4).why_no_gain, "TP was not measured with 1 stream");
  EXPECT_EQ(FormationProfileOf(findings).gains.size(), 1u);
  points.erase(points.begin());
  EXPECT_EQ(FindSizeTwo(points).why_no_gain, "an instance alone was not measured with 1 stream");
  EXPECT_TRUE(FormationProfileOf(FindOfTwo(points)).gains.empty());
}

// Random devices: TP steps of n tokens take (s + q n) / g, SP steps s + q n / k. Every time is
// wrong by up to 5 %, and one round in five is slow by chance. The threshold that comes of it costs
// at most 5 % more than the best one at every measured number of tokens.
TEST(FindFormations, NoisyTimesGiveAThresholdThatIsNearlyTheBest) {
  scheduler::Random random(17);
  const auto between = [&](double low, double high) {
    return low + (high - low) * random.Uniform();
  };
  int shifts = 0;
  for (int device = 0; device < 2000; ++device) {
    const int32_t size = 1 << (1 + static_cast<int>(random.Below(3)));
    const double step_s = between(1e-3, 3e-2), token_s = step_s * std::exp(between(-6, 0));
    const double speed = between(1, size);
    const auto seconds = [&](DecodeMode mode, double n) {
      return mode == DecodeMode::kTp ? (step_s + token_s * n) / speed : step_s + token_s * n / size;
    };
    std::vector<DecodeSample> samples;
    std::vector<int64_t> counts;
    for (int64_t n = 1; n <= 64; n *= 2) counts.push_back(n);
    for (int round = 0; round < 5; ++round) {
      const double slow = round == device % 5 ? between(1, 4) : 1;
      for (const int64_t n : counts) {
        const auto tokens = static_cast<double>(n);
        for (const DecodeMode mode : {DecodeMode::kTp, DecodeMode::kBase}) {
          const double noise = mode == DecodeMode::kBase ? slow : 1;
          samples.push_back(
              {size, mode, n, tokens, seconds(mode, tokens) * noise * between(0.975, 1.025)});
        }
      }
    }
    const FormationFinding found = FindFormations(DecodeMedians(samples), {size}, 1).at(size);
    shifts += found.shift.has_value() ? 1 : 0;
    for (const int64_t n : counts) {
      const auto tokens = static_cast<double>(n);
      const double tp_s = seconds(DecodeMode::kTp, tokens),
                   sp_s = seconds(DecodeMode::kBase, tokens);
      const bool in_sp = found.shift.has_value() && n > found.shift->tokens;
      ASSERT_LE(in_sp ? sp_s : tp_s, 1.05 * std::min(tp_s, sp_s))
          << "device " << device << ", " << n << " tokens";
    }
  }
  EXPECT_GT(shifts, 200);
  EXPECT_LT(shifts, 1990);
}

// Random devices of four or eight: a base with tp t takes (s + q n t / k) / g(t), TP (s + q n) /
// g(k). Noise as above. With the base and threshold that come of it the measured numbers of tokens
// take at most 3 % longer, in the mean, than with the best base and threshold.
TEST(FindFormations, NoisyTimesGiveABaseThatIsNearlyTheBest) {
  scheduler::Random random(23);
  const auto between = [&](double low, double high) {
    return low + (high - low) * random.Uniform();
  };
  std::map<int32_t, int> chosen;  // by tp
  for (int device = 0; device < 1000; ++device) {
    const int32_t size = random.Below(2) == 0 ? 4 : 8;
    const double step_s = between(1e-3, 3e-2), token_s = step_s * std::exp(between(-6, 0));
    std::map<int32_t, double> speed = {{1, 1}};
    for (int32_t tp = 2; tp <= size; tp *= 2) speed[tp] = speed[tp / 2] * between(1, 2);
    const auto seconds = [&](int32_t tp, double n) {
      return (step_s + token_s * n * tp / size) / speed[tp];
    };
    std::vector<DecodeSample> samples;
    for (int round = 0; round < 5; ++round) {
      const double slow = round == device % 5 ? between(1, 4) : 1;
      for (int64_t n = 1; n <= 64; n *= 2) {
        const auto tokens = static_cast<double>(n);
        const auto noisy = [&](int32_t tp) {
          return seconds(tp, tokens) * (tp == 1 ? slow : 1) * between(0.975, 1.025);
        };
        samples.push_back({size, DecodeMode::kTp, n, tokens, noisy(size)});
        for (const int32_t tp : BaseTpsOf(size)) {
          samples.push_back({size, DecodeMode::kBase, n, tokens, noisy(tp), tp});
        }
      }
    }
    const FormationFinding found = FindFormations(DecodeMedians(samples), {size}, 1).at(size);
    ASSERT_TRUE(found.all_modes);
    ++chosen[found.shift.has_value() ? found.shift->tp : size];
    const auto cost = [&](const scheduler::ShiftRule& shift) {
      double logs = 0;
      for (int64_t n = 1; n <= 64; n *= 2) {
        logs += std::log(seconds(n > shift.tokens ? shift.tp : size, static_cast<double>(n)));
      }
      return logs / 7;
    };
    constexpr scheduler::ShiftRule kNone = {.tokens = 64};
    double best = cost(kNone);
    for (const int32_t tp : BaseTpsOf(size)) {
      for (int64_t above = 0; above <= 64; ++above) best = std::min(best, cost({above, tp}));
    }
    ASSERT_LE(cost(found.shift.value_or(kNone)), best + std::log(1.03)) << "device " << device;
  }
  for (const int32_t tp : {1, 2, 4, 8}) EXPECT_GT(chosen[tp], 20) << tp;
}

TEST(FormationProfileOf, IsWhatAProfileHolds) {
  const Points points = PointsOf({{1, 0.00625, 0.010}, {4, 0.013, 0.012}, {8, 0.026, 0.013}});
  Profile profile{"m",
                  "d",
                  "2026-01-01",
                  *scheduler::LatencyModel::Make({{1, {1e-3, 1e-5, 0, 0}}}),
                  std::nullopt,
                  std::nullopt,
                  FormationProfileOf(FindOfTwo(points))};
  const auto read = ParseProfile(ProfileJson(profile));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->formations->gains, (std::map<int32_t, double>{{2, 1.6}}));
  EXPECT_EQ(read->formations->shifts, profile.formations->shifts);
  EXPECT_EQ(read->formations->shifts.size(), 1u);
  const auto of_four = FormationProfileOf({{4, FindFour(FourIn({2, 2, 2}, {3, 3, 1.5}))}});
  EXPECT_EQ(of_four.shifts.at(4).tp, 2);
}

TEST(DecodeCsv, IsSkippedByFit) {
  const std::string csv = SamplesCsv({{1, 0, 16, 3e-4}});
  const std::string both = csv + DecodeCsv(PointsOf({{4, 0.5, 0.25}}));
  EXPECT_EQ(both.substr(csv.size()),
            "# decode steps: instances,mode,tp,streams,tokens,seconds\n"
            "# 1,own,1,1,1.00,0.01\n# 2,tp,2,4,4.00,0.5\n# 2,sp,1,4,4.00,0.25\n");
  EXPECT_NE(DecodeCsv({{8, DecodeMode::kBase, 4, 4, 0.5, 2}}).find("\n# 8,sp_tp,2,4,4.00,0.5\n"),
            std::string::npos);
  const auto read = ParseSamples(both);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 1u);
  EXPECT_EQ(DecodeCsv({}), "");
}

TEST(FormationTable, SaysWhatWasFound) {
  const Points points = PointsOf({{1, 0.005, 0.01}});
  EXPECT_EQ(FormationTable(points, FindOfTwo(points)),
            "instances  mode         streams  tokens a step  ms a step\n"
            "        1  own                1           1.00     10.000\n"
            "        2  TP                 1           1.00      5.000\n"
            "        2  SP                 1           1.00     10.000\n"
            "bound(2): gain 2.000; no shift: up to 1 tokens a step SP is not faster than TP\n");
  const Points four = FourIn({2, 2, 2}, {3, 3, 1.5});
  const std::string table = FormationTable(four, {{4, FindFour(four)}});
  EXPECT_NE(table.find("        4  SP 2 x TP 2       16          16.00   1500.000\n"),
            std::string::npos);
  EXPECT_NE(table.find("; SP 2 x TP 2 above "), std::string::npos) << table;
}

}  // namespace
}  // namespace skein::services
