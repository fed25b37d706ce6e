#include "services/skeinctl/chaos/judge.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace skein::services::chaos {
namespace {

// A fault may show up to this much later in a stream: buffers between drain first.
constexpr double kOnsetS = 1.0;

// Tokens that must agree after a skip or a repetition, to be taken for one.
constexpr size_t kAgree = 4;
constexpr size_t kCompared = 16;
constexpr size_t kShiftMax = 256;

using Tokens = std::vector<int32_t>;

// Whether got[i..] goes on like expected[j..]: over kCompared tokens, or to the end of the shorter.
// Fewer than kAgree tokens count only if both end there.
bool GoesOn(const Tokens& got, size_t i, const Tokens& expected, size_t j) {
  const size_t most = std::min(got.size() - i, expected.size() - j);
  const size_t compared = std::min(most, kCompared);
  const bool to_the_end = got.size() - i == expected.size() - j;
  if (compared == 0 || (compared < kAgree && !to_the_end)) return false;
  return std::equal(got.begin() + static_cast<std::ptrdiff_t>(i),
                    got.begin() + static_cast<std::ptrdiff_t>(i + compared),
                    expected.begin() + static_cast<std::ptrdiff_t>(j));
}

// The whole rest of `got` from i on stands in `expected` from j on.
bool RestStandsAt(const Tokens& got, size_t i, const Tokens& expected, size_t j) {
  return got.size() - i <= expected.size() - j &&
         std::equal(got.begin() + static_cast<std::ptrdiff_t>(i), got.end(),
                    expected.begin() + static_cast<std::ptrdiff_t>(j));
}

// Walks both answers; at a difference tries the smallest skip or repetition after which they agree
// again.
void CompareTokens(const Tokens& got, const Tokens& expected, bool ended_well, Verdict* verdict) {
  size_t i = 0;
  size_t j = 0;
  while (i < got.size()) {
    if (j < expected.size() && got[i] == expected[j]) {
      ++i;
      ++j;
      continue;
    }
    size_t shift = 1;
    for (; shift <= kShiftMax; ++shift) {
      if (shift <= j && (GoesOn(got, i, expected, j - shift) ||
                         (j == expected.size() && RestStandsAt(got, i, expected, j - shift)))) {
        verdict->doubled_tokens += static_cast<int64_t>(shift);
        j -= shift;
        break;
      }
      if (j + shift < expected.size() && GoesOn(got, i, expected, j + shift)) {
        verdict->lost_tokens += static_cast<int64_t>(shift);
        j += shift;
        break;
      }
    }
    if (shift > kShiftMax) {
      verdict->wrong = true;
      return;
    }
  }
  if (ended_well) verdict->lost_tokens += static_cast<int64_t>(expected.size() - j);
}

double FirstToken(const StreamRecord& record) {
  return record.token_s.empty() ? -1 : record.token_s.front();
}

// The stream's longest pause that began while the fault lasted, or just after it; 0: none.
double PauseOf(const StreamRecord& record, const FaultMark& mark, double stall_s) {
  double longest = 0;
  for (size_t i = 1; i < record.token_s.size(); ++i) {
    const double from = record.token_s[i - 1];
    const double to = record.token_s[i];
    if (to <= mark.at_s || from > mark.until_s + kOnsetS || to - from <= stall_s) continue;
    longest = std::max(longest, to - std::max(from, mark.at_s));
  }
  return longest;
}

// A stream that broke off counts the time until its end was told.
double LongestGapAfter(const StreamRecord& record, double at_s) {
  double longest = 0;
  for (size_t i = 1; i < record.token_s.size(); ++i) {
    if (record.token_s[i] <= at_s) continue;
    longest = std::max(longest, record.token_s[i] - record.token_s[i - 1]);
  }
  if (!record.whole() && record.ended()) {
    longest = std::max(longest, record.end_s - record.token_s.back());
  }
  return longest;
}

// Of the slowest chain of probes; negative: one got no token.
double ProbesTook(const std::vector<StreamRecord>& records, double at_s, int64_t index) {
  std::map<int64_t, double> first;  // by chain; negative: none yet
  for (const StreamRecord& record : records) {
    if (record.probed_fault != index) continue;
    double& soonest = first.emplace(record.probe_chain, -1).first->second;
    const double token = FirstToken(record);
    if (token >= 0 && (soonest < 0 || token < soonest)) soonest = token;
  }
  double took = 0;
  for (const auto& [chain, soonest] : first) {
    if (soonest < 0) return -1;
    took = std::max(took, soonest - at_s);
  }
  return took;
}

}  // namespace

