#include "services/skeinctl/cluster/formation_verify.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "scheduler/vocabulary/kv_layout.h"

namespace skein::services {
namespace {

constexpr double kShare = 0.2;           // by which blocks and CPU time may differ from the lead's
constexpr double kBlocksSlack = 4;       // few blocks differ by those of a step that is running
constexpr double kCpuSecondsMin = 0.25;  // the kernel counts in hundredths of a second
// A step has ended at one member, and is still running at another one; and the next one is launched
// while it runs.
constexpr double kStepsSlack = 2;

const char* const kGroupModes[] = {"tp", "sp", "sp_tp"};

// The value of label `name` in `labels`: `mode="tp",ranks="2"`. Values here have no quotes in them.
std::string LabelOf(absl::string_view labels, absl::string_view name) {
  for (const absl::string_view part : absl::StrSplit(labels, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first != name || pair.second.size() < 2) continue;
    return std::string(pair.second.substr(1, pair.second.size() - 2));
  }
  return "";
}

struct Sample {
  absl::string_view name, labels;
  double value = 0;
};

// False: the line is a comment, or empty.
bool ParseSample(absl::string_view line, Sample* sample) {
  if (line.empty() || line.front() == '#') return false;
  const size_t space = line.rfind(' ');
  if (space == absl::string_view::npos) return false;
  const absl::string_view series = line.substr(0, space);
  const size_t brace = series.find('{');
  sample->name = series.substr(0, brace);
  sample->labels = brace == absl::string_view::npos
                       ? absl::string_view()
                       : series.substr(brace + 1, series.size() - brace - 2);
  return absl::SimpleAtod(line.substr(space + 1), &sample->value);
}

int RanksOf(absl::string_view labels) {
  int ranks = 0;
  return absl::SimpleAtoi(LabelOf(labels, "ranks"), &ranks) ? ranks : 0;
}

std::string Count(double number) { return absl::StrFormat("%.0f", number); }

class GroupCheck {
 public:
  explicit GroupCheck(const WatchedGroup& group)
      : group_(group),
        lead_(group.members.front()),
        ranks_(static_cast<int>(group.members.size())),
        steps_(lead_.last.GroupSteps(ranks_) - lead_.first.GroupSteps(ranks_)) {}

  std::vector<FormationCheck> Run() const {
    for (const WatchedMember& member : group_.members) {
      if (member.read.ok()) continue;
      return {Failed("steps", absl::StrCat("instance ", member.name, " did not tell its numbers: ",
                                           std::string(member.read.message())))};
    }
    if (steps_ <= 0) return {Idle()};
    return {Steps(), Bytes(), Blocks(), Part(), Cpu()};
  }

 private:
  static FormationCheck Passed(const char* name, std::string detail) {
    return {name, Verdict::kPassed, std::move(detail)};
  }
  static FormationCheck Failed(const char* name, std::string detail) {
    return {name, Verdict::kFailed, std::move(detail)};
  }
  static FormationCheck Unknown(const char* name, std::string detail) {
    return {name, Verdict::kUnknown, std::move(detail)};
  }

  double OwnSteps() const {
    double own = 0;
    for (const WatchedMember& member : group_.members) {
      own += member.last.OwnSteps() - member.first.OwnSteps();
    }
    return own;
  }

  FormationCheck Idle() const {
    for (const WatchedMember& member : group_.members) {
      const double steps = member.last.GroupSteps(ranks_) - member.first.GroupSteps(ranks_);
      if (steps > kStepsSlack) {
        return Failed("steps", absl::StrCat("instance ", member.name, " ran ", Count(steps),
                                            " steps of the group, and its lead none"));
      }
    }
    if (OwnSteps() > 0) {
      return Unknown("steps", absl::StrCat("the group ran no step while it was watched; its "
                                           "members ran ",
                                           Count(OwnSteps()), " steps of their own batches"));
    }
    return Unknown("steps", "no step ran while it was watched: send requests and verify again");
  }

  // The steps of a mode that the lead ran between the readings of another member: at least, at
  // most.
  std::pair<double, double> LeadSteps(const std::string& mode) const {
    return {lead_.last.Steps(mode, ranks_) - group_.lead_first.Steps(mode, ranks_) - kStepsSlack,
            group_.lead_last.Steps(mode, ranks_) - lead_.first.Steps(mode, ranks_) + kStepsSlack};
  }

