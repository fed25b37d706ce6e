#include "tests/sim/world.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::sim {

using scheduler::kMillisecondUs;
using scheduler::kSecondUs;
using scheduler::OrchestratorSnapshot;

namespace {

constexpr uint64_t kMaxActions = 1'000'000;
template <class Snapshot>
int64_t StagingBuffersHeld(const Snapshot& snapshot) {
  if constexpr (requires { snapshot.staging_buffers_held; }) return snapshot.staging_buffers_held;
  return 0;
}

constexpr TimeUs kPatienceUs = 30 * kSecondUs;  // after the healing, for everything to end

}  // namespace

World::World(Scenario scenario, bool print_trace)
    : scenario_(std::move(scenario)),
      random_(scenario_.seed),
      trace_(print_trace),
      network_(scenario_, &random_, &time_, &trace_),
      transfers_(&verdict_),
      joint_steps_(&network_, &verdict_),
      watch_(&network_, &verdict_),
      feeds_(&network_),
      group_steps_(&network_, &verdict_, &watch_) {
  const auto offset = [this] { return random_.Between(0, 1000 * kSecondUs); };
  router_ = std::make_unique<RouterProcess>(&network_, "router", offset(), &verdict_);
  orchestrator_ =
      std::make_unique<OrchestratorProcess>(&network_, kOrchestrator, offset(), &verdict_);
  orchestrator_->WatchDepartures(&router_->departures());
  for (int i = 0; i < scenario_.prefill_workers; ++i) {
    prefill_.push_back(std::make_unique<PrefillProcess>(&network_, absl::StrCat("prefill", i),
                                                        offset(), &verdict_, &transfers_));
    prefill_.back()->StepWithOthersBy(&joint_steps_);
    prefill_.back()->FindMemoryBy([this](const std::string& d) { return FindMemory(d); });
  }
  for (int i = 0; i < scenario_.decode_workers; ++i) {
    decode_.push_back(std::make_unique<DecodeProcess>(&network_, absl::StrCat("decode", i),
                                                      offset(), &verdict_, &transfers_));
    decode_.back()->BindWithOthersBy(&feeds_, &group_steps_, &watch_);
  }
  router_->ExcuseBy([this](const std::string& decode) { return watch_.HasStruck(decode); });
  watch_.CountHandoffsBy([this](const std::string& at) { return transfers_.OpenAt(at); });
  feeds_.WhenBroken(
      [this](const FormationFeeds::ContextPtr& context) { group_steps_.Break(context); });
  constexpr uint64_t kMore = 1000;
  for (ClientPlan probe : scenario_.probes) {
    if (probe.needs_group) continue;
    auto spec = std::make_shared<scheduler::RequestSpec>(*probe.spec);
    spec->id.serial += kMore;
    probe.spec = std::move(spec);
    alone_probes_.push_back(std::move(probe));
  }
  for (const auto& worker : prefill_) network_.Add(worker.get());
  for (const auto& worker : decode_) network_.Add(worker.get());
  network_.Add(router_.get());
  network_.Add(orchestrator_.get());
}

RemoteMemory World::FindMemory(const std::string& description) {
  const size_t hash = description.find('#');
  const size_t staged = description.find('#', hash + 1);
  const uint64_t generation = std::stoull(description.substr(hash + 1));
  for (const auto& worker : decode_) {
    if (worker->endpoint() != description.substr(0, hash)) continue;
    RemoteMemory memory{worker.get(), generation, worker->engine()};
    memory.grant = std::stoull(description.substr(description.find('!') + 1));
    if (staged == std::string::npos) return memory;
    memory.buffer_index = std::stoi(description.substr(staged + 1));
    memory.buffer = worker->buffer(memory.buffer_index);
    return memory;
  }
  return {};
}

void World::ScheduleClients() {
  for (const ClientPlan& client : scenario_.clients) {
    time_.At(client.arrives_us, [this, &client] { router_->Arrive(client); });
  }
}

void World::ScheduleFaults() {
  for (const Fault& fault : scenario_.faults) {
    time_.At(fault.at_us, [this, &fault] { Strike(fault); });
  }
}

