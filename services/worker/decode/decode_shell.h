// The shell of DecodeCore: loop, engine thread, transport progress, staged parts, token streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/histogram.h"
#include "proto/decode_worker.grpc.pb.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/group/sharing_engine.h"
#include "scheduler/worker/token_streams.h"
#include "services/codec/codec.h"
#include "services/permits/permit_gate.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/calls.h"
#include "services/worker/group/group_feed.h"
#include "services/worker/group/node_groups.h"
#include "services/worker/group/shared_weights.h"
#include "services/worker/spans/decode_spans.h"
#include "services/worker/worker_shell.h"

namespace skein::services {

class DecodeShell : public WorkerShell<DecodeShell, scheduler::DecodeCore, scheduler::DecodeEvent,
                                       scheduler::DecodeSnapshot> {
 public:
  // StreamTokens calls at a time: routers, and some that were restarted.
  static constexpr size_t kTokenStreamsMax = 1024;
  using TokenStream = ServerStream<v1::TokenStreamRequest, v1::TokenBatch>;

  // `engine` outlives the shell.
  DecodeShell(WorkerEngine* engine, const std::string& orchestrator, size_t inbox);
  ~DecodeShell();

  // Until then every message is refused: the servers may listen first, so that the config can name
  // their ports. Called on the loop: `drained`, once, when the core has drained and the routers
  // have taken all tokens of what ended, or the engine failed config.engine.last_words_us ago;
  // `engine_failed` (may be empty) when the engine has failed: Stop then waits for a step that may
  // never end.
  void Start(const scheduler::DecodeConfig& config, std::function<void()> drained,
             std::function<void(const scheduler::EngineFailed&)> engine_failed = nullptr);

  // Seconds that requests waited for their first decode step are observed in it (DecodeBegan).
  // Before Start; it outlives the shell.
  void ObserveDecodeQueue(prometheus::Histogram* seconds) { decode_queue_s_ = seconds; }

  // From gRPC threads. False: the inbox is full.
  [[nodiscard]] bool OpenTransfer(scheduler::OpenTransferRequest request,
                                  Calls<v1::OpenTransferResponse>::Call call);
  [[nodiscard]] bool Renew(scheduler::RenewRequest request, Calls<v1::RenewResponse>::Call call);
  [[nodiscard]] bool AcquireStagingBuffer(const scheduler::AcquireStagingBufferRequest& request,
                                          Calls<v1::AcquireStagingBufferResponse>::Call call);
  [[nodiscard]] bool TakePart(scheduler::TakePartRequest request,
                              Calls<v1::TakePartResponse>::Call call);
  [[nodiscard]] bool ReleaseStagingBuffer(const scheduler::ReleaseStagingBufferRequest& request,
                                          Calls<v1::ReleaseStagingBufferResponse>::Call call);
  [[nodiscard]] bool Commit(scheduler::CommitRequest request, Calls<v1::CommitResponse>::Call call);
  // A router's StreamTokens call, for gRPC. With a full inbox or too many of them it ends at once.
  TokenStream* OpenTokenStream(grpc::CallbackServerContext* context);
  // Finishes `call` when the core has heard of it.
  [[nodiscard]] bool Abort(scheduler::AbortRequest request, grpc::ServerUnaryReactor* call);
  // What a caller shows of its right to a call, checked before the calls above. Any thread.
  PermitGate* permits() { return &permits_; }
  uint64_t NextCall() { return next_call_.fetch_add(1); }
  // Called on the loop with each gap that a stream saw at a switch. Before Start.
  void ObserveGaps(std::function<void(const scheduler::StreamGap&)> seen) {
    gap_seen_ = std::move(seen);
  }
  // Any thread.
  engine::FabricCounts CommMade() const {
    return groups_.has_value() ? groups_->made() : engine::FabricCounts();
  }
  std::vector<engine::CommTotals> GroupWays() const {
    return groups_.has_value() ? groups_->Ways() : std::vector<engine::CommTotals>();
  }
  // Zeros: the engine cannot share its weights.
  engine::SharingTotals Shared() const {
    return sharing_.has_value() ? sharing_->Totals() : engine::SharingTotals();
  }

 private:
  friend CoreShell;
  friend WorkerShell;

  void MakeSpans(Tracer* tracer) { spans_.emplace(tracer); }
  void Saw(const scheduler::DecodeEvent& event, const std::vector<scheduler::DecodeEffect>& effects,
           int64_t now_us) {
    if (spans_.has_value()) spans_->Saw(event, effects, now_us);
  }

  using WorkerShell::On;

  void Registered(const scheduler::RegisterReply& reply);
  void AddToLoad(ShellLoad* load);
  void Handled() { SendTokens(); }
  int64_t PartsDeadline() const;
  void TickParts();
  absl::Status CheckParts() { return tokens_.CheckInvariants(); }
  void OnTokenRequest(scheduler::TokenStreamId stream, const v1::TokenStreamRequest& message);
  void CloseTokenStream(scheduler::TokenStreamId stream);
  void SendTokens();
  void SendTokens(scheduler::TokenStreamId stream);
  void TellDrained();  // if so
  void StopParts();
  // From the orchestrator, on the loop.
  absl::Status Take(const v1::OrchestratorMessage& message);
  template <class Order>
  absl::Status TakeFormation(const Order& message) {
    auto order = FromProto(message);
    if (!order.ok()) return order.status();
    Handle(*std::move(order));
    return absl::OkStatus();
  }
  void On(const scheduler::TellOpened& effect);
  void On(const scheduler::AnswerOpenTransfer& effect);
  void On(const scheduler::AnswerRenew& effect);
  void On(const scheduler::AnswerAcquireStagingBuffer& effect);
  void On(const scheduler::AnswerTakePart& effect);
  void On(const scheduler::AnswerReleaseStagingBuffer& effect);
  void On(const scheduler::CopyPart& effect);
  void On(const scheduler::AnswerCommit& effect);
  void On(const scheduler::CloseGrant& effect);
  // The transport's description, under a grant that is open from now on.
  std::string MemoryUnder(GrantId grant, const std::string& memory);
  void On(scheduler::EmitToken& effect) { tokens_.Emit(std::move(effect)); }
  void On(scheduler::EndStream& effect) { tokens_.End(std::move(effect)); }
  void On(const scheduler::AskToMove& effect) { tokens_.Ask(effect); }
  void On(const scheduler::OpenFeed& effect);
  void On(const scheduler::CloseFeed& effect);
  void On(scheduler::SendOnFeed& effect);
  void On(const scheduler::TellFormation& effect);
  void On(const scheduler::TellMode& effect);
  void On(const scheduler::CallSharing& effect);
  void On(const scheduler::DecodeBegan& effect);
  // The context of these members of the node's group.
  absl::StatusOr<std::shared_ptr<engine::GroupContext>> ContextOf(uint64_t generation,
                                                                  int32_t first,
                                                                  int32_t size) const;
  // Opens the feed to the members; this instance's rank among them.
  absl::StatusOr<int> OpenGroup(const scheduler::OpenFeed& effect);
  absl::StatusOr<int> OpenSharing(const scheduler::SharingMembers& members);
  void On(const scheduler::StreamGap& effect) {
    if (gap_seen_) gap_seen_(effect);
  }
  void On(const scheduler::SequenceNote&) {}
  void On(const scheduler::Drained&) { core_drained_ = true; }
  void On(const scheduler::EngineFailed& effect);

  PermitGate permits_;
  prometheus::Histogram* decode_queue_s_ = nullptr;
  std::atomic<uint64_t> next_call_{1};
  std::atomic<uint64_t> next_token_stream_{1};
  std::function<void(const scheduler::StreamGap&)> gap_seen_;  // empty: nobody counts them
  // Only on the loop.
  std::optional<DecodeSpans> spans_;  // none: tracing is off
  bool core_drained_ = false;
  bool drained_told_ = false;
  int64_t last_words_us_ = 0;                  // as configured
  int64_t tokens_await_until_us_ = INT64_MAX;  // routers may take tokens so long, then it leaves
  scheduler::TokenStreams tokens_;
  std::optional<NodeGroups> groups_;      // without a fabric, none
  std::optional<SharedWeights> sharing_;  // of an engine that can share its weights
  std::optional<GroupFeed> feed_;  // of the formation that is prepared, bound or shares its weights
  std::map<scheduler::TokenStreamId, std::shared_ptr<TokenStream>> token_calls_;
  Calls<v1::OpenTransferResponse> grants_;
  Calls<v1::RenewResponse> renews_;
  Calls<v1::AcquireStagingBufferResponse> acquisitions_;
  Calls<v1::TakePartResponse> parts_;
  Calls<v1::ReleaseStagingBufferResponse> releases_;
  Calls<v1::CommitResponse> commits_;
  Loop copier_;  // copies staged parts into their blocks, one after the other
};

}  // namespace skein::services
