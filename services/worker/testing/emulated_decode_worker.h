// A whole decode-worker in this process: shell, service and a stub that reaches it over gRPC. On an
// emulated device and with no orchestrator, unless it is given others. For tests and benches.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/decode_worker.grpc.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services::testing {

class EmulatedDecodeWorker {
 public:
  // Of `config` it sets what the engine determines. `inbox_max`: as DecodeShell's.
  EmulatedDecodeWorker(WorkerEngine engine, scheduler::DecodeConfig config, size_t inbox_max,
                       const std::string& orchestrator = "127.0.0.1:1")
      : engine_(std::move(engine)), shell_(&engine_, orchestrator, inbox_max), service_(&shell_) {
    auto server = ServeRpc("127.0.0.1:0", {&service_});
    SKEIN_CHECK_MSG(server.ok(), server.status().ToString().c_str());
    server_ = *std::move(server);
    if (config.membership.identity.endpoint.empty()) {
      config.membership.identity.endpoint = absl::StrCat("127.0.0.1:", server_.port);
    }
    config.membership.identity.role = scheduler::Role::kDecode;
    config.membership.identity.shape = ShapeOf(engine_.engine->Spec());
    config.membership.identity.total_blocks = engine_.engine->Spec().kv.num_blocks;
    config.memory = engine_.description;
    shell_.Start(config, [this] { drained_.set_value(); });
    stub_ = v1::DecodeWorker::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_.port),
                                                          grpc::InsecureChannelCredentials()));
  }
  ~EmulatedDecodeWorker() {
    shell_.Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  DecodeShell& shell() { return shell_; }
  WorkerEngine& engine() { return engine_; }
  v1::DecodeWorker::Stub* stub() { return stub_.get(); }
  // Until the worker may leave. Once.
  void AwaitDrained() { drained_.get_future().wait(); }

  // Brings request `serial` of router 1 to where it samples tokens, under epoch 1. Its prompt is
  // one `token`, so its KV one block.
  void Run(uint64_t serial, int64_t max_tokens, int32_t token = 5) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {1, serial};
    spec->model = "m";
    spec->prompt = {token};
    spec->max_tokens = max_tokens;
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    sampling.set_top_logprobs(-1);
    spec->sampling = sampling.SerializeAsString();
    shell_.Post(scheduler::AnnounceCalled{{spec, {1}, {{1}}}, {}});  // as from the orchestrator
    scheduler::OpenTransferRequest open;
    open.id = spec->id;
    open.epoch = {1};
    open.prefill = {1};
    open.incarnation = {1};
    open.shape = ShapeOf(engine_.engine->Spec());
    Call(&v1::DecodeWorker::Stub::OpenTransfer, ToProto(open));
    scheduler::CommitRequest commit;
    commit.id = spec->id;
    commit.epoch = {1};
    commit.prefill = {1};
    commit.token = 9;
    const engine::KvSpec& kv = engine_.engine->Spec().kv;
    commit.bytes_per_layer.assign(static_cast<size_t>(kv.num_layers), kv.BlockBytes());
    Call(&v1::DecodeWorker::Stub::Commit, ToProto(commit));
  }

 private:
  template <typename Request, typename Response>
  void Call(grpc::Status (v1::DecodeWorker::Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
            const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    SKEIN_CHECK_MSG(status.ok(), status.error_message().c_str());
  }

  std::promise<void> drained_;
  WorkerEngine engine_;
  DecodeShell shell_;
  DecodeService service_;
  RpcServer server_;
  std::unique_ptr<v1::DecodeWorker::Stub> stub_;
};

}  // namespace skein::services::testing
