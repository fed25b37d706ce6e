// An orchestrator and a decode worker in one gRPC server: answers as its script says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/worker/token_streams.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"

namespace skein::services::testing {

// What becomes of one request.
struct Script {
  absl::Status plan;  // not OK: the orchestrator's answer
  std::vector<v1::SampledToken> tokens;
  std::vector<v1::SampledToken> prompt_logprobs;
  bool one_message = false;  // all tokens in one message, with the end
  bool hold = false;         // after the tokens nothing comes
  v1::FinishReason reason = v1::FINISH_REASON_LENGTH;
  int32_t stop_token = 0;
  absl::Status failure;  // with FINISH_REASON_ERROR
};

// What a spec carries as bytes.
std::vector<int32_t> PromptOf(const v1::RequestSpec& spec);
v1::SamplingParams SamplingOf(const v1::RequestSpec& spec);

v1::SampledToken Sampled(int32_t token, float logprob = 0);
// The bytes of `text`, one token each.
Script Says(const std::string& text);

class FakeCluster final : public v1::Orchestrator::CallbackService,
                          public v1::DecodeWorker::CallbackService {
 public:
  using ScriptFn = std::function<Script(const v1::RequestSpec&)>;

  // `hold_us`: how long the decode worker keeps the requests of a stream that broke; it has no
  // clock, so above 0 it is for ever.
  // `more`: services of the same server; they outlive it.
  FakeCluster(std::string model, ScriptFn script, scheduler::TimeUs hold_us = 0,
              std::vector<grpc::Service*> more = {});
  ~FakeCluster();

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(rpc_.port); }
  std::vector<v1::RequestSpec> specs();           // submitted so far
  std::string traceparent();                      // of the last submission
  bool AwaitKeptTrace(const std::string& trace);  // named in a report, as 16 bytes
  // What ListModels says from now on.
  void SetInstances(uint32_t prefill, uint32_t decode);
  // ListModels fails with this from now on, if it is not OK; the lease that it says otherwise.
  // UNAVAILABLE without a message: as if nobody had answered.
  void SetListModels(absl::Status failure, int64_t instance_lease_us);
  int list_models_calls();
  // Waits until the router has said of that many requests that were planned how they ended, and
  // ended so many requests at the decode worker: by detaching, or with their token stream.
  bool AwaitEnded(int ended, int detached);
  // Requests that are attached and whose end was not sent yet.
  int attached();
  // Token streams that were opened so far.
  int token_streams();
  bool AwaitTokenStreams(int opened);
  std::string token_traceparent();  // of the last attach
  // Ends all token streams, as a worker does that stops.
  void BreakTokenStreams();

  grpc::ServerBidiReactor<v1::RouterMessages, v1::OrchestratorRouterMessages>* ConnectRouter(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* StreamTokens(
      grpc::CallbackServerContext* context) override;

 private:
  using TokenStream = ServerStream<v1::TokenStreamRequest, v1::TokenBatch>;
  struct Router {
    std::shared_ptr<ServerStream<v1::RouterMessages, v1::OrchestratorRouterMessages>> stream;
    MessageCounters counters;
  };

  // These with mutex_ held.
  void Take(uint64_t router, const v1::RouterMessage& message, const Script& script);
  void Plan(uint64_t router, const v1::SubmitRequest& request, const Script& script);
  void Send(uint64_t router, v1::OrchestratorRouterMessage message);
  void OnTokenRequest(scheduler::TokenStreamId stream, const v1::TokenStreamRequest& message);
  void CloseTokenStream(scheduler::TokenStreamId stream);
  void Execute(const scheduler::DecodeEvent& event);
  void Play(const Script& script, const scheduler::AttachCalled& attached);
  void SendTokens();

  const std::string model_;
  const ScriptFn script_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::RequestSpec> specs_;
  std::map<uint64_t, Script> scripts_;  // by serial
  std::map<uint64_t, Router> routers_;  // by their streams' sessions
  uint64_t sessions_ = 0;
  scheduler::TokenStreams tokens_;
  std::map<scheduler::TokenStreamId, std::shared_ptr<TokenStream>> token_calls_;
  uint64_t token_streams_ = 0;
  std::set<scheduler::CallId> attached_;
  std::string traceparent_, token_traceparent_;
  std::set<std::string> kept_traces_;
  uint32_t prefill_ = 1, decode_ = 1;
  absl::Status list_failure_;
  int64_t instance_lease_us_ = 3'000'000;
  int list_calls_ = 0;
  int ended_ = 0, detached_ = 0;
  RpcServer rpc_;  // last: its threads use the above
};

}  // namespace skein::services::testing
