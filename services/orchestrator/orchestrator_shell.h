// The shell of OrchestratorCore: owns the loop, turns RPCs into events and effects into answers and
// calls. It leads its cell from its start on; or, with StandBy, from Lead to StepDown. While it
// stands by, calls and streams are refused with the leader's endpoint, and the core is an empty one
// that handles nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/orchestrator/kept_traces.h"
#include "services/orchestrator/peer_streams.h"
#include "services/orchestrator/request_spans.h"
#include "services/orchestrator/worker_dials.h"
#include "services/permits/permit.h"
#include "services/rpc/calls.h"
#include "services/rpc/rpc.h"
#include "services/shell/core_shell.h"
#include "services/tracing/tracer.h"

namespace skein::services {

class OrchestratorShell
    : public CoreShell<OrchestratorShell, scheduler::OrchestratorCore, scheduler::OrchestratorEvent,
                       scheduler::OrchestratorSnapshot> {
 public:
  using WorkerStreams =
      PeerStreams<v1::WorkerMessages, v1::OrchestratorMessages, scheduler::InstanceId>;
  // By the router's incarnation.
  using RouterStreams = PeerStreams<v1::RouterMessages, v1::OrchestratorRouterMessages, uint64_t>;

  // Open at a time: those that live, and some whose former stream is not over yet. A decode-worker
  // takes as many routers.
  static constexpr size_t kWorkerStreamsMax = 16384;
  static constexpr size_t kRouterStreamsMax = 1024;

  // `store_generation` keeps the number for the next start; called on the loop, must not block.
  OrchestratorShell(
      const scheduler::OrchestratorConfig& config, size_t inbox,
      std::function<void(uint64_t)> store_generation = [](uint64_t) {});
  ~OrchestratorShell();

  // Called on the loop with each switch of a formation that has ended; must not block. Before
  // Start.
  void WatchFormations(std::function<void(const scheduler::FormationSwitched&)> watch) {
    watch_formations_ = std::move(watch);
  }
  // The same with each change of the mode of instances that share their weights.
  void WatchModes(std::function<void(const scheduler::SharedModeChanged&)> watch) {
    watch_modes_ = std::move(watch);
  }
  // Called on the loop with each prompt that prefill instances are to compute; must not block.
  // Before Start.
  void WatchPrompts(std::function<void(const scheduler::PromptTaken&)> watch) {
    watch_prompts_ = std::move(watch);
  }
  // Its spans are recorded there. Before Start; it outlives the shell.
  void Trace(Tracer* tracer) { tracer_ = tracer; }
  // For one of several orchestrators; called on the loop; must not block. Before Start.
  struct Hearing {
    std::function<void()> nobody;    // it leads, and scheduler::HearsNobody
    std::function<void()> somebody;  // it stands by, and a worker or router has come to it
  };
  void WatchHearing(Hearing watch) { hearing_ = std::move(watch); }
  // From Start on it stands by. `leads`: whether this process leads at this moment; asked on the
  // loop before each event, and by Standing. Before Start.
  void StandBy(std::function<bool()> leads);
  void Start();
  // It leads, with a new core of this generation: workers and routers come and say what they have.
  // Not from the loop; when it returns, streams are taken.
  void Lead(uint64_t generation);
  // It stands by: plans, calls and streams end with ABORTED and `why`. Not from the loop; when it
  // returns, nothing more is sent.
  void StepDown(const std::string& why);
  // Another one leads, at this endpoint; empty: none does, or it is not known. Any thread.
  void Follow(const std::string& leader);
  // OK while it leads, else StandbyError. Any thread.
  absl::Status Standing() const;
  uint64_t times_led() const { return times_led_.load(); }     // begun so far
  int64_t led_since_s() const { return led_since_s_.load(); }  // Unix time of the last; 0: none yet
  // Ends every call that waits with UNAVAILABLE and joins the loop.
  void Stop();

  // While it drains, requests that routers submit fail. Any thread.
  void OrderDrain(bool drain) { draining_.store(drain); }
  bool draining() const { return draining_.load(); }

  // From gRPC threads. The stream of a worker or a router begins.
  WorkerStreams::Stream* ConnectWorker(grpc::CallbackServerContext* context) {
    return workers_.Open(context, NextCall());
  }
  RouterStreams::Stream* ConnectRouter(grpc::CallbackServerContext* context) {
    return routers_.Open(context, NextCall());
  }
  // Who orders a drain.
  struct DrainCaller {
    tls::RoleSet roles;
    std::string connection;  // as grpc::ServerContext::peer names it
  };
  // False: the inbox is full, or the shell has stopped. A caller that is only a worker drains the
  // instance alone whose stream came over the same connection.
  [[nodiscard]] bool Drain(scheduler::DrainRequest request, DrainCaller caller,
                           Calls<v1::DrainResponse>::Call call);
  // The same. Answered when the formation has changed, or why it has not.
  [[nodiscard]] bool ChangeFormation(scheduler::orchestrator::FormationOrder order,
                                     Calls<v1::ChangeFormationResponse>::Call call);
  // In force from the next plan on, for one model, or for all ("").
  void ReplaceTables(scheduler::PlanningTables tables, std::string model = "");
  // So many lines of offline jobs of the model wait, from now on. Any thread.
  void QueueOffline(const std::string& model, int64_t lines) {
    Post(scheduler::OfflineQueued{model, lines});
  }

  // Used by Status: a copy at most kCopyAgeUs old that includes every answered registration,
  // departure and drain order. The loop makes one copy in kCopyAgeUs, and one more after each of
  // these, however many callers there are, and checks no invariants for it. A copy costs a walk
  // over the instances.
  static constexpr int64_t kCopyAgeUs = 100'000;
  struct Copy {
    scheduler::OrchestratorSnapshot snapshot;
    absl::Status invariants;  // of the last CheckInvariants; OK before the first
    int64_t taken_us = 0;     // MonotonicUs() then
  };
  using CopyPtr = std::shared_ptr<const Copy>;
  // Null when the shell has stopped. Not from the loop.
  CopyPtr Look();
  // The same without waiting, for gRPC threads: `look` runs at once or on the loop.
  [[nodiscard]] bool LookLater(std::function<void(const Copy&)> look);
  // ListModels' answer, as new as `Copy`. Routers ask for it all the time, also while a thousand
  // workers register: it is made of OrchestratorCore::Totals, without a walk over the instances.
  // `look` as above.
  [[nodiscard]] bool ListModelsLater(std::function<void(const v1::ListModelsResponse&)> look);
  // What probes and /metrics read, on their own threads: a copy of OrchestratorCore::Totals, which
  // the loop makes ahead of the messages that wait for it. Empty as CoreShell::Look. Not from the
  // loop.
  using Counts = CoreShell::Copy;
  std::optional<Counts> Count() { return StartCount().get(); }
  // The same without waiting.
  std::future<std::optional<Counts>> StartCount();
  uint64_t copies_made() const { return copies_made_.load(); }
  uint64_t checks_made() const { return checks_made_.load(); }
  // `answer` runs on the loop.
  using Explanations = std::vector<scheduler::Explanation>;
  [[nodiscard]] bool ExplainLater(std::string request,
                                  std::function<void(const Explanations&)> answer);
  [[nodiscard]] bool ListLater(scheduler::RequestOrder order, size_t limit,
                               std::function<void(const Explanations&)> answer);

 private:
  friend CoreShell;

  // What readers share. Any thread.
  template <typename T>
  class Shared {
   public:
    using Ptr = std::shared_ptr<const T>;
    Ptr Fresh() const;  // null: there is none, or it is too old
    Ptr Set(T copy);
    void Drop();  // what it says is no longer so

   private:
    mutable std::mutex mutex_;
    Ptr copy_;
  };
  struct Models {
    v1::ListModelsResponse answer;
    int64_t taken_us = 0;
  };

  template <class Effects>
  void Saw(const scheduler::OrchestratorEvent& event, const Effects&, int64_t) {
    const auto* left = std::get_if<scheduler::WorkerDisconnected>(&event);
    if (left != nullptr) kept_traces_.Forget(left->call.value);
  }
  absl::Status Admit();  // a further stream
  void MakeSigner();     // for the generation that leads from now on
  // Of this plan and place, for placed.writer; it is in force for as long as a request may wait.
  void Permit(scheduler::RequestId id, scheduler::Epoch epoch, int64_t deadline_us,
              const scheduler::Placed& placed, v1::DecodePlace* out);
  bool MayHandle() { return !leads_ || leads_(); }
  absl::Status CheckParts();  // the copy tells of the last check, which this one is from now on
  // On the loop; the fresh one, if there is one.
  CopyPtr MakeCopy();
  Shared<Models>::Ptr MakeModels();
  void DropCopies();
  void On(const scheduler::SendPlanUpdate& effect);
  void On(const scheduler::AnswerPlaceDecode& effect);
  void On(const scheduler::AnswerRegister& effect);
  void On(const scheduler::AnswerReport& effect);
  void On(const scheduler::AnswerUnregister& effect);
  void On(const scheduler::CloseWorker& effect);
  void On(const scheduler::DialWorker& effect) { dials_.Dial(effect); }
  void On(const scheduler::WelcomeRouter& effect);
  void On(const scheduler::AnswerRouterReport& effect);
  void On(const scheduler::AnswerRouterGoodbye& effect);
  void On(const scheduler::OrderRouterDrain& effect);
  void On(const scheduler::CloseRouter& effect);
  void On(const scheduler::StoreGeneration& effect);
  void On(const scheduler::AnswerDrain& effect);
  void On(const scheduler::AnswerFormation& effect);
  void On(const scheduler::FormationSwitched& effect);
  void On(const scheduler::SharedModeChanged& effect);
  void On(const scheduler::TracedEnded& effect) { RecordRequestSpans(effect, tracer_); }
  void On(const scheduler::PromptTaken& effect) { watch_prompts_(effect); }
  void On(const scheduler::HearsNobody&) { hearing_.nobody(); }
  void On(const scheduler::CallAssign& effect);
  void On(const scheduler::CallStart& effect);
  void On(const scheduler::CallAnnounce& effect);
  void On(const scheduler::CallWithdraw& effect);
  void On(const scheduler::CallCancel& effect);
  void On(const scheduler::CallDrainOrder& effect);
  void On(const scheduler::CallPeer& effect);
  void On(const scheduler::CallGroup& effect);
  void On(const scheduler::CallPrepareFormation& effect);
  void On(const scheduler::CallCommitFormation& effect);
  void On(const scheduler::CallEndFormation& effect);
  void On(const scheduler::CallMode& effect);

  absl::Status MayDrain(const scheduler::DrainRequest& request, const DrainCaller& caller) const;
  absl::Status Take(uint64_t call, scheduler::InstanceId instance,
                    const v1::WorkerMessage& message);
  template <typename Event>
  absl::Status TakeResult(scheduler::InstanceId instance, absl::StatusOr<Event> result);
  absl::Status TakeFromRouter(uint64_t call, uint64_t router, const v1::RouterMessage& message);
  // Traces of slow requests: kept here, and by the workers, who are told with the answers to their
  // reports.
  void KeepTraces(const v1::RouterLoad& load);
  absl::Status TakeSubmit(uint64_t router, const v1::SubmitRequest& submit);
  // To an instance, on its stream; dropped where there is none.
  void SendTo(scheduler::InstanceId instance, v1::OrchestratorMessage message) {
    workers_.SendTo(instance, std::move(message));
  }
  uint64_t NextCall() { return next_call_.fetch_add(1); }

  std::atomic<uint64_t> next_call_{1};
  std::atomic<bool> draining_{false};
  std::function<bool()> leads_;  // empty: always
  mutable std::mutex standing_mutex_;
  bool stands_by_ = false;  // guarded by it
  std::string leader_;      // likewise; while it stands by
  std::atomic<uint64_t> times_led_{0};
  std::atomic<int64_t> led_since_s_{0};
  const std::function<void(uint64_t)> store_generation_;
  std::function<void(const scheduler::FormationSwitched&)> watch_formations_ =
      [](const scheduler::FormationSwitched&) {};
  std::function<void(const scheduler::SharedModeChanged&)> watch_modes_ =
      [](const scheduler::SharedModeChanged&) {};
  std::function<void(const scheduler::PromptTaken&)> watch_prompts_ =
      [](const scheduler::PromptTaken&) {};
  Tracer* tracer_ = nullptr;  // tracing is off
  Hearing hearing_ = {[] {}, [] {}};
  std::atomic<uint64_t> copies_made_{0};
  std::atomic<uint64_t> checks_made_{0};
  Shared<Copy> copy_;
  Shared<Models> models_;
  // Below: only on the loop.
  KeptTraces kept_traces_;
  const scheduler::OrchestratorConfig config_;
  std::map<std::string, scheduler::PlanningTables> tables_;  // replaced since the start, by model
  std::optional<PermitSigner> signer_;
  uint64_t generation_ = 0;  // of the signer's permits
  Calls<v1::DrainResponse> drains_;
  Calls<v1::ChangeFormationResponse> changes_;  // of formations
  WorkerStreams workers_;
  RouterStreams routers_;
  WorkerDials dials_;
};

}  // namespace skein::services
