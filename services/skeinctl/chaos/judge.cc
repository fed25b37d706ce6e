#include "services/skeinctl/chaos/judge.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "services/skeinctl/chaos/near_tie.h"

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

// The stream's longest pause that began while the fault lasted, or just after it; 0: none.
double PauseOf(const StreamRecord& record, const FaultMark& mark, double stall_s) {
  double longest = 0;
  for (const ChoiceRecord& choice : record.choices) {
    for (size_t i = 1; i < choice.token_s.size(); ++i) {
      const double from = choice.token_s[i - 1];
      const double to = choice.token_s[i];
      if (to <= mark.at_s || from > mark.until_s + kOnsetS || to - from <= stall_s) continue;
      longest = std::max(longest, to - std::max(from, mark.at_s));
    }
  }
  return longest;
}

// A stream that broke off counts the time until its end was told.
double LongestGapAfter(const StreamRecord& record, double at_s) {
  double longest = 0;
  for (const ChoiceRecord& choice : record.choices) {
    for (size_t i = 1; i < choice.token_s.size(); ++i) {
      if (choice.token_s[i] <= at_s) continue;
      longest = std::max(longest, choice.token_s[i] - choice.token_s[i - 1]);
    }
    if (!record.whole() && record.ended() && choice.finishes == 0 && !choice.token_s.empty()) {
      longest = std::max(longest, record.end_s - choice.token_s.back());
    }
  }
  return longest;
}

// Of the slowest chain of probes; negative: one got no token.
double ProbesTook(const std::vector<StreamRecord>& records, double at_s, int64_t index) {
  std::map<int64_t, double> first;  // by chain; negative: none yet
  for (const StreamRecord& record : records) {
    if (record.probed_fault != index) continue;
    double& soonest = first.emplace(record.probe_chain, -1).first->second;
    const double token = record.FirstTokenS();
    if (token >= 0 && (soonest < 0 || token < soonest)) soonest = token;
  }
  double took = 0;
  for (const auto& [chain, soonest] : first) {
    if (soonest < 0) return -1;
    took = std::max(took, soonest - at_s);
  }
  return took;
}

// The first token in which both differ; nullopt: one is the beginning of the other.
std::optional<size_t> PartedAt(const Tokens& got, const Tokens& expected) {
  const size_t both = std::min(got.size(), expected.size());
  for (size_t i = 0; i < both; ++i) {
    if (got[i] != expected[i]) return i;
  }
  return std::nullopt;
}

// Logprobs come with their tokens, and those of the first `alike` tokens are the reference's.
bool LogprobsFit(const Answer& got, const Answer& expected, size_t alike, double slack) {
  if (got.logprobs.size() != (expected.logprobs.empty() ? 0 : got.tokens.size())) return false;
  const size_t compared = std::min({alike, got.logprobs.size(), expected.logprobs.size()});
  for (size_t i = 0; i < compared; ++i) {
    if (std::abs(got.logprobs[i] - expected.logprobs[i]) > slack) return false;
  }
  return true;
}

// Judges the choices of one answer.
class ChoiceJudge {
 public:
  ChoiceJudge(const Reference& reference, const TieJudge& ties, bool ended_well, Verdict* verdict)
      : reference_(reference), ties_(ties), ended_well_(ended_well), verdict_(*verdict) {}

  void Judge(const ChoiceRecord& record, const Answer& expected) {
    const Answer& got = record.answer;
    if (record.finishes > 1) verdict_.wrong = true;
    const auto parted = PartedAt(got.tokens, expected.tokens);
    if (parted.has_value() && ties_ != nullptr && reference_.greedy &&
        ties_(reference_, got, *parted, expected.tokens[*parted])) {
      verdict_.near_tie = true;
      return JudgeAfterTie(got, expected, *parted);
    }
    Verdict own;
    CompareTokens(got.tokens, expected.tokens, ended_well_, &own);
    verdict_.wrong |= own.wrong;
    verdict_.lost_tokens += own.lost_tokens;
    verdict_.doubled_tokens += own.doubled_tokens;
    // A skipped or repeated token changes the text and the logprobs, too; that is told once.
    if (!own.good()) return;
    const bool alike =
        ended_well_ ? got.text == expected.text && got.finish_reason == expected.finish_reason
                    : expected.text.compare(0, got.text.size(), got.text) == 0;
    if (!alike || !LogprobsFit(got, expected, got.tokens.size(), Slack())) verdict_.wrong = true;
  }

 private:
  // Where sums may differ, logprobs may.
  double Slack() const { return ties_ == nullptr ? 0 : kNearTieNats; }

  // Its text is another one. Greedy requests end by their length.
  void JudgeAfterTie(const Answer& got, const Answer& expected, size_t parted) {
    if (!LogprobsFit(got, expected, parted, Slack())) verdict_.wrong = true;
    if (got.tokens.size() > expected.tokens.size()) verdict_.wrong = true;
    if (!ended_well_) return;
    if (got.finish_reason != expected.finish_reason) verdict_.wrong = true;
    if (got.tokens.size() < expected.tokens.size()) {
      verdict_.lost_tokens += static_cast<int64_t>(expected.tokens.size() - got.tokens.size());
    }
  }

  const Reference& reference_;
  const TieJudge& ties_;
  const bool ended_well_;
  Verdict& verdict_;
};

