#include "scheduler/simulator/formations/decode_groups.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/placement/freeness.h"
#include "scheduler/simulator/metrics.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

double Seconds(TimeUs us) { return static_cast<double>(us) / kSecondUs; }

std::vector<orchestrator::FormationSize> SizesOf(const DecodeOptions& decode,
                                                 const DecodeGroupsOptions& groups,
                                                 int32_t members) {
  std::vector<orchestrator::FormationSize> sizes;
  for (int32_t size = 1;
       size == 1 || orchestrator::IsBindable({0, size}, static_cast<size_t>(members)); size *= 2) {
    sizes.push_back({.size = size, .tokens_max = decode.blocks * decode.block_tokens * size});
    const auto gain = groups.profile.gains.find(size);
    if (gain != groups.profile.gains.end()) sizes.back().gain = gain->second;
  }
  return sizes;
}

struct Event {
  TimeUs at_us;
  bool prefilled;  // false: prefill starts
  size_t request;
};

class Pool {
 public:
  Pool(const std::vector<SimRequest>& requests, const std::vector<PrefillOutcome>& prefilled,
       const DecodeOptions& decode, const DecodeGroupsOptions& groups)
      : requests_(requests), prefilled_(prefilled), decode_(decode), groups_(groups) {
    result_.outcomes.resize(requests.size());
    for (int first = 0; first < decode.instances; first += groups.node_instances) {
      AddGroup(first, std::min(groups.node_instances, decode.instances - first));
    }
  }

  DecodeGroupsRun Run() {
    const std::vector<Event> events = Events();
    size_t next = 0;
    while (next < events.size() || !Idle()) {
      TimeUs now = next < events.size() ? events[next].at_us : kNever;
      for (const Group& group : all_) {
        now = std::min(now, group.instances->NextEnd());
        if (group.driver != nullptr) now = std::min(now, group.driver->Next());
      }
      SKEIN_CHECK(now != kNever);
      for (; next < events.size() && events[next].at_us <= now; ++next) Take(events[next], now);
      Advance(now);
    }
    Conclude();
    return std::move(result_);
  }

 private:
  struct Group {
    std::unique_ptr<DecodeGroup> instances;
    std::unique_ptr<FormationDriver> driver;  // of automatic formations
    uint64_t first_id = 1;                    // of its candidates
  };

  void AddGroup(int32_t first, int32_t members) {
    const DecodeGroupOptions options = {
        .members = members,
        .blocks = decode_.blocks,
        .block_tokens = decode_.block_tokens,
        .batch_sequences = groups_.batch_sequences,
        .times = {.step_s = decode_.step_base_s,
                  .sequence_s = decode_.step_per_sequence_s,
                  .kv_token_s = decode_.step_per_kv_token_s,
                  .gains = {groups_.profile.gains.begin(), groups_.profile.gains.end()}},
        .shifts = groups_.profile.shifts};
    Group group;
    group.instances = std::make_unique<DecodeGroup>(options, &requests_, &result_.outcomes);
    group.first_id = static_cast<uint64_t>(first) + 1;
    if (groups_.formation.kind == DecodeFormation::Kind::kAuto) {
      group.driver = std::make_unique<FormationDriver>(SizesOf(decode_, groups_, members), members,
                                                       groups_.driver, group.instances.get());
    }
    BindForGood(members, group.instances.get());
    all_.push_back(std::move(group));
  }

  void BindForGood(int32_t members, DecodeGroup* instances) const {
    const DecodeFormation& formation = groups_.formation;
    orchestrator::Subset subset = {
        0, formation.SizeIn(std::min(groups_.node_instances, decode_.instances))};
    while (orchestrator::IsBindable(subset, static_cast<size_t>(members))) {
      instances->BindForGood(subset);
      if (formation.kind == DecodeFormation::Kind::kHybrid) return;
      subset.first += subset.size;
    }
  }