void World::Strike(const Fault& fault) {
  const bool of_worker = fault.worker >= 0 && fault.kind != FaultKind::kOrchestratorCrash &&
                         fault.kind != FaultKind::kRouterCrash && fault.kind != FaultKind::kCut &&
                         fault.kind != FaultKind::kClockJump;
  if (!of_worker) {
    ++faults_;
    faults_met_ += router_->open() > 0 ? 1 : 0;
  }
  if (fault.kind == FaultKind::kCut) {
    if (fault.worker == fault.to) return;
    network_.Cut(ProcessAt(fault.worker)->endpoint(), ProcessAt(fault.to)->endpoint(),
                 time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kRouterCrash) {
    router_->Crash();
    time_.At(time_.now() + fault.lasts_us, [this] {
      if (!router_->alive()) router_->Start();
    });
  } else if (fault.kind == FaultKind::kClockJump) {
    ProcessAt(fault.worker)->JumpClock(fault.lasts_us);
  } else if (fault.kind == FaultKind::kOrderedDrain && fault.worker < 0) {
    OrderRouter(/*undo=*/false);
    time_.At(std::min(time_.now() + fault.lasts_us, scenario_.heals_us),
             [this] { OrderRouter(/*undo=*/true); });
  } else if (fault.kind == FaultKind::kStandstill && fault.worker < 0) {
    ProcessAt(fault.worker)->StandStill(time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kOrchestratorCrash) {
    orchestrator_->Crash();
    time_.At(time_.now() + fault.lasts_us, [this] {
      if (!orchestrator_->alive()) orchestrator_->Start();
    });
  } else if (fault.worker < scenario_.prefill_workers) {
    StrikeWorker(*prefill_[fault.worker], fault);
  } else {
    StrikeWorker(*decode_[fault.worker - scenario_.prefill_workers], fault);
  }
}

Process* World::ProcessAt(int index) {
  if (index == kTheRouter) return router_.get();
  if (index == kTheOrchestrator) return orchestrator_.get();
  if (index < scenario_.prefill_workers) return prefill_[index].get();
  return decode_[index - scenario_.prefill_workers].get();
}

template <class Worker>
void World::NoteFault(const Worker& worker) {
  ++faults_;
  const auto blocks = worker.core()->Snapshot(worker.LocalNow()).blocks;
  faults_met_ += blocks.free < blocks.total ? 1 : 0;
}

template <class Worker>
void World::StrikeWorker(Worker& worker, const Fault& fault) {
  if (!worker.alive()) return;
  NoteFault(worker);
  switch (fault.kind) {
    case FaultKind::kCrash:
      worker.Crash();
      break;
    case FaultKind::kSlow:
      worker.SlowDown(scenario_.slowness);
      time_.At(time_.now() + fault.lasts_us, [&worker] { worker.SlowDown(1); });
      return;
    case FaultKind::kDrain:
      worker.StartDrain(fault.lasts_us);
      break;
    case FaultKind::kEngineFailure:
      worker.FailEngine(true);
      break;
    case FaultKind::kEngineHang:
      worker.HangEngine();
      return;
    case FaultKind::kStandstill:
      worker.StandStill(time_.now() + fault.lasts_us);
      return;
    case FaultKind::kOtherBuild:
      Replace(worker, /*other_build=*/true);
      time_.At(time_.now() + fault.lasts_us, [this, &worker] {
        if (worker.other_build()) Replace(worker, /*other_build=*/false);
      });
      return;
    case FaultKind::kOrderedDrain:
      Order(worker, /*undo=*/false);
      time_.At(std::min(time_.now() + fault.lasts_us, scenario_.heals_us),
               [this, &worker] { UndoDrain(worker); });
      return;
    case FaultKind::kOrchestratorCrash:
    case FaultKind::kRouterCrash:
    case FaultKind::kCut:
    case FaultKind::kClockJump:
      return;
  }
  if (fault.returns) Return(worker, fault.lasts_us);
}

template <class Worker>
void World::Replace(Worker& worker, bool other_build) {
  worker.Crash();
  worker.BeOtherBuild(other_build);
  worker.Start();
}

// What no request can do without is refused, which is fine.
template <class Worker>
void World::Order(Worker& worker, bool undo) {
  const auto snapshot = worker.core()->Snapshot(worker.LocalNow());
  if (!orchestrator_->alive() || !snapshot.registered) return;
  orchestrator_->Drain({.instance = snapshot.instance, .undo = undo});
}

// Again, if it was not heard: the orchestrator may be dead, or not know the instance yet.
template <class Worker>
void World::UndoDrain(Worker& worker) {
  Order(worker, /*undo=*/true);
  time_.At(time_.now() + 200 * kMillisecondUs, [this, &worker] {
    const bool drains = worker.alive() && worker.core()->Snapshot(worker.LocalNow()).draining;
    if (drains) UndoDrain(worker);
  });
}

// The only one: without force it would be refused.
void World::OrderRouter(bool undo) {
  if (!orchestrator_->alive() || !router_->alive()) return;
  orchestrator_->Drain({.router = router_->incarnation(), .undo = undo, .force = true});
}

// A process that has gone comes back under a new incarnation; one that still drains is waited for.
template <class Worker>
void World::Return(Worker& worker, TimeUs after) {
  time_.At(time_.now() + after, [this, &worker] {
    if (!worker.alive()) {
      worker.Start();
    } else if (worker.core()->Snapshot(worker.LocalNow()).draining) {
      Return(worker, 20 * kMillisecondUs);
    }
  });
}

void World::Heal() {
  const auto heal = [this](auto& worker) {
    worker.SlowDown(1);
    worker.FailEngine(false);
    const bool hangs = worker.alive() && worker.engine_hangs();
    if (hangs) worker.Crash();  // rather than wait for its timeout
    if (worker.other_build()) Replace(worker, /*other_build=*/false);
    if (!worker.alive()) worker.Start();
    if (worker.core()->Snapshot(worker.LocalNow()).draining) Return(worker, kMillisecondUs);
  };
  if (!router_->alive()) router_->Start();
  if (!orchestrator_->alive()) orchestrator_->Start();
  for (const auto& worker : prefill_) heal(*worker);
  for (const auto& worker : decode_) heal(*worker);
}

bool World::Served() const {
  if (!router_->AllEnded() || !orchestrator_->Quiet() || transfers_.size() > 0) return false;
  const auto empty = [](const auto& worker) {
    if (!worker->alive()) return false;
    const auto snapshot = worker->core()->Snapshot(worker->LocalNow());
    if (StagingBuffersHeld(snapshot) > 0) return false;
    return snapshot.blocks.free == snapshot.blocks.total && !snapshot.draining &&
           snapshot.registered;
  };
  return std::all_of(prefill_.begin(), prefill_.end(), empty) &&
         std::all_of(decode_.begin(), decode_.end(), empty);
}

void World::CheckRest() {
  if (!verdict_.ok()) return;
  verdict_.Require(router_->AllEnded(), "a request never ended");
  verdict_.Require(!router_->draining(), "the router is not back");
  verdict_.Require(orchestrator_->Quiet(), "the orchestrator keeps a request");
  verdict_.Require(transfers_.size() == 0, "a transfer never ended");
  const auto check = [this](const auto& worker) {
    const auto snapshot = worker->core()->Snapshot(worker->LocalNow());
    verdict_.Require(worker->alive() && snapshot.registered && !snapshot.draining,
                     absl::StrCat(worker->endpoint(), " is not back"));
    verdict_.Require(snapshot.blocks.free == snapshot.blocks.total,
                     absl::StrCat(worker->endpoint(), " lost ", snapshot.blocks.held, " blocks"));
    verdict_.Require(StagingBuffersHeld(snapshot) == 0,
                     absl::StrCat(worker->endpoint(), " keeps a staging buffer"));
  };
  for (const auto& worker : prefill_) check(worker);
  for (const auto& worker : decode_) check(worker);
}

void World::RunAction() {
  const bool in_flight = router_->open() > 0;
  const TimeUs before = time_.now();
  time_.RunOne();
  if (in_flight) in_flight_us_ += time_.now() - before;
  if (!network_.malformed().empty()) verdict_.Violated(network_.malformed());
}

void World::RunUntilServed(TimeUs from) {
  TimeUs looked_us = 0;
  const TimeUs until = from + kPatienceUs * scenario_.time_scale;
  while (verdict_.ok() && !time_.idle() && time_.now() < until) {
    if (time_.now() > from && time_.now() >= looked_us + kMillisecondUs) {
      looked_us = time_.now();
      if (Served()) break;
    }
    RunAction();
    verdict_.Require(time_.actions() < kMaxActions, "a million actions and no end");
  }
  CheckRest();
}

void World::CheckProbes(const std::vector<ClientPlan>& probes) {
  for (const ClientPlan& probe : probes) {
    if (!verdict_.ok()) break;
    const absl::Status status = router_->StatusOf(probe.spec->id.serial);
    verdict_.Require(status.ok(), absl::StrCat("healed, and still: ", status.ToString()));
  }
}

// Reports of everybody have been heard before.
void World::RunProbes(const std::vector<ClientPlan>& probes) {
  if (!verdict_.ok()) return;
  const TimeUs probes_us =
      time_.now() + (100 + scenario_.instance_lease_ms) * scenario_.time_scale * kMillisecondUs;
  time_.At(probes_us, [this, &probes] {
    for (const ClientPlan& probe : probes) router_->Arrive(probe);
  });
  RunUntilServed(probes_us);
  CheckProbes(probes);
}

Outcome World::Run() {
  router_->Start();
  orchestrator_->Start();
  for (const auto& worker : prefill_) worker->Start();
  for (const auto& worker : decode_) worker->Start();
  ScheduleClients();
  ScheduleFaults();
  for (const FormationAct& act : scenario_.orders) {
    time_.At(act.at_us, [this, &act] { Act(act); });
  }
  time_.At(scenario_.heals_us, [this] { Heal(); });

  TimeUs rests_us = scenario_.heals_us;
  for (const Fault& fault : scenario_.faults) {  // a standstill may outlast the healing
    if (fault.kind != FaultKind::kStandstill) continue;
    rests_us = std::max(rests_us, fault.at_us + fault.lasts_us);
  }
  RunUntilServed(rests_us);
  RunProbes(scenario_.probes);
  RunAlone();
  return Summary();
}

Outcome World::Summary() {
  const OrchestratorSnapshot orchestrator =
      orchestrator_->core()->Snapshot(orchestrator_->LocalNow());
  auto requests = static_cast<int64_t>(scenario_.clients.size() + scenario_.probes.size());
  if (scenario_.formations.has_value()) requests += static_cast<int64_t>(alone_probes_.size());
  int64_t parts_copied = 0;
  int64_t resumed = 0;
  int64_t engines_failed = 0;
  int64_t granted_to_groups = 0;
  std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> granted;
  for (const auto& worker : decode_) {
    granted.insert(worker->granted().begin(), worker->granted().end());
    parts_copied += worker->parts_copied();
    resumed += worker->resumed();
    granted_to_groups += worker->granted_to_groups();
    engines_failed += worker->engines_failed();
  }
  for (const auto& worker : prefill_) engines_failed += worker->engines_failed();
  int64_t granted_again = 0;
  for (auto it = granted.begin(); it != granted.end(); ++it) {
    granted_again += it != granted.begin() && std::prev(it)->first == it->first ? 1 : 0;
  }
  return {.violation = verdict_.what(),
          .trace_hash = trace_.hash(),
          .actions = time_.actions(),
          .in_flight_us = in_flight_us_,
          .faults = faults_,
          .faults_met = faults_met_,
          .coverage = network_.coverage(),
          .requests = requests,
          .finished = router_->finished(),
          .failed_alone = router_->failed_alone(),
          .longest_waits = router_->LongestWaits(),
          .sp_plans = orchestrator_->sp_plans(),
          .joint_steps = joint_steps_.run(),
          .tensor_steps = joint_steps_.tensor_run(),
          .joint_steps_broken = joint_steps_.broken(),
          .parts_copied = parts_copied,
          .resumed = resumed,
          .engines_failed = engines_failed,
          .engine_failures_heard = orchestrator_->engine_failures_heard(),
          .deaths_after_engine_failure = orchestrator_->deaths_after_engine_failure(),
          .drains_ordered = orchestrator_->drains_ordered(),
          .router_drains = router_->drains_taken(),
          .moves = router_->alive() ? static_cast<int64_t>(router_->core()->Snapshot().moves) : 0,
          .instances_lost = static_cast<int64_t>(orchestrator.instances_lost),
          .misses = static_cast<int64_t>(orchestrator.misses),
          .suspected = static_cast<int64_t>(orchestrator.suspected),
          .set_aside = static_cast<int64_t>(orchestrator.set_aside),
          .hung = static_cast<int64_t>(orchestrator.hung),
          .granted_again = granted_again,
          .refused = static_cast<int64_t>(orchestrator.refused),
          .binds = orchestrator_->binds(),
          .releases = orchestrator_->releases(),
          .switches_failed = orchestrator_->switches_failed(),
          .group_steps = group_steps_.run(),
          .group_steps_in_sp = group_steps_.run_in_sp(),
          .group_steps_broken = group_steps_.broken(),
          .granted_to_groups = granted_to_groups,
          .finished_in_groups = router_->finished_in_groups(),
          .struck = watch_.struck()};
}

}  // namespace skein::sim
