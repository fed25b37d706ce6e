// A worker's stream to an orchestrator over gRPC, as the worker's end has it, by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "services/codec/codec.h"
#include "services/rpc/message_counters.h"

namespace skein::services::testing {

// What a prefill-worker of a small model says of itself.
inline scheduler::RegisterRequest PrefillWorker(uint64_t incarnation) {
  scheduler::RegisterRequest registration;
  registration.identity = {.role = scheduler::Role::kPrefill,
                           .model = "m",
                           .endpoint = absl::StrCat("w:", incarnation),
                           .incarnation = {incarnation}};
  registration.identity.shape = {
      {.num_layers = 1, .kv_heads = 1, .head_dim = 4, .block_tokens = 4, .dtype = DType::kF32},
      "h"};
  registration.identity.total_blocks = 1;
  return registration;
}

// A worker's stream to the orchestrator, as the worker's end has it.
class WorkerStream {
 public:
  explicit WorkerStream(v1::Orchestrator::Stub* stub) : stream_(stub->ConnectWorker(&context_)) {}

  void Send(v1::WorkerMessage message) {
    counters_.Stamp(&message, 0);
    v1::WorkerMessages batch;
    *batch.add_messages() = std::move(message);
    EXPECT_TRUE(stream_->Write(batch));
  }
  // False: the orchestrator has closed the stream.
  bool Receive(v1::OrchestratorMessage* message) {
    v1::OrchestratorMessages batch;
    if (!stream_->Read(&batch)) return false;
    *message = batch.messages(0);
    EXPECT_TRUE(counters_.Take(*message, 0).ok());
    return true;
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessages, v1::OrchestratorMessages>> stream_;
  MessageCounters counters_;
};

}  // namespace skein::services::testing
