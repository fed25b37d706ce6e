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
  const auto add_router = [&](const std::string& endpoint) {
    routers_.push_back(std::make_unique<RouterProcess>(&network_, endpoint, offset(), &verdict_));
    RouterProcess& router = *routers_.back();
    router.Number(static_cast<int>(routers_.size()) - 1);
    router.NoteIn(&departures_, &abandoned_);
    router.ExcuseBy([this](const std::string& decode) { return watch_.HasStruck(decode); });
  };
  add_router("router");
  const auto add_orchestrator = [&](int number) {
    orchestrators_.push_back(std::make_unique<OrchestratorProcess>(
        &network_, OrchestratorEndpoint(number), offset(), &verdict_));
    orchestrators_.back()->Watch(&departures_, &abandoned_);
    orchestrators_.back()->NoteIn(&cell_);
  };
  add_orchestrator(0);
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
  for (int i = 1; i < scenario_.routers; ++i) add_router(absl::StrCat("router", i));
  for (int i = 1; i < scenario_.orchestrators; ++i) add_orchestrator(i);
  if (scenario_.orchestrators > 1) {
    store_ = std::make_unique<StoreProcess>(&network_, kStore, offset());
    for (const auto& orchestrator : orchestrators_) orchestrator->ElectIn(store_.get());
    network_.Add(store_.get());
  }
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
  for (const auto& router : routers_) network_.Add(router.get());
  for (const auto& orchestrator : orchestrators_) network_.Add(orchestrator.get());
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
    time_.At(client.arrives_us, [this, &client] { RouterOf(*client.spec).Arrive(client); });
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
                         fault.kind != FaultKind::kRefusal && fault.kind != FaultKind::kStoreLoss &&
                         fault.kind != FaultKind::kClockJump && fault.kind != FaultKind::kUnread &&
                         fault.kind != FaultKind::kSilence && fault.kind != FaultKind::kResign;
  if (!of_worker) {
    ++faults_;
    faults_met_ += Open() > 0 ? 1 : 0;
  }
  if (fault.kind == FaultKind::kCut) {
    if (fault.worker == fault.to) return;
    network_.Cut(ProcessAt(fault.worker)->endpoint(), ProcessAt(fault.to)->endpoint(),
                 time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kRefusal) {
    network_.Refuse(ProcessAt(fault.worker)->endpoint(), ProcessAt(fault.to)->endpoint(),
                    time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kSilence) {
    network_.Silence(ProcessAt(fault.worker)->endpoint(), ProcessAt(fault.to)->endpoint(),
                     time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kRouterCrash) {
    RouterProcess& router = RouterAt(fault.worker < 0 ? fault.worker : kTheRouter);
    router.Crash();
    time_.At(time_.now() + fault.lasts_us, [&router] {
      if (!router.alive()) router.Start();
    });
  } else if (fault.kind == FaultKind::kUnread) {
    for (const auto& router : routers_) router->LeaveUnread(time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kClockJump) {
    ProcessAt(fault.worker)->JumpClock(fault.lasts_us);
  } else if (fault.kind == FaultKind::kOrderedDrain && fault.worker < 0) {
    OrderRouter(fault.worker, /*undo=*/false);
    time_.At(std::min(time_.now() + fault.lasts_us, scenario_.heals_us),
             [this, &fault] { UndoRouterDrain(fault.worker); });
  } else if (fault.kind == FaultKind::kStandstill && fault.worker < 0) {
    ProcessAt(fault.worker)->StandStill(time_.now() + fault.lasts_us);
  } else if (fault.kind == FaultKind::kOrchestratorCrash || fault.kind == FaultKind::kResign) {
    OrchestratorProcess* struck =
        fault.worker == kTheLeader ? &Leader() : orchestrators_.front().get();
    fault.kind == FaultKind::kResign ? struck->Resign() : struck->Crash();
    time_.At(time_.now() + fault.lasts_us, [struck] {
      if (!struck->alive()) struck->Start();
    });
  } else if (fault.kind == FaultKind::kStoreLoss) {
    store_->Crash();
    time_.At(time_.now() + fault.lasts_us, [this] {
      if (!store_->alive()) store_->Start();
    });
  } else if (fault.worker < scenario_.prefill_workers) {
    StrikeWorker(*prefill_[fault.worker], fault);
  } else {
    StrikeWorker(*decode_[fault.worker - scenario_.prefill_workers], fault);
  }
}

Process* World::ProcessAt(int index) {
  if (index == kTheStore) return store_.get();
  if (index == kTheLeader) return &Leader();
  if (index <= OrchestratorAt(0)) return orchestrators_[OrchestratorAt(0) - index].get();
  if (index <= kTheRouter) return &RouterAt(index);
  if (index == kTheOrchestrator) return orchestrators_.front().get();
  if (index < scenario_.prefill_workers) return prefill_[index].get();
  return decode_[index - scenario_.prefill_workers].get();
}

OrchestratorProcess& World::Leader() const {
  for (const auto& orchestrator : orchestrators_) {
    if (orchestrator->Serves()) return *orchestrator;
  }
  return *orchestrators_.front();
}

// Again, if it was not heard.
void World::UndoRouterDrain(int router) {
  OrderRouter(router, /*undo=*/true);
  time_.At(time_.now() + 200 * kMillisecondUs, [this, router] {
    if (RouterAt(router).draining()) UndoRouterDrain(router);
  });
}

RouterProcess& World::RouterOf(const scheduler::RequestSpec& spec) const {
  return *routers_[static_cast<size_t>(RouterNumberOf(spec, scenario_))];
}

int64_t World::Open() const {
  int64_t open = 0;
  for (const auto& router : routers_) open += router->open();
  return open;
}

template <class Worker>
void World::NoteFault(const Worker& worker) {
  ++faults_;
  const auto blocks = worker.core()->Snapshot(worker.LocalNow()).blocks;
  faults_met_ += blocks.held > 0 ? 1 : 0;
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
    case FaultKind::kGray:
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
    case FaultKind::kRefusal:
    case FaultKind::kStoreLoss:
    case FaultKind::kClockJump:
    case FaultKind::kUnread:
    case FaultKind::kSilence:
    case FaultKind::kResign:
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
  if (!Leader().Serves() || !snapshot.registered) return;
  Leader().Drain({.instance = snapshot.instance, .undo = undo});
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

// Without force it would be refused for the only one.
void World::OrderRouter(int router, bool undo) {
  if (!Leader().Serves() || !RouterAt(router).alive()) return;
  Leader().Drain({.router = RouterAt(router).incarnation(), .undo = undo, .force = true});
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
  for (const auto& router : routers_) {
    if (!router->alive()) router->Start();
  }
  if (store_ != nullptr && !store_->alive()) store_->Start();
  for (const auto& orchestrator : orchestrators_) {
    if (!orchestrator->alive()) orchestrator->Start();
  }
  for (const auto& worker : prefill_) heal(*worker);
  for (const auto& worker : decode_) heal(*worker);
}

bool World::Served() const {
  const bool routers_rest = std::all_of(routers_.begin(), routers_.end(), [](const auto& router) {
    return router->AllEnded() && !router->draining();
  });
  if (!routers_rest || !Leader().Serves() || !Leader().Quiet()) return false;
  if (transfers_.size() > 0) return false;
  const auto empty = [](const auto& worker) {
    if (!worker->alive()) return false;
    const auto snapshot = worker->core()->Snapshot(worker->LocalNow());
    if (StagingBuffersHeld(snapshot) > 0) return false;
    return snapshot.blocks.held == 0 && !snapshot.draining && snapshot.registered;
  };
  return std::all_of(prefill_.begin(), prefill_.end(), empty) &&
         std::all_of(decode_.begin(), decode_.end(), empty);
}

void World::CheckRest() {
  if (!verdict_.ok()) return;
  for (const auto& router : routers_) {
    verdict_.Require(router->AllEnded(), "a request never ended");
    verdict_.Require(!router->draining(), absl::StrCat(router->endpoint(), " is not back"));
  }
  verdict_.Require(Leader().Serves(), "no orchestrator leads");
  verdict_.Require(Leader().Quiet(), "the orchestrator keeps a request");
  verdict_.Require(transfers_.size() == 0, "a transfer never ended");
  const auto check = [this](const auto& worker) {
    const auto snapshot = worker->core()->Snapshot(worker->LocalNow());
    verdict_.Require(worker->alive() && snapshot.registered && !snapshot.draining,
                     absl::StrCat(worker->endpoint(), " is not back"));
    verdict_.Require(snapshot.blocks.held == 0,
                     absl::StrCat(worker->endpoint(), " lost ", snapshot.blocks.held, " blocks"));
    verdict_.Require(StagingBuffersHeld(snapshot) == 0,
                     absl::StrCat(worker->endpoint(), " keeps a staging buffer"));
  };
  for (const auto& worker : prefill_) check(worker);
  for (const auto& worker : decode_) check(worker);
}

void World::RunAction() {
  const bool in_flight = Open() > 0;
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
    verdict_.Require(time_.actions() < scenario_.max_actions, "so many actions and no end");
  }
  CheckRest();
}

void World::CheckProbes(const std::vector<ClientPlan>& probes) {
  for (const ClientPlan& probe : probes) {
    if (!verdict_.ok()) break;
    const absl::Status status = RouterOf(*probe.spec).StatusOf(probe.spec->id.serial);
    verdict_.Require(status.ok(), absl::StrCat("healed, and still: ", status.ToString()));
  }
}

// Reports of everybody have been heard before.
void World::RunProbes(const std::vector<ClientPlan>& probes) {
  if (!verdict_.ok()) return;
  const TimeUs probes_us =
      time_.now() + (100 + scenario_.instance_lease_ms) * scenario_.time_scale * kMillisecondUs;
  time_.At(probes_us, [this, &probes] {
    for (const ClientPlan& probe : probes) RouterOf(*probe.spec).Arrive(probe);
  });
  RunUntilServed(probes_us);
  CheckProbes(probes);
}

Outcome World::Run() {
  for (const auto& router : routers_) router->Start();
  if (store_ != nullptr) store_->Start();
  for (const auto& orchestrator : orchestrators_) orchestrator->Start();
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
  const OrchestratorSnapshot orchestrator = Leader().core()->Snapshot(Leader().LocalNow());
  auto requests = static_cast<int64_t>(scenario_.clients.size() + scenario_.probes.size());
  if (scenario_.formations.has_value()) requests += static_cast<int64_t>(alone_probes_.size());
  int64_t parts_copied = 0;
  int64_t resumed = 0;
  int64_t engines_failed = 0;
  int64_t granted_to_groups = 0;
  int64_t blocks_moved = 0;
  std::set<std::pair<scheduler::RequestId, scheduler::Epoch>> granted;
  for (const auto& worker : decode_) {
    granted.insert(worker->granted().begin(), worker->granted().end());
    parts_copied += worker->parts_copied();
    resumed += worker->resumed();
    granted_to_groups += worker->granted_to_groups();
    blocks_moved += worker->blocks_moved();
    engines_failed += worker->engines_failed();
  }
  for (const auto& worker : prefill_) engines_failed += worker->engines_failed();
  const auto of_routers = [this](int64_t (RouterProcess::*count)() const) {
    int64_t sum = 0;
    for (const auto& router : routers_) sum += (*router.*count)();
    return sum;
  };
  std::map<uint64_t, TimeUs> waits;
  for (const auto& router : routers_) waits.merge(router->LongestWaits());
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
          .finished = of_routers(&RouterProcess::finished),
          .abandoned = of_routers(&RouterProcess::abandoned),
          .failed_alone = of_routers(&RouterProcess::failed_alone),
          .longest_waits = std::move(waits),
          .sp_plans = std::ssize(cell_.sp_plans),
          .joint_steps = joint_steps_.run(),
          .tensor_steps = joint_steps_.tensor_run(),
          .joint_steps_broken = joint_steps_.broken(),
          .parts_copied = parts_copied,
          .resumed = resumed,
          .engines_failed = engines_failed,
          .engine_failures_heard = std::ssize(cell_.engines_failed),
          .deaths_after_engine_failure = cell_.deaths_after_engine_failure,
          .drains_ordered = cell_.drains_ordered,
          .router_drains = of_routers(&RouterProcess::drains_taken),
          .moves = of_routers(&RouterProcess::moves),
          .instances_lost = static_cast<int64_t>(orchestrator.instances_lost),
          .misses = static_cast<int64_t>(orchestrator.misses),
          .suspected = static_cast<int64_t>(orchestrator.suspected),
          .set_aside = static_cast<int64_t>(orchestrator.set_aside),
          .hung = static_cast<int64_t>(orchestrator.hung),
          .paused = of_routers(&RouterProcess::paused),
          .granted_again = granted_again,
          .refused = static_cast<int64_t>(orchestrator.refused),
          .connections_refused = network_.connections_refused(),
          .leaderships = cell_.leaderships,
          .keepalives = network_.keepalives(),
          .binds = cell_.binds,
          .releases = cell_.releases,
          .shares = cell_.shares,
          .modes_changed = cell_.modes_changed,
          .switches_failed = cell_.switches_failed,
          .group_steps = group_steps_.run(),
          .group_steps_in_sp = group_steps_.run_in_sp(),
          .group_steps_broken = group_steps_.broken(),
          .granted_to_groups = granted_to_groups,
          .blocks_moved = blocks_moved,
          .finished_in_groups = of_routers(&RouterProcess::finished_in_groups),
          .struck = watch_.struck()};
}

}  // namespace skein::sim