  FormationCheck Steps() const {
    std::vector<std::string> wrong, ran;
    for (const std::string mode : kGroupModes) {
      const auto [least, most] = LeadSteps(mode);
      for (const WatchedMember& member : group_.members) {
        const double steps = member.last.Steps(mode, ranks_) - member.first.Steps(mode, ranks_);
        if (&member == &lead_) {
          if (steps > 0) ran.push_back(absl::StrCat(Count(steps), " ", mode));
        } else if (steps < least || steps > most) {
          wrong.push_back(absl::StrCat("instance ", member.name, " ran ", Count(steps), " ", mode,
                                       " steps, its lead ", Count(std::max(least, 0.0)), " to ",
                                       Count(most)));
        }
      }
    }
    for (const WatchedMember& member : group_.members) {
      if (member.last.GroupSteps(ranks_) > member.first.GroupSteps(ranks_)) continue;
      wrong.push_back(absl::StrCat("instance ", member.name, " ran no step of the group"));
    }
    if (!wrong.empty()) return Failed("steps", absl::StrJoin(wrong, "; "));
    return Passed("steps", absl::StrFormat("each member ran the same steps: %s in %.1f s",
                                           absl::StrJoin(ran, ", "), group_.watched_s));
  }

  FormationCheck Bytes() const {
    std::vector<std::string> none, moved;
    for (const WatchedMember& member : group_.members) {
      const double bytes = member.last.CommBytes(ranks_) - member.first.CommBytes(ranks_);
      if (bytes <= 0) none.push_back(member.name);
      moved.push_back(absl::StrFormat("%.3f", bytes * 1e-6));
    }
    if (!none.empty()) {
      return Failed("bytes", absl::StrCat("no bytes of collectives moved at instance ",
                                          absl::StrJoin(none, ", ")));
    }
    return Passed("bytes", absl::StrCat("collectives moved ", absl::StrJoin(moved, ", "), " MB"));
  }

  FormationCheck Blocks() const {
    if (OwnSteps() > 0) return Unknown("blocks", NotAlone("KV blocks"));
    return Compare("blocks", "blocks held", 0, kBlocksSlack,
                   [](const WatchedMember& member) { return member.last.held_blocks; });
  }

  // At the end; where too little ran then, at the begin.
  FormationCheck Part() const {
    if (group_.kv_heads <= 0) return Unknown("part", "the model's KV heads are not known");
    const int parts = HeadCuts(KvLayout{ranks_}, group_.kv_heads);
    if (parts == 1) {
      return Unknown("part", "the model has one KV head, so each member holds all of the KV");
    }
    FormationCheck last = PartAt(&WatchedMember::last, group_.lead_last, parts);
    if (last.verdict != Verdict::kUnknown) return last;
    FormationCheck first = PartAt(&WatchedMember::first, group_.lead_first, parts);
    if (first.verdict != Verdict::kUnknown) return first;
    return last;
  }

  // `lead_again`: the lead's numbers after the others'.
  FormationCheck PartAt(MemberNumbers WatchedMember::*reading, const MemberNumbers& lead_again,
                        int parts) const {
    for (const WatchedMember& member : group_.members) {
      if ((member.*reading).bound.has_value()) continue;
      return Unknown("part", absl::StrCat("instance ", member.name,
                                          " does not tell the KV of its group's sequences: it is "
                                          "of an older version"));
    }
    const BoundKv before = *(lead_.*reading).bound;
    const BoundKv after = lead_again.bound.value_or(before);
    const double alone = std::min(before.blocks_alone, after.blocks_alone);
    const double sequences = std::max(before.sequences, after.sequences);
    const auto slack = [](double blocks) { return std::max(kShare * blocks, kBlocksSlack); };
    const double part = alone / parts;
    const double part_most = std::max(before.blocks_alone, after.blocks_alone) / parts;
    const double least = std::ceil(std::max(part - slack(part), 0.0));
    const double most = std::floor(part_most + slack(part_most) + sequences);
    if (alone <= most) {
      return Unknown(
          "part", absl::StrCat("too few blocks to tell: one instance alone would hold ",
                               Count(alone), " for the group's ", Count(sequences), " sequences"));
    }
    std::vector<std::string> numbers, wrong;
    for (const WatchedMember& member : group_.members) {
      const double blocks = (member.*reading).bound->blocks;
      if (blocks < least || blocks > most) wrong.push_back(member.name);
      numbers.push_back(Count(blocks));
    }
    std::string detail = absl::StrCat(
        "blocks of the group's ", Count(sequences),
        " sequences, the lead first: ", absl::StrJoin(numbers, ", "),
        "; one instance alone would hold ", Count(alone), ", and a member's part is 1/", parts,
        parts < ranks_ ? " (the model has fewer KV heads than the group members)" : "");
    if (wrong.empty()) return Passed("part", std::move(detail));
    return Failed("part", absl::StrCat(detail, "; not ", Count(least), " to ", Count(most),
                                       " at instance ", absl::StrJoin(wrong, ", ")));
  }

  FormationCheck Cpu() const {
    const auto seconds = [](const WatchedMember& member) {
      return member.last.cpu_seconds - member.first.cpu_seconds;
    };
    if (OwnSteps() > 0) return Unknown("cpu", NotAlone("CPU time"));
    if (seconds(lead_) < kCpuSecondsMin) {
      return Unknown("cpu", absl::StrFormat("the lead spent %.2f s of CPU time, too little to "
                                            "compare: watch it for longer, with --watch-s",
                                            seconds(lead_)));
    }
    return Compare("cpu", "seconds of CPU time", 2, 0, seconds);
  }

