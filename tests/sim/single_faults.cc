#include "tests/sim/single_faults.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/variations.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/worker_process.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

constexpr uint64_t kFaultlessEvery = 8;  // of MakeLongScenario
constexpr TimeUs kAnswerTimeoutUnits = 200, kRetryUnits = 50, kStepTimeoutUnits = 300;

std::vector<SingleFault> AllFaults() {
  using enum Party;
  std::vector<SingleFault> all;
  for (const Party party : {kPrefill, kDecode}) {
    for (const FaultKind kind :
         {FaultKind::kCrash, FaultKind::kSlow, FaultKind::kDrain, FaultKind::kEngineFailure,
          FaultKind::kEngineHang, FaultKind::kStandstill, FaultKind::kOrderedDrain,
          FaultKind::kClockJump}) {
      all.push_back({.kind = kind, .party = party});
    }
  }
  all.push_back({.kind = FaultKind::kOtherBuild, .party = kDecode});
  all.push_back({.kind = FaultKind::kOrchestratorCrash, .party = kOrchestrator});
  for (const FaultKind kind : {FaultKind::kStandstill, FaultKind::kClockJump}) {
    all.push_back({.kind = kind, .party = kOrchestrator});
    all.push_back({.kind = kind, .party = kRouter});
  }
  all.push_back({.kind = FaultKind::kOrderedDrain, .party = kRouter});
  all.push_back({.kind = FaultKind::kRouterCrash, .party = kRouter});
  constexpr std::pair<Party, Party> kPlanes[] = {{kPrefill, kOrchestrator},
                                                 {kDecode, kOrchestrator},
                                                 {kRouter, kOrchestrator},
                                                 {kPrefill, kDecode},
                                                 {kRouter, kDecode}};
  for (const auto& [one, other] : kPlanes) {
    all.push_back({.kind = FaultKind::kCut, .party = one, .to = other});
    all.push_back({.kind = FaultKind::kCut, .party = other, .to = one});
    all.push_back({.kind = FaultKind::kCut, .party = one, .to = other, .both_ways = true});
  }
  return all;
}

const char* NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kCrash:
    case FaultKind::kOrchestratorCrash:
    case FaultKind::kRouterCrash:
      return "crash";
    case FaultKind::kSlow:
    case FaultKind::kGray:
      return "slowness";
    case FaultKind::kDrain:
      return "drain";
    case FaultKind::kEngineFailure:
      return "engine_failure";
    case FaultKind::kEngineHang:
      return "engine_hang";
    case FaultKind::kStandstill:
      return "standstill";
    case FaultKind::kOrderedDrain:
      return "ordered_drain";
    case FaultKind::kCut:
      return "cut";
    case FaultKind::kClockJump:
      return "clock_jump";
    case FaultKind::kOtherBuild:
      return "other_build";
    case FaultKind::kRefusal:
      return "refusal";
    case FaultKind::kStoreLoss:
      return "store_loss";
    case FaultKind::kUnread:
      return "unread_answers";
    case FaultKind::kSilence:
      return "silence";
    case FaultKind::kResign:
      return "resignation";
  }
  return "";
}

const char* NameOf(Party party) {
  switch (party) {
    case Party::kPrefill:
      return "prefill";
    case Party::kDecode:
      return "decode";
    case Party::kOrchestrator:
      return "orchestrator";
    case Party::kRouter:
      return "router";
  }
  return "";
}

int IndexOf(Party party, const Scenario& scenario, Random& random) {
  switch (party) {
    case Party::kPrefill:
      return static_cast<int>(random.Between(0, scenario.prefill_workers - 1));
    case Party::kDecode:
      return scenario.prefill_workers +
             static_cast<int>(random.Between(0, scenario.decode_workers - 1));
    case Party::kOrchestrator:
      return kTheOrchestrator;
    case Party::kRouter:
      return RouterAt(static_cast<int>(random.Between(0, scenario.routers - 1)));
  }
  return kTheOrchestrator;
}

}  // namespace

std::span<const SingleFault> SingleFaults() {
  static const auto* const all = new std::vector<SingleFault>(AllFaults());
  return *all;
}

std::string NameOf(const SingleFault& fault) {
  if (fault.kind != FaultKind::kCut) {
    return absl::StrCat(NameOf(fault.kind), "_of_", NameOf(fault.party));
  }
  if (fault.both_ways) {
    return absl::StrCat("cut_between_", NameOf(fault.party), "_and_", NameOf(fault.to));
  }
  return absl::StrCat("cut_from_", NameOf(fault.party), "_to_", NameOf(fault.to));
}

Scenario MakeUnbrokenScenario(uint64_t seed) {
  Scenario scenario = MakeLongScenario(kFaultlessEvery * seed);
  GiveRoom(&scenario);
  scenario.resumes = true;
  scenario.routers = 2;
  // What goes on elsewhere finds room in the steps there.
  scenario.decode_workers = std::max(scenario.decode_workers, 3);
  scenario.decode_batch = scenario.decode_requests;
  return scenario;
}