  std::vector<Event> Events() const {
    std::vector<Event> events;
    events.reserve(2 * requests_.size());
    for (size_t r = 0; r < requests_.size(); ++r) {
      events.push_back({ToMicroseconds(prefilled_[r].start_s), false, r});
      events.push_back({ToMicroseconds(prefilled_[r].end_s), true, r});
    }
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      if (a.at_us != b.at_us) return a.at_us < b.at_us;
      return a.request != b.request ? a.request < b.request : a.prefilled < b.prefilled;
    });
    return events;
  }

  bool Idle() const {
    return waiting_.empty() && std::all_of(all_.begin(), all_.end(), [](const Group& group) {
             return group.instances->Idle();
           });
  }

  void Take(const Event& event, TimeUs now) {
    if (!event.prefilled) {
      if (!waiting_.empty() || !Place(event.request)) waiting_.push_back(event.request);
    } else if (result_.outcomes[event.request].instance >= 0) {
      GroupOf(event.request).instances->Ready(event.request, now);
    }
  }

  Group& GroupOf(size_t request) {
    const int32_t instance = result_.outcomes[request].instance;
    return all_[static_cast<size_t>(instance / groups_.node_instances)];
  }

  bool Place(size_t request) {
    const SimRequest& of = requests_[request];
    const int64_t tokens = of.prompt_tokens + of.output_tokens;
    candidates_.clear();
    for (const Group& group : all_) {
      group.instances->AddCandidates(group.first_id, &candidates_);
    }
    const std::optional<InstanceId> pick =
        PickDecode(candidates_, (tokens - 1) / decode_.block_tokens + 1);
    if (!pick.has_value()) return false;
    const auto instance = static_cast<int32_t>(pick->value) - 1;
    all_[static_cast<size_t>(instance / groups_.node_instances)].instances->Place(
        request, instance % groups_.node_instances);
    result_.outcomes[request].instance = instance;
    return true;
  }

  void Advance(TimeUs now) {
    const size_t waiting = (waiting_.size() + all_.size() - 1) / all_.size();
    for (Group& group : all_) {
      group.instances->SetWaiting(static_cast<int64_t>(waiting));
      if (group.driver != nullptr) group.driver->Advance(now);
      group.instances->Advance(now);
      if (group.driver != nullptr) group.driver->Collect(now);
    }
    bool placed = false;
    while (!waiting_.empty() && Place(waiting_.front())) {
      const size_t request = waiting_.front();
      waiting_.pop_front();
      const TimeUs ready_us = ToMicroseconds(prefilled_[request].end_s);
      if (ready_us > now) continue;
      result_.run.blocked_s += Seconds(now - ready_us);
      GroupOf(request).instances->Ready(request, now);
      placed = true;
    }
    if (!placed) return;
    for (Group& group : all_) group.instances->Advance(now);
  }

  void Conclude() {
    std::vector<double> tpot, queue;
    DecodeFigures& figures = result_.figures;
    for (size_t r = 0; r < requests_.size(); ++r) {
      const DecodeOutcome& outcome = result_.outcomes[r];
      const int64_t gaps = requests_[r].output_tokens - 1;
      const TimeUs first_us = ToMicroseconds(prefilled_[r].end_s);
      result_.run.end_s = std::max(result_.run.end_s, Seconds(outcome.last_us));
      if (gaps == 0) continue;
      tpot.push_back(Seconds(outcome.last_us - first_us) / static_cast<double>(gaps));
      queue.push_back(Seconds(outcome.started_us - first_us));
      result_.run.tbt.Add(Seconds(outcome.second_us - first_us), 1);
      if (gaps == 1) continue;
      result_.run.tbt.Add(
          Seconds(outcome.last_us - outcome.second_us) / static_cast<double>(gaps - 1), gaps - 1);
    }
    figures.tpot_p50_s = Percentile(&tpot, 0.5);
    figures.tpot_p90_s = Percentile(&tpot, 0.9);
    figures.tpot_p99_s = Percentile(&tpot, 0.99);
    figures.queue_p50_s = Percentile(&queue, 0.5);
    figures.queue_p90_s = Percentile(&queue, 0.9);
    figures.queue_p99_s = Percentile(&queue, 0.99);
    ConcludeGroups();
  }

  void ConcludeGroups() {
    DecodeFigures& figures = result_.figures;
    std::vector<std::pair<TimeUs, int64_t>> tokens;
    std::array<int64_t, kStepKinds> steps = {};
    int64_t all_steps = 0;
    for (const Group& group : all_) {
      const DecodeGroup& instances = *group.instances;
      tokens.insert(tokens.end(), instances.tokens().begin(), instances.tokens().end());
      for (size_t i = 0; i < steps.size(); ++i) {
        steps[i] += instances.steps()[i];
        all_steps += instances.steps()[i];
      }
      result_.run.finished += instances.finished();
      result_.run.busy_instance_s += instances.busy_instance_s();
      if (group.driver == nullptr) continue;
      SKEIN_CHECK(group.driver->CheckInvariants().ok());
      const SwitchCounts& counts = group.driver->counts();
      SwitchCounts& sum = figures.switches;
      sum.binds += counts.binds;
      sum.releases += counts.releases;
      sum.others += counts.others;
      sum.cut_over_s.insert(sum.cut_over_s.end(), counts.cut_over_s.begin(),
                            counts.cut_over_s.end());
      sum.drain_s.insert(sum.drain_s.end(), counts.drain_s.begin(), counts.drain_s.end());
    }
    std::sort(tokens.begin(), tokens.end());
    figures.peak_tokens_per_s = static_cast<double>(MostInWindow(tokens, kDecodePeakWindowUs)) /
                                Seconds(kDecodePeakWindowUs);
    for (size_t i = 0; i < steps.size() && all_steps > 0; ++i) {
      figures.step_share[i] = static_cast<double>(steps[i]) / static_cast<double>(all_steps);
    }
  }

  const std::vector<SimRequest>& requests_;
  const std::vector<PrefillOutcome>& prefilled_;
  const DecodeOptions& decode_;
  const DecodeGroupsOptions& groups_;
  DecodeGroupsRun result_;
  std::vector<Group> all_;
  std::vector<DecodeCandidate> candidates_;
  std::deque<size_t> waiting_;
};

}  // namespace

