#include "tests/sim/orchestrator_process.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "services/rpc/status_map.h"
#include "tests/sim/formation_limits.h"
#include "tests/sim/gray_worlds.h"
#include "tests/sim/long_limits.h"
#include "tests/sim/worker_process.h"

namespace skein::sim {

using namespace scheduler;  // NOLINT: the messages, all of them

namespace {

constexpr TimeUs kDialUs = 2 * kMillisecondUs;  // until the answer
constexpr int64_t kSettleUnits = 55;
constexpr int64_t kResignUnits = 100;            // for the store to answer
constexpr uint64_t kOrchestratorNumbers = 1000;  // between the incarnations of two orchestrators

}  // namespace

void OrchestratorProcess::ElectIn(StoreProcess* store) {
  store_ = store;
  store->TellBy(this, [this](const StoreNews& news) { candidate_->Take(news); });
}

void OrchestratorProcess::OnStart() {
  if (store_ != nullptr) {
    StepDown();
    candidate_ = std::make_unique<Candidate>(
        network_, this,
        Candidate::Hooks{.led = [this](uint64_t generation) { Lead(generation); },
                         .lost = [this] { StepDown(); }});
    return candidate_->Start();
  }
  // Now and then the file is lost.
  if (network_->scenario().loses_generation) stored_generation_ = 0;
  Lead(++stored_generation_);
}

OrchestratorConfig OrchestratorProcess::ConfigOf(uint64_t generation_number) const {
  const Scenario& scenario = network_->scenario();
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  OrchestratorConfig config;
  config.generation = generation_number;
  config.incarnation = {kOrchestratorNumbers * number_ + generation()};
  config.instance_lease_us = scenario.instance_lease_ms * unit_us;
  config.instance_silent_us = config.instance_lease_us / 2;
  if (store_ != nullptr) config.settle_us = kSettleUnits * unit_us;
  config.place_decode_wait_us = scenario.place_decode_wait_ms * unit_us;
  config.request_deadline_us = 20'000 * unit_us;
  config.planning = scenario.planning;
  config.formations = FormationsOf(scenario);
  JudgeBySeed(scenario, &config);
  return config;
}

void OrchestratorProcess::Lead(uint64_t generation_number) {
  most_decode_ = 0;
  saw_drain_ = false;
  stands_by_ = false;
  if (store_ != nullptr) ++record_->leaderships;
  Run(std::make_unique<OrchestratorCore>(ConfigOf(generation_number)));
  const auto& plan = network_->scenario().formations;
  if (plan.has_value() && plan->shares) Dispatch(OfflineQueued{"m", plan->offline_lines});
}

// An empty core handles nothing.
void OrchestratorProcess::StepDown() {
  stands_by_ = true;
  std::vector<std::shared_ptr<Duplex>> streams;
  streams.reserve(workers_.size() + routers_.size());
  for (const auto& [call, worker] : workers_) streams.push_back(worker.stream);
  for (const auto& [call, router] : routers_) streams.push_back(router.stream);
  Forget();
  core_ = std::make_unique<OrchestratorCore>(ConfigOf(1));
  for (const auto& stream : streams) {
    stream->Close(Duplex::kServer, services::StandbyError(""));
  }
}

bool OrchestratorProcess::Serves() const {
  return alive() && !stands_by_ && (candidate_ == nullptr || candidate_->Leads());
}

bool OrchestratorProcess::MayHandle() {
  if (candidate_ == nullptr) return true;
  if (!Serves()) return false;
  for (const OrchestratorProcess* other : record_->orchestrators) {
    verdict_->Require(other == this || !other->HoldsLease(), "two orchestrators lead");
  }
  return true;
}

void OrchestratorProcess::Resign() {
  if (!alive()) return;
  After(kResignUnits * network_->scenario().time_scale * kMillisecondUs, [this] { Crash(); });
  candidate_->Resign([this] { Crash(); });
}

bool OrchestratorProcess::Turns(const std::shared_ptr<Duplex>& stream) {
  if (Serves()) return false;
  candidate_->Heard();
  stream->Close(Duplex::kServer, services::StandbyError(candidate_->leader()));
  return true;
}

void OrchestratorProcess::OnClockJump() {
  CoreProcess::OnClockJump();
  if (candidate_ != nullptr) candidate_->ClockJumped();
}

orchestrator::FormationConfig OrchestratorProcess::FormationsOf(const Scenario& scenario) const {
  orchestrator::FormationConfig config;
  if (!scenario.formations.has_value()) return config;
  const FormationPlan& plan = *scenario.formations;
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  config.automatic = plan.automatic;
  config.policy.bind_sequences = plan.bind_sequences;
  config.policy.release_sequences = plan.release_sequences;
  config.policy.min_dwell_us = plan.dwell_ms * unit_us;
  config.limits = FormationTimesOf(scenario).orders;
  config.policy.share_lines = 1;
  config.shared = {.threshold = 2,
                   .persists_us = plan.dwell_ms * unit_us / 4,
                   .min_dwell_us = plan.dwell_ms * unit_us / 2};
  config.profiles[""] = {.gains = {{2, 1.5}, {4, 2.2}, {8, 3.1}}};
  return config;
}

void OrchestratorProcess::OnCrash() {
  candidate_.reset();
  Forget();
}

void OrchestratorProcess::Forget() {
  open_orders_.clear();
  routers_.clear();
  router_streams_.clear();
  workers_.clear();
  calls_.clear();
  streams_.clear();
}

bool OrchestratorProcess::Quiet() const { return core()->Totals().requests == 0; }

void OrchestratorProcess::ConnectRouter(std::shared_ptr<Duplex> stream, RouterPort port,
                                        const RouterHello& hello) {
  if (Turns(stream)) return;
  const CallId call = NextCall();
  routers_[call] = {.stream = stream, .port = std::move(port)};
  calls_[stream.get()] = call;
  stream->Accepted(this, [this, call, key = stream.get()](const absl::Status&) {
    const auto ended = routers_.extract(call);
    if (ended.empty()) return;  // closed by this side
    calls_.erase(key);
    if (ended.mapped().router != 0) Dispatch(RouterDisconnected{call});
  });
  Dispatch(RouterConnected{call, hello});
}

void OrchestratorProcess::Connect(std::shared_ptr<Duplex> stream, WorkerPort port,
                                  const RegisterRequest& request, const EndedSet& told) {
  if (Turns(stream)) return;
  const Incarnation worker = request.identity.incarnation;
  HearEnds(worker, request.ended);
  for (const auto& end : told) {
    verdict_->Require(record_->ends_heard[worker].contains(end), "an end was lost over a resync");
  }
  const CallId call = NextCall();
  workers_[call] = {.stream = stream, .port = std::move(port)};
  workers_[call].decode = request.identity.role == Role::kDecode;
  saw_drain_ = saw_drain_ || request.load.draining;
  for (const HeldRequest& held : request.held) workers_[call].held.emplace(held.id, held.epoch);
  calls_[stream.get()] = call;
  stream->Accepted(this, [this, call, key = stream.get()](const absl::Status&) {
    const auto ended = workers_.extract(call);
    if (ended.empty()) return;  // closed by this side
    calls_.erase(key);
    if (ended.mapped().instance != InstanceId{}) Dispatch(WorkerDisconnected{call});
  });
  Dispatch(RegisterCalled{call, request});
}

void OrchestratorProcess::Take(const std::shared_ptr<Duplex>& stream, OrchestratorEvent message) {
  const auto it = calls_.find(stream.get());
  if (it == calls_.end() || !MayHandle()) return;  // closed by this side, or about to be
  std::visit(
      [call = it->second]<class T>(T& event) {
        if constexpr (requires { event.call; }) event.call = call;
      },
      message);
  const auto router = routers_.find(it->second);
  if (router != routers_.end()) {
    CheckSender(router->second, message);
  } else {
    Connected& worker = workers_.at(it->second);
    if (worker.left) return;
    CheckSender(worker, &message);
    const auto* report = std::get_if<ReportCalled>(&message);
    if (report != nullptr) TakeReport(report->request, &worker);
  }
  Dispatch(message);
}

void OrchestratorProcess::CheckSender(const Connected& worker, OrchestratorEvent* message) {
  verdict_->Require(worker.instance != InstanceId{}, "a worker sent a message before the welcome");
  std::visit(
      [&]<class T>(T& event) {
        if constexpr (requires { event.request.instance; }) {
          verdict_->Require(event.request.instance == worker.instance,
                            "a worker speaks for another instance");
        } else if constexpr (requires { event.instance; }) {
          event.instance = worker.instance;  // the stream's
        }
      },
      *message);
}

void OrchestratorProcess::CheckSender(const ConnectedRouter& router,
                                      const OrchestratorEvent& message) {
  verdict_->Require(router.router != 0, "a router sent a message before the welcome");
  std::optional<RequestId> id;
  if (const auto* submit = std::get_if<SubmitCalled>(&message)) id = submit->spec->id;
  if (const auto* ended = std::get_if<RouterEnded>(&message)) id = ended->end.id;
  verdict_->Require(!id.has_value() || id->router == router.router,
                    "a router speaks for another router");
}

void OrchestratorProcess::TakeReport(const ReportRequest& report, Connected* worker) {
  const WorkerLoad& load = report.load;
  verdict_->Require(load.free_blocks + load.held_blocks + load.cached_blocks == load.total_blocks,
                    "a report's blocks do not add up");
  saw_drain_ = saw_drain_ || load.draining;
  verdict_->Require(load.invariants_ok, "a worker reports a violated invariant");
  HearEnds(report.incarnation, report.ended);
  TakeHeld(report, worker);
  CheckDepartures(*worker);
  CheckAbandoned(*worker);
}

// As PeerStreams::Name.
void OrchestratorProcess::Renumber(CallId call, const Generation& generation, Duplex* stream) {
  stream->Renumber(FirstNumberOf(generation.number) + call.value);
}

void OrchestratorProcess::HearEnds(Incarnation worker, const std::vector<EndedRequest>& ended) {
  for (const EndedRequest& one : ended) {
    record_->ends_heard[worker].emplace(one.id, one.epoch);
    if (one.engine_failed) record_->engines_failed.insert(worker);
  }
}

// A report tells what has changed.
void OrchestratorProcess::TakeHeld(const ReportRequest& report, Connected* worker) const {
  if (report.full) worker->held.clear();
  for (const EndedRequest& ended : report.ended) worker->held.erase({ended.id, ended.epoch});
  for (const HeldRequest& gone : report.gone) worker->held.erase({gone.id, gone.epoch});
  for (const HeldRequest& held : report.held) worker->held.emplace(held.id, held.epoch);
}

// Without faults a client that went away has left every worker within 100 ms (and a report's
// delay), after the step that it may be in.
void OrchestratorProcess::CheckDepartures(const Connected& worker) const {
  if (!network_->scenario().faultless) return;
  for (const auto& [id, epoch] : worker.held) {
    const auto gone = departures_->find(id);
    if (gone == departures_->end()) continue;
    const TimeUs most_us = 100 * kMillisecondUs + 2 * network_->scenario().step_us;
    verdict_->Require(network_->time().now() - gone->second < most_us,
                      "a client went away and its blocks did not");
  }
}

// Where nothing else breaks.
void OrchestratorProcess::CheckAbandoned(const Connected& worker) const {
  const Scenario& scenario = network_->scenario();
  if (!scenario.no_excuse || !worker.decode || abandoned_->empty()) return;
  for (const auto& [id, epoch] : worker.held) {
    const auto left = abandoned_->find(id.First());
    if (left == abandoned_->end()) continue;
    verdict_->Require(network_->time().now() < left->second,
                      absl::StrCat("a router died, and its request ", id.serial, " keeps blocks"));
  }
}

void OrchestratorProcess::Drain(const DrainRequest& request) {
  saw_drain_ = true;
  Dispatch(DrainCalled{NextCall(), request});
}

void OrchestratorProcess::Order(const orchestrator::FormationOrder& order) {
  const CallId call = NextCall();
  open_orders_.insert(call);
  Dispatch(FormationCalled{call, order});
}

void OrchestratorProcess::Execute(AnswerFormation& effect) {
  verdict_->Require(open_orders_.erase(effect.call) == 1,
                    "an order about a formation was answered twice");
}

void OrchestratorProcess::Execute(FormationSwitched& effect) {
  const orchestrator::SwitchEnded& ended = effect.ended;
  network_->trace().Note(network_->time().now(), endpoint(), orchestrator::NameOf(ended.outcome),
                         ended.epoch);
  if (ended.outcome != orchestrator::SwitchOutcome::kDone &&
      ended.outcome != orchestrator::SwitchOutcome::kForced) {
    ++record_->switches_failed;
  } else {
    ++(ended.to > 1 ? record_->binds : record_->releases);
    if (ended.shared) ++(ended.to > 1 ? record_->shares : record_->unshares);
  }
}

void OrchestratorProcess::Execute(SharedModeChanged& effect) {
  const bool done = effect.changed.outcome == orchestrator::SwitchOutcome::kDone;
  ++(done ? record_->modes_changed : record_->modes_kept);
}

bool OrchestratorProcess::AllWorkAlone() const {
  for (const GroupStatus& group : core()->Snapshot(LocalNow()).groups) {
    for (const FormationStatus& formation : group.formations) {
      if (formation.epoch != 0 || formation.stage != "stands") return false;
    }
  }
  return true;
}

void OrchestratorProcess::Execute(AnswerDrain& effect) {
  const absl::Status& status = effect.reply.status;
  record_->drains_ordered += status.ok() ? 1 : 0;
  // It may be that no other serves, or that this process does not know the instance yet.
  verdict_->Require(status.ok() || absl::IsFailedPrecondition(status) || absl::IsNotFound(status),
                    "an order to drain failed");
}

void OrchestratorProcess::SendToRouter(CallId call, RouterMessage message) {
  const auto it = routers_.find(call);
  if (it == routers_.end()) return;  // it breaks, and the core hears of it next
  it->second.stream->Send(
      Duplex::kServer, [port = it->second.port, message = std::move(message)] { port(message); });
}

void OrchestratorProcess::Execute(SendPlanUpdate& effect) {
  const auto it = router_streams_.find(effect.id.router);
  if (it == router_streams_.end()) return;
  if (const auto* failed = std::get_if<Failed>(&effect.update)) CheckRefusal(failed->status);
  SendToRouter(it->second, SendPlanUpdate{effect.id, network_->Encoded(effect.update)});
  DieAfter(effect.update);
}

// A request is the client's fault only if it is longer than every group that this process could
// ever have bound. An instance that drains counts for none, and then this cannot tell which.
void OrchestratorProcess::CheckRefusal(const absl::Status& status) {
  const std::optional<LongLimits> limits = LongLimitsOf(status);
  const bool too_long =
      limits.has_value() && limits->more.empty() && absl::IsInvalidArgument(status);
  if (!too_long || saw_drain_) return;
  const auto widest = static_cast<int>(std::bit_floor(static_cast<uint64_t>(most_decode_)));
  verdict_->Require(
      limits->tokens > TokensOfGroup(network_->scenario(), std::max(widest, 1)),
      absl::StrCat("a request that a group of ", widest, " holds is refused: ", status.ToString()));
}

// When the router has the update.
void OrchestratorProcess::DieAfter(const PlanUpdate& update) {
  const Scenario& scenario = network_->scenario();
  const auto* planned = std::get_if<Planned>(&update);
  const bool told = planned != nullptr && !planned->failed_engines.empty();
  if (!scenario.dies_after_engine_failure || !told) return;
  if (record_->deaths_after_engine_failure > 0) return;
  ++record_->deaths_after_engine_failure;
  VirtualTime& time = network_->time();
  const TimeUs dies_us = time.now() + scenario.delay_max_us + scenario.spike_us;
  time.At(dies_us, [this] { Crash(); });
  time.At(dies_us + 10 * kMillisecondUs, [this] {
    if (!alive()) Start();
  });
}

void OrchestratorProcess::Execute(WelcomeRouter& effect) {
  if (!effect.welcome.status.ok()) {
    CloseRouter refused{effect.call, effect.welcome.status};
    return Execute(refused);
  }
  const auto it = routers_.find(effect.call);
  if (it == routers_.end()) return;  // it has ended
  it->second.router = effect.router;
  Renumber(effect.call, effect.welcome.generation, it->second.stream.get());
  router_streams_[effect.router] = effect.call;
  SendToRouter(effect.call, network_->Encoded(effect.welcome));
}

void OrchestratorProcess::Execute(AnswerRouterReport& effect) {
  effect.cell = network_->Encoded(effect.cell);
  SendToRouter(effect.call, effect);
}

void OrchestratorProcess::Execute(CloseRouter& effect) {
  const auto it = routers_.find(effect.call);
  if (it == routers_.end()) return;
  const std::shared_ptr<Duplex> stream = it->second.stream;
  calls_.erase(stream.get());
  routers_.erase(it);
  stream->Close(Duplex::kServer, effect.status);
}

void OrchestratorProcess::Execute(StoreGeneration& effect) {
  if (candidate_ != nullptr) return candidate_->Raise(effect.generation);
  stored_generation_ = effect.generation;
}

void OrchestratorProcess::SendTo(CallId call, WorkerMessage message) {
  const auto it = workers_.find(call);
  if (it == workers_.end()) return;  // it breaks, and the core hears of it next
  it->second.stream->Send(
      Duplex::kServer, [port = it->second.port, message = std::move(message)] { port(message); });
}

void OrchestratorProcess::Execute(AnswerRegister& effect) {
  if (!effect.reply.status.ok()) {
    CloseWorker refused{effect.call, effect.reply.status};
    return Execute(refused);
  }
  streams_[effect.reply.instance] = effect.call;
  const auto it = workers_.find(effect.call);
  if (it == workers_.end()) return;  // it has ended
  it->second.instance = effect.reply.instance;
  NoteDecode();
  Renumber(effect.call, effect.reply.generation, it->second.stream.get());
  SendTo(effect.call, network_->Encoded(effect.reply));
}
void OrchestratorProcess::NoteDecode() {
  std::set<InstanceId> decode;
  for (const auto& [call, worker] : workers_) {
    if (worker.decode && worker.instance != InstanceId{}) decode.insert(worker.instance);
  }
  most_decode_ = std::max(most_decode_, std::ssize(decode));
}
void OrchestratorProcess::Execute(AnswerPlaceDecode& effect) {
  SendTo(effect.call, network_->Encoded(effect));
}
void OrchestratorProcess::Execute(AnswerReport& effect) {
  verdict_->Require(!effect.reply.want_full, "a report's digest does not fit what was told");
  if (effect.reply.status.ok()) {
    return SendTo(effect.call, AnswerReport{effect.call, network_->Encoded(effect.reply)});
  }
  // As PeerStreams::Drop.
  CloseWorker refused{effect.call, effect.reply.status};
  Execute(refused);
  DispatchAfter(0, WorkerDisconnected{effect.call});
}
void OrchestratorProcess::Execute(AnswerUnregister& effect) {
  SendTo(effect.call, effect);
  const auto it = workers_.find(effect.call);
  if (it == workers_.end()) return;
  it->second.left = true;
  const InstanceId left = std::exchange(it->second.instance, InstanceId{});
  const auto named = streams_.find(left);
  if (named != streams_.end() && named->second == effect.call) streams_.erase(named);
}

// A host answers for a process that has ended, unless the network between them is cut. Of the tries
// after a broken stream the one that counts comes after the end of the process.
void OrchestratorProcess::Execute(DialWorker& effect) {
  After(kDialUs, [this, dialled = effect] {
    const bool cut = network_->IsCut(endpoint(), dialled.endpoint) ||
                     network_->IsCut(dialled.endpoint, endpoint());
    if (cut) return;
    const bool accepted = network_->Find(dialled.endpoint) != nullptr;
    Dispatch(WorkerDialled{dialled.instance, dialled.incarnation, accepted});
  });
}

void OrchestratorProcess::Execute(CloseWorker& effect) {
  const auto it = workers_.find(effect.call);
  if (it == workers_.end()) return;
  const std::shared_ptr<Duplex> stream = it->second.stream;
  calls_.erase(stream.get());
  workers_.erase(it);
  stream->Close(Duplex::kServer, effect.status);
}

void OrchestratorProcess::Execute(CallAssign& effect) {
  const bool sequence_parallel =
      !effect.request.members.empty();  // then each member has the same epoch
  verdict_->Require(effect.request.epoch > record_->last_epoch ||
                        (sequence_parallel && effect.request.epoch == record_->last_epoch),
                    "an epoch did not grow");
  record_->last_epoch = effect.request.epoch;
  if (effect.request.members.size() > 1) record_->sp_plans.insert(effect.request.epoch);
  SendOrder<Assigned>(effect);
}
void OrchestratorProcess::Execute(CallStart& effect) { SendOrder<CallStart>(effect); }
void OrchestratorProcess::Execute(CallAnnounce& effect) { SendOrder<Announced>(effect); }
void OrchestratorProcess::Execute(CallWithdraw& effect) { SendOrder<CallWithdraw>(effect); }
void OrchestratorProcess::Execute(CallCancel& effect) { SendOrder<CallCancel>(effect); }
void OrchestratorProcess::Execute(CallDrainOrder& effect) { SendOrder<CallDrainOrder>(effect); }
void OrchestratorProcess::Execute(scheduler::CallPeer& effect) {
  SendOrder<scheduler::CallPeer>(effect);
}
void OrchestratorProcess::Execute(scheduler::CallGroup& effect) {
  SendOrder<scheduler::CallGroup>(effect);
}
void OrchestratorProcess::Execute(scheduler::CallPrepareFormation& effect) {
  SendOrder<scheduler::CallPrepareFormation>(effect);
}
void OrchestratorProcess::Execute(scheduler::CallCommitFormation& effect) {
  SendOrder<scheduler::CallCommitFormation>(effect);
}
void OrchestratorProcess::Execute(scheduler::CallEndFormation& effect) {
  SendOrder<scheduler::CallEndFormation>(effect);
}
void OrchestratorProcess::Execute(scheduler::CallMode& effect) {
  SendOrder<scheduler::CallMode>(effect);
}

}  // namespace skein::sim