Verdict Judge(const StreamRecord& record, const Answer& expected) {
  Verdict verdict;
  verdict.hung = record.hung;
  verdict.failed = !record.hung && !record.error.empty();
  const bool ended_well = record.whole();
  CompareTokens(record.answer.tokens, expected.tokens, ended_well, &verdict);
  if (record.finishes > 1) verdict.wrong = true;
  // A skipped or repeated token changes the text and the count, too; that is told once.
  if (verdict.wrong || verdict.lost_tokens > 0 || verdict.doubled_tokens > 0) return verdict;
  const std::string& text = record.answer.text;
  if (ended_well) {
    verdict.wrong = text != expected.text || record.answer.finish_reason != expected.finish_reason;
    const auto count = static_cast<int64_t>(record.answer.tokens.size());
    if (record.usage_tokens >= 0 && record.usage_tokens != count) verdict.wrong = true;
  } else {
    verdict.wrong = expected.text.compare(0, text.size(), text) != 0;
  }
  return verdict;
}

bool IsExcused(const StreamRecord& record, const FaultMark& mark) {
  if (!mark.router_loss.has_value()) return false;
  const RouterLoss& loss = *mark.router_loss;
  if (loss.router >= 0 && record.router != static_cast<size_t>(loss.router)) return false;
  if (record.end_s < mark.at_s) return false;
  if (loss.breaks_off && record.sent_s <= loss.ended_s) return true;
  return loss.leaves_none && record.token_s.empty() && record.sent_s <= loss.serves_again_s;
}

FaultEffect EffectOf(const std::vector<StreamRecord>& records, const FaultMark& mark, int64_t index,
                     double stall_s) {
  FaultEffect effect{.mark = mark, .longest_gaps_s = {}};
  for (const StreamRecord& record : records) {
    if (record.RunsAt(mark.at_s)) {
      const double pause = PauseOf(record, mark, stall_s);
      ++effect.running;
      effect.stalled += pause > 0 ? 1 : 0;
      effect.recovery_s = std::max(effect.recovery_s, pause);
      effect.longest_gaps_s.push_back(LongestGapAfter(record, mark.at_s));
    } else if (record.sent_s < mark.at_s && FirstToken(record) > mark.at_s) {
      effect.recovery_s = std::max(effect.recovery_s, FirstToken(record) - mark.at_s);
    }
  }
  const double probes = ProbesTook(records, mark.at_s, index);
  effect.recovery_s = probes < 0 ? -1 : std::max(effect.recovery_s, probes);
  return effect;
}

int64_t Row::running() const {
  int64_t sum = 0;
  for (const FaultEffect& one : faults) sum += one.running;
  return sum;
}

int64_t Row::faults_that_met_streams() const {
  return std::count_if(faults.begin(), faults.end(),
                       [](const FaultEffect& one) { return one.running > 0; });
}

double Row::recovery_s() const {
  double slowest = 0;
  for (const FaultEffect& one : faults) {
    if (one.recovery_s < 0) return -1;
    slowest = std::max(slowest, one.recovery_s);
  }
  return slowest;
}

// Nearest rank, as in skeinctl simulate.
double Row::GapPercentile(double percent) const {
  std::vector<double> gaps;
  for (const FaultEffect& one : faults) {
    gaps.insert(gaps.end(), one.longest_gaps_s.begin(), one.longest_gaps_s.end());
  }
  if (gaps.empty()) return 0;
  std::sort(gaps.begin(), gaps.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(gaps.size()));
  return gaps[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

bool Row::good() const {
  if (!skipped.empty()) return true;
  const bool served = failed == excused && recovery_s() >= 0;
  return served && wrong == 0 && lost == 0 && doubled == 0 && hung == 0;
}

Row RowOf(const std::string& scenario, const std::vector<StreamRecord>& records,
          const std::vector<Answer>& expected, const std::vector<FaultMark>& marks,
          double stall_s) {
  Row row;
  row.scenario = scenario;
  row.requests = static_cast<int64_t>(records.size());
  for (const StreamRecord& record : records) {
    const Verdict verdict = Judge(record, expected[record.request]);
    row.failed += verdict.failed ? 1 : 0;
    row.hung += verdict.hung ? 1 : 0;
    row.wrong += verdict.wrong ? 1 : 0;
    row.lost += verdict.lost_tokens > 0 ? 1 : 0;
    row.doubled += verdict.doubled_tokens > 0 ? 1 : 0;
    row.tokens += static_cast<int64_t>(record.answer.tokens.size());
    if (!verdict.failed) continue;
    ++row.errors[absl::StrCat(record.error, ": ", record.message)];
    row.excused += std::any_of(marks.begin(), marks.end(),
                               [&](const FaultMark& mark) { return IsExcused(record, mark); })
                       ? 1
                       : 0;
  }
  for (size_t i = 0; i < marks.size(); ++i) {
    row.faults.push_back(EffectOf(records, marks[i], static_cast<int64_t>(i), stall_s));
  }
  return row;
}

}  // namespace skein::services::chaos