absl::StatusOr<DecodeFormation> DecodeFormation::Parse(std::string_view name) {
  const DecodeFormation known[] = {{Kind::kBound, 1, "independent"}, {Kind::kBound, 2, "bound(2)"},
                                   {Kind::kBound, 4, "bound(4)"},    {Kind::kBound, 8, "bound(8)"},
                                   {Kind::kShift, 1, "shift"},       {Kind::kHybrid, 1, "hybrid"},
                                   {Kind::kAuto, 1, "auto"}};
  for (const DecodeFormation& formation : known) {
    if (formation.name == name) return formation;
  }
  return absl::NotFoundError(absl::StrCat("'", std::string(name),
                                          "' is not independent, bound(2), bound(4), bound(8), "
                                          "shift, hybrid or auto"));
}

int32_t DecodeFormation::SizeIn(int32_t node_instances) const {
  if (kind == Kind::kBound) return size;
  if (kind == Kind::kAuto) return 1;
  const int32_t most = kind == Kind::kHybrid ? node_instances / 2 : node_instances;
  int32_t widest = 1;
  while (orchestrator::IsBindable({0, 2 * widest}, static_cast<size_t>(most))) widest *= 2;
  return widest;
}

absl::Status CheckDecodeGroups(const DecodeOptions& decode, const DecodeGroupsOptions& groups) {
  if (groups.node_instances < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode_node_size: ", groups.node_instances, " is not positive"));
  }
  if (groups.batch_sequences < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode_batch_sequences: ", groups.batch_sequences, " is not positive"));
  }
  const int32_t members = std::min(groups.node_instances, decode.instances);
  const DecodeFormation& formation = groups.formation;
  using Kind = DecodeFormation::Kind;
  const int32_t size = formation.SizeIn(members);
  const bool binds = formation.kind == Kind::kShift || formation.kind == Kind::kHybrid;
  if (size > members || (binds && size == 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        formation.name, " needs more decode instances than the ", members, " of a node"));
  }
  if (formation.kind == Kind::kShift && !groups.profile.shifts.contains(size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shift needs a profile whose formations name shift_tokens of ", size, " instances"));
  }
  return CheckFormationPolicy(groups.driver.policy);
}

int64_t MostInWindow(const std::vector<std::pair<TimeUs, int64_t>>& tokens, TimeUs window_us) {
  int64_t most = 0, within = 0;
  size_t oldest = 0;
  for (const auto& [at_us, count] : tokens) {
    within += count;
    for (; tokens[oldest].first <= at_us - window_us; ++oldest) within -= tokens[oldest].second;
    most = std::max(most, within);
  }
  return most;
}

DecodeGroupsRun RunDecodeGroups(const std::vector<SimRequest>& requests,
                                const std::vector<PrefillOutcome>& outcomes,
                                const DecodeOptions& decode, const DecodeGroupsOptions& groups) {
  return Pool(requests, outcomes, decode, groups).Run();
}

}  // namespace skein::scheduler
