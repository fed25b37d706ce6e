// The shell of RouterCore: turns what listeners and gRPC streams bring into events, and effects
// into streams and calls to listeners. A listener may call the shell from within its own methods:
// what comes of it waits until the effects before it are executed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/router/router_core.h"
#include "scheduler/router/router_count.h"
#include "scheduler/router/token_stream_client.h"
#include "services/router/link/router_link.h"
#include "services/router/spans/request_spans.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/rpc.h"
#include "services/shell/core_shell.h"

namespace skein::services {

// What becomes of one request. Called on the loop: OnAccepted when the cluster has taken it up,
// tokens in order, then one OnEnd; or one OnReject alone.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  virtual void OnAccepted(scheduler::RequestId id) = 0;
  virtual void OnToken(const scheduler::DeliverToken& token) = 0;
  virtual void OnEnd(const scheduler::End& end) = 0;
  virtual void OnReject(const scheduler::Reject& reject) = 0;
  // The router stops: nothing more will come.
  virtual void OnStop() = 0;
};

struct RouterShellOptions {
  scheduler::RouterConfig core;  // its `cells` is set by the shell
  // Of each cell, as CellOrchestrators takes them; at least one cell. In the same order at all
  // routers, so that they agree where a key's requests go.
  std::vector<std::string> orchestrators;
  uint64_t incarnation = 1;  // random, not 0
  size_t inbox = kInboxMax;
};

class RouterShell : public CoreShell<RouterShell, scheduler::RouterCore, scheduler::RouterEvent,
                                     scheduler::RouterSnapshot> {
 public:
  explicit RouterShell(const RouterShellOptions& options);
  ~RouterShell();  // Stop

  // Called on the loop with the number of routers that serve the cluster, this one included, when
  // it has changed; it begins with 1. Before Start.
  void WatchRouters(std::function<void(int64_t)> watch) { watch_routers_ = std::move(watch); }
  void Start();
  // From here on the router is connected to the orchestrators. Any thread but the loop, once, after
  // Start; requests may come before.
  void Join(RouterLink::Self self);
  // Says goodbye to the orchestrators, and waits until that was heard, for at most a second. Not
  // from the loop; after Join.
  void Leave();
  // What Self::draining returns has changed. Any thread.
  void ReportSoon();
  // Tells the listeners of all requests that nothing more will come. Not from the loop.
  void TellStop();
  // Cancels every stream, waits for gRPC to let go of them, and joins the loop.
  void Stop();

  Loop& loop() { return loop_; }
  Channels& channels() { return channels_; }
  // As DrainOrders has them, for each orchestrator: one that says no is enough.
  absl::Status MayDrain();
  void OrderDrain(bool drain);
  // The first of `count` consecutive ids. Any thread.
  scheduler::RequestId NextIds(size_t count) {
    return {incarnation_, next_serial_.fetch_add(count)};
  }

  // ---- on the loop ----
  // The spec is serialised here, once for all submissions, and not needed afterwards.
  // `shape`: in which its prompt is computed, whatever the orchestrator's policy.
  // `affinity`: as Arrived has it.
  // `spans`: of the HTTP request, if it is traced; the cluster's spans then stand under those of
  // the attempts, and `traceparent` is not used.
  void Submit(const scheduler::RequestSpec& spec, std::string traceparent,
              std::shared_ptr<RequestListener> listener, scheduler::PrefillShape shape = {},
              uint64_t affinity = 0, std::shared_ptr<RequestSpans> spans = nullptr);
  // The client has gone: the listener is forgotten at once. Unknown ids are fine.
  void Cancel(scheduler::RequestId id);
  // A stop string ends the request; the listener still gets OnEnd. Safe inside OnToken.
  void StopMatched(scheduler::RequestId id);
  // Stops, or goes on, granting credit for the request's tokens. Those for which it was granted
  // before may still come.
  void SetPaused(scheduler::RequestId id, bool paused);
  // The next reports to all orchestrators name this trace as one that is exported in any case.
  void KeepTrace(const TraceId& trace);

  // The counts as of the last event. Any thread; never waits for the loop.
  scheduler::RouterSnapshot Snapshot() const;

 private:
  friend CoreShell;

  using TokenStream = ClientStream<v1::TokenStreamRequest, v1::TokenBatch>;
  struct Request {
    std::shared_ptr<RequestListener> listener;  // null: nobody to tell
    std::string traceparent;
    bool paused = false;
    scheduler::RequestId attempt;         // whose token stream was opened last
    std::shared_ptr<RequestSpans> spans;  // null: it is not traced
  };

  void TakeFromLink(scheduler::RouterEvent event);
  void CountRouters(const scheduler::RouterEvent& event);
  void Decided();  // publishes the snapshot, before a client sees what came of the event
  void Handled() { SendTokenRequests(); }
  int64_t PartsDeadline() const { return tokens_.NextDeadline(); }
  void TickParts();
  absl::Status CheckParts() const { return tokens_.CheckInvariants(); }
  void On(const scheduler::Reject& effect);
  void On(const scheduler::SendSubmit& effect);
  void On(const scheduler::SendRouterEnd& effect);
  void On(const scheduler::OpenTokens& effect);
  void On(const scheduler::CloseTokens& effect);
  void On(const scheduler::DeliverToken& effect);
  void On(const scheduler::End& effect);
  void On(const scheduler::RequestAccepted& effect);
  void On(scheduler::OpenLink& effect);
  void On(const scheduler::CloseLink& effect) { links_[effect.cell]->CloseSilent(); }
  void On(scheduler::SendRouterReport& effect);
  void On(const scheduler::SendRouterGoodbye& effect);
  void On(const scheduler::RouterHasLeft& effect) { left_.set_value(); }
  void OpenTokenStream(const scheduler::TokenStreamClient::Open& open);
  void OnTokenBatch(scheduler::TokenStreamId stream, const v1::TokenBatch& message);
  void OnTokens(scheduler::SequenceTokens tokens, int64_t repeated);
  void OnTokenStreamEnded(scheduler::TokenStreamId stream, const absl::Status& status);
  void SendTokenRequests();
  void SendTokenRequests(scheduler::TokenStreamId stream);
  std::shared_ptr<RequestListener> Forget(scheduler::RequestId id);  // its listener
  RequestSpans* SpansOf(scheduler::RequestId id);  // of any attempt; null: it is not traced
  void CloseAll();

  const uint64_t incarnation_;
  const scheduler::RouterConfig config_;
  std::atomic<uint64_t> next_serial_{1};
  Channels channels_;
  mutable std::mutex published_mu_;
  scheduler::RouterSnapshot published_;  // a copy of the core's; guarded by published_mu_
  // Below: only on the loop.
  scheduler::TokenStreamClient tokens_;
  std::map<scheduler::TokenStreamId, std::shared_ptr<TokenStream>> token_calls_;
  int64_t message_us_ = 0;  // when the latest message with tokens came
  scheduler::RouterCount router_count_;
  std::function<void(int64_t)> watch_routers_ = [](int64_t) {};
  uint64_t published_version_ = 0;
  std::map<scheduler::RequestId, Request> requests_;  // by their clients' ids
  std::promise<void> left_;
  CallTracker calls_;                               // of the links, and token streams
  std::vector<std::unique_ptr<RouterLink>> links_;  // by cell
};

}  // namespace skein::services