Scenario MakeSingleFaultScenario(const SingleFault& single, uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 127);
  const ClientPlan& met = scenario.clients[static_cast<size_t>(
      random.Between(0, static_cast<int64_t>(scenario.clients.size()) - 1))];
  Fault fault{.kind = single.kind,
              .worker = IndexOf(single.party, scenario, random),
              .at_us = met.arrives_us + random.Between(0, 2000) * kMillisecondUs,
              .lasts_us = random.Between(20, 900) * scenario.time_scale * kMillisecondUs,
              .to = single.kind == FaultKind::kCut ? IndexOf(single.to, scenario, random) : 0};
  scenario.heals_us = std::max(scenario.heals_us, fault.at_us + fault.lasts_us);
  scenario.faults = {fault};
  if (single.both_ways) {
    std::swap(fault.worker, fault.to);
    scenario.faults.push_back(fault);
  }
  return scenario;
}

Scenario MakeAnySingleFaultScenario(uint64_t seed) {
  const auto faults = SingleFaults();
  return MakeSingleFaultScenario(faults[seed % faults.size()], 1 + seed / faults.size());
}

TimeUs NoticedWithinUs(const SingleFault& single, const Scenario& scenario) {
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  const TimeUs lasts_us = scenario.faults.front().lasts_us;
  const TimeUs lease_us = scenario.instance_lease_ms * unit_us;
  const TimeUs writing_us = scenario.writing_lease_ms * unit_us;
  const TimeUs reconnects_us = kAnswerTimeoutUnits * unit_us + kRetryUnits * unit_us;
  const bool of_prefill = single.party == Party::kPrefill;
  const auto is = [&](Party one, Party other) {
    return (single.party == one && single.to == other) ||
           (single.party == other && single.to == one);
  };
  switch (single.kind) {
    case FaultKind::kCrash:  // the decode side cannot tell, either, whether its KV still comes
      return of_prefill ? std::max(lease_us, writing_us) : 0;
    case FaultKind::kDrain:
    case FaultKind::kOrderedDrain:
    case FaultKind::kOtherBuild:
    case FaultKind::kSlow:
    case FaultKind::kGray:
    case FaultKind::kUnread:
    case FaultKind::kRouterCrash:  // to the clients of others
      return 0;                    // connections end, or nothing is to be noticed
    case FaultKind::kEngineFailure:
    case FaultKind::kClockJump:  // a step in flight may count as hung at once
      return kLastWordsUs;
    case FaultKind::kEngineHang:
      return kStepTimeoutUnits * unit_us + kLastWordsUs;
    case FaultKind::kOrchestratorCrash:
    case FaultKind::kStoreLoss:
      return lasts_us + reconnects_us;
    case FaultKind::kStandstill:
      if (single.party == Party::kRouter) return lasts_us;
      if (single.party == Party::kOrchestrator) return lasts_us + reconnects_us;
      return std::min(lasts_us, of_prefill ? std::max(lease_us, writing_us) : lease_us);
    case FaultKind::kCut:
    case FaultKind::kRefusal:
    case FaultKind::kSilence:
    case FaultKind::kResign:
      break;
  }
  if (is(Party::kPrefill, Party::kDecode)) return std::min(lasts_us, writing_us);
  if (is(Party::kRouter, Party::kDecode)) {
    return std::min(lasts_us, scenario.attach_lease_ms * unit_us);
  }
  // A prefill worker that the orchestrator hears, and that does not hear it, counts as alive.
  const bool heard = single.to == Party::kPrefill && !single.both_ways;
  if (heard || is(Party::kRouter, Party::kOrchestrator)) return lasts_us + reconnects_us;
  return std::min(lasts_us, lease_us) + reconnects_us;
}

TimeUs LongestWaitUs(const SingleFault& single, const Scenario& scenario, const Waits& without,
                     const Waits& with) {
  TimeUs longest_us = 0, anew_us = 0;
  for (const ClientPlan& client : scenario.clients) {
    const scheduler::RequestSpec& spec = *client.spec;
    const TimeUs before_us = without.at(spec.id.serial);
    longest_us = std::max(longest_us, before_us);
    if (with.at(spec.id.serial) <= before_us) continue;
    const int64_t tokens = scheduler::PromptTokens(spec) + spec.max_tokens;
    anew_us += (tokens / scenario.slice_tokens + 1) * scenario.step_us;
  }
  const TimeUs slowness = single.kind == FaultKind::kSlow ? scenario.slowness : 1;
  return NoticedWithinUs(single, scenario) + slowness * (longest_us + anew_us);
}

}  // namespace skein::sim