  std::string NotAlone(const char* what) const {
    return absl::StrCat(what, " not compared: members ran ", Count(OwnSteps()),
                        " steps of their own batches meanwhile");
  }

  template <typename NumberOf>
  FormationCheck Compare(const char* name, const char* what, int decimals, double slack,
                         NumberOf number_of) const {
    const double lead = number_of(lead_);
    std::vector<std::string> numbers, wrong;
    for (const WatchedMember& member : group_.members) {
      const double number = number_of(member);
      if (std::abs(number - lead) > std::max(kShare * lead, slack)) wrong.push_back(member.name);
      numbers.push_back(absl::StrFormat("%.*f", decimals, number));
    }
    std::string detail = absl::StrCat(what, ", the lead first: ", absl::StrJoin(numbers, ", "));
    if (wrong.empty()) return Passed(name, std::move(detail));
    return Failed(name, absl::StrCat(detail, "; more than 20 % from the lead's at instance ",
                                     absl::StrJoin(wrong, ", ")));
  }

  const WatchedGroup& group_;
  const WatchedMember& lead_;
  const int ranks_;
  const double steps_;  // of the group, at the lead
};

}  // namespace

double MemberNumbers::Steps(const std::string& mode, int ranks) const {
  const auto found = steps.find({mode, ranks});
  return found == steps.end() ? 0 : found->second;
}

double MemberNumbers::GroupSteps(int ranks) const {
  double sum = 0;
  for (const char* mode : kGroupModes) sum += Steps(mode, ranks);
  return sum;
}

double MemberNumbers::OwnSteps() const { return Steps("own", 1); }

double MemberNumbers::CommBytes(int ranks) const {
  const auto found = comm_bytes.find(ranks);
  return found == comm_bytes.end() ? 0 : found->second;
}

absl::StatusOr<MemberNumbers> MemberNumbersFrom(const std::string& metrics) {
  MemberNumbers numbers;
  BoundKv bound;
  bool has_cpu = false, has_blocks = false, has_bound = false;
  for (const absl::string_view line : absl::StrSplit(metrics, '\n')) {
    Sample sample;
    if (!ParseSample(line, &sample)) continue;
    if (sample.name == "skein_engine_steps_total") {
      numbers.steps[{LabelOf(sample.labels, "mode"), RanksOf(sample.labels)}] += sample.value;
    } else if (sample.name == "skein_engine_step_tokens_total") {
      numbers.step_tokens[{LabelOf(sample.labels, "mode"), RanksOf(sample.labels)}] += sample.value;
    } else if (sample.name == "skein_comm_bytes_total") {
      numbers.comm_bytes[RanksOf(sample.labels)] += sample.value;
    } else if (sample.name == "skein_kv_blocks" && LabelOf(sample.labels, "state") == "held") {
      numbers.held_blocks = sample.value;
      has_blocks = true;
    } else if (sample.name == "skein_bound_sequences") {
      bound.sequences = sample.value;
    } else if (sample.name == "skein_bound_kv_blocks") {
      bound.blocks = sample.value;
    } else if (sample.name == "skein_bound_kv_blocks_alone") {
      bound.blocks_alone = sample.value;
      has_bound = true;
    } else if (sample.name == "process_cpu_seconds_total") {
      numbers.cpu_seconds = sample.value;
      has_cpu = true;
    }
  }
  if (has_bound) numbers.bound = bound;
  if (has_cpu && has_blocks) return numbers;
  return absl::InvalidArgumentError("its /metrics has no CPU time or no KV blocks");
}

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kUnknown:
      break;
  }
  return "unknown";
}

Verdict VerdictOf(const std::vector<FormationCheck>& checks) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(checks.begin(), checks.end(),
                       [&](const FormationCheck& check) { return check.verdict == verdict; });
  };
  if (any(Verdict::kFailed)) return Verdict::kFailed;
  return any(Verdict::kPassed) ? Verdict::kPassed : Verdict::kUnknown;
}

std::vector<FormationCheck> CheckGroup(const WatchedGroup& group) {
  return GroupCheck(group).Run();
}

void DropChanged(const v1::ListGroupsResponse& now, std::vector<FormationChecks>* checks) {
  std::set<uint64_t> epochs;
  for (const v1::GroupStatus& group : now.groups()) {
    for (const auto& formation : group.formations()) epochs.insert(formation.epoch());
  }
  for (FormationChecks& one : *checks) {
    if (epochs.count(one.epoch) != 0) continue;
    one.checks = {{"steps", Verdict::kUnknown, "the formation ended while it was watched"}};
  }
}

}  // namespace skein::services