int64_t TokensOf(const StreamRecord& record) {
  int64_t tokens = 0;
  for (const ChoiceRecord& one : record.choices) {
    tokens += static_cast<int64_t>(one.answer.tokens.size());
  }
  return tokens;
}

void Add(const Verdict& verdict, bool excused, int64_t tokens, Counts* counts) {
  ++counts->requests;
  counts->failed += verdict.failed ? 1 : 0;
  counts->excused += excused ? 1 : 0;
  counts->wrong += verdict.wrong ? 1 : 0;
  counts->near_ties += verdict.near_tie && !verdict.wrong ? 1 : 0;
  counts->lost += verdict.lost_tokens > 0 ? 1 : 0;
  counts->doubled += verdict.doubled_tokens > 0 ? 1 : 0;
  counts->hung += verdict.hung ? 1 : 0;
  counts->tokens += tokens;
}

}  // namespace

Reference ReferenceOf(const StreamRequest& request, const StreamRecord& record) {
  Reference reference{.kind = request.kind,
                      .greedy = request.temperature == 0 && request.penalty == 0,
                      .prompt = record.prompt,
                      .choices = {}};
  reference.choices.reserve(record.choices.size());
  for (const ChoiceRecord& one : record.choices) reference.choices.push_back(one.answer);
  return reference;
}

Verdict Judge(const StreamRecord& record, const Reference& reference, const TieJudge& ties) {
  Verdict verdict;
  verdict.hung = record.hung;
  verdict.failed = !record.hung && !record.error.empty();
  const bool ended_well = record.whole();
  ChoiceJudge judge(reference, ties, ended_well, &verdict);
  const size_t got = record.choices.size();
  const size_t expected = reference.choices.size();
  for (size_t i = 0; i < std::min(got, expected); ++i) {
    judge.Judge(record.choices[i], reference.choices[i]);
  }
  if (got > expected || (ended_well && got < expected)) verdict.wrong = true;
  // A lost or repeated token changes the count, too; that is told once.
  if (verdict.lost_tokens > 0 || verdict.doubled_tokens > 0) return verdict;
  if (ended_well && record.usage_tokens >= 0 && record.usage_tokens != TokensOf(record)) {
    verdict.wrong = true;
  }
  return verdict;
}

bool IsExcused(const StreamRecord& record, const FaultMark& mark) {
  if (!mark.router_loss.has_value()) return false;
  const RouterLoss& loss = *mark.router_loss;
  if (loss.router >= 0 && record.router != static_cast<size_t>(loss.router)) return false;
  if (record.end_s < mark.at_s) return false;
  if (loss.breaks_off && record.sent_s <= loss.ended_s) return true;
  return loss.leaves_none && record.FirstTokenS() < 0 && record.sent_s <= loss.serves_again_s;
}

FaultEffect EffectOf(const std::vector<StreamRecord>& records, const FaultMark& mark, int64_t index,
                     double stall_s) {
  FaultEffect effect{.mark = mark, .longest_gaps_s = {}};
  for (const StreamRecord& record : records) {
    if (!record.streamed) {
      effect.running += record.RunsAt(mark.at_s) ? 1 : 0;
    } else if (record.RunsAt(mark.at_s)) {
      const double pause = PauseOf(record, mark, stall_s);
      ++effect.running;
      effect.stalled += pause > 0 ? 1 : 0;
      effect.recovery_s = std::max(effect.recovery_s, pause);
      effect.longest_gaps_s.push_back(LongestGapAfter(record, mark.at_s));
    } else if (record.sent_s < mark.at_s && record.FirstTokenS() > mark.at_s) {
      effect.recovery_s = std::max(effect.recovery_s, record.FirstTokenS() - mark.at_s);
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

bool Counts::good() const {
  return failed == excused && wrong == 0 && lost == 0 && doubled == 0 && hung == 0;
}

void Counts::Add(const Counts& other) {
  requests += other.requests;
  failed += other.failed;
  excused += other.excused;
  wrong += other.wrong;
  near_ties += other.near_ties;
  lost += other.lost;
  doubled += other.doubled;
  hung += other.hung;
  tokens += other.tokens;
}

bool Row::good() const { return !skipped.empty() || (Counts::good() && recovery_s() >= 0); }

Row RowOf(const std::string& scenario, const std::vector<StreamRecord>& records,
          const std::vector<Reference>& references, const std::vector<FaultMark>& marks,
          double stall_s, const TieJudge& ties) {
  Row row;
  row.scenario = scenario;
  for (const StreamRecord& record : records) {
    const Reference& reference = references[record.request];
    const Verdict verdict = Judge(record, reference, ties);
    const bool excused =
        verdict.failed && std::any_of(marks.begin(), marks.end(), [&](const FaultMark& mark) {
          return IsExcused(record, mark);
        });
    Add(verdict, excused, TokensOf(record), &row);
    Add(verdict, excused, TokensOf(record), &row.kinds[reference.kind]);
    if (verdict.failed) ++row.errors[absl::StrCat(record.error, ": ", record.message)];
  }
  for (size_t i = 0; i < marks.size(); ++i) {
    row.faults.push_back(EffectOf(records, marks[i], static_cast<int64_t>(i), stall_s));
  }
  return row;
}

}  // namespace skein::services::chaos
